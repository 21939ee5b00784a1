//! JSON as Go's `encoding/json` writes it, for values that agents in pods compare or that later injections read.

use std::io::{self, Write};

use gocompat::json::Html;
use gotemplate::{Budget, Exceeded};
use serde::Serialize as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::ser::Serializer;

use super::typed::{Mismatch, Struct};

/// Encodes `value` as compact JSON with Go's escapes for HTML. The budget is charged for the escaped JSON while it is
/// written.
///
/// # Errors
/// The budget is spent.
pub(super) fn encode(value: &Value, budget: &mut Budget) -> Result<String, Exceeded> {
    let mut text = Charged { text: Vec::new(), budget, exceeded: None };
    let written = value.serialize(&mut Serializer::with_formatter(&mut text, Html));
    match (text.exceeded, written) {
        (Some(exceeded), _) => Err(exceeded),
        // A `Value` can always be written as JSON, and JSON is UTF-8.
        (None, _) => Ok(String::from_utf8(text.text).unwrap_or_default()),
    }
}

/// Decodes JSON from a string in a pod. Each byte is charged as a step, for reading, copying and freeing the values.
///
/// # Errors
/// The budget is spent. The inner result is an error if the string is not JSON of this type.
pub(super) fn decode<T: DeserializeOwned>(text: &str, budget: &mut Budget) -> Result<serde_json::Result<T>, Exceeded> {
    budget.step(text.len())?;
    Ok(serde_json::from_str(text))
}

/// A writer that charges each written byte to a budget.
struct Charged<'b> {
    text: Vec<u8>,
    budget: &'b mut Budget,
    exceeded: Option<Exceeded>,
}

impl Write for Charged<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Err(exceeded) = self.budget.bytes(bytes.len()) {
            self.exceeded = Some(exceeded);
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Converts a container to the form in which Go encodes it: at all depths, fields are in the order of the API's types.
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
    use gotemplate::Limits;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_decoded_byte_is_a_step() {
        let text = format!("[{}0]", "0,".repeat(1000));
        for (steps, fits) in [(text.len() as u64, true), (text.len() as u64 - 1, false)] {
            let mut budget = Budget::new(gotemplate::Limits { steps, ..Default::default() });
            let decoded = decode::<Vec<u8>>(&text, &mut budget).map(|list| list.unwrap().len());
            assert_eq!(decoded, if fits { Ok(1001) } else { Err(Exceeded::Steps(steps)) });
        }
    }

    fn encode(value: &Value) -> String {
        super::encode(value, &mut Budget::default()).unwrap()
    }

    #[test]
    fn html_characters_are_escaped() {
        assert_eq!(encode(&json!({"b": "<&>", "a": 1})), r#"{"b":"\u003c\u0026\u003e","a":1}"#);
        assert_eq!(encode(&json!(["\u{2028}é\n\"\u{2029}", 0.5])), r#"["\u2028é\n\"\u2029",0.5]"#);
    }

    #[test]
    fn the_escaped_text_is_charged() {
        let limits = Limits { bytes: 100, ..Limits::default() };
        for (text, fits) in
            [("x".repeat(98), true), ("x".repeat(99), false), ("<".repeat(16), true), ("<".repeat(17), false)]
        {
            let encoded = super::encode(&text.as_str().into(), &mut Budget::new(limits));
            assert_eq!(encoded.map(drop), fits.then_some(()).ok_or(Exceeded::Bytes(100)), "{text}");
        }
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
