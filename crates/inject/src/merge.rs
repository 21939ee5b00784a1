//! Kubernetes' strategic merge patch: merges a partial pod, the overlay, into a pod.
//!
//! Lists with a merge key (containers, volumes, variables …) are merged by that key, and their elements get the order
//! that kubectl and the API server give them; other lists are replaced. Directives such as `$patch` have the same
//! effect as in the API server.

mod difference;
mod directive;
mod list;
mod standing;

use std::collections::HashSet;

use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value};

use super::typed::{Merge, Struct};
pub(crate) use difference::{difference, removes, sets};
use directive::Directive;
use list::Order;
pub(crate) use standing::{replaced, restricted, standing};

/// Why an overlay cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `$patch` has a value that is not a directive, or not one that applies to an element of a list.
    #[error("$patch: {0:?} is not allowed here: expected replace or delete")]
    Directive(String),
    /// An element of a list that is merged by key lacks the key.
    #[error("an element of {list} lacks {key}, the key by which elements of this list are merged")]
    NoKey {
        /// The field that holds the list.
        list: String,
        /// The field that identifies its elements.
        key: &'static str,
    },
    /// `$retainKeys` does not list a field of the object that contains it.
    #[error("$retainKeys does not list {0:?}, which is set beside it")]
    Retain(String),
    /// `$setElementOrder` does not list the elements of the overlay in their order.
    #[error("$setElementOrder/{0} does not list the elements of {0} beside it in their order")]
    Order(String),
    /// A directive's value is not a list.
    #[error("the value of {0} is not a list")]
    NoList(String),
    /// The budget is spent.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

/// Merges `overlay`, a partial pod, into `pod`. The time, which is linear in the size of both, is charged to the
/// budget.
///
/// # Errors
/// A directive is invalid, an element lacks its merge key, or the budget is spent.
pub fn merge_pod(pod: &mut Value, overlay: Value, budget: &mut Budget) -> Result<(), Error> {
    match overlay {
        Value::Object(overlay) => merge_map(super::pod::object(pod), overlay, Struct::named("core.Pod"), budget),
        _ => Ok(()),
    }
}

/// Merges `overlay` into `container`.
///
/// # Errors
/// As for [`merge_pod`].
pub(crate) fn merge_container(
    container: &mut Value,
    overlay: Map<String, Value>,
    budget: &mut Budget,
) -> Result<(), Error> {
    merge_map(super::pod::object(container), overlay, Struct::named("core.Container"), budget)
}

/// Merges a map of the API type `of`. In a map of unknown type, lists are replaced.
fn merge_map(
    original: &mut Map<String, Value>,
    mut overlay: Map<String, Value>,
    of: Option<Struct>,
    budget: &mut Budget,
) -> Result<(), Error> {
    budget.step(overlay.len())?;
    match Directive::take(&mut overlay)? {
        Some(Directive::Replace) => {
            *original = overlay;
            strip_map(original);
            return Ok(());
        }
        Some(Directive::Delete) => {
            original.clear();
            return Ok(());
        }
        None => {}
    }
    directive::retain_keys(original, &mut overlay)?;
    let orders = orders(original, &mut overlay, of)?;
    directive::delete_from_primitive_lists(original, &mut overlay);
    let deleted: HashSet<String> =
        overlay.iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key.clone()).collect();
    if !deleted.is_empty() {
        original.retain(|key, _| !deleted.contains(key));
    }
    for (key, value) in overlay.into_iter().filter(|(_, value)| !value.is_null()) {
        merge_member(original, key, value, of, budget)?;
    }
    for (key, order) in orders {
        if let Some(Value::Array(items)) = original.get_mut(&key) {
            *items = order.of(std::mem::take(items));
        }
    }
    Ok(())
}

/// Removes `$setElementOrder/<list>` from the overlay and returns each list's name and order.
///
/// # Errors
/// An order is not a list, or contradicts the overlay's list.
fn orders(
    original: &Map<String, Value>,
    overlay: &mut Map<String, Value>,
    of: Option<Struct>,
) -> Result<Vec<(String, Order)>, Error> {
    let mut orders = Vec::new();
    for (key, order) in directive::element_orders(overlay)? {
        let by = match of.and_then(|of| of.merge(&key)) {
            Some(Merge::By(by)) => Some(by),
            Some(Merge::Set) | None => None,
        };
        let list = |map: &Map<String, Value>| map.get(&key).and_then(Value::as_array).cloned().unwrap_or_default();
        let order = Order::new(&key, &order, (list(overlay).as_slice(), list(original).as_slice()), by)?;
        orders.push((key, order));
    }
    Ok(orders)
}

fn merge_member(
    original: &mut Map<String, Value>,
    key: String,
    value: Value,
    of: Option<Struct>,
    budget: &mut Budget,
) -> Result<(), Error> {
    let member = || of.and_then(|of| of.member(&key));
    match (original.get_mut(&key), value) {
        (Some(Value::Object(old)), Value::Object(new)) => merge_map(old, new, member(), budget),
        (Some(Value::Array(old)), Value::Array(new)) => match of.and_then(|of| of.merge(&key)) {
            Some(Merge::By(by)) => {
                budget.step(old.len() + new.len())?;
                list::merge_keyed(old, new, (&key, by), member(), budget)
            }
            Some(Merge::Set) => {
                list::unite(old, new);
                Ok(())
            }
            None => {
                *old = new;
                old.iter_mut().for_each(strip);
                Ok(())
            }
        },
        (_, new) => {
            match added(new) {
                Some(new) => original.insert(key, new),
                None => original.shift_remove(&key),
            };
            Ok(())
        }
    }
}

/// Returns a value that is set instead of merged, without nulls and without the maps in it that have a `$patch`, which
/// have nothing to delete or replace; `None` if the value itself is such a map.
fn added(mut value: Value) -> Option<Value> {
    if is_directive(&value) {
        return None;
    }
    remove_directives(&mut value);
    Some(value)
}

fn is_directive(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.contains_key(directive::PATCH))
}

fn remove_directives(value: &mut Value) {
    match value {
        Value::Object(map) => {
            let is_removed =
                |key: &str, value: &Value| value.is_null() || directive::is_directive(key) || is_directive(value);
            // Most maps contain neither nulls nor directives, so a search suffices for them.
            if map.iter().any(|(key, value)| is_removed(key, value)) {
                map.retain(|key, value| !is_removed(key, value));
            }
            map.values_mut().for_each(remove_directives);
        }
        Value::Array(items) => {
            items.retain(|item| !is_directive(item));
            items.iter_mut().for_each(remove_directives);
        }
        _ => {}
    }
}

/// Removes nulls and directives from a value that replaces another one, in which directives have no effect.
fn strip(value: &mut Value) {
    match value {
        Value::Object(map) => strip_map(map),
        Value::Array(items) => items.iter_mut().for_each(strip),
        _ => {}
    }
}

fn strip_map(map: &mut Map<String, Value>) {
    let is_removed = |key: &str, value: &Value| value.is_null() || directive::is_directive(key);
    if map.iter().any(|(key, value)| is_removed(key, value)) {
        map.retain(|key, value| !is_removed(key, value));
    }
    map.values_mut().for_each(strip);
}

/// Returns `value` without nulls and directives.
fn stripped(mut value: Value) -> Value {
    strip(&mut value);
    value
}

#[cfg(test)]
mod tests;
