//! The JSON of a request's body, without what nobody decides by.
//!
//! `review` calls it. The object's `managedFields` are a third of a review, are not a template's to see, and no patch
//! touches them; they are passed over while the text is read.

use std::fmt;

use serde::de::{Deserialize as _, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

const PASSED_OVER: &[&str] = &["request", "object", "metadata", "managedFields"];

/// Reads a body.
///
/// # Errors
/// It is no JSON.
pub(super) fn read(body: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Without(PASSED_OVER).deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// A value without the member to which the keys lead.
struct Without(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Without {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Without {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match self.0 {
                [last] if key == *last => drop(members.next_value::<IgnoredAny>()?),
                [first, rest @ ..] if key == *first => drop(map.insert(key, members.next_value_seed(Self(rest))?)),
                _ => drop(map.insert(key, members.next_value()?)),
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Value, A::Error> {
        Vec::deserialize(serde::de::value::SeqAccessDeserializer::new(items)).map(Value::Array)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_bool<E: Error>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_objects_own_managed_fields_are_passed_over() {
        let fields = json!([{ "manager": "kubectl" }]);
        let pod = |own: &Value| {
            let mut metadata =
                json!({ "name": "web", "labels": { "managedFields": "kept" }, "more": [1, -1, 0.5, null, true] });
            metadata.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
            json!({ "metadata": metadata, "spec": { "metadata": { "managedFields": fields }, "managedFields": fields } })
        };
        let review =
            |own| json!({ "kind": "AdmissionReview", "request": { "object": pod(&own), "oldObject": pod(&own) } });
        let mut wanted = review(json!({ "managedFields": fields }));
        let text = wanted.to_string();
        wanted["request"]["object"]["metadata"].as_object_mut().unwrap().shift_remove("managedFields");
        assert_eq!(read(text.as_bytes()).unwrap(), wanted);
    }

    #[test]
    fn what_is_no_object_is_what_it_is() {
        for text in [
            "null",
            "1",
            "-1",
            "1.5",
            "\"x\"",
            "[1,{}]",
            "true",
            r#"{"request":null}"#,
            r#"{"request":{"object":[{"metadata":1}]}}"#,
        ] {
            assert_eq!(read(text.as_bytes()).unwrap().to_string(), text);
        }
        for text in ["", "{", "{}x", "[1", r#"{"request":{"object":{"metadata":{"managedFields":[}}}}"#] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
