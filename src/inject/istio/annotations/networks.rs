//! The check of the annotation by which Multus knows a pod's networks. Multus refuses a pod whose annotation it cannot read, and calls the
//! plugin only for a pod whose annotation it can.

use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value};

use crate::contract::annotation;
use crate::inject::gojson;
use crate::inject::istio::Error;
use crate::inject::pod;

const ALLOWED: &str = "names of networks separated by commas, such as [namespace/]name[@interface], or a JSON list of objects with names: Multus, \
                       which calls the plugin by this annotation, could not read it";

/// Checks the annotation in the output of a template, which has that of the pod `author`.
///
/// # Errors
/// Multus could not read it, or the budget is spent.
pub(in crate::inject::istio) fn check_networks(
    author: &Value,
    overlay: &Value,
    budget: &mut Budget,
) -> Result<(), Error> {
    let Some(networks) = pod::annotation(overlay, annotation::NETWORKS) else { return Ok(()) };
    let own = pod::annotation(author, annotation::NETWORKS).unwrap_or(networks);
    is_readable(networks, budget)?.then_some(()).ok_or_else(|| Error::annotation(annotation::NETWORKS, own, ALLOWED))
}

/// Whether Multus can read the networks: JSON if a bracket, brace or quote is in the text, and names otherwise.
fn is_readable(networks: &str, budget: &mut Budget) -> Result<bool, Exceeded> {
    if networks.contains(['[', '{', '"']) {
        let elements = gojson::decode::<Vec<Map<String, Value>>>(networks, budget)?;
        return Ok(elements.is_ok_and(|elements| elements.iter().all(is_element)));
    }
    Ok(networks.split(',').all(|network| is_name(network.trim())))
}

/// Whether an element has a name, and no text of another type. Go reads keys in any case.
fn is_element(element: &Map<String, Value>) -> bool {
    let member = |name: &str| element.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let is_text = |name: &str| member(name).is_none_or(|value| value.is_string() || value.is_null());
    let has_name = member("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
    has_name && ["namespace", "interface", "mac"].into_iter().all(is_text)
}

/// Whether a text is `[namespace/]name[@interface]`.
fn is_name(network: &str) -> bool {
    let (namespace, rest) =
        network.split_once('/').map_or((None, network), |(namespace, rest)| (Some(namespace), rest));
    let (name, interface) = rest.split_once('@').map_or((rest, None), |(name, interface)| (name, Some(interface)));
    let is_part = |part: &str| {
        let part = part.trim();
        !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
    };
    is_part(name) && namespace.is_none_or(is_part) && interface.is_none_or(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_multus_cannot_read_is_refused_by_the_annotations_name() {
        let checked = |networks: &str| {
            let overlay = serde_json::json!({"metadata": {"annotations": {annotation::NETWORKS: networks}}});
            check_networks(&Value::Null, &overlay, &mut Budget::default())
        };
        for networks in [
            "default/istio-cni",
            "a, default/istio-cni",
            "null, b.c",
            "ns/a@eth1,b",
            "[]",
            r#"[{"name": "a", "ips": ["10.0.0.1/24"]}, {"Name": "b", "namespace": "n"}]"#,
        ] {
            checked(networks).unwrap();
        }
        for networks in [
            "",
            " ",
            "a,,b",
            "a b",
            "a/b/c",
            "a@b@c",
            "/a",
            "[",
            r#"{"name": "a"}"#,
            r#"["a"]"#,
            r#"[{"name": "a"},]"#,
            r#"[{"name": "a"}]x"#,
            r#"[{"name": "a"}, null]"#,
            r#"[{"namespace": "a"}]"#,
            r#"[{"name": 5}]"#,
            r#""a""#,
        ] {
            let error = checked(networks).unwrap_err().to_string();
            let start =
                format!("invalid value {networks:?} for annotation \"k8s.v1.cni.cncf.io/networks\": must be names");
            assert!(error.starts_with(&start), "{error}");
        }
    }
}
