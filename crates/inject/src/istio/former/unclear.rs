//! Warnings about values that no record attributes to the pod's author or to a former injection.

use contract::{annotation, container};
use serde_json::{Map, Value};

use super::metadata::{CANONICAL_NAME, CANONICAL_REVISION, Canonical, OF_VALUES, has_labels};
use crate::istio::overrides::Overrides;
use crate::istio::status::Status;
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// The keys that identify the elements of a container's lists.
const KEYS: [&str; 5] = ["name", "mountPath", "devicePath", "containerPort", "resourceName"];

/// Returns warnings about a pod that was injected before without a record of what the injection wrote, and is injected
/// again. `before`: the pod with the former injection removed as far as possible. `workload`: the name of its owner.
pub(in crate::istio) fn unclear(
    (former, before, injected): (&Value, &Value, &Value),
    (status, recorded): (&Status, &Overrides),
    workload: &str,
) -> Vec<String> {
    if has_labels(status) {
        return Vec::new();
    }
    let mut warnings: Vec<String> = canonical(former, workload).collect();
    warnings.extend(network(former, injected));
    warnings.extend(of_values(before, status));
    if status.is_legacy {
        warnings.extend(legacy(former, before, injected));
    }
    warnings.extend(lost(former, injected, recorded));
    warnings
}

/// Returns a warning for each canonical label whose value does not follow from the pod's other labels. The status does not show who wrote
/// such a label: the pod's author, or the former injection from a label that has changed since.
fn canonical(pod: &Value, workload: &str) -> impl Iterator<Item = String> {
    let canonical = Canonical::of(pod, workload);
    let labels = [(CANONICAL_NAME, canonical.name.clone()), (CANONICAL_REVISION, canonical.revision.clone())];
    let labels = labels.into_iter().filter_map(move |(label, derived)| Some((label, derived, pod::label(pod, label)?)));
    let kept = labels.filter(move |(label, _, value)| !canonical.has(label, value));
    kept.map(|(label, derived, value)| {
        format!(
            "label {label:?} stays {value:?}, and would be {derived:?} by the pod's other labels: no record tells whether a former \
             injection wrote it; remove it to have it derived"
        )
    })
}

/// Returns a warning if the network label of a pod without a sidecar is removed or changes, because its author may have written it.
fn network(former: &Value, injected: &Value) -> Option<String> {
    let was = pod::label(former, annotation::NETWORK)?;
    let has_sidecar = pod::sidecar(former).is_some();
    (!has_sidecar && pod::label(injected, annotation::NETWORK) != Some(was)).then(|| {
        format!(
            "label {:?} is no longer {was:?}: no record tells whether a former injection wrote it; set it again if it is yours",
            annotation::NETWORK
        )
    })
}

/// Returns a warning about the traffic annotations that stay in the pod `before`. If the former injection added `istio-validation`, it
/// wrote such annotations with Helm's values; a legacy template may have written them, too.
fn of_values(before: &Value, status: &Status) -> Option<String> {
    let is_for_plugin = status.init_containers.iter().any(|name| name == container::VALIDATION);
    let mode = Some(annotation::INTERCEPTION_MODE).filter(|_| status.is_legacy);
    let names = mode.into_iter().chain(OF_VALUES);
    let stay: Vec<&str> = names.filter(|name| pod::annotation(before, name).is_some()).collect();
    ((is_for_plugin || status.is_legacy) && !stay.is_empty()).then(|| {
        format!(
            "annotations stay: {}: no record tells whether a former injection wrote them with its values; remove them to have the \
             present values",
            stay.join(", ")
        )
    })
}

/// Returns warnings about the fields of the pod's spec that a legacy template's injection writes: the DNS configuration, which stays, and
/// the `fsGroup`, which is removed.
fn legacy(former: &Value, before: &Value, injected: &Value) -> Vec<String> {
    let dns = |pod| pod::spec(pod).get("dnsConfig").filter(|config| !is_nothing(config));
    let stays = dns(before).filter(|config| dns(injected) == Some(*config)).map(|_| {
        "spec.dnsConfig stays: no record tells whether a former injection wrote it with its template; remove it if it is not yours"
            .to_owned()
    });
    let group = |pod| pod::spec(pod).get("securityContext").and_then(|context| context.get("fsGroup"));
    let goes = group(former).filter(|_| group(before).is_none() && group(injected).is_none()).map(|group| {
        format!(
            "fsGroup {group} is taken away: a former injection sets it, and no record tells whether the pod had it before; set it \
             again if it is yours"
        )
    });
    stays.into_iter().chain(goes).collect()
}

/// Returns a warning for each application that a template extended and whose fields no record names as the author's.
fn lost(former: &Value, injected: &Value, recorded: &Overrides) -> Vec<String> {
    let mut warnings = Vec::new();
    for which in [CONTAINERS, INIT_CONTAINERS] {
        for name in recorded.containers(which).iter().map(pod::name).filter(|name| *name != container::PROXY) {
            let find = |pod| pod::find(pod::containers(pod, which), name);
            let (Some(was), Some(now)) = (find(former), find(injected)) else { continue };
            let mut fields = Vec::new();
            missing(was, now, "", &mut fields);
            if !fields.is_empty() {
                fields.sort();
                warnings.push(format!(
                    "container {name:?} loses {}: a former injection extended it, and no record tells whether it wrote these fields",
                    fields.join(", ")
                ));
            }
        }
    }
    warnings
}

/// Adds to `fields` the fields and list elements of `was` that `now` lacks.
fn missing(was: &Value, now: &Value, path: &str, fields: &mut Vec<String>) {
    let joined = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
    match (was, now) {
        (Value::Object(was), Value::Object(now)) => {
            for (key, was) in was.iter().filter(|(_, was)| !is_nothing(was)) {
                match now.get(key) {
                    Some(now) => missing(was, now, &joined(key), fields),
                    None => fields.push(joined(key)),
                }
            }
        }
        (Value::Array(was), Value::Array(now)) => {
            let Some(key) = KEYS.into_iter().find(|key| was.iter().all(|item| item.get(*key).is_some())) else {
                return;
            };
            let gone = was.iter().filter(|was| !now.iter().any(|now| now.get(key) == was.get(key)));
            fields.extend(gone.map(|item| match &item[key] {
                Value::String(text) => format!("{path} {text}"),
                other => format!("{path} {other}"),
            }));
        }
        _ => {}
    }
}

/// Whether a value is equivalent to an absent one.
fn is_nothing(value: &Value) -> bool {
    value.is_null() || value.as_object().is_some_and(Map::is_empty) || value.as_array().is_some_and(Vec::is_empty)
}
