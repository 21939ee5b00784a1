//! The template function that returns the sidecar's resources: Helm's values, with single amounts replaced by the pod's
//! annotations.

use std::cmp::Ordering;

use contract::annotation;
use gocompat::quantity;
use gotemplate::{Args, Budget, Functions, Map, Reason, Value, write_json};
use serde_json::{Map as Object, Value as Json};

use super::map;
use crate::gojson;

const LIMITS: &str = "limits";
const REQUESTS: &str = "requests";

/// The annotation for each resource that a pod's author may set: list, resource and annotation.
pub(in crate::istio) const ANNOTATIONS: [(&str, &str, &str); 4] = [
    (REQUESTS, "cpu", annotation::PROXY_CPU),
    (REQUESTS, "memory", annotation::PROXY_MEMORY),
    (LIMITS, "cpu", annotation::PROXY_CPU_LIMIT),
    (LIMITS, "memory", annotation::PROXY_MEMORY_LIMIT),
];

pub(super) fn register(functions: Functions) -> Functions {
    functions.with("proxyResources", 2, 2, resources)
}

/// Returns the resources as JSON, without nulls. If a limit in the values is below an annotated request, it is raised
/// to the request, and if a request in the values is above an annotated limit, it is lowered to the limit: the API
/// server refuses a request above the limit.
fn resources<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<Value<'a>, Reason> {
    let annotations = map(args.any(0))?;
    let text = map(args.any(1))?.map(|values| write_json(&Value::Map(values.clone()), budget)).transpose()?;
    let decoded = text.map(|text| gojson::decode::<Object<String, Json>>(&text, budget)).transpose()?;
    let mut resources = decoded.and_then(Result::ok).unwrap_or_default();
    for list in resources.values_mut() {
        if let Some(list) = list.as_object_mut() {
            list.retain(|_, quantity| !quantity.is_null());
        }
    }
    resources.retain(|_, list| !list.is_null() && list.as_object().is_none_or(|list| !list.is_empty()));
    let annotated = |name: &str| annotations.and_then(|annotations| text_of(annotations, name));
    for (list, resource, name) in ANNOTATIONS {
        if let Some(quantity) = annotated(name) {
            set(&mut resources, list, resource, quantity.clone());
            let other = if list == REQUESTS { LIMITS } else { REQUESTS };
            let is_free =
                ANNOTATIONS.iter().all(|(l, r, name)| (*l, *r) != (other, resource) || annotated(name).is_none());
            if is_free && contradicts(&resources, resource) {
                set(&mut resources, other, resource, quantity);
            }
        }
    }
    Ok(Value::from(gojson::encode(&Json::Object(resources), budget)?))
}

fn text_of(annotations: &Map<'_>, name: &str) -> Option<String> {
    annotations.get(name)?.as_str().map(str::to_owned)
}

fn set(resources: &mut Object<String, Json>, list: &str, resource: &str, quantity: String) {
    let list = resources.entry(list).or_insert_with(|| Json::Object(Object::new()));
    if let Some(list) = list.as_object_mut() {
        list.insert(resource.to_owned(), quantity.into());
    }
}

/// Whether the request for a resource is above its limit.
fn contradicts(resources: &Object<String, Json>, resource: &str) -> bool {
    let quantity = |list: &str| resources.get(list)?.get(resource).map(quantity::text);
    let order =
        quantity(REQUESTS).zip(quantity(LIMITS)).and_then(|(request, limit)| quantity::compare(&request, &limit));
    order.is_some_and(Ordering::is_gt)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use gotemplate::{Delims, Template};
    use serde_json::json;

    use super::*;
    use crate::istio::functions;

    /// Returns the resources for these values and annotations. `annotations`: names without their prefix, and values.
    fn resources(values: &Json, annotations: &[(&str, &str)]) -> Json {
        let annotations: Object<String, Json> =
            annotations.iter().map(|(name, value)| (format!("sidecar.istio.io/{name}"), Json::from(*value))).collect();
        let data = json!({"annotations": annotations, "values": values});
        let text = "{{ proxyResources .annotations .values }}";
        let template = Template::parse("r", text, Delims::BRACES, &functions::all(BTreeMap::new())).unwrap();
        serde_json::from_str(&template.render(&Value::json(&data), &mut Budget::default()).unwrap()).unwrap()
    }

    #[test]
    fn an_annotation_replaces_one_resource_and_keeps_the_others() {
        let values = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "128Mi"}});
        assert_eq!(
            resources(&values, &[("proxyCPU", "250m"), ("proxyMemoryLimit", "3Gi")]),
            json!({"limits": {"cpu": "2", "memory": "3Gi"}, "requests": {"cpu": "250m", "memory": "128Mi"}})
        );
        assert_eq!(resources(&json!(null), &[("proxyCPULimit", "1")]), json!({"limits": {"cpu": "1"}}));
        let nulls = json!({"limits": {"cpu": null, "memory": "500Mi"}, "requests": {"cpu": null}});
        assert_eq!(resources(&nulls, &[]), json!({"limits": {"memory": "500Mi"}}));
    }

    #[test]
    fn a_resource_of_the_values_gives_way_to_an_annotation_that_it_contradicts() {
        let values = json!({"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": 0.1, "memory": "128Mi"}});
        let cpu = |annotations: &[(&str, &str)]| {
            let resources = resources(&values, annotations);
            (resources["requests"]["cpu"].clone(), resources["limits"]["cpu"].clone())
        };
        assert_eq!(cpu(&[("proxyCPU", "3")]), (json!("3"), json!("3")));
        assert_eq!(cpu(&[("proxyCPULimit", "50m")]), (json!("50m"), json!("50m")));
        assert_eq!(cpu(&[("proxyCPU", "2000m")]), (json!("2000m"), json!("2")));
        assert_eq!(cpu(&[("proxyCPU", "3"), ("proxyCPULimit", "1")]), (json!("3"), json!("1")));
    }
}
