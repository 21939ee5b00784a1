//! The template function that returns OpenTelemetry's resource attributes for the sidecar.

use gotemplate::{Functions, Value};
use serde_json::Value as Json;

pub(super) fn register(functions: Functions) -> Functions {
    functions.with("otelResourceAttributes", 5, 5, |budget, args| {
        let text = match args.all() {
            [mesh, annotations, labels, namespace, containers] if enriched(mesh) => {
                resource_attributes(annotations, labels, namespace.as_str().unwrap_or_default(), containers)
            }
            _ => String::new(),
        };
        budget.bytes(text.len())?;
        Ok(Value::from(text))
    })
}

/// Whether a tracing provider of the mesh uses OpenTelemetry's semantic conventions.
fn enriched(mesh: &Value<'_>) -> bool {
    let Value::Struct(mesh) = mesh else { return false };
    let providers = mesh.json().and_then(|json| json.get("extensionProviders")).and_then(Json::as_array);
    providers.into_iter().flatten().any(|provider| {
        provider.pointer("/opentelemetry/serviceAttributeEnrichment").and_then(Json::as_str)
            == Some("OTEL_SEMANTIC_CONVENTIONS")
    })
}

/// Returns the attributes for the service's namespace, version and instance, each from its annotation, or else from the pod.
fn resource_attributes(annotations: &Value<'_>, labels: &Value<'_>, namespace: &str, containers: &Value<'_>) -> String {
    let entry = |map: &Value<'_>, key: &str| match map {
        Value::Map(map) => map.get(key).and_then(|value| value.as_str().map(str::to_owned)).filter(|v| !v.is_empty()),
        _ => None,
    };
    let annotated = |what: &str| entry(annotations, &format!("resource.opentelemetry.io/{what}"));
    let namespace = if namespace.is_empty() { "default" } else { namespace };
    let container = first_container(containers);
    let attributes = [
        ("service.namespace", annotated("service.namespace").or_else(|| Some(namespace.to_owned()))),
        ("service.version", annotated("service.version").or_else(|| entry(labels, "app.kubernetes.io/version"))),
        (
            "service.instance.id",
            annotated("service.instance.id")
                .or_else(|| container.map(|name| format!("{namespace}.$(POD_NAME).{name}"))),
        ),
    ];
    let present = attributes.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    present.collect::<Vec<_>>().join(",")
}

fn first_container(containers: &Value<'_>) -> Option<String> {
    let Value::List(list) = containers else { return None };
    let Some(Value::Struct(first)) = list.get(0) else { return None };
    first.json()?.get("name")?.as_str().map(str::to_owned)
}
