//! JSON text as Go's encoder writes it, for values that agents in pods compare or that injection reads again.

use serde_json::{Map, Value};

/// Fields of a container in the order of the API's type.
const CONTAINER_FIELDS: [&str; 25] = [
    "name",
    "image",
    "command",
    "args",
    "workingDir",
    "ports",
    "envFrom",
    "env",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "volumeMounts",
    "volumeDevices",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
    "securityContext",
    "stdin",
    "stdinOnce",
    "tty",
];

/// Compact JSON in which no character means anything to HTML.
pub(super) fn encode(value: &Value) -> String {
    let plain = value.to_string();
    if !plain.contains(['<', '>', '&', '\u{2028}', '\u{2029}']) {
        return plain;
    }
    // Such characters occur inside strings alone.
    plain
        .replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

/// A container with its fields in the order of the API's type; fields that it does not know come last.
pub(super) fn ordered_container(container: &Value) -> Value {
    let Some(fields) = container.as_object() else { return container.clone() };
    let mut ordered = Map::with_capacity(fields.len() + 1);
    for field in CONTAINER_FIELDS {
        if let Some(value) = fields.get(field) {
            ordered.insert(field.to_owned(), value.clone());
        } else if field == "resources" {
            ordered.insert(field.to_owned(), Value::Object(Map::new()));
        }
    }
    for (field, value) in fields.iter().filter(|(field, _)| !CONTAINER_FIELDS.contains(&field.as_str())) {
        ordered.insert(field.clone(), value.clone());
    }
    Value::Object(ordered)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_is_what_go_writes() {
        assert_eq!(encode(&json!({"b": "<&>", "a": 1})), r#"{"b":"\u003c\u0026\u003e","a":1}"#);
        let container = json!({"image": "i", "x": 1, "name": "n"});
        assert_eq!(encode(&ordered_container(&container)), r#"{"name":"n","image":"i","resources":{},"x":1}"#);
    }
}
