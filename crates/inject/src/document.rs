//! Splits YAML documents as Kubernetes' reader does, and reads and writes them as Kubernetes' tools do.
//!
//! Splitting does not parse the documents, so that a document without an injected pod can be output byte for byte.

use gotemplate::{Budget, Limits, write_yaml};
use serde_json::Value;

use super::workload::{self, Invalid, NoObject};
use super::{pod, yaml};

/// The maximum number of items that raise the size limit of a list when it is written.
const ITEMS: usize = 16;

/// Returns the non-empty documents of `text`, each without its separator line. JSON objects need no separator between
/// them, as for kubectl.
///
/// # Errors
/// A separator is followed by anything but a comment.
pub fn documents(text: &str) -> Result<Vec<&str>, Separator> {
    let mut found = Vec::new();
    let (mut start, mut at) = (0, 0);
    for (number, line) in text.split_inclusive('\n').enumerate() {
        let after = at + line.len();
        if let Some(rest) = line.strip_prefix("---").map(str::trim) {
            if !rest.is_empty() && !rest.starts_with('#') {
                return Err(Separator { line: number + 1, text: rest.chars().take(Separator::SHOWN).collect() });
            }
            split_json(&text[start..at], &mut found);
            start = after;
        }
        at = after;
    }
    split_json(&text[start..], &mut found);
    found.retain(|document| !document.is_empty());
    Ok(found)
}

/// Appends a stream of JSON objects as documents: each object that another `{` follows, with the white space between
/// them, and then the remaining text. Text that does not start with a JSON object is one document.
fn split_json<'t>(text: &'t str, found: &mut Vec<&'t str>) {
    let mut rest = text;
    while rest.trim_start().starts_with('{') {
        let mut objects = serde_json::Deserializer::from_str(rest).into_iter::<serde::de::IgnoredAny>();
        let Some(Ok(_)) = objects.next() else { break };
        let end = objects.byte_offset();
        let blanks = rest[end..].len() - rest[end..].trim_start().len();
        if !rest[end + blanks..].starts_with('{') {
            break;
        }
        found.push(&rest[..end + blanks]);
        rest = &rest[end + blanks..];
    }
    found.push(rest);
}

/// A separator of documents that is followed by text, which Kubernetes' reader refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: the separator \"---\" is followed by {text:?}; only a comment may follow it")]
pub struct Separator {
    line: usize,
    text: String,
}

impl Separator {
    /// The maximum number of characters that the message quotes.
    const SHOWN: usize = 40;
}

/// Whether a document consists of comments and blank lines.
pub fn is_empty(document: &str) -> bool {
    document.lines().all(|line| {
        let line = line.trim_start();
        line.is_empty() || line.starts_with('#')
    })
}

/// Reads a document. A workload is converted to the form in which Go writes its type: zeroes that the type omits are
/// removed.
///
/// # Errors
/// The text is not YAML or not an object, or a field of a workload is not of its type.
pub fn read(text: &str) -> Result<Value, ReadError> {
    let document = yaml::value(text).map_err(ReadError::Yaml)?;
    workload::check(&document).map_err(ReadError::Object)?;
    workload::canonical(document).map_err(ReadError::Type)
}

/// Writes a document as Kubernetes' tools do, followed by a separator as `istioctl kube-inject` writes it.
///
/// # Errors
/// The document exceeds its size limit, or injection set a field to a value that is not of its type.
pub fn write(document: Value) -> Result<String, WriteError> {
    let document = workload::canonical(document).map_err(WriteError::Type)?;
    let items = limit(&document);
    let mut budget = Budget::new(Limits {
        bytes: yaml::LIMIT.saturating_mul(items),
        steps: Limits::default().steps.saturating_mul(u64::try_from(items).unwrap_or(1)),
        ..Limits::default()
    });
    let text = write_yaml(&gotemplate::Value::yaml(&document), &mut budget).map_err(WriteError::Oversized)?;
    Ok(format!("{text}---\n"))
}

/// Returns the factor of a document's size limit: the number of a list's items, up to [`ITEMS`], and otherwise one.
fn limit(document: &Value) -> usize {
    let items = if pod::text(document, "kind") == "List" { pod::list(document, "items").len() } else { 1 };
    items.clamp(1, ITEMS)
}

/// A document that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text cannot be parsed.
    #[error("is not YAML: {0}")]
    Yaml(yaml::Error),
    /// The document is no object whose workloads can be found.
    #[error("{0}")]
    Object(NoObject),
    /// A field of the workload is not of its type; the API server would refuse it.
    #[error("is not valid: {0}")]
    Type(Invalid),
}

/// A document that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The document is larger than [`yaml::LIMIT`], or a list than that limit for each item, up to 16 of them.
    #[error("the injected document cannot be written: {0}")]
    Oversized(gotemplate::Reason),
    /// A template set a field to a value of another type.
    #[error("the injected document is not valid: {0}")]
    Type(Invalid),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_lines_of_their_own() {
        let found = documents("a: 1\n---\nb: |\n  ---\n--- # two\nc: ---\n").unwrap();
        assert_eq!(found, ["a: 1\n", "b: |\n  ---\n", "c: ---\n"]);
        assert_eq!(documents("---\na: 1\r\n---\r\n---"), Ok(vec!["a: 1\r\n"]));
        for (text, behind) in [("--- b: 1\n", "b: 1"), ("----\n", "-"), ("---b\n", "b"), ("--- |\n  text\n", "|")] {
            let error = documents(&format!("a: 1\n{text}")).unwrap_err();
            assert_eq!(error, Separator { line: 2, text: behind.to_owned() });
        }
        assert!(is_empty("# only\n\n  # comments\n") && !is_empty("# one\na: 1"));
    }

    #[test]
    fn objects_in_json_need_no_separator() {
        let found = |text: &'static str| documents(text).unwrap();
        assert_eq!(found("{\"a\": \"}{\"}{\"b\": {}}\n \n{}\n"), ["{\"a\": \"}{\"}", "{\"b\": {}}\n \n", "{}\n"]);
        assert_eq!(found("\n{\"a\": 1}\n{\"b\": 2}\n---\nc: 3\n"), ["\n{\"a\": 1}\n", "{\"b\": 2}\n", "c: 3\n"]);
        assert_eq!(found("c: 3\n---\n{\"a\": 1}{\"b\": 2}"), ["c: 3\n", "{\"a\": 1}", "{\"b\": 2}"]);
        // None of these is a stream of objects: YAML's flow maps, an object with text after it, an object that is not
        // closed.
        for text in ["{a: 1}\n{b: 2}\n", "{\"a\": 1} # {\n", "{\"a\": 1}\nb: 2\n", "{\"a\": {\"b\": 1}\n"] {
            assert_eq!(found(text), [text]);
        }
        assert_eq!(found("{\"a\": 1}{b"), ["{\"a\": 1}", "{b"], "the reader refuses the second one");
    }

    #[test]
    fn a_list_may_be_as_large_as_its_items_together() {
        let item =
            |size: usize| serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "x".repeat(size)}});
        let list = |items: Vec<Value>| serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
        let written = write(list(vec![item(4 << 20), item(4 << 20)])).unwrap();
        assert!(written.len() > 8 << 20);
        for document in [item(7 << 20), list(vec![item(7 << 20)]), list(vec![item(6 << 20); ITEMS + 1])] {
            let error = write(document).unwrap_err().to_string();
            assert!(
                error.starts_with("the injected document cannot be written: processing produces more than"),
                "{error}"
            );
        }
    }

    #[test]
    fn explicit_zeroes_and_empty_strings_stay() {
        for (kind, version, zeroes) in [
            (
                "Deployment",
                "apps/v1",
                "strategy: {rollingUpdate: {maxSurge: 0, maxUnavailable: 0}}\nrevisionHistoryLimit: 0",
            ),
            ("Deployment", "apps/v1", "selector: {matchLabels: {x: ''}}\nreplicas: 0"),
            ("Job", "batch/v1", "ttlSecondsAfterFinished: 0\nbackoffLimit: 0\nsuspend: false"),
            ("StatefulSet", "apps/v1", "ordinals: {start: 0}\nserviceName: ''"),
            ("StatefulSet", "apps/v1", "updateStrategy: {rollingUpdate: {partition: 0}}"),
            ("Pod", "v1", "hostUsers: false\npriority: 0\nnodeSelector: {x: ''}"),
            ("Pod", "v1", "tolerations:\n- {key: a, tolerationSeconds: 0}"),
            (
                "Pod",
                "v1",
                "containers:\n- {name: a, lifecycle: {preStop: {sleep: {seconds: 0}}}, securityContext: {runAsUser: 0}}",
            ),
        ] {
            let text = format!("apiVersion: {version}\nkind: {kind}\n{}", fields("spec", zeroes));
            let written = yaml::value(&write(read(&text).unwrap()).unwrap().replace("---\n", "")).unwrap();
            let missing = missing("", &yaml::value(&text).unwrap(), &written);
            assert!(missing.is_empty(), "{text}lacks {missing:?} in\n{written:#}");
        }
    }

    fn fields(name: &str, lines: &str) -> String {
        lines.lines().fold(format!("{name}:\n"), |text, line| format!("{text}  {line}\n"))
    }

    /// Returns the paths of `wanted` that are absent in `found` or have another value there.
    fn missing(path: &str, wanted: &Value, found: &Value) -> Vec<String> {
        match (wanted, found) {
            (Value::Object(wanted), Value::Object(found)) => {
                let none = Value::from("absent");
                let member = |(key, value)| missing(&format!("{path}/{key}"), value, found.get(key).unwrap_or(&none));
                wanted.iter().flat_map(member).collect()
            }
            (Value::Array(wanted), Value::Array(found)) if wanted.len() == found.len() => {
                wanted.iter().zip(found).flat_map(|(wanted, found)| missing(path, wanted, found)).collect()
            }
            (wanted, found) if wanted == found => Vec::new(),
            _ => vec![path.to_owned()],
        }
    }

    #[test]
    fn quantities_and_scalars_are_canonical_and_unknown_fields_stay() {
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {annotations: {a: true, b: 8080, c: ~}}\nother: {x: 0}\nspec:\n  \
                   containers:\n  - {name: a, resources: {limits: {cpu: 0.5, memory: 1024Mi}}, own: [0, '', {}], tty: false}\n";
        let written = read(&write(read(pod).unwrap()).unwrap().replace("---\n", "")).unwrap();
        assert_eq!(written["metadata"]["annotations"], serde_json::json!({"a": "true", "b": "8080", "c": ""}));
        assert_eq!(written["other"], serde_json::json!({"x": 0}));
        let container = serde_json::json!({"name": "a", "resources": {"limits": {"cpu": "500m", "memory": "1Gi"}}, "own": [0, "", {}]});
        assert_eq!(written["spec"]["containers"][0], container);
    }

    #[test]
    fn integers_of_all_sizes_survive_reading_and_writing() {
        let numbers =
            "[9223372036854775807, 9223372036854775808, 18446744073709551615, -9223372036854775808, 9007199254740993]";
        let item =
            format!("{{apiVersion: example.com/v1, kind: Other, data: {{list: {numbers}, one: 9223372036854775809}}}}");
        let pod = format!("{{apiVersion: v1, kind: Pod, spec: {{containers: [{{name: a, unknown: {numbers}}}]}}}}");
        let list = format!("apiVersion: v1\nkind: List\nitems: [{item}, {pod}]\nunknown: {numbers}\n");
        let written = write(read(&list).unwrap()).unwrap();
        for number in numbers.trim_matches(['[', ']']).split(", ") {
            assert_eq!(written.matches(&format!("- {number}\n")).count(), 3, "{number} in {written}");
        }
        assert!(written.contains("one: 9223372036854775809\n"), "{written}");
        let json = serde_json::to_string(&yaml::value(&list).unwrap()).unwrap();
        assert_eq!(write(read(&json).unwrap()).unwrap(), written);
    }

    #[test]
    fn a_field_that_the_api_server_would_refuse_is_refused_with_its_path() {
        for (kind, spec, error) in [
            (
                "Pod",
                "containers: [{name: a, ports: [{containerPort: http}]}]",
                "spec.containers[0].ports[0].containerPort: expected an integer of 32 bits, got \"http\"",
            ),
            ("Pod", "containers: {}", "spec.containers: expected a list, got a map"),
            ("Pod", "hostUsers: 'no'", "spec.hostUsers: expected true or false, got \"no\""),
            ("Pod", "priority: 3000000000", "spec.priority: expected an integer of 32 bits, got 3000000000"),
            (
                "Pod",
                "overhead: {cpu: 1 core}",
                "spec.overhead.cpu: expected a quantity, such as 500m or 2Gi, got \"1 core\"",
            ),
        ] {
            let text = format!(
                "apiVersion: v1\nkind: {kind}\nmetadata: {{name: web, namespace: shop}}\n{}",
                fields("spec", spec)
            );
            let refused = read(&text).unwrap_err().to_string();
            assert_eq!(refused, format!("is not valid: {kind} \"shop/web\": {error}"));
        }
    }
}
