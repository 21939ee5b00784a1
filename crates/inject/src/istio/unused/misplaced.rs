//! Warnings about annotations of Istio that a pod has as labels, and labels that it has as annotations: both have no effect.

use contract::annotation;
use serde_json::Value;

use super::{LABELS, OF_ISTIO, Reads, is_read, listed};
use crate::pod;

/// Whether Istio reads this name as an annotation only.
pub(super) fn is_annotation(name: &str) -> bool {
    annotation::ALL.iter().any(|(known, _)| *known == name) && !LABELS.contains(&name)
}

/// Whether Istio reads this name as a label only.
pub(super) fn is_label(name: &str) -> bool {
    LABELS.contains(&name) && !OF_ISTIO.contains(&name) && !is_read(name)
}

/// Returns the warnings about a pod. `reads`: what its templates read.
pub(super) fn warnings(reads: &[&Reads], pod: &Value) -> impl Iterator<Item = String> {
    let names = |field: &str| pod::map(pod::metadata(pod), field).keys().map(String::as_str);
    let labels: Vec<&str> = names("labels").filter(|name| is_annotation(name)).collect();
    let annotations =
        names("annotations").filter(|name| is_label(name) && !reads.iter().any(|reads| reads.all_annotations));
    let annotations: Vec<&str> = annotations.collect();
    let found = [
        listed(&labels, "labels that Istio reads as annotations only"),
        listed(&annotations, "annotations that Istio reads as labels only"),
    ];
    found.into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::istio::BuiltIn;

    fn warnings(labels: &Value, annotations: &Value) -> Vec<String> {
        let reads = BuiltIn::settings().unwrap().reads;
        let pod = json!({"metadata": {"labels": labels, "annotations": annotations}});
        super::super::warnings(&reads, ["sidecar"].into_iter(), &pod)
    }

    #[test]
    fn an_annotation_among_the_labels_and_a_label_among_the_annotations_are_named() {
        let found = warnings(
            &json!({"traffic.sidecar.istio.io/excludeOutboundPorts": "80", "sidecar.istio.io/interceptionMode": "NONE"}),
            &json!({"security.istio.io/tlsMode": "istio", "topology.istio.io/network": "n"}),
        );
        let labels = "labels that Istio reads as annotations only: traffic.sidecar.istio.io/excludeOutboundPorts, sidecar.istio.io/interceptionMode";
        let annotations =
            "annotations that Istio reads as labels only: security.istio.io/tlsMode, topology.istio.io/network";
        assert_eq!(found, [labels, annotations]);
    }

    #[test]
    fn names_that_are_read_where_they_are_have_no_warning() {
        let both = json!({"sidecar.istio.io/inject": "true", "istio.io/rev": "x"});
        assert_eq!(warnings(&both, &both), [""; 0]);
        let label = json!({"security.istio.io/tlsMode": "istio"});
        assert_eq!(warnings(&label, &json!({"sidecar.istio.io/logLevel": "debug"})), [""; 0]);
        let pod = json!({"metadata": {"annotations": label}});
        let template = "# {{ range $name, $value := .ObjectMeta.Annotations }}{{ end }}";
        let reads: BTreeMap<_, _> = crate::istio::Settings::from_template(template).unwrap().reads;
        assert_eq!(super::super::warnings(&reads, ["sidecar"].into_iter(), &pod), [""; 0]);
    }
}
