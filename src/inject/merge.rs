//! Kubernetes' strategic merge of a partial pod into a pod.
//!
//! Lists that the API merges by key (containers, volumes, variables …) are merged by it, in the order that kubectl and
//! API server give them; all other lists are replaced. Directives (`$patch` and its kin) work as they do there.

mod directive;
mod list;

use std::collections::HashSet;

use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value};

use super::typed::{Merge, Struct};
use directive::Directive;

/// Why an overlay cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `$patch` has a value that is no directive, or not one for this place.
    #[error("$patch: {0:?} means nothing here; replace and delete do")]
    Directive(String),
    /// An element of a list that is merged by key has none.
    #[error("an element of {list} has no {key}, by which it would be merged")]
    NoKey {
        /// The list's field.
        list: String,
        /// The field that identifies its elements.
        key: &'static str,
    },
    /// `$retainKeys` leaves out a field that the same overlay sets.
    #[error("$retainKeys does not list {0:?}, which the same overlay sets")]
    Retain(String),
    /// A directive's value is of the wrong type.
    #[error("{0} needs a list")]
    NoList(String),
    /// The budget is spent.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

/// Merges `overlay`, a partial pod, into `pod`. Takes time in proportion to the two, and charges it.
///
/// # Errors
/// A directive is wrong, an element has no key to be merged by, or the budget is spent.
pub fn merge_pod(pod: &mut Value, overlay: Value, budget: &mut Budget) -> Result<(), Error> {
    match overlay {
        Value::Object(overlay) => merge_map(super::pod::object(pod), overlay, Struct::named("core.Pod"), budget),
        _ => Ok(()),
    }
}

/// Merges `overlay` into `container`, an element of one of a pod's lists of containers.
///
/// # Errors
/// See [`merge_pod`].
pub(in crate::inject) fn merge_container(
    container: &mut Value,
    overlay: Map<String, Value>,
    budget: &mut Budget,
) -> Result<(), Error> {
    merge_map(super::pod::object(container), overlay, Struct::named("core.Container"), budget)
}

/// Merges a map of this type; in a map without one no list is merged.
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
            refresh_map(original);
            return Ok(());
        }
        Some(Directive::Delete) => {
            original.clear();
            return Ok(());
        }
        Some(Directive::Merge) | None => {}
    }
    directive::retain_keys(original, &mut overlay)?;
    let orders = directive::element_orders(&mut overlay)?;
    directive::delete_from_primitive_lists(original, &mut overlay)?;
    let deleted: HashSet<String> =
        overlay.iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key.clone()).collect();
    if !deleted.is_empty() {
        original.retain(|key, _| !deleted.contains(key));
    }
    for (key, value) in overlay.into_iter().filter(|(_, value)| !value.is_null()) {
        merge_member(original, key, value, of, budget)?;
    }
    for (key, order) in orders {
        if let (Some(Value::Array(items)), Some(Merge::By(by))) =
            (original.get_mut(&key), of.and_then(|of| of.merge(&key)))
        {
            *items = list::ordered(std::mem::take(items), &order, by);
        }
    }
    Ok(())
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
                refresh_list(old);
                Ok(())
            }
        },
        (_, new) => {
            original.insert(key, fresh(new));
            Ok(())
        }
    }
}

/// Makes a value one that nothing is merged into: nulls delete nothing, directives direct nothing.
fn refresh(value: &mut Value) {
    match value {
        Value::Object(map) => refresh_map(map),
        Value::Array(items) => refresh_list(items),
        _ => {}
    }
}

fn refresh_map(map: &mut Map<String, Value>) {
    // To look is cheaper than to rebuild.
    let goes = |key: &str, value: &Value| value.is_null() || directive::is_directive(key);
    if map.iter().any(|(key, value)| goes(key, value)) {
        map.retain(|key, value| !goes(key, value));
    }
    map.values_mut().for_each(refresh);
}

fn refresh_list(items: &mut Vec<Value>) {
    items.retain(|item| !item.as_object().is_some_and(|map| map.contains_key(directive::PATCH)));
    items.iter_mut().for_each(refresh);
}

/// Such a value.
fn fresh(mut value: Value) -> Value {
    refresh(&mut value);
    value
}

#[cfg(test)]
mod tests;
