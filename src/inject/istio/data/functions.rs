//! Template functions that need to know what the data means: Istio's defaults and OpenTelemetry's names.

use serde_json::Value as Json;

use crate::inject::gojson;
use crate::inject::istio::mesh;
use crate::inject::template::{Functions, Kind, Value};

/// All functions of injection templates: Go's, sprig's, Istio's.
pub(in crate::inject::istio) fn functions() -> Functions {
    Functions::go()
        .with_sprig()
        .with_istio()
        .with("protoToJSON", 1, 1, |budget, args| {
            let text = proxy_config(args.any(0));
            budget.bytes(text.len())?;
            Ok(Value::from(text))
        })
        .with("otelResourceAttributes", 5, 5, |budget, args| {
            let text = match args.all() {
                [mesh, annotations, labels, namespace, containers] if enriched(mesh) => {
                    resource_attributes(annotations, labels, namespace.as_str().unwrap_or_default(), containers)
                }
                _ => String::new(),
            };
            budget.bytes(text.len())?;
            Ok(Value::from(text))
        })
        // The injector's environment is nothing that a template should print.
        .with("env", 2, 2, |_, args| Ok(args.any(1).clone()))
}

/// A proxy configuration with only what differs from Istio's defaults, in protobuf's order.
fn proxy_config(config: &Value<'_>) -> String {
    let Value::Struct(config) = config else { return "{}".to_owned() };
    let defaults = mesh::defaults();
    let mut kept = serde_json::Map::new();
    for (field, _) in config.fields() {
        let value = config.json().and_then(|json| json.get(field.json));
        let default = &defaults["defaultConfig"][field.json];
        if let Some(value) = value.filter(|value| *value != default && !is_zero(value, field.kind)) {
            let mut value = value.clone();
            if let (Kind::Map(_), Json::Object(entries)) = (field.kind, &mut value) {
                entries.sort_keys();
            }
            kept.insert(field.json.to_owned(), value);
        }
    }
    gojson::encode(&Json::Object(kept))
}

/// What protobuf's JSON leaves out; a wrapper of a zero is a value.
fn is_zero(value: &Json, kind: Kind) -> bool {
    match (value, kind) {
        (Json::Null, _) => true,
        (_, Kind::Pointer(_) | Kind::Struct(_)) => false,
        (Json::Bool(value), _) => !value,
        (Json::Number(number), _) => number.as_f64() == Some(0.0),
        (Json::String(text), Kind::Enum(names)) => names.iter().any(|(name, number)| name == text && *number == 0),
        (Json::String(text), _) => text.is_empty(),
        (Json::Array(items), _) => items.is_empty(),
        (Json::Object(fields), _) => fields.is_empty(),
    }
}

/// Whether a tracing provider of the mesh asks for OpenTelemetry's conventions.
fn enriched(mesh: &Value<'_>) -> bool {
    let Value::Struct(mesh) = mesh else { return false };
    let providers = mesh.json().and_then(|json| json.get("extensionProviders")).and_then(Json::as_array);
    providers.into_iter().flatten().any(|provider| {
        provider.pointer("/opentelemetry/serviceAttributeEnrichment").and_then(Json::as_str)
            == Some("OTEL_SEMANTIC_CONVENTIONS")
    })
}

/// Namespace, version and instance of the service, each from its annotation, else from what the pod tells.
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
    let said = attributes.into_iter().filter_map(|(name, value)| Some(format!("{name}={}", value?)));
    said.collect::<Vec<_>>().join(",")
}

fn first_container(containers: &Value<'_>) -> Option<String> {
    let Value::List(list) = containers else { return None };
    let Some(Value::Struct(first)) = list.get(0) else { return None };
    first.json()?.get("name")?.as_str().map(str::to_owned)
}
