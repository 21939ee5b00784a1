//! The values that the API server allows for the fields of a pod by which the scheduler chooses its node, if the injection changes them.

use std::collections::HashSet;

use podfacts::name::{is_dns_label, is_key, is_label_value, is_subdomain};
use serde_json::Value;

use super::Unstartable;
use super::change::{Change, POD};
use super::fields::{demand, require};
use super::names::text;
use crate::pod;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
/// The operators of tolerations. `Lt` and `Gt` need a feature gate of Kubernetes 1.35.
const TOLERATIONS: [&str; 4] = ["Equal", "Exists", "Lt", "Gt"];
const OPERATORS: [&str; 6] = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
/// The operators on the labels of pods and namespaces; [`OPERATORS`] are those on the labels of nodes.
const OF_LABELS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];
const UNSATISFIABLE: [&str; 2] = ["DoNotSchedule", "ScheduleAnyway"];
const INCLUSIONS: [&str; 2] = ["Ignore", "Honor"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const KEY: &str = "the name of a label: letters, digits, \"-\", \"_\" and \".\", perhaps after a domain and a slash";
const VALUE: &str = "the value of a label";

/// Checks the scheduling fields that the injection changes in a spec.
pub(super) fn check(spec: Change<'_>) -> Result<(), Unstartable> {
    if let Some(Value::Object(selector)) = spec.value("nodeSelector") {
        for (key, value) in selector {
            demand(POD, "nodeSelector", &key.as_str().into(), text(is_key), KEY)?;
            demand(POD, &format!("nodeSelector.{key}"), value, text(is_label_value), VALUE)?;
        }
    }
    spec.items("tolerations").try_for_each(toleration)?;
    spreads(spec)?;
    affinity(spec)?;
    for (list, key) in [("readinessGates", "conditionType"), ("schedulingGates", "name")] {
        let path = format!("{list}.{key}");
        let mut names = spec.items(list).map(|gate| gate.get(key).unwrap_or(&Value::Null));
        names.try_for_each(|name| demand(POD, &path, name, |name| name.as_str().is_some_and(is_key), KEY))?;
    }
    let is_unique = |gates: &Value| {
        let mut seen = HashSet::new();
        gates.as_array().is_none_or(|gates| gates.iter().all(|gate| seen.insert(pod::name(gate))))
    };
    spec.require("schedulingGates", "schedulingGates", (&is_unique, "gates with different names"))?;
    let is_free = |gates: &Value| {
        let is_empty = gates.as_array().is_none_or(Vec::is_empty);
        is_empty || pod::text(spec.merged, "nodeName").is_empty()
    };
    spec.require("schedulingGates", "schedulingGates", (&is_free, "empty in a pod with a nodeName"))
}

fn toleration(item: &Value) -> Result<(), Unstartable> {
    let (key, operator, value) = (pod::text(item, "key"), pod::text(item, "operator"), pod::text(item, "value"));
    let field = |name: &str| (format!("tolerations.{name}"), Value::from(pod::text(item, name)));
    let check = |name: &str, is_valid: bool, allowed| {
        let (path, value) = field(name);
        demand(POD, &path, &value, |_| is_valid, allowed)
    };
    check("key", key.is_empty() || is_key(key), KEY)?;
    let is_operator = operator.is_empty() || TOLERATIONS.contains(&operator);
    check("operator", is_operator, "Equal, Exists, Lt or Gt")?;
    check("operator", !key.is_empty() || operator == "Exists", "Exists for a toleration without a key")?;
    let (is_value, allowed) = match operator {
        "Exists" => (value.is_empty(), "empty for the operator Exists"),
        "Lt" | "Gt" => (value.parse::<i64>().is_ok(), "a whole number for the operators Lt and Gt"),
        _ => (is_label_value(value), VALUE),
    };
    check("value", is_value, allowed)?;
    let effect = pod::text(item, "effect");
    check("effect", effect.is_empty() || EFFECTS.contains(&effect), "NoSchedule, PreferNoSchedule or NoExecute")?;
    let is_timed = item.get("tolerationSeconds").is_some_and(|seconds| !seconds.is_null());
    check("effect", !is_timed || effect == "NoExecute", "NoExecute for a toleration with tolerationSeconds")
}

fn spread(constraint: &Value) -> Result<(), Unstartable> {
    let field =
        |name: &str| (format!("topologySpreadConstraints.{name}"), constraint.get(name).unwrap_or(&Value::Null));
    let (path, skew) = field("maxSkew");
    demand(POD, &path, skew, |skew| skew.as_i64().is_some_and(|skew| skew > 0), "1 or more")?;
    let (path, key) = field("topologyKey");
    demand(POD, &path, key, |key| key.as_str().is_some_and(|key| !key.is_empty()), KEY)?;
    let (path, action) = field("whenUnsatisfiable");
    let is_action = |action: &Value| action.as_str().is_some_and(|action| UNSATISFIABLE.contains(&action));
    demand(POD, &path, action, is_action, "DoNotSchedule or ScheduleAnyway")?;
    let (path, domains) = field("minDomains");
    let is_number = |domains: &Value| domains.as_i64().is_none_or(|domains| domains > 0) && action == UNSATISFIABLE[0];
    require(POD, &path, Some(domains), is_number, "1 or more, and absent for ScheduleAnyway")?;
    for name in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        let (path, policy) = field(name);
        require(POD, &path, Some(policy), text(|policy| INCLUSIONS.contains(&policy)), "Ignore or Honor")?;
    }
    let (path, labels) = field("labelSelector");
    label_selector(&path, labels)
}

/// Checks the topology spread constraints: no two have the same `topologyKey` and `whenUnsatisfiable`, and each new one is valid.
fn spreads(spec: Change<'_>) -> Result<(), Unstartable> {
    let is_unique = |constraints: &Value| {
        let mut seen = HashSet::new();
        let of = |constraint| (pod::text(constraint, "topologyKey"), pod::text(constraint, "whenUnsatisfiable"));
        constraints.as_array().is_none_or(|all| all.iter().all(|constraint| seen.insert(of(constraint))))
    };
    let allowed = "constraints of which no two have the same topologyKey and whenUnsatisfiable";
    spec.require("topologySpreadConstraints", "topologySpreadConstraints", (&is_unique, allowed))?;
    spec.items("topologySpreadConstraints").try_for_each(spread)
}

/// Checks the affinities, each as a whole if the injection changes it.
fn affinity(spec: Change<'_>) -> Result<(), Unstartable> {
    let affinity = spec.within("affinity");
    if let Some(nodes) = affinity.value("nodeAffinity") {
        let required = nodes.get(REQUIRED).filter(|required| !required.is_null());
        let terms = required.map_or(&[][..], |required| pod::list(required, "nodeSelectorTerms"));
        let has_term = |_: &Value| !terms.is_empty();
        require(POD, &format!("affinity.nodeAffinity.{REQUIRED}"), required, has_term, "one with nodeSelectorTerms")?;
        let preferred = pod::list(nodes, PREFERRED);
        preferred.iter().try_for_each(weight)?;
        terms.iter().chain(preferred.iter().filter_map(|term| term.get("preference"))).try_for_each(node_term)?;
    }
    for kind in ["podAffinity", "podAntiAffinity"] {
        let Some(pods) = affinity.value(kind) else { continue };
        let (path, preferred) = (format!("affinity.{kind}"), pod::list(pods, PREFERRED));
        preferred.iter().try_for_each(weight)?;
        let preferred = preferred.iter().map(|term| term.get("podAffinityTerm").unwrap_or(&Value::Null));
        pod::list(pods, REQUIRED).iter().chain(preferred).try_for_each(|term| pod_term(&path, term))?;
    }
    Ok(())
}

/// Checks a term of the pod affinity or anti-affinity at `path`.
fn pod_term(path: &str, term: &Value) -> Result<(), Unstartable> {
    let key = term.get("topologyKey").unwrap_or(&Value::Null);
    demand(POD, &format!("{path}.topologyKey"), key, |key| key.as_str().is_some_and(is_key), KEY)?;
    let mut namespaces = pod::list(term, "namespaces").iter();
    namespaces.try_for_each(|name| {
        demand(POD, &format!("{path}.namespaces"), name, text(is_dns_label), "the name of a namespace")
    })?;
    let mut selectors = ["labelSelector", "namespaceSelector"].into_iter();
    selectors.try_for_each(|name| label_selector(&format!("{path}.{name}"), term.get(name).unwrap_or(&Value::Null)))
}

fn weight(term: &Value) -> Result<(), Unstartable> {
    let weight = term.get("weight").unwrap_or(&Value::Null);
    let is_weight = |weight: &Value| weight.as_i64().is_some_and(|weight| (1..=100).contains(&weight));
    demand(POD, "affinity.weight", weight, is_weight, "from 1 to 100")
}

fn node_term(term: &Value) -> Result<(), Unstartable> {
    for condition in pod::list(term, "matchExpressions") {
        requirement("affinity.nodeAffinity", condition, (&OPERATORS, "In, NotIn, Exists, DoesNotExist, Gt or Lt"))?;
    }
    for condition in pod::list(term, "matchFields") {
        let place = "affinity.nodeAffinity.matchFields";
        let key = pod::text(condition, "key");
        demand(POD, &format!("{place}.key"), &key.into(), |key| key == "metadata.name", "metadata.name")?;
        let operator = pod::text(condition, "operator");
        let is_operator = OF_LABELS[..2].contains(&operator);
        demand(POD, &format!("{place}.operator"), &operator.into(), |_| is_operator, "In or NotIn")?;
        let names = condition.get("values").unwrap_or(&Value::Null);
        let is_name = |names: &Value| {
            let names = names.as_array().map_or(&[][..], Vec::as_slice);
            names.len() == 1 && names.iter().all(text(is_subdomain))
        };
        demand(POD, &format!("{place}.values"), names, is_name, "a list of one node's name")?;
    }
    Ok(())
}

/// Checks a selector of pods or of namespaces by their labels (`ValidateLabelSelector`).
fn label_selector(path: &str, selector: &Value) -> Result<(), Unstartable> {
    for (key, value) in pod::map(selector, "matchLabels") {
        demand(POD, &format!("{path}.matchLabels"), &key.as_str().into(), text(is_key), KEY)?;
        demand(POD, &format!("{path}.matchLabels.{key}"), value, text(is_label_value), VALUE)?;
    }
    for condition in pod::list(selector, "matchExpressions") {
        requirement(path, condition, (&OF_LABELS, "In, NotIn, Exists or DoesNotExist"))?;
        let mut values = pod::list(condition, "values").iter();
        values.try_for_each(|value| demand(POD, &format!("{path}.values"), value, text(is_label_value), VALUE))?;
    }
    Ok(())
}

/// Checks a condition on a label. `known`: the valid operators.
fn requirement(path: &str, condition: &Value, (known, allowed): (&[&str], &'static str)) -> Result<(), Unstartable> {
    let key = pod::text(condition, "key");
    demand(POD, &format!("{path}.key"), &key.into(), text(is_key), KEY)?;
    let operator = condition.get("operator").unwrap_or(&Value::Null);
    let is_operator = |operator: &Value| operator.as_str().is_some_and(|text| known.contains(&text));
    demand(POD, &format!("{path}.operator"), operator, is_operator, allowed)?;
    let count = pod::list(condition, "values").len();
    let is_count = match operator.as_str().unwrap_or_default() {
        "In" | "NotIn" => count > 0,
        "Gt" | "Lt" => count == 1,
        _ => count == 0,
    };
    let values = condition.get("values").unwrap_or(&Value::Null);
    let allowed = "a list for In and NotIn, one number for Gt and Lt, and absent for Exists and DoesNotExist";
    demand(POD, &format!("{path}.values"), values, |_| is_count, allowed)
}
