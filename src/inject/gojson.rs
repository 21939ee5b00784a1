//! JSON text as Go's `encoding/json` writes it, for values that agents in pods compare or that injection reads again.

use serde_json::Value;

use super::typed::{Mismatch, Struct};

/// Encodes compact JSON with the characters escaped that are special in HTML.
pub(super) fn encode(value: &Value) -> String {
    let plain = value.to_string();
    if !plain.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return plain;
    }
    // These characters occur only in strings.
    plain
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// Converts a container to the form in which Go encodes it, with the fields of all depths in the order of the API's types.
///
/// # Errors
/// A field is not of its type.
pub(super) fn container(container: Value) -> Result<Value, Mismatch> {
    match Struct::named("core.Container") {
        Some(of) => of.canonical(container),
        None => Ok(container),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn html_characters_are_escaped() {
        assert_eq!(encode(&json!({"b": "<&>", "a": 1})), r#"{"b":"\u003c\u0026\u003e","a":1}"#);
    }

    #[test]
    fn a_container_has_its_fields_in_the_order_of_the_type() {
        let given = json!({"image": "i", "x": 1, "stdin": false, "env": [{"value": "", "name": "a"}], "name": "n",
            "resources": {"limits": {"memory": "1024Mi", "cpu": 2}}, "securityContext": {"runAsUser": 0, "privileged": false}});
        assert_eq!(
            encode(&container(given).unwrap()),
            r#"{"name":"n","image":"i","env":[{"name":"a"}],"resources":{"limits":{"cpu":"2","memory":"1Gi"}},"securityContext":{"privileged":false,"runAsUser":0},"x":1}"#
        );
        let error = container(json!({"name": "n", "ports": [{"containerPort": "http"}]})).unwrap_err();
        assert_eq!(error.to_string(), "ports[0].containerPort: expected an integer of 32 bits, got \"http\"");
    }
}
