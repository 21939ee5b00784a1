//! Warnings about injected containers for whose resources those of the whole pod (`spec.resources`) are too small. The API server of
//! a cluster with the feature `PodLevelResources`, the default since Kubernetes 1.34, refuses such a pod.

use std::cmp::Ordering;

use contract::container::INJECTED;
use gocompat::quantity;
use serde_json::{Map, Value};

use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Returns the warnings about a pod with a sidecar.
pub(super) fn warnings(pod: &Value) -> Vec<String> {
    let of_pod = |which| pod::map(pod::spec(pod).get("resources").unwrap_or(&Value::Null), which);
    let mut warnings = limits(pod, of_pod("limits"));
    // The API server requests what the containers do where only a limit is set, and a limit is not below the request.
    let only_limited = of_pod("limits").iter().filter(|(resource, _)| !of_pod("requests").contains_key(*resource));
    let amounts = of_pod("requests").iter().chain(only_limited);
    warnings.extend(amounts.filter_map(|(resource, amount)| request(pod, resource, amount)));
    warnings
}

/// Returns a warning for each limit of an injected container above that of the pod. Those of init containers may be.
fn limits(pod: &Value, of_pod: &Map<String, Value>) -> Vec<String> {
    let mut warnings = Vec::new();
    for item in pod::containers(pod, CONTAINERS).iter().filter(|item| INJECTED.contains(&pod::name(item))) {
        for (resource, limit) in of_container(item, "limits") {
            let Some(most) = of_pod.get(resource) else { continue };
            let (limit, most) = (quantity::text(limit), quantity::text(most));
            if quantity::compare(&limit, &most).is_some_and(Ordering::is_gt) {
                warnings.push(format!(
                    "container {:?} has a limit of {limit} {resource}, more than the {most} of the whole pod (spec.resources): the API server \
                     refuses such a pod; lower it with sidecar.istio.io/proxyCPULimit or sidecar.istio.io/proxyMemoryLimit",
                    pod::name(item)
                ));
            }
        }
    }
    warnings
}

/// Returns a warning if the containers request more of a resource than the pod has, and did not without the injected ones.
fn request(pod: &Value, resource: &str, of_pod: &Value) -> Option<String> {
    let of_pod = quantity::text(of_pod);
    let most = quantity::nanos(&of_pod)?;
    let is_own = |item: &Value| !INJECTED.contains(&pod::name(item));
    if requested(pod, resource, |_| true)? <= most || requested(pod, resource, is_own)? > most {
        return None;
    }
    Some(format!(
        "the containers request more {resource} with the injected ones than the {of_pod} of the whole pod (spec.resources): the API server \
         refuses such a pod; raise that of the pod, or lower the sidecar's request with sidecar.istio.io/proxyCPU or \
         sidecar.istio.io/proxyMemory"
    ))
}

/// Returns what the containers of a pod that `counts` request together, in units of 10^-9, as the scheduler adds it up: all that run at
/// a time. Returns `None` if a quantity is invalid.
fn requested(pod: &Value, resource: &str, counts: impl Fn(&Value) -> bool) -> Option<u128> {
    let of = |item: &Value| {
        let of = |which| of_container(item, which).get(resource);
        // The API server requests the limit of a container that requests nothing.
        of("requests").or_else(|| of("limits")).map_or(Some(0), |amount| quantity::nanos(&quantity::text(amount)))
    };
    let (mut lasting, mut most_of_init) = (0_u128, 0);
    for item in pod::containers(pod, INIT_CONTAINERS).iter().filter(|item| counts(item)) {
        let at_its_time = lasting.checked_add(of(item)?)?;
        most_of_init = at_its_time.max(most_of_init);
        if pod::text(item, "restartPolicy") == "Always" {
            lasting = at_its_time;
        }
    }
    for item in pod::containers(pod, CONTAINERS).iter().filter(|item| counts(item)) {
        lasting = lasting.checked_add(of(item)?)?;
    }
    Some(lasting.max(most_of_init))
}

fn of_container<'a>(item: &'a Value, which: &str) -> &'a Map<String, Value> {
    pod::map(item.get("resources").unwrap_or(&Value::Null), which)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_above_that_of_the_whole_pod_is_named() {
        let proxy = json!({"name": "istio-proxy", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}});
        let app = json!({"name": "app", "resources": {"limits": {"cpu": "7"}}});
        let pod = |limits: Value| json!({"spec": {"resources": {"limits": limits}, "containers": [app, proxy]}});
        let found = warnings(&pod(json!({"cpu": "1500m", "memory": "1024Mi"})));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0]
                .starts_with("container \"istio-proxy\" has a limit of 2 cpu, more than the 1500m of the whole pod"),
            "{found:?}"
        );
        assert_eq!(warnings(&pod(json!({"cpu": 9}))), [""; 0]);
        let mut native = pod(json!({"cpu": "1", "memory": "512Mi"}));
        native["spec"]["initContainers"] = json!([{"name": "istio-proxy", "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "1Gi"}}}]);
        native["spec"]["containers"] = json!([{"name": "app"}]);
        assert_eq!(warnings(&native), [""; 0], "of init containers only requests count: {native}");
    }

    #[test]
    fn requests_that_exceed_the_pods_with_the_sidecar_are_named() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let app = json!({"name": "app", "resources": requests("300m")});
        let proxy = |resources: Value, policy: Value| json!({"name": "istio-proxy", "resources": resources, "restartPolicy": policy});
        let (beside, native) = (proxy(requests("100m"), Value::Null), proxy(requests("100m"), "Always".into()));
        let only_limit = proxy(json!({"limits": {"cpu": "100m"}}), Value::Null);
        let pod = |of_pod: &str, inits: Value, containers: Value| {
            let found =
                json!({"spec": {"resources": requests(of_pod), "initContainers": inits, "containers": containers}});
            warnings(&found).len()
        };
        assert_eq!(pod("399m", json!([]), json!([app, beside])), 1);
        assert_eq!(pod("400m", json!([]), json!([app, beside])), 0);
        assert_eq!(pod("399m", json!([native]), json!([app])), 1);
        assert_eq!(pod("399m", json!([]), json!([app, only_limit])), 1);
        assert_eq!(pod("200m", json!([]), json!([app, beside])), 0, "the pod's own request is too small");
        let limited = json!({"spec": {"resources": {"limits": {"cpu": "350m"}}, "containers": [app, beside]}});
        assert_eq!(warnings(&limited).len(), 1, "the pod requests what its containers do");
        let heavy = json!({"name": "heavy", "resources": requests("1")});
        assert_eq!(pod("1", json!([heavy, native]), json!([app])), 0, "an init container that ends before");
        assert_eq!(pod("1", json!([native, heavy]), json!([app])), 1, "an init container beside the sidecar");
    }
}
