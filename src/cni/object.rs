//! A JSON object whose values are not read yet, so that an error can name the key, and nothing is copied.
//!
//! For `conf` and `reply`.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// Values by key. Of a key that comes twice the last counts.
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
    /// The text of a value.
    pub(super) fn get(&self, key: &str) -> Option<&'a RawValue> {
        self.0.get(key).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_a_key_however_it_is_written() {
        let object: Object<'_> = serde_json::from_str(r#"{"a":1,"\u0062":[2],"a":3}"#).unwrap();
        let text = |key| object.get(key).map(RawValue::get);
        assert_eq!([text("a"), text("b"), text("c")], [Some("3"), Some("[2]"), None]);
    }

    #[test]
    fn is_no_list() {
        let error = serde_json::from_str::<Object<'_>>("[]").unwrap_err().to_string();
        assert!(error.starts_with("invalid type: sequence, expected a map"), "{error}");
    }
}
