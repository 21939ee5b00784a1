//! What an injection changes in a part of a pod. Only changes are checked: errors that the pod's author made are left to the API server.

use std::collections::HashSet;

use serde_json::Value;

use super::Unstartable;
use super::fields::demand;
use crate::pod;

/// The name of the pod in a message.
pub(super) const POD: &str = "the pod";

/// A part of the pod before and after the injection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change<'a> {
    author: &'a Value,
    pub(super) merged: &'a Value,
}

/// A condition on a value, and its description.
pub(super) type Condition<'c> = (&'c dyn Fn(&Value) -> bool, &'static str);

impl<'a> Change<'a> {
    pub(super) fn new(author: &'a Value, merged: &'a Value) -> Self {
        Self { author, merged }
    }

    /// Returns the part under this key.
    pub(super) fn within(self, key: &str) -> Self {
        let part = |whole: &'a Value| whole.get(key).unwrap_or(&Value::Null);
        Self { author: part(self.author), merged: part(self.merged) }
    }

    /// Returns the value under this key if the injection changes it to one other than null.
    pub(super) fn value(self, key: &str) -> Option<&'a Value> {
        let changed = self.within(key);
        Some(changed.merged).filter(|merged| !merged.is_null() && *merged != changed.author)
    }

    /// Returns the items of a list that the author's list lacks.
    pub(super) fn items(self, key: &str) -> impl Iterator<Item = &'a Value> {
        let list = self.within(key);
        let own: HashSet<&Value> = list.author.as_array().into_iter().flatten().collect();
        pod::list(self.merged, key).iter().filter(move |item| !own.contains(item))
    }

    /// Checks the value under this key if the injection changes it. `path`: the path of the field, for an error.
    pub(super) fn require(self, key: &str, path: &str, (is_valid, allowed): Condition<'_>) -> Result<(), Unstartable> {
        self.value(key).map_or(Ok(()), |value| demand(POD, path, value, is_valid, allowed))
    }
}
