//! The resources of the whole pod (`spec.resources`), which must suffice for all containers after the injection. The API server of a cluster
//! with the feature `PodLevelResources`, the default since Kubernetes 1.34, refuses a pod for which they do not.

use std::cmp::Ordering;
use std::fmt::{self, Display, Formatter};

use contract::annotation;
use contract::container::PROXY;
use gocompat::quantity;
use serde_json::{Map, Value};

use super::Unstartable;
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Resources of containers that exceed those of the whole pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Excess {
    /// A container's limit.
    Limit { container: String, resource: String, limit: String, of_pod: String },
    /// The sum of the containers' requests.
    Request { resource: String, of_pod: String },
}

impl Excess {
    /// Whether the same container, or the same sum, exceeds the same resource.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Limit { container, resource, .. }, Self::Limit { container: other, resource: of_other, .. }) => {
                (container, resource) == (other, of_other)
            }
            (Self::Request { resource, .. }, Self::Request { resource: other, .. }) => resource == other,
            _ => false,
        }
    }

    /// The annotation that lowers the sidecar's part; `None` for another container or resource.
    fn annotation(&self) -> Option<&'static str> {
        match self {
            Self::Limit { container, .. } if container != PROXY => None,
            Self::Limit { resource, .. } if resource == "cpu" => Some(annotation::PROXY_CPU_LIMIT),
            Self::Limit { resource, .. } if resource == "memory" => Some(annotation::PROXY_MEMORY_LIMIT),
            Self::Request { resource, .. } if resource == "cpu" => Some(annotation::PROXY_CPU),
            Self::Request { resource, .. } if resource == "memory" => Some(annotation::PROXY_MEMORY),
            _ => None,
        }
    }
}

impl Display for Excess {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Limit { container, resource, limit, of_pod } => write!(
                f,
                "container {container} has a limit of {limit} {resource}, more than the {of_pod} of the whole pod (spec.resources): raise \
                 that of the pod"
            )?,
            Self::Request { resource, of_pod } => write!(
                f,
                "the containers request more {resource} with the injected ones than the {of_pod} of the whole pod (spec.resources.requests, \
                 which the API server derives from the pod's own containers where the pod has only limits): raise that of the pod"
            )?,
        }
        self.annotation().map_or(Ok(()), |name| write!(f, ", or lower the sidecar's with {name}"))
    }
}

/// Checks the containers' limits and requests. Those that exceed the pod's in the pod `author`, too, are left to the API server.
pub(super) fn check(author: &Value, merged: &Value) -> Result<(), Unstartable> {
    let before = excesses(author);
    let is_new = |excess: &Excess| !before.iter().any(|own| own.is_same(excess));
    excesses(merged).into_iter().find(is_new).map_or(Ok(()), |excess| Err(Unstartable::WholePod(excess)))
}

/// Returns the pod as an API server with `PodLevelResources` passes it to its webhooks (`defaultPodRequests`): where the whole pod has
/// limits, it also requests what its containers request together.
#[must_use]
pub fn with_derived_requests(pod: &Value) -> Value {
    let mut derived = pod.clone();
    let of_pod = |which| pod::map(pod::spec(pod).get("resources").unwrap_or(&Value::Null), which);
    if of_pod("limits").is_empty() {
        return derived;
    }
    // Requests of other resources are not more than the limits, which they equal.
    for resource in ["cpu", "memory"].into_iter().filter(|resource| !of_pod("requests").contains_key(*resource)) {
        if let Some(sum) = requested(pod, resource).filter(|sum| *sum > 0) {
            derived["spec"]["resources"]["requests"][resource] = text_of(sum).into();
        }
    }
    derived
}

/// Returns the quantity of a number in units of 10^-9.
fn text_of(nanos: u128) -> String {
    match nanos {
        _ if nanos.is_multiple_of(1_000_000_000) => (nanos / 1_000_000_000).to_string(),
        _ if nanos.is_multiple_of(1_000_000) => format!("{}m", nanos / 1_000_000),
        _ => format!("{nanos}n"),
    }
}

fn excesses(pod: &Value) -> Vec<Excess> {
    let of_pod = |which| pod::map(pod::spec(pod).get("resources").unwrap_or(&Value::Null), which);
    let mut found = limits(pod, of_pod("limits"));
    // The API server requests what the containers do where only a limit is set, and a limit is not below the request.
    let only_limited = of_pod("limits").iter().filter(|(resource, _)| !of_pod("requests").contains_key(*resource));
    let amounts = of_pod("requests").iter().chain(only_limited);
    found.extend(amounts.filter_map(|(resource, amount)| request(pod, resource, amount)));
    found
}

/// Returns the containers' limits above that of the pod. Those of init containers may be.
fn limits(pod: &Value, of_pod: &Map<String, Value>) -> Vec<Excess> {
    let all = pod::containers(pod, CONTAINERS).iter();
    let all = all.flat_map(|item| of_container(item, "limits").iter().map(move |(name, limit)| (item, name, limit)));
    all.filter_map(|(item, resource, limit)| {
        let (limit, of_pod) = (quantity::text(limit), quantity::text(of_pod.get(resource)?));
        let (container, resource) = (pod::name(item).to_owned(), resource.clone());
        let exceeds = quantity::compare(&limit, &of_pod).is_some_and(Ordering::is_gt);
        exceeds.then_some(Excess::Limit { container, resource, limit, of_pod })
    })
    .collect()
}

fn request(pod: &Value, resource: &str, of_pod: &Value) -> Option<Excess> {
    let of_pod = quantity::text(of_pod);
    let exceeds = requested(pod, resource)? > quantity::nanos(&of_pod)?;
    exceeds.then(|| Excess::Request { resource: resource.to_owned(), of_pod })
}

/// Returns what the containers of a pod request together, in units of 10^-9, as the scheduler adds it up: all that run at a time. Returns
/// `None` if a quantity is invalid.
fn requested(pod: &Value, resource: &str) -> Option<u128> {
    let of = |item: &Value| {
        let of = |which| of_container(item, which).get(resource);
        // The API server requests the limit of a container that requests nothing.
        of("requests").or_else(|| of("limits")).map_or(Some(0), |amount| quantity::nanos(&quantity::text(amount)))
    };
    let (mut lasting, mut most_of_init) = (0_u128, 0);
    for item in pod::containers(pod, INIT_CONTAINERS) {
        let at_its_time = lasting.checked_add(of(item)?)?;
        most_of_init = at_its_time.max(most_of_init);
        if pod::text(item, "restartPolicy") == "Always" {
            lasting = at_its_time;
        }
    }
    for item in pod::containers(pod, CONTAINERS) {
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

    /// A pod with resources of its own and these lists of containers.
    fn pod(resources: &Value, inits: &[&Value], containers: &[&Value]) -> Value {
        json!({"spec": {"resources": resources, "initContainers": inits, "containers": containers}})
    }

    /// Returns the text of the refusal; empty if there is none.
    fn refused(author: &Value, merged: &Value) -> String {
        check(author, merged).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_limit_above_that_of_the_whole_pod_is_refused() {
        let proxy = json!({"name": "istio-proxy", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}});
        let logger = json!({"name": "logger", "resources": {"limits": {"memory": "2Gi"}}});
        let app = json!({"name": "app", "resources": {"limits": {"cpu": "7"}}});
        let small = json!({"limits": {"cpu": "1500m", "memory": "1024Mi"}});
        let author = pod(&small, &[], &[&app]);
        assert_eq!(refused(&author, &author), "", "the author's own limit is left to the API server");
        assert_eq!(
            refused(&author, &pod(&small, &[], &[&app, &proxy])),
            "container istio-proxy has a limit of 2 cpu, more than the 1500m of the whole pod (spec.resources): raise that of the pod, or lower \
             the sidecar's with sidecar.istio.io/proxyCPULimit"
        );
        let of_logger = refused(&author, &pod(&small, &[], &[&app, &logger]));
        assert!(of_logger.ends_with("(spec.resources): raise that of the pod"), "{of_logger}");
        let own_proxy = pod(&small, &[], &[&app, &proxy]);
        assert_eq!(refused(&own_proxy, &own_proxy), "", "the author's own sidecar");
        let large = json!({"limits": {"cpu": 9}});
        assert_eq!(refused(&pod(&large, &[], &[&app]), &pod(&large, &[], &[&app, &proxy])), "");
        let mut native = proxy.clone();
        native["restartPolicy"] = "Always".into();
        native["resources"]["requests"] = json!({"cpu": "10m", "memory": "64Mi"});
        assert_eq!(refused(&author, &pod(&small, &[&native], &[&app])), "", "of init containers only requests count");
        let unlimited = pod(&Value::Null, &[], &[&app]);
        assert_ne!(refused(&unlimited, &author), "", "a template sets the resources of the pod");
    }

    #[test]
    fn requests_that_exceed_the_pods_with_the_injected_ones_are_refused() {
        let requests = |cpu: &str| json!({"requests": {"cpu": cpu}});
        let of = |name: &str, resources: Value| json!({"name": name, "resources": resources});
        let (app, beside) = (of("app", requests("300m")), of("istio-proxy", requests("100m")));
        let (logger, heavy) = (of("logger", requests("100m")), of("heavy", requests("1")));
        let only_limit = of("istio-proxy", json!({"limits": {"cpu": "100m"}}));
        let mut native = beside.clone();
        native["restartPolicy"] = "Always".into();
        let is_refused = |of_pod: &str, author: [&[&Value]; 2], merged: [&[&Value]; 2]| {
            let [author, merged] = [author, merged].map(|[inits, all]| pod(&requests(of_pod), inits, all));
            check(&author, &merged).is_err()
        };
        let alone: [&[&Value]; 2] = [&[], &[&app]];
        assert!(is_refused("399m", alone, [&[], &[&app, &beside]]));
        assert!(!is_refused("400m", alone, [&[], &[&app, &beside]]));
        assert!(is_refused("499m", alone, [&[], &[&app, &beside, &logger]]), "whatever the container's name is");
        assert!(is_refused("399m", alone, [&[&native], &[&app]]));
        assert!(is_refused("399m", alone, [&[], &[&app, &only_limit]]));
        assert!(!is_refused("200m", alone, [&[], &[&app, &beside]]), "the pod's own request is too small");
        assert!(
            !is_refused("1", [&[&heavy], &[&app]], [&[&heavy, &native], &[&app]]),
            "an init container that ends before"
        );
        assert!(
            is_refused("1", [&[&heavy], &[&app]], [&[&native, &heavy], &[&app]]),
            "one that runs beside the sidecar"
        );
        let limited = json!({"limits": {"cpu": "350m"}});
        let text = refused(&pod(&limited, &[], &[&app]), &pod(&limited, &[], &[&app, &beside]));
        let named = "the containers request more cpu with the injected ones than the 350m of the whole pod";
        assert!(text.starts_with(named) && text.ends_with("sidecar.istio.io/proxyCPU"), "{text}");
    }

    #[test]
    fn the_requests_of_a_pod_with_limits_are_those_of_its_containers() {
        let app = json!({"name": "app", "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "64Mi"}}});
        let beside = json!({"name": "istio-proxy", "resources": {"requests": {"cpu": "100m"}}});
        let derived =
            |resources: Value| with_derived_requests(&pod(&resources, &[], &[&app]))["spec"]["resources"].clone();
        let limits = json!({"cpu": "4", "memory": "4Gi"});
        assert_eq!(
            derived(json!({"limits": limits})),
            json!({"limits": limits, "requests": {"cpu": "250m", "memory": "67108864"}})
        );
        assert_eq!(derived(json!({"limits": limits, "requests": {"cpu": "1"}}))["requests"]["cpu"], "1");
        assert_eq!(derived(json!({"requests": {"cpu": "1"}})), json!({"requests": {"cpu": "1"}}), "no limits");
        assert_eq!(derived(Value::Null), Value::Null);
        let limited = pod(&json!({"limits": limits}), &[], &[&app]);
        assert_eq!(refused(&limited, &pod(&json!({"limits": limits}), &[], &[&app, &beside])), "");
        let author = with_derived_requests(&limited);
        let merged = pod(&author["spec"]["resources"], &[], &[&app, &beside]);
        assert_ne!(refused(&author, &merged), "", "the webhook sees the derived requests");
    }
}
