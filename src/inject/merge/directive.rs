//! The directives of strategic merge: members of an overlay that say how to merge instead of what.

use serde_json::{Map, Value};

use super::Error;

/// The member that holds a directive.
pub(super) const PATCH: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_PRIMITIVE: &str = "$deleteFromPrimitiveList/";

/// What `$patch` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Directive {
    /// The overlay takes the place of what is there.
    Replace,
    /// What is there goes.
    Delete,
    /// What happens without any directive.
    Merge,
}

impl Directive {
    /// Takes the directive out of an overlay.
    pub(super) fn take(overlay: &mut Map<String, Value>) -> Result<Option<Self>, Error> {
        let Some(value) = overlay.shift_remove(PATCH) else { return Ok(None) };
        match value.as_str() {
            Some("replace") => Ok(Some(Self::Replace)),
            Some("delete") => Ok(Some(Self::Delete)),
            Some("merge") => Ok(Some(Self::Merge)),
            _ => Err(Error::Directive(value.as_str().map_or_else(|| value.to_string(), str::to_owned))),
        }
    }
}

/// Whether a member is a directive and no field.
pub(super) fn is_directive(key: &str) -> bool {
    key.starts_with('$')
        && (key == PATCH || key == RETAIN_KEYS || key.starts_with(ELEMENT_ORDER) || key.starts_with(DELETE_PRIMITIVE))
}

/// `$retainKeys`: fields that it does not list go.
pub(super) fn retain_keys(original: &mut Map<String, Value>, overlay: &mut Map<String, Value>) -> Result<(), Error> {
    let Some(value) = overlay.shift_remove(RETAIN_KEYS) else { return Ok(()) };
    let keys = value.as_array().ok_or_else(|| Error::NoList(RETAIN_KEYS.to_owned()))?;
    let listed = |key: &str| keys.iter().any(|k| k.as_str() == Some(key));
    if let Some(key) = overlay.keys().find(|key| !is_directive(key) && !listed(key)) {
        return Err(Error::Retain(key.clone()));
    }
    original.retain(|key, _| listed(key));
    Ok(())
}

/// `$setElementOrder/<list>`: the list and the order that its elements shall have.
pub(super) fn element_orders(overlay: &mut Map<String, Value>) -> Result<Vec<(String, Vec<Value>)>, Error> {
    let mut orders = Vec::new();
    for (list, key) in prefixed(overlay, ELEMENT_ORDER) {
        match overlay.shift_remove(&key) {
            Some(Value::Array(order)) => orders.push((list, order)),
            _ => return Err(Error::NoList(key)),
        }
    }
    Ok(orders)
}

/// `$deleteFromPrimitiveList/<list>`: scalars that go.
pub(super) fn delete_from_primitive_lists(
    original: &mut Map<String, Value>,
    overlay: &mut Map<String, Value>,
) -> Result<(), Error> {
    for (list, key) in prefixed(overlay, DELETE_PRIMITIVE) {
        let Some(Value::Array(gone)) = overlay.shift_remove(&key) else { return Err(Error::NoList(key)) };
        if let Some(Value::Array(items)) = original.get_mut(&list) {
            items.retain(|item| !gone.contains(item));
        }
    }
    Ok(())
}

fn prefixed(overlay: &Map<String, Value>, prefix: &str) -> Vec<(String, String)> {
    overlay.keys().filter_map(|key| Some((key.strip_prefix(prefix)?.to_owned(), key.clone()))).collect()
}
