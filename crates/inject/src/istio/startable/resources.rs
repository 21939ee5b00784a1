//! The amounts of resources that the API server allows for an injected container and for the whole pod.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};

use gocompat::quantity;
use podfacts::name::{is_dns_label, is_key};
use serde_json::{Map, Value};

use super::change::POD;
use super::{Unstartable, fields};
use crate::pod;

/// The resources without a domain that a container may have, other than huge pages.
const STANDARD: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
const HUGE_PAGES: &str = "hugepages-";
/// The domain of Kubernetes' own resources.
const NATIVE: &str = "kubernetes.io/";

/// The condition on the name of a resource, and its description.
type Names = (fn(&str) -> bool, &'static str);

/// Checks the requests and limits of one container.
pub(super) fn check(place: &str, container: &Value) -> Result<(), Unstartable> {
    let names = "cpu, memory, ephemeral-storage, hugepages-SIZE, or a name with a domain such as example.com/gpu";
    check_amounts(place, container.get("resources").unwrap_or(&Value::Null), (is_resource, names))
}

/// Checks the requests and limits of the whole pod, `spec.resources` (`validatePodResources`).
pub(in crate::istio) fn check_of_pod(resources: &Value) -> Result<(), Unstartable> {
    let claims = resources.get("claims").unwrap_or(&Value::Null);
    fields::demand(POD, "resources.claims", claims, Value::is_null, "absent: only containers claim devices")?;
    let is_name = |name: &str| is_key(name) && is_of_pod(name);
    check_amounts(POD, resources, (is_name, "cpu, memory or hugepages-SIZE for the whole pod"))
}

/// Checks requests and limits. `names`: the condition on the name of a resource.
fn check_amounts(place: &str, resources: &Value, names: Names) -> Result<(), Unstartable> {
    let (requests, limits) = (pod::map(resources, "requests"), pod::map(resources, "limits"));
    for (list, amounts) in [("limits", limits), ("requests", requests)] {
        amounts.iter().try_for_each(|(resource, amount)| check_amount((place, list), names, resource, amount))?;
    }
    let has = |is: fn(&str) -> bool| [limits, requests].iter().any(|amounts| amounts.keys().any(|name| is(name)));
    let is_alone = has(is_of_pages) && !has(is_cpu_or_memory);
    fields::require(place, "resources", Some(resources), |_| !is_alone, "with cpu or memory beside huge pages")?;
    requests.iter().try_for_each(|(resource, request)| check_request(place, resource, request, limits))
}

/// Checks the resource claims of one container: each is among the pod's `resourceClaims`, and is claimed once as a whole, or once for each
/// of its requests (`validateResourceClaimNames`).
pub(super) fn check_claims(spec: &Value, container: &Value) -> Result<(), Unstartable> {
    let resources = container.get("resources").unwrap_or(&Value::Null);
    let place = format!("container {}", pod::name(container));
    let of_pod: HashSet<&str> = pod::list(spec, "resourceClaims").iter().map(pod::name).collect();
    // The claims that are claimed as a whole, and the claimed requests of the others.
    let (mut whole, mut requests) = (HashSet::new(), HashMap::<&str, HashSet<&str>>::new());
    for claim in pod::list(resources, "claims") {
        let (name, request) = (pod::name(claim), pod::text(claim, "request"));
        let is_of_pod = of_pod.contains(name);
        let allowed = "one of the names in the pod's resourceClaims";
        fields::demand(&place, "resources.claims", &name.into(), |_| !name.is_empty() && is_of_pod, allowed)?;
        let is_request = |_: &Value| request.is_empty() || is_dns_label(request);
        fields::demand(&place, "resources.claims.request", &request.into(), is_request, "a DNS label")?;
        let is_new = match request {
            _ if whole.contains(name) => false,
            "" => whole.insert(name) && !requests.contains_key(name),
            request => requests.entry(name).or_default().insert(request),
        };
        fields::demand(&place, "resources.claims", &name.into(), |_| is_new, "claimed once")?;
    }
    Ok(())
}

fn check_amount(
    (place, list): (&str, &str),
    (is_name, names): Names,
    resource: &str,
    amount: &Value,
) -> Result<(), Unstartable> {
    fields::require(place, &format!("a resource in {list}"), Some(&resource.into()), |_| is_name(resource), names)?;
    let text = quantity::text(amount);
    let field = format!("{list}.{resource}");
    fields::require(place, &field, Some(amount), |_| !quantity::is_negative(&text), "0 or more")?;
    let is_whole = |_: &Value| is_native(resource) || quantity::milli(&text).is_none_or(|n| n.is_multiple_of(1000));
    fields::require(place, &field, Some(amount), is_whole, "a whole number")?;
    let Some(page) = resource.strip_prefix(HUGE_PAGES) else { return Ok(()) };
    let is_of_pages = |_: &Value| are_pages(&text, page);
    fields::require(place, &field, Some(amount), is_of_pages, "a multiple of the size of a page in the resource's name")
}

/// Whether an amount is a multiple of this page size (`IsHugePageResourceValueDivisible`).
fn are_pages(amount: &str, page: &str) -> bool {
    let bytes = |text: &str| quantity::milli(text).map(|milli| milli.div_ceil(1000));
    let size = quantity::milli(page).filter(|milli| *milli > 0 && milli.is_multiple_of(1000));
    size.is_some_and(|size| bytes(amount).is_none_or(|amount| amount.is_multiple_of(size / 1000)))
}

/// Checks that a request is not above the limit, and equals the limit if the resource is not divisible.
fn check_request(place: &str, resource: &str, request: &Value, limits: &Map<String, Value>) -> Result<(), Unstartable> {
    let (place, resource, request) = (place.to_owned(), resource.to_owned(), quantity::text(request));
    let Some(limit) = limits.get(&resource).map(quantity::text) else {
        let limit = "none".to_owned();
        return if is_divisible(&resource) {
            Ok(())
        } else {
            Err(Unstartable::Whole { place, resource, request, limit })
        };
    };
    let amounts = quantity::milli(&request).zip(quantity::milli(&limit));
    match amounts.map(|(request, limit)| request.cmp(&limit)) {
        Some(Ordering::Greater) if is_divisible(&resource) => {
            Err(Unstartable::Request { place, resource, request, limit })
        }
        Some(Ordering::Less | Ordering::Greater) if !is_divisible(&resource) => {
            Err(Unstartable::Whole { place, resource, request, limit })
        }
        _ => Ok(()),
    }
}

pub(super) fn is_cpu_or_memory(name: &str) -> bool {
    matches!(name, "cpu" | "memory")
}

pub(super) fn is_of_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Whether the whole pod may have the resource (`IsSupportedPodLevelResource`).
pub(super) fn is_of_pod(name: &str) -> bool {
    is_cpu_or_memory(name) || is_of_pages(name)
}

/// Whether a container may have a resource with this name.
fn is_resource(name: &str) -> bool {
    let is_standard = || STANDARD.contains(&name) || is_of_pages(name);
    is_key(name) && (name.contains('/') || is_standard()) && (is_native(name) || !name.starts_with("requests."))
}

/// Whether the resource is one of Kubernetes' own resources (`IsNativeResource`).
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains(NATIVE)
}

/// Whether the resource can be overcommitted, so that a request may be below the limit.
fn is_divisible(resource: &str) -> bool {
    is_native(resource) && !is_of_pages(resource)
}
