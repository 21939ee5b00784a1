//! Tests of decoded, unknown and invalid fields.

use gotemplate::{Kind, Shape};
use serde_json::json;

use super::*;
use crate::istio::shapes::mesh;

fn proxy(fields: Value) -> Result<Value, String> {
    let Value::Object(fields) = fields else { panic!("a map is decoded") };
    decode(PROXY_CONFIG, fields).map(Value::Object).map_err(|error| error.to_string())
}

#[test]
fn durations_have_protobufs_format() {
    for (text, spelled) in [
        ("10ms", "0.010s"),
        ("0.01s", "0.010s"),
        ("1m", "60s"),
        ("1.5h", "5400s"),
        ("1us", "0.000001s"),
        ("1ns", "0.000000001s"),
        ("0", "0s"),
        ("2s10ms", "2.010s"),
    ] {
        let decoded = proxy(json!({"privateKeyProvider": {"cryptomb": {"pollDelay": text}}, "drainDuration": text}));
        let expected = json!({"drainDuration": spelled, "privateKeyProvider": {"cryptomb": {"pollDelay": spelled}}});
        assert_eq!(decoded.unwrap(), expected, "{text}");
    }
}

#[test]
fn names_of_the_definition_are_decoded_at_any_depth() {
    let decoded = proxy(json!({"private_key_provider": {"cryptomb": {"poll_delay": "1s", "fallback": false}},
        "tracing": {"tls_settings": {"ca_certificates": "/ca"}}, "proxy_metadata": {"A_B": "c"}}));
    let expected = json!({"tracing": {"tlsSettings": {"caCertificates": "/ca"}}, "proxyMetadata": {"A_B": "c"},
        "privateKeyProvider": {"cryptomb": {"pollDelay": "1s", "fallback": false}}});
    assert_eq!(decoded.unwrap().to_string(), expected.to_string());
}

#[test]
fn a_value_of_another_type_is_refused_with_its_path() {
    for (fields, message) in [
        (
            json!({"concurrency": "two"}),
            "concurrency is \"two\", and must be a whole number from -2147483648 to 2147483647",
        ),
        (json!({"concurrency": 1.5}), "concurrency is 1.5, and must be a whole number"),
        (json!({"drainDuration": "5"}), "drainDuration is \"5\", and must be a duration such as 10s or 1m30s"),
        (json!({"drainDuration": 5}), "drainDuration is 5, and must be a duration"),
        (
            json!({"interceptionMode": "redirect"}),
            "interceptionMode is \"redirect\", and must be one of REDIRECT, TPROXY, NONE",
        ),
        (json!({"proxyMetadata": {"A": 1}}), "proxyMetadata.A is 1, and must be text"),
        (json!({"proxyMetadata": []}), "proxyMetadata is a list, and must be a map"),
        (json!({"extraStatTags": ["a", 2]}), "extraStatTags.1 is 2, and must be text"),
        (json!({"image": "distroless"}), "image is \"distroless\", and must be a map"),
        (
            json!({"holdApplicationUntilProxyStarts": "true"}),
            "holdApplicationUntilProxyStarts is \"true\", and must be true or false",
        ),
        (json!({"tracing": {"sampling": "many"}}), "tracing.sampling is \"many\", and must be a number"),
    ] {
        let error = proxy(fields).unwrap_err();
        assert!(error.starts_with(message), "{error}");
    }
}

#[test]
fn an_unknown_enum_name_stays_only_in_the_mesh_configuration() {
    let written = json!({"defaultConfig": {"interceptionMode": "FUTURE"}, "accessLogEncoding": "XML"});
    let Value::Object(fields) = written.clone() else { panic!("a map is decoded") };
    assert_eq!(
        decode(MESH_CONFIG, fields).map(|decoded| Value::from(decoded)["defaultConfig"].clone()),
        Ok(written["defaultConfig"].clone())
    );
    assert!(proxy(json!({"interceptionMode": "FUTURE"})).is_err());
}

fn assert_defined(shape: &Shape, message: &str) {
    let fields = &DEFINITION.messages[message];
    for wanted in shape.fields.iter().filter(|field| !field.json.is_empty()) {
        let field = fields.iter().find(|field| field.name == wanted.json);
        let field = field.unwrap_or_else(|| panic!("{message} has no {}", wanted.json));
        if let Kind::Pointer(inner) = wanted.kind
            && DEFINITION.messages.contains_key(field.kind)
        {
            assert_defined(inner, field.kind);
        }
    }
}

#[test]
fn fields_that_templates_read_are_defined() {
    assert_defined(&mesh::MESH_CONFIG, MESH_CONFIG);
    let written = json!({"defaultConfig": {"tracing": {"lightstep": {"secure": true, "cacertPath": "/ca"}}}});
    let Value::Object(fields) = written.clone() else { panic!("a map is decoded") };
    assert_eq!(decode(MESH_CONFIG, fields).map(Value::Object), Ok(written));
}

#[test]
fn zeroes_stay_at_the_top_and_in_fields_with_presence() {
    let decoded = proxy(json!({"statNameLength": 0, "concurrency": "2", "interceptionMode": 1, "statusPort": null,
        "tracing": {"sampling": 0, "maxPathTagLength": 0, "enableIstioTags": false, "zipkin": {"address": ""}}}));
    let expected = json!({"statNameLength": 0, "concurrency": 2, "interceptionMode": "TPROXY",
        "tracing": {"zipkin": {}, "enableIstioTags": false}});
    assert_eq!(decoded.unwrap(), expected);
}

#[test]
fn unknown_fields_stay_only_at_the_top() {
    let decoded = proxy(json!({"other": "1m", "image": {"other": 1}, "concurrency": 0}));
    let expected = json!({"concurrency": 0, "image": {}, "other": "1m"});
    assert_eq!(decoded.unwrap().to_string(), expected.to_string());
}
