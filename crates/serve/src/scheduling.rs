//! Evaluates a pod's node selector and required node affinity as the scheduler does, except that an unknown operator
//! matches. Pure.

use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, PodSpec};

/// Whether node selector and required node affinity select the node. Taints are ignored, because agents tolerate all.
pub fn selects(pod: &PodSpec, node: &Node) -> bool {
    let label = |key: &str| node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map(String::as_str);
    let field = |key: &str| (key == "metadata.name").then_some(node.metadata.name.as_deref()).flatten();
    let selected = pod.node_selector.iter().flatten().all(|(key, value)| label(key) == Some(value));
    let required = pod.affinity.as_ref().and_then(|affinity| {
        affinity.node_affinity.as_ref()?.required_during_scheduling_ignored_during_execution.as_ref()
    });
    selected
        && required.is_none_or(|required| required.node_selector_terms.iter().any(|t| matches_term(t, label, field)))
}

/// Whether a node meets all requirements of a term. A term without requirements matches no node.
fn matches_term<'a>(
    term: &NodeSelectorTerm,
    label: impl Fn(&str) -> Option<&'a str>,
    field: impl Fn(&str) -> Option<&'a str>,
) -> bool {
    let expressions = term.match_expressions.iter().flatten().map(|r| meets_requirement(r, label(&r.key)));
    let fields = term.match_fields.iter().flatten().map(|r| meets_requirement(r, field(&r.key)));
    let mut all = expressions.chain(fields).peekable();
    all.peek().is_some() && all.all(|met| met)
}

fn meets_requirement(requirement: &NodeSelectorRequirement, found: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = || found.is_some_and(|found| values.iter().any(|value| value == found));
    let numbers = || Some((found?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match requirement.operator.as_str() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => numbers().is_some_and(|(found, value)| found > value),
        "Lt" => numbers().is_some_and(|(found, value)| found < value),
        // A requirement with an operator of a later Kubernetes version is treated as met: if a node is wrongly regarded as not
        // selected, the agent removes the plugin from it, which is worse than a plugin that stays.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn is_selected(spec: &Value) -> bool {
        let mut pod = spec.clone();
        pod["containers"] = json!([]);
        let node = json!({"metadata": {"name": "n1", "labels": {"os": "linux", "cores": "4"}}});
        selects(&serde_json::from_value(pod).unwrap(), &serde_json::from_value(node).unwrap())
    }

    fn terms(terms: &Value) -> bool {
        let required = json!({"nodeSelectorTerms": terms});
        is_selected(
            &json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}),
        )
    }

    #[test]
    fn all_labels_of_the_selector_are_required() {
        assert!(is_selected(&json!({})));
        assert!(is_selected(&json!({"nodeSelector": {"os": "linux"}})));
        assert!(!is_selected(&json!({"nodeSelector": {"os": "linux", "zone": "a"}})));
        assert!(!is_selected(&json!({"nodeSelector": {"os": "windows"}})));
    }

    #[test]
    fn operators_are_those_of_the_scheduler() {
        for (key, operator, values, expected) in [
            ("os", "In", json!(["windows", "linux"]), true),
            ("zone", "In", json!(["a"]), false),
            ("os", "NotIn", json!(["linux"]), false),
            ("zone", "NotIn", json!(["a"]), true),
            ("os", "Exists", json!(null), true),
            ("zone", "Exists", json!(null), false),
            ("zone", "DoesNotExist", json!(null), true),
            ("cores", "Gt", json!(["3"]), true),
            ("cores", "Gt", json!(["4"]), false),
            ("cores", "Lt", json!(["5"]), true),
            ("os", "Lt", json!(["5"]), false),
        ] {
            let requirement = json!({"key": key, "operator": operator, "values": values});
            assert_eq!(terms(&json!([{"matchExpressions": [requirement]}])), expected, "{key} {operator} {values}");
        }
    }

    #[test]
    fn one_matching_term_suffices_and_an_empty_one_matches_no_node() {
        let here = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]});
        let elsewhere = json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]});
        assert!(terms(&json!([elsewhere, here])));
        assert!(!terms(&json!([elsewhere])));
        assert!(!terms(&json!([{}])));
        assert!(!terms(&json!([])));
        assert!(!is_selected(&json!({"nodeSelector": {"os": "windows"},
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}}}})));
    }
}
