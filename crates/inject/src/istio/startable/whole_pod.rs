//! The resources of the whole pod (`spec.resources`), which must suffice for all containers after the injection. The API server of a
//! cluster with the feature `PodLevelResources`, the default since Kubernetes 1.34, refuses a pod whose resources do not suffice.

use std::collections::{HashMap, HashSet};
use std::fmt::{self, Display, Formatter};

use contract::annotation;
use contract::container::PROXY;
use gocompat::quantity;
use serde_json::{Map, Value};

use super::Unstartable;
use super::resources::{self, is_cpu_or_memory, is_of_pages, is_of_pod};
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Resources of containers that exceed those of the whole pod.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    /// A container's limit is above the pod's.
    #[error(
        "container {container} has a limit of {limit} {resource}, more than the {of_pod} of the whole pod (spec.resources.limits): raise \
         that of the pod{}", or_lower(*.annotation)
    )]
    Limit { container: String, resource: String, limit: String, of_pod: String, annotation: Option<&'static str> },
    /// The sum of the containers' requests is above the pod's.
    #[error(
        "the containers request {sum} {resource} with the injected ones, more than the {of_pod} of the whole pod ({bound}): {}{}",
        remedy(*.bound), or_lower(*.annotation)
    )]
    Request { resource: String, sum: String, of_pod: String, bound: Bound, annotation: Option<&'static str> },
}

/// The amount that the containers' requests exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// The request of the pod.
    Request,
    /// A request that the API server derives for a pod with only limits. A webhook sees it as one of the author's.
    Derived,
    /// The limit of the pod.
    Limit,
}

impl Display for Bound {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Request => "spec.resources.requests",
            Self::Derived => {
                "spec.resources.requests, which the API server derives from the containers of a pod with only limits"
            }
            Self::Limit => "spec.resources.limits",
        })
    }
}

fn remedy(bound: Bound) -> &'static str {
    match bound {
        Bound::Request | Bound::Limit => "raise that of the pod",
        Bound::Derived => "state a sufficient request of the pod",
    }
}

/// Returns the end of a message: the annotation that lowers the sidecar's part, if there is one.
fn or_lower(annotation: Option<&str>) -> String {
    annotation.map_or_else(String::new, |name| format!(", or lower the sidecar's with {name}"))
}

impl Excess {
    /// Returns what exceeds the pod's amount of which resource: a container's limit, or the sum of all requests (`None`).
    fn key(&self) -> (Option<&str>, &str) {
        match self {
            Self::Limit { container, resource, .. } => (Some(container), resource),
            Self::Request { resource, .. } => (None, resource),
        }
    }
}

/// Checks the containers' limits and requests, and those of the pod. Errors that the pod `author` has, too, are left to the API server.
pub(in crate::istio) fn check(author: &Value, merged: &Value) -> Result<(), Unstartable> {
    if pod::map(pod::spec(merged), "resources").is_empty() {
        return Ok(());
    }
    let own_requests = sums(author, requests_of, quantity::nanos);
    let [before, after] = [author, merged].map(Derived::of);
    let own = excesses(&own_requests, author, &before);
    let own: HashSet<_> = own.iter().map(Excess::key).collect();
    let mut new = excesses(&own_requests, merged, &after).into_iter().filter(|excess| !own.contains(&excess.key()));
    if let Some(excess) = new.next() {
        return Err(Unstartable::WholePod(excess));
    }
    if resources::check_of_pod(&before.resources(author)).is_ok() {
        resources::check_of_pod(&after.resources(merged))?;
    }
    Ok(())
}

/// Returns the resources of the whole pod.
fn of_pod(pod: &Value) -> &Value {
    pod::spec(pod).get("resources").unwrap_or(&Value::Null)
}

/// Returns the pod as an API server with `PodLevelResources` passes it to its webhooks.
#[must_use]
pub fn with_derived_resources(pod: &Value) -> Value {
    let mut derived = pod.clone();
    if !of_pod(pod).is_null() {
        pod::object(pod::spec_mut(&mut derived)).insert("resources".to_owned(), Derived::of(pod).resources(pod));
    }
    derived
}

/// The resources of the whole pod with those that the API server adds.
struct Derived {
    limits: Map<String, Value>,
    requests: Map<String, Value>,
}

impl Derived {
    /// Derives limits of huge pages from those of the containers (`defaultHugePagePodLimits`), and the requests of a pod with limits from
    /// those of the containers, or else from the limits (`defaultPodRequests`).
    fn of(pod: &Value) -> Self {
        let [mut limits, mut requests] = ["limits", "requests"].map(|list| pod::map(of_pod(pod), list).clone());
        if !limits.is_empty() || !requests.is_empty() {
            for (resource, sum) in sums(pod, limits_of, quantity::nanos) {
                if is_of_pages(resource) && !requests.contains_key(resource) {
                    limits.entry(resource).or_insert_with(|| text_of(resource, sum).into());
                }
            }
        }
        if !limits.is_empty() {
            for (resource, sum) in sums(pod, requests_of, quantity::nanos) {
                if is_cpu_or_memory(resource) {
                    requests.entry(resource).or_insert_with(|| text_of(resource, sum).into());
                }
            }
            for (resource, limit) in limits.iter().filter(|(resource, _)| is_of_pod(resource)) {
                requests.entry(resource).or_insert_with(|| limit.clone());
            }
        }
        Self { limits, requests }
    }

    /// Returns `spec.resources` of the pod with these limits and requests.
    fn resources(&self, pod: &Value) -> Value {
        let mut resources = of_pod(pod).clone();
        for (list, amounts) in [("limits", &self.limits), ("requests", &self.requests)] {
            if !amounts.is_empty() {
                pod::object(&mut resources).insert(list.to_owned(), amounts.clone().into());
            }
        }
        resources
    }
}

/// Returns an amount, given in units of 10^-9, as the API server writes it.
fn text_of(resource: &str, nanos: u128) -> String {
    let kibi = 1024 * 1_000_000_000;
    let text = match resource {
        "cpu" => format!("{nanos}n"),
        _ if nanos.is_multiple_of(kibi) => format!("{}Ki", nanos / kibi),
        _ => format!("{nanos}n"),
    };
    quantity::canonical(&text).unwrap_or(text)
}

/// Returns what exceeds the resources of the whole pod. `own`: what the author's containers request, in units of 10^-9.
fn excesses(own: &Sums<'_>, pod: &Value, derived: &Derived) -> Vec<Excess> {
    let mut found = excesses_of_limits(pod, &derived.limits);
    let requested = sums(pod, requests_of, quantity::milli);
    let mut lists = [INIT_CONTAINERS, CONTAINERS].into_iter();
    let sidecar = lists.find_map(|which| pod::find(pod::containers(pod, which), PROXY));
    let of_request = |resource: &String| {
        let resource = resource.as_str();
        let annotation = sidecar.and_then(|sidecar| request_annotation(sidecar, resource));
        let sums = (*requested.get(resource)?, own.get(resource).copied());
        excess_of_requests((pod, derived), resource, sums, annotation)
    };
    found.extend(derived.requests.keys().filter_map(of_request));
    found
}

/// Returns the containers' limits that are above the pod's. The limits of init containers may be.
fn excesses_of_limits(pod: &Value, of_pod: &Map<String, Value>) -> Vec<Excess> {
    let all = pod::containers(pod, CONTAINERS).iter();
    let all = all.flat_map(|item| limits_of(item).map(move |(name, limit)| (item, name, limit)));
    all.filter_map(|(item, resource, limit)| {
        let (limit, of_pod) = (quantity::text(limit), quantity::text(of_pod.get(resource)?));
        let (container, resource) = (pod::name(item).to_owned(), resource.to_owned());
        let annotation = limit_annotation(&resource).filter(|_| container == PROXY);
        let exceeds = quantity::milli(&limit)? > quantity::milli(&of_pod)?;
        exceeds.then_some(Excess::Limit { container, resource, limit, of_pod, annotation })
    })
    .collect()
}

/// Returns the excess of the containers' requests for a resource. `sum`: the requests of the pod's containers, in units of 10^-3, `own`:
/// those of the author's containers, in units of 10^-9.
fn excess_of_requests(
    (pod, derived): (&Value, &Derived),
    resource: &str,
    (sum, own): (u128, Option<u128>),
    annotation: Option<&'static str>,
) -> Option<Excess> {
    let amount = |amounts: &Map<String, Value>| amounts.get(resource).map(quantity::text);
    let exceeds = |of_pod: &String| quantity::milli(of_pod).is_some_and(|of_pod| sum > of_pod);
    let has_limits = !pod::map(of_pod(pod), "limits").is_empty();
    let (bound, of_pod) = match amount(pod::map(of_pod(pod), "requests")) {
        Some(of_pod) if has_limits && own.map(quantity::milli_of) == quantity::milli(&of_pod) => {
            (Bound::Derived, of_pod)
        }
        Some(of_pod) => (Bound::Request, of_pod),
        // The API server derives the request from the exact amounts, whose sum may be below that of the rounded ones.
        None => match amount(&derived.limits).filter(exceeds) {
            Some(of_pod) => (Bound::Limit, of_pod),
            None => (Bound::Derived, amount(&derived.requests)?),
        },
    };
    if !exceeds(&of_pod) {
        return None;
    }
    let sum = text_of(resource, sum.checked_mul(1_000_000)?);
    Some(Excess::Request { resource: resource.to_owned(), sum, of_pod, bound, annotation })
}

/// Sums of amounts by their resource.
type Sums<'a> = HashMap<&'a str, u128>;

/// Returns, for each resource, the largest sum of the amounts of containers that run at the same time (`AggregateContainerRequests`), in
/// the unit of `number`. Omits a resource if one of its amounts is not a quantity. Takes one pass, because a pod may have any number of
/// containers and resources.
fn sums<'a, I: Iterator<Item = (&'a str, &'a Value)>>(
    pod: &'a Value,
    amounts: fn(&'a Value) -> I,
    number: fn(&str) -> Option<u128>,
) -> Sums<'a> {
    // The sum of the containers that keep running, and the largest sum so far; `None` if an amount is not a quantity.
    let mut sums = HashMap::<&str, Option<(u128, u128)>>::new();
    for which in [INIT_CONTAINERS, CONTAINERS] {
        for item in pod::containers(pod, which) {
            let lasts = which == CONTAINERS || pod::text(item, "restartPolicy") == "Always";
            for (resource, amount) in amounts(item) {
                let sum = sums.entry(resource).or_insert(Some((0, 0)));
                *sum = sum.zip(number(&quantity::text(amount))).and_then(|((lasting, most), amount)| {
                    let at_its_time = lasting.checked_add(amount)?;
                    Some((if lasts { at_its_time } else { lasting }, most.max(at_its_time)))
                });
            }
        }
    }
    sums.into_iter().filter_map(|(resource, sum)| Some((resource, sum?.1))).collect()
}

/// Returns the requests of a container. For a resource with a limit and no request, the API server uses the limit as request.
fn requests_of(item: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let requests = of_container(item, "requests");
    let only_limited = limits_of(item).filter(|(resource, _)| !requests.contains_key(*resource));
    requests.iter().map(|(resource, amount)| (resource.as_str(), amount)).chain(only_limited)
}

fn limits_of(item: &Value) -> impl Iterator<Item = (&str, &Value)> {
    of_container(item, "limits").iter().map(|(resource, amount)| (resource.as_str(), amount))
}

fn of_container<'a>(item: &'a Value, which: &str) -> &'a Map<String, Value> {
    pod::map(item.get("resources").unwrap_or(&Value::Null), which)
}

fn limit_annotation(resource: &str) -> Option<&'static str> {
    match resource {
        "cpu" => Some(annotation::PROXY_CPU_LIMIT),
        "memory" => Some(annotation::PROXY_MEMORY_LIMIT),
        _ => None,
    }
}

/// Returns the annotation for the amount that the sidecar requests; `None` if there is none, or it requests nothing of the resource.
fn request_annotation(sidecar: &Value, resource: &str) -> Option<&'static str> {
    if !of_container(sidecar, "requests").contains_key(resource) {
        return limit_annotation(resource).filter(|_| of_container(sidecar, "limits").contains_key(resource));
    }
    match resource {
        "cpu" => Some(annotation::PROXY_CPU),
        "memory" => Some(annotation::PROXY_MEMORY),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
