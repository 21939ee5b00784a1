//! A JSON object with undecoded values, for `conf` and `reply`.
//!
//! Decoding one value at a time lets an error name the key, and copies nothing.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The undecoded value of each key. If a key is repeated, its last value is used.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct Object<'a>(#[serde(borrow)] BTreeMap<Key<'a>, &'a RawValue>);

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(transparent)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl Borrow<str> for Key<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'a> Object<'a> {
    /// Returns the undecoded JSON value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_however_it_is_escaped() {
        let object: Object<'_> = serde_json::from_str(r#"{"a":1,"\u0062":[2],"a":3}"#).unwrap();
        let text = |key| object.get(key).map(RawValue::get);
        assert_eq!([text("a"), text("b"), text("c")], [Some("3"), Some("[2]"), None]);
    }

    #[test]
    fn a_list_is_not_an_object() {
        let error = serde_json::from_str::<Object<'_>>("[]").unwrap_err().to_string();
        assert!(error.starts_with("invalid type: sequence, expected a map"), "{error}");
    }
}
