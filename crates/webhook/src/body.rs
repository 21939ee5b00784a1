//! Parses the JSON body of an admission request. Omits members that no decision uses, and charges each parsed value to
//! a budget.
//!
//! `review` calls this module. It skips `managedFields` and `oldObject` while it parses: the object's `managedFields`
//! are a third of a request, and neither templates nor patches use either of them.

use std::cell::RefCell;
use std::fmt;

use gotemplate::{Budget, Exceeded};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Members that no decision depends on.
const SKIPPED: [&[&str]; 2] = [&["request", "object", "metadata", "managedFields"], &["request", "oldObject"]];

/// The number of budget steps that each JSON value costs: for reading, copying, comparing, writing and freeing it. All
/// of this takes about 0.9 µs for a small object, and half as long for a string.
const STEPS_PER_VALUE: usize = 8;

/// The member of a request that forbids side effects. It is read even after the budget is exceeded, because API servers
/// write it after the object.
const DRY_RUN: &str = "dryRun";

/// Parses a body. The value that exceeds the budget becomes null, and all later values are absent, except for
/// [`DRY_RUN`].
///
/// # Errors
/// The body is not JSON.
pub(super) fn read(body: &[u8], budget: &mut Budget) -> Result<(Value, Option<Exceeded>), serde_json::Error> {
    let meter = RefCell::new(Meter { budget, exceeded: None });
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value = Metered { meter: &meter, depth: 0, skipped: [true; SKIPPED.len()] }.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, meter.into_inner().exceeded))
}

struct Meter<'b> {
    budget: &'b mut Budget,
    exceeded: Option<Exceeded>,
}

/// The deserializer of one value: it charges each value in it to the budget, and leaves out the paths in [`SKIPPED`].
#[derive(Clone, Copy)]
struct Metered<'m, 'b> {
    meter: &'m RefCell<Meter<'b>>,
    /// The number of keys and indices on the path of the value.
    depth: usize,
    /// For each path in [`SKIPPED`], whether the value's path is a prefix of it.
    skipped: [bool; SKIPPED.len()],
}

impl Metered<'_, '_> {
    /// Charges one value. Returns whether the budget suffices.
    fn charge(self) -> bool {
        let meter = &mut *self.meter.borrow_mut();
        if meter.exceeded.is_none() {
            meter.exceeded = meter.budget.step(STEPS_PER_VALUE).err();
        }
        meter.exceeded.is_none()
    }

    fn is_exceeded(self) -> bool {
        self.meter.borrow().exceeded.is_some()
    }

    /// Whether the value is the review's request.
    fn is_request(self) -> bool {
        self.depth == 1 && self.skipped.contains(&true)
    }

    /// Returns the member under a key, or `None` if it is skipped.
    fn member(self, key: &str) -> Option<Self> {
        let mut member = self.element();
        for (at, path) in SKIPPED.iter().enumerate() {
            member.skipped[at] = self.skipped[at] && path.get(self.depth) == Some(&key);
            if member.skipped[at] && path.len() == member.depth {
                return None;
            }
        }
        Some(member)
    }

    /// Returns an element of a list.
    fn element(self) -> Self {
        Self { depth: self.depth + 1, skipped: [false; SKIPPED.len()], ..self }
    }
}

impl<'de> DeserializeSeed<'de> for Metered<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        match self.charge() {
            true => reader.deserialize_any(self),
            false => reader.deserialize_ignored_any(IgnoredAny).map(|_| Value::Null),
        }
    }
}

impl<'de> Visitor<'de> for Metered<'_, '_> {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            match self.member(&key) {
                _ if self.is_exceeded() && self.is_request() && key == DRY_RUN => {
                    drop(map.insert(key, members.next_value::<bool>()?.into()));
                }
                Some(member) if !self.is_exceeded() => {
                    drop(map.insert(key, members.next_value_seed(member)?));
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(Value::Object(map))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while !self.is_exceeded() {
            let Some(item) = items.next_element_seed(self.element())? else { return Ok(Value::Array(list)) };
            list.push(item);
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(list))
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
    use gotemplate::Limits;
    use serde_json::json;

    use super::*;

    fn read(text: &str) -> Result<Value, serde_json::Error> {
        super::read(text.as_bytes(), &mut Budget::default()).map(|(value, exceeded)| {
            assert_eq!(exceeded, None);
            value
        })
    }

    #[test]
    fn values_beyond_the_budget_are_not_built() {
        let request = json!({"uid": "u", "object": {"a": [1, 2, 3], "b": 1}, "options": {}, "dryRun": true});
        let text = json!({"request": request, "dryRun": true}).to_string();
        let mut budget = Budget::new(Limits { steps: 48, ..Limits::default() });
        let (value, exceeded) = super::read(text.as_bytes(), &mut budget).unwrap();
        assert_eq!(exceeded, Some(Exceeded::Steps(48)));
        let built = json!({"request": {"uid": "u", "object": {"a": [1, null]}, "dryRun": true}});
        assert_eq!(value, built);
        assert!(super::read(b"[1,2,3,4,5,6,7,8", &mut Budget::new(Limits { steps: 5, ..Limits::default() })).is_err());
    }

    #[test]
    fn the_budget_allows_as_many_values_as_can_be_read_in_time() {
        let exceeded = |values: usize| {
            let text = Value::from(vec![json!({}); values - 1]).to_string();
            super::read(text.as_bytes(), &mut Budget::default()).unwrap().1
        };
        assert_eq!((exceeded(125_000), exceeded(125_001)), (None, Some(Exceeded::Steps(1_000_000))));
    }

    #[test]
    fn only_the_old_object_and_the_objects_own_managed_fields_are_skipped() {
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
        wanted["request"].as_object_mut().unwrap().shift_remove("oldObject");
        assert_eq!(read(&text).unwrap(), wanted);
    }

    #[test]
    fn values_without_skipped_members_are_read_unchanged() {
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
            assert_eq!(read(text).unwrap().to_string(), text);
        }
        for text in ["", "{", "{}x", "[1", r#"{"request":{"object":{"metadata":{"managedFields":[}}}}"#] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
