//! Tests of hostile texts in each place of a pod, with templates that keep them in their place and templates that do not.

use contract::annotation;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::*;
use crate::istio::{BuiltIn, InjectionOutcome, Injector, Mesh, Request, Settings};

/// Inserts texts in double quotes, in single quotes, in a flow map, without quotes, and as JSON.
const TEMPLATE: &str = r#"
metadata:
  annotations: {one: "{{ .ObjectMeta.Name }}", two: "{{ index .ObjectMeta.Labels `app` }}"}
spec:
  initContainers:
  - name: istio-init
    image: "trusted:1"
    env:
    {{- range $key, $value := .ProxyConfig.ProxyMetadata }}
    - name: {{ $key }}
      value: "{{ $value }}"
    {{- end }}
  containers:
  - name: istio-proxy
    image: "trusted:1"
    args: ['{{ index .ObjectMeta.Annotations `single` }}', {{ index .ObjectMeta.Annotations `quoted` | quote }}]
    env:
    - name: ACCOUNT
      value: {{ .Spec.ServiceAccountName }}
    - name: OWNER
      value: "{{ .DeploymentMeta.Name }}"
    {{- range $index, $value := fromJSON (index .ObjectMeta.Annotations `volumes` | default `{}`) }}
    - name: "{{ $index }}"
      value: {{ $value | quote }}
    {{- end }}
"#;

fn injector() -> Injector {
    let settings = Settings::from_template(TEMPLATE).unwrap();
    let mesh = Mesh::parse("enablePrometheusMerge: false").unwrap();
    Injector::new(Config { settings, mesh, ..BuiltIn::default().config().unwrap() })
}

/// Returns the injected pod, which has this text in a place, or why the pod is refused.
fn injected(injector: &Injector, place: &str, text: &str) -> Result<Value, String> {
    let mut pod = json!({"metadata": {"name": "web", "labels": {"app": "web"}, "annotations": {"single": "a", "quoted": "a"}},
        "spec": {"serviceAccountName": "default", "containers": []}});
    match place {
        "proxyMetadata" | "key" => {
            let metadata = if place == "key" { json!({text: "v"}) } else { json!({"KEY": text}) };
            pod["metadata"]["annotations"][annotation::PROXY_CONFIG] =
                json!({"proxyMetadata": metadata}).to_string().into();
        }
        "volumes" => pod["metadata"]["annotations"]["volumes"] = json!({"v": text}).to_string().into(),
        "index" => pod["metadata"]["annotations"]["volumes"] = json!({text: "v"}).to_string().into(),
        "owner" => {
            pod["metadata"]["generateName"] = "web-".into();
            pod["metadata"]["ownerReferences"] =
                json!([{"controller": true, "kind": "Job", "apiVersion": "batch/v1", "name": text}]);
        }
        pointer => *pod.pointer_mut(pointer).unwrap() = text.into(),
    }
    match injector.review(&Request::new(&pod, "shop")).map_err(|error| error.to_string())? {
        InjectionOutcome::Injected { injected, .. } => Ok(injected.pod),
        InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
    }
}

/// The places of texts, each with a part of its path in an error.
const PLACES: [(&str, &str); 10] = [
    ("proxyMetadata", "proxyMetadata"),
    ("key", "proxyMetadata"),
    ("/metadata/name", "metadata.name"),
    ("/metadata/labels/app", "metadata.labels.app"),
    ("/metadata/annotations/single", "metadata.annotations.single"),
    ("/metadata/annotations/quoted", "metadata.annotations.quoted"),
    ("/spec/serviceAccountName", "spec.serviceAccountName"),
    ("owner", "owner.name"),
    ("volumes", "metadata.annotations.volumes"),
    ("index", "metadata.annotations.volumes"),
];

fn shape(value: &Value) -> Value {
    match value {
        Value::Object(members) => members.iter().map(|(key, member)| (key.clone(), shape(member))).collect(),
        Value::Array(items) => items.iter().map(shape).collect(),
        _ => Value::Null,
    }
}

#[test]
fn a_value_that_closes_its_quotes_is_refused_by_its_field() {
    let injector = injector();
    for (place, text) in [
        ("proxyMetadata", "a\"\n    image: \"evil:1"),
        ("proxyMetadata", "a\"\n    - name: \"b"),
        ("proxyMetadata", "a\" # \"rest"),
        ("key", "A\n      value: b\n    - name: C"),
        ("key", "A: b"),
        ("/metadata/name", "a\", three: \"b"),
        ("/metadata/labels/app", "a\"}\nspec: {hostNetwork: true} #"),
        ("/metadata/annotations/single", "a', 'b"),
        ("/spec/serviceAccountName", "a\n    image: evil:1"),
        ("/spec/serviceAccountName", "{a: b}"),
        ("/spec/serviceAccountName", "&a"),
        ("owner", "a\"\n    image: \"evil:1"),
        ("index", "a\"\n      image: \"evil:1"),
    ] {
        let refused = injected(&injector, place, text);
        let field = PLACES.iter().find(|(known, _)| *known == place).unwrap().1;
        assert!(refused.as_ref().is_err_and(|reason| reason.contains(field)), "{place} {text:?}: {refused:?}");
    }
}

#[test]
fn text_that_stays_in_its_place_is_kept() {
    let injector = injector();
    let kept = |place: &str, text: &str, at: &str| {
        let pod = injected(&injector, place, text).unwrap();
        pod.pointer(at).cloned().unwrap_or_default()
    };
    assert_eq!(
        kept("/metadata/annotations/quoted", "a\"\n- {b: 'c'} #\\", "/spec/containers/0/args/1"),
        "a\"\n- {b: 'c'} #\\"
    );
    assert_eq!(kept("/metadata/annotations/single", "{\"a\": [1]}", "/spec/containers/0/args/0"), "{\"a\": [1]}");
    // Authors escape quotes themselves if templates do not.
    assert_eq!(kept("proxyMetadata", r#"{\"a\": \"b\"}"#, "/spec/initContainers/0/env/0/value"), r#"{"a": "b"}"#);
    assert_eq!(kept("volumes", "a\"\n: b", "/spec/containers/0/env/2/value"), "a\"\n: b");
    assert_eq!(kept("/metadata/name", "web", "/metadata/annotations/one"), "web");
}

/// Returns an injector whose template inserts one annotation as a map and another as a list, both piped through functions.
fn piped(functions: &str) -> Injector {
    spliced(&format!("{{{{ . {functions} }}}}"))
}

/// Returns an injector whose template inserts `value`, in which `.` is an annotation, once as a map and once as a list.
fn spliced(value: &str) -> Injector {
    let place = |field: &str| {
        format!("  {{{{- with index .ObjectMeta.Annotations `{field}` }}}}\n  {field}: {value}\n  {{{{- end }}}}\n")
    };
    let containers = "  containers:\n  - name: istio-proxy\n    image: 'trusted:1'\n";
    let template = format!("spec:\n{containers}{}{}", place("nodeSelector"), place("tolerations"));
    let mesh = Mesh::parse("enablePrometheusMerge: false").unwrap();
    let settings = Settings::from_template(&template).unwrap();
    Injector::new(Config { settings, mesh, ..BuiltIn::default().config().unwrap() })
}

/// Returns the field in the injected pod's spec that the template sets from the annotation with its name, or why the pod is refused.
fn field_of(injector: &Injector, text: &str) -> Result<Value, String> {
    let field = if text.trim_start().starts_with('[') { "tolerations" } else { "nodeSelector" };
    let pod = json!({"metadata": {"name": "web", "annotations": {field: text}}, "spec": {"containers": []}});
    match injector.review(&Request::new(&pod, "shop")).map_err(|error| error.to_string())? {
        InjectionOutcome::Injected { injected, .. } => Ok(injected.pod["spec"][field].clone()),
        InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
    }
}

#[test]
fn json_that_is_spliced_as_text_is_refused_whatever_white_space_it_has() {
    let texts = [
        r#"{"k":"v"}"#,
        r#"{"k": "v"}"#,
        r#" { "k" : "v" } "#,
        r#"{"\u006b":"v"}"#,
        r#" { "\u006b" : "\u0076" } "#,
        r#"[{"operator":"Exists"}]"#,
        "{}",
        "[]",
    ];
    for functions in [
        "",
        "| trim",
        "| nospace",
        "| trimAll ` `",
        "| trimPrefix ` ` | trimSuffix ` `",
        "| replace ` ` ``",
        "| nospace | lower",
        "| splitList ` ` | join ``",
        "| nospace | trimPrefix ` ` | toString",
    ] {
        let injector = piped(functions);
        for text in texts {
            let refused = field_of(&injector, text);
            let is_named = |reason: &String| reason.contains("metadata.annotations.");
            assert!(refused.as_ref().is_err_and(is_named), "{functions} {text}: {refused:?}");
        }
    }
    for functions in ["| fromJSON | toJSON", "| trim | fromJSON | toJSON", "| nospace | fromJson | toJson"] {
        let injector = piped(functions);
        for text in texts {
            assert_eq!(field_of(&injector, text), Ok(serde_json::from_str(text).unwrap()), "{functions} {text}");
        }
    }
}

#[test]
fn json_may_be_asked_for_its_text_before_it_is_read() {
    let texts = [r#"{"operator":"Exists"}"#, r#"[{"operator":"Exists"}]"#, r#"{"a":"\u0045xists"}"#, "{}", "[]"];
    for question in [
        "contains `Exists` .",
        "contains `operator` .",
        "hasPrefix `{` .",
        "hasPrefix `[` .",
        "eq (trim .) `{}`",
        "ne . ``",
        "and (contains `[` .) (hasSuffix `]` .)",
        "gt (len .) 5",
        "regexMatch `^.[{\"]` .",
        "eq (sha256sum .) `x`",
    ] {
        let read = spliced(&format!(
            "{{{{ if {question} }}}}{{{{ fromJSON . | toJSON }}}}{{{{ else }}}}{{{{ fromJSON . | toJSON }}}}{{{{ end }}}}"
        ));
        let printed =
            spliced(&format!("{{{{ if {question} }}}}{{{{ . }}}}{{{{ else }}}}{{{{ . | trim }}}}{{{{ end }}}}"));
        for text in texts {
            assert_eq!(field_of(&read, text), Ok(serde_json::from_str(text).unwrap()), "{question} {text}");
            let refused = field_of(&printed, text);
            assert!(
                refused.as_ref().is_err_and(|reason| reason.contains("metadata.annotations.")),
                "{question} {text}: {refused:?}"
            );
        }
    }
    let listed = spliced(
        "{}\n  hostAliases:{{ range $k, $v := fromJSON . }}\n  - {ip: {{ $v | quote }}, hostnames: [{{ $k | quote }}]}{{ end }}",
    );
    let text = r#"{"*.example.com":"10.0.0.1","b.com":"10.0.0.2"}"#;
    assert!(!field_of(&listed, text).is_err_and(|reason| reason.contains("between quotes")));
    let other = r#"{"operator":"Exists","*.example.com":"a","b.com":"c","'z":"d"}"#;
    for value in [
        "{{ fromJSON . | toJSON }}\n  hostname: {{ ternary `x` `y` (contains `b` .) }}",
        "{{ with and (hasPrefix `{` .) (fromJSON .) }}{{ toJSON . }}{{ end }}",
        "{ {{ range $k, $v := fromJSON . }}{{ toJSON $k }}: {{ toJSON $v }}, {{ end }} }",
    ] {
        let read = field_of(&spliced(value), other);
        let is_checked = |reason: &String| reason.contains("nodeSelector") && !reason.contains("between quotes");
        assert!(read.as_ref().is_err_and(is_checked), "{value}: {read:?}");
    }
    let each = spliced("{ {{ range $k, $v := fromJSON . }}{{ if $v }}{{ $k }}: {{ $v }}{{ end }}{{ end }} }");
    for (text, expected) in [("{}", json!({})), (r#"{"a":"b"}"#, json!({"a": "b"})), (r#"{"a":""}"#, json!({}))] {
        assert_eq!(field_of(&each, text), Ok(expected), "{text}");
    }
    let counted = spliced("{{ fromJSON . | toJSON }}\n  hostname: h{{ len . }}");
    let reason = field_of(&counted, r#"{"a":"b"}"#).unwrap_err();
    assert!(
        reason.contains("metadata.annotations.nodeSelector") && reason.contains("must print nothing else of it"),
        "{reason}"
    );
}

#[test]
fn a_text_that_the_output_needs_to_be_yaml_is_refused() {
    let long = "k".repeat(1100);
    let evil = "a\"\n    image: \"evil:1";
    for (template, text, field) in [
        (
            "    securityContext:\n      runAsUser: 1337\n      {{ if regexMatch `^runAsGroup: [0-9]+$` . }}{{ . }}{{ end }}\n",
            "runAsGroup: 5",
            "annotations.t",
        ),
        ("    env:\n    - name: A\n      value: b\n{{ . | nindent 4 }}\n", "- name: B\n  value: c", "annotations.t"),
        (
            "    env:\n    - name: A\n      value: |\n        {{ . }}\n        end\n",
            "  \n    command: [evil]\n    terminationMessagePath: |\n      z",
            "annotations.t",
        ),
        (
            "    resources:\n      limits:\n        \"{{ . }}\": 1\n",
            &format!("cpu\": 1\n        \"memory\": 1\n    args: [\"{long}\"]\n    \"tty"),
            "annotations.t",
        ),
        ("    tty: {{ if . }}true{{ end }}\n", "a", "proxyMetadata"),
        (
            "  {{ if not (regexMatch `^[^a-z]*$` .) }}{{ fail `text` }}{{ end }}securityContext: {supplementalGroups: {{ . }}}\n",
            "[ 7 , 8 ]",
            "annotations.t",
        ),
    ] {
        let template = format!(
            "spec:\n  containers:\n  - name: istio-proxy\n    image: 'trusted:1'\n    command:\n    - \"{{{{ .ProxyConfig.ProxyMetadata.K }}}}\"\n\
             {{{{- with index .ObjectMeta.Annotations `t` }}}}\n{template}{{{{ end }}}}\n"
        );
        let mesh = Mesh::parse("enablePrometheusMerge: false").unwrap();
        let settings = Settings::from_template(&template).unwrap();
        let injector = Injector::new(Config { settings, mesh, ..BuiltIn::default().config().unwrap() });
        let config = json!({"proxyMetadata": {"K": evil}}).to_string();
        for proxy in ["{}", &config] {
            let pod = json!({"metadata": {"name": "web", "annotations": {"t": text, annotation::PROXY_CONFIG: proxy}}, "spec": {"containers": []}});
            let refused = injector.review(&Request::new(&pod, "shop")).map_err(|error| error.to_string());
            let is_refused = |reason: &String| {
                reason.contains("between quotes") && (reason.contains(field) || reason.contains("proxyMetadata"))
            };
            if field == "proxyMetadata" && proxy == "{}" {
                continue;
            }
            assert!(refused.as_ref().is_err_and(is_refused), "{template} {proxy}: {refused:?}");
        }
    }
}

proptest! {
    // Each case compiles a template of its own.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn json_is_a_text_unless_the_template_reads_it(
        functions in vec(select(&[
            "trim", "nospace", "trimAll ` `", "trimPrefix ` `", "trimSuffix `}`", "lower", "upper", "trunc 200", "substr 0 9", "quote",
            "squote", "replace ` ` ``", "replace `u00` `v`", "b64enc", "splitList `,` | join `,`", "splitList ` ` | join ``", "toString",
            "trimAll `{`", "indent 2", "nindent 4", "title", "printf ` %s`", "toYaml", "toJSON", "default `x`", "cat `x`",
        ][..]), 0..4),
        parts in vec(select(&["k", "k1", "\\u006b", "v", "a b", "", "ä", "\\u00e4", "0"][..]), 0..5),
        (open, space, is_list) in (select(&["", " ", "\n", "  "][..]), select(&["", " "][..]), any::<bool>()),
    ) {
        let pairs: Vec<String> =
            parts.iter().enumerate().map(|(at, part)| format!("\"k{at}{part}\"{space}:{space}\"{part}\"")).collect();
        let map = format!("{open}{{{space}{}{space}}}{open}", pairs.join(&format!("{space},{space}")));
        let tolerations = [format!("{open}[{space}]{open}"), format!("{open}[{{\"operator\":{space}\"Exists\"}}]")];
        let text = if is_list { tolerations[parts.len() % 2].clone() } else { map };
        let piped_through = |last: &str| {
            let all: String = functions.iter().map(|function| format!("| {function} ")).collect();
            field_of(&piped(&format!("{all}{last}")), &text)
        };
        if let Ok(found) = piped_through("") {
            prop_assert!(!found.is_object() && !found.is_array(), "{functions:?} {text}: {found}");
        }
        let keeps = |function: &&str| ["trim", "trimAll ` `", "trimPrefix ` `", "toString", "default `x`"].contains(function);
        if functions.iter().all(keeps) {
            let is_refused = |reason: &String| reason.contains("between quotes");
            let found = piped_through("| fromJSON | toJSON");
            prop_assert!(!found.as_ref().is_err_and(is_refused), "{functions:?} {text}: {found:?}");
        }
    }
}

proptest! {
    #[test]
    fn a_text_changes_no_structure_or_is_refused(
        (place, field) in select(&PLACES[..]),
        parts in vec(select(&[
            "a", "\"", "'", "\n", "\n    ", "\n      ", "image: evil", ": ", ":", " #", "- ", "{", "}", "[", "]", ",", "\\", "&x ",
            "*x", "!!map ", "|", ">", "\u{85}", "\u{2028}", "\t", "\r", "%", "---\n", "ä", "<no value>", "{{ . }}",
        ][..]), 1..6),
    ) {
        let (injector, text) = (injector(), parts.concat());
        let harmless = injected(&injector, place, "harmless").unwrap();
        match injected(&injector, place, &text) {
            // The pod's name is also its owner's. A template may use a text as the name of a variable.
            Err(reason) => prop_assert!(reason.contains("owner.name") && place == "/metadata/name" || reason.contains(field) || reason.contains("annotation") || reason.contains("invalid name"), "{place} {text:?}: {reason}"),
            Ok(pod) => {
                let of = |pod: &Value| ["/spec/containers", "/spec/initContainers"].map(|at| {
                    let containers = pod.pointer(at).cloned().unwrap_or_default();
                    (shape(&containers), containers[0]["image"].clone())
                });
                prop_assert_eq!(of(&pod), of(&harmless), "{} {:?}", place, text);
            }
        }
    }
}
