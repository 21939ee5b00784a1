//! Fields of which Kubernetes allows only one, such as the handlers of a probe. A merge field by field would keep both the template's and
//! that of the pod's own container, and the API server would refuse the pod.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::startable::{HANDLER, HANDLERS, PROBE, PROBES, PROFILES, SOURCE};
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Removes from the containers of a pod each alternative that an overlay is about to replace with another one.
pub(super) fn give_way_to_overlay(pod: &mut Value, overlay: &Value) {
    for which in [CONTAINERS, INIT_CONTAINERS] {
        let of_overlay: HashMap<&str, &Map<String, Value>> = pod::containers(overlay, which)
            .iter()
            .filter_map(|item| Some((pod::name(item), item.as_object()?)))
            .collect();
        if of_overlay.is_empty() {
            continue;
        }
        for container in pod::containers_mut(pod, which) {
            if let Some(overlay) = of_overlay.get(pod::name(container)) {
                give_way(container, overlay);
            }
        }
    }
}

/// Removes from an injected container each alternative that the pod's own container is about to replace with another one.
pub(super) fn give_way(container: &mut Value, own: &Map<String, Value>) {
    for probe in PROBES {
        replace(container.get_mut(probe), own.get(probe), PROBE);
    }
    if let (Some(lifecycle), Some(own)) = (container.get_mut("lifecycle"), own.get("lifecycle")) {
        for handler in HANDLERS {
            replace(lifecycle.get_mut(handler), own.get(handler), HANDLER);
        }
    }
    if let (Some(context), Some(own)) = (container.get_mut("securityContext"), own.get("securityContext")) {
        for profile in PROFILES {
            replace_profile(context.get_mut(profile), own.get(profile));
        }
    }
    let (Some(Value::Array(variables)), Some(Value::Array(own))) = (container.get_mut("env"), own.get("env")) else {
        return;
    };
    for variable in variables {
        let Some(own) = pod::find(own, pod::name(variable)) else { continue };
        if own.get("valueFrom").is_some_and(Value::is_object) {
            pod::object(variable).shift_remove("value");
            replace(variable.get_mut("valueFrom"), own.get("valueFrom"), SOURCE);
        } else if !pod::text(own, "value").is_empty() {
            pod::object(variable).shift_remove("valueFrom");
        }
    }
}

/// Removes the alternatives of `value` that `own` lacks, if `own` has one.
fn replace(value: Option<&mut Value>, own: Option<&Value>, alternatives: &[&str]) {
    let (Some(Value::Object(members)), Some(own)) = (value, own) else { return };
    let is_set = |key: &str| own.get(key).is_some_and(|value| !value.is_null());
    if alternatives.iter().any(|key| is_set(key)) {
        members.retain(|key, _| !alternatives.contains(&key.as_str()) || is_set(key));
    }
}

/// Removes the members of a profile that `own` lacks, if `own` has another type.
fn replace_profile(profile: Option<&mut Value>, own: Option<&Value>) {
    let (Some(Value::Object(members)), Some(own)) = (profile, own) else { return };
    let is_other = own.get("type").is_some_and(|of_type| !of_type.is_null() && members.get("type") != Some(of_type));
    members.retain(|key, _| !is_other || own.get(key).is_some());
}

#[cfg(test)]
mod tests {
    use gotemplate::Budget;
    use serde_json::json;

    use super::*;
    use crate::merge::merge_container;

    /// Returns the injected container with the pod's own one merged into it.
    fn merged(mut injected: Value, own: &Value) -> Value {
        let own = own.as_object().unwrap();
        give_way(&mut injected, own);
        merge_container(&mut injected, own.clone(), &mut Budget::default()).unwrap();
        injected
    }

    #[test]
    fn the_handler_of_the_pods_own_container_replaces_the_templates() {
        let (http, exec) = (json!({"path": "/ready", "port": 1}), json!({"command": ["x"]}));
        for probe in PROBES {
            let injected = json!({probe: {"httpGet": http, "periodSeconds": 2}});
            let expected = json!({probe: {"periodSeconds": 2, "exec": exec}});
            assert_eq!(merged(injected.clone(), &json!({probe: {"exec": exec}})), expected);
            let longer = json!({probe: {"httpGet": http, "periodSeconds": 9}});
            assert_eq!(merged(injected, &json!({probe: {"periodSeconds": 9}})), longer, "no handler of its own");
        }
        let injected = json!({"lifecycle": {"postStart": {"exec": exec}, "preStop": {"exec": exec}}});
        let own = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}});
        let expected = json!({"lifecycle": {"postStart": {"exec": exec}, "preStop": {"sleep": {"seconds": 5}}}});
        assert_eq!(merged(injected, &own), expected);
    }

    #[test]
    fn the_profile_of_the_pods_own_container_replaces_one_of_another_type() {
        for name in PROFILES {
            let profile = |of_type: &str, path: Option<&str>| {
                let mut profile = json!({"type": of_type});
                path.into_iter().for_each(|path| profile["localhostProfile"] = path.into());
                json!({"securityContext": {name: profile}})
            };
            let local = profile("Localhost", Some("p"));
            for own in [profile("RuntimeDefault", None), profile("Localhost", Some("q"))] {
                assert_eq!(merged(local.clone(), &own), own);
            }
            assert_eq!(merged(local.clone(), &profile("Localhost", None)), local);
            assert_eq!(merged(profile("RuntimeDefault", None), &local), local);
        }
    }

    #[test]
    fn a_variable_of_the_pods_own_container_has_one_value_or_source() {
        let from = |source: &str| json!({"name": "A", "valueFrom": {source: {"key": "k"}}});
        let value = |value: &str| json!({"name": "A", "value": value});
        let env = |variable: &Value| json!({"env": [variable]});
        for (injected, own) in [
            (value("t"), from("secretKeyRef")),
            (from("fieldRef"), value("own")),
            (from("fieldRef"), from("secretKeyRef")),
        ] {
            assert_eq!(merged(env(&injected), &env(&own)), env(&own));
        }
        let named = json!({"name": "A"});
        assert_eq!(merged(env(&value("t")), &env(&named)), env(&value("t")), "neither value nor source");
    }
}
