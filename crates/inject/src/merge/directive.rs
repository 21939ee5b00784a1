//! The directives of strategic merge: members of an overlay that control the merging.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::Error;

/// The directive that replaces or deletes the object in which it is.
pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
pub(super) const ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVE: &str = "$deleteFromPrimitiveList/";

/// The value of `$patch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Directive {
    /// The overlay replaces the original.
    Replace,
    /// The original is deleted.
    Delete,
}

impl Directive {
    /// Removes `$patch` from an overlay and returns its value.
    pub(super) fn take(overlay: &mut Map<String, Value>) -> Result<Option<Self>, Error> {
        let Some(value) = overlay.shift_remove(PATCH) else { return Ok(None) };
        match value.as_str() {
            Some("replace") => Ok(Some(Self::Replace)),
            Some("delete") => Ok(Some(Self::Delete)),
            _ => Err(Error::Directive(value.as_str().map_or_else(|| value.to_string(), str::to_owned))),
        }
    }
}

/// Whether a member is a directive instead of a field.
pub(super) fn is_directive(key: &str) -> bool {
    key.starts_with('$')
        && (key == PATCH || key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) || key.starts_with(DELETE_PRIMITIVE))
}

/// Applies `$retainKeys`: removes the fields of `original` that the directive does not list.
pub(super) fn retain_keys(original: &mut Map<String, Value>, overlay: &mut Map<String, Value>) -> Result<(), Error> {
    let Some(value) = overlay.shift_remove(RETAIN_KEYS) else { return Ok(()) };
    let keys = value.as_array().ok_or_else(|| Error::NoList(RETAIN_KEYS.to_owned()))?;
    let listed: HashSet<&str> = keys.iter().filter_map(Value::as_str).collect();
    let is_missing =
        |(key, value): &(&String, &Value)| !value.is_null() && !is_directive(key) && !listed.contains(key.as_str());
    if let Some((key, _)) = overlay.iter().find(is_missing) {
        return Err(Error::Retain(key.clone()));
    }
    original.retain(|key, _| listed.contains(key.as_str()));
    Ok(())
}

/// Removes `$setElementOrder/<list>` and returns each list's name and order.
pub(super) fn element_orders(overlay: &mut Map<String, Value>) -> Result<Vec<(String, Vec<Value>)>, Error> {
    let mut orders = Vec::new();
    for (list, value) in take_prefixed(overlay, ELEMENT_ORDER) {
        match value {
            Value::Array(order) => orders.push((list, order)),
            _ => return Err(Error::NoList(format!("{ELEMENT_ORDER}{list}"))),
        }
    }
    Ok(orders)
}

/// Applies `$deleteFromPrimitiveList/<list>`: removes the given scalars from the list, or the list itself if the value
/// is null. Any other value has no effect.
pub(super) fn delete_from_primitive_lists(original: &mut Map<String, Value>, overlay: &mut Map<String, Value>) {
    for (list, value) in take_prefixed(overlay, DELETE_PRIMITIVE) {
        match (original.get_mut(&list), value) {
            (Some(Value::Array(items)), Value::Array(deleted)) => {
                let deleted: HashSet<Value> = deleted.into_iter().collect();
                items.retain(|item| !deleted.contains(item));
            }
            (Some(_), Value::Null) => drop(original.shift_remove(&list)),
            _ => {}
        }
    }
}

/// Removes the members whose keys have the prefix, and returns them with the rest of their keys.
fn take_prefixed(overlay: &mut Map<String, Value>, prefix: &str) -> Vec<(String, Value)> {
    if !overlay.keys().any(|key| key.starts_with(prefix)) {
        return Vec::new();
    }
    let mut taken = Vec::new();
    overlay.retain(|key, value| match key.strip_prefix(prefix) {
        Some(list) => {
            taken.push((list.to_owned(), value.take()));
            false
        }
        None => true,
    });
    taken
}
