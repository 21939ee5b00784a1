//! The template function that writes the proxy configuration as protobuf's JSON, without the fields that have their
//! default value.

use gotemplate::{Args, Budget, Field, Functions, Reason, Record, Struct, Value, write_json};

/// Istio's defaults of the proxy configuration. The template function omits fields with these values.
pub(in crate::istio) const DEFAULTS: &[(&str, &str)] = &[
    ("configPath", "./etc/istio/proxy"),
    ("binaryPath", "/usr/local/bin/envoy"),
    ("serviceCluster", "istio-proxy"),
    ("drainDuration", "45s"),
    ("discoveryAddress", "istiod.istio-system.svc:15012"),
    ("proxyAdminPort", "15000"),
    ("controlPlaneAuthPolicy", "MUTUAL_TLS"),
    ("statNameLength", "189"),
    ("statusPort", "15020"),
    ("terminationDrainDuration", "5s"),
];

pub(super) fn register(functions: Functions) -> Functions {
    functions.with("protoToJSON", 1, 1, to_json)
}

fn to_json<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<Value<'a>, Reason> {
    match args.any(0) {
        value if value.is_nil() => Ok(Value::from("{}")),
        Value::Struct(config) => {
            let kept = config.fields().filter(|(field, value)| is_written(config, field, value));
            let kept =
                Record::value("meshconfig.ProxyConfig", kept.map(|(field, value)| (field.json, value)).collect());
            Ok(Value::from(write_json(&kept, budget)?))
        }
        value => Ok(Value::from(write_json(value, budget)?)),
    }
}

/// Whether a field is present and neither zero nor the default.
fn is_written(config: &Struct<'_>, field: &Field, value: &Value<'_>) -> bool {
    let default = DEFAULTS.iter().find(|(key, _)| *key == field.json).map(|(_, default)| *default);
    let same = |default: &str| match value {
        Value::Text(text) => text.as_str() == default,
        Value::Int(number) => number.to_string() == default,
        Value::Enum { name, .. } => *name == default,
        _ => false,
    };
    config.has(field) && value.is_true() && !default.is_some_and(same)
}
