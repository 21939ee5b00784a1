//! Computes the overlay that turns one pod into another: the reverse of a merge.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::super::typed::{Merge, Struct};
use super::directive::{self, ELEMENT_ORDER, PATCH};
use super::stripped;
use crate::pod::NO_MAP;

/// Returns the overlay that turns the pod `from` into the pod `to` when it is merged; empty if they are equal. A null
/// is the same as an absent member.
pub(crate) fn difference(from: &Value, to: &Value) -> Map<String, Value> {
    let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
    of_maps(&map(from), &map(to), Struct::named("core.Pod"))
}

fn of_maps(from: &Map<String, Value>, to: &Map<String, Value>, of: Option<Struct>) -> Map<String, Value> {
    let present = |map: &Map<String, Value>, key: &str| map.get(key).is_some_and(|value| !value.is_null());
    let mut overlay: Map<String, Value> = from
        .keys()
        .filter(|key| present(from, key) && !present(to, key))
        .map(|key| (key.clone(), Value::Null))
        .collect();
    for (key, new) in to.iter().filter(|(_, value)| !value.is_null()) {
        match (from.get(key).unwrap_or(&Value::Null), new) {
            (old, new) if old == new => {}
            (Value::Object(old), Value::Object(new)) => {
                let inner = of_maps(old, new, of.and_then(|of| of.member(key)));
                if !inner.is_empty() {
                    overlay.insert(key.clone(), inner.into());
                }
            }
            (Value::Array(old), Value::Array(new)) => of_lists(&mut overlay, key, (old.as_slice(), new.as_slice()), of),
            (_, new) => drop(overlay.insert(key.clone(), stripped(new.clone()))),
        }
    }
    overlay
}

/// Adds the members for the list `key` to the overlay: the changed elements and, if it changed, their order; for a list
/// without a usable merge key, the whole list.
fn of_lists(overlay: &mut Map<String, Value>, key: &str, (from, to): (&[Value], &[Value]), of: Option<Struct>) {
    let keyed = match of.and_then(|of| of.merge(key)) {
        Some(Merge::By(by)) => indexed(from, by).zip(indexed(to, by)).map(|(old, new)| (by, old, new)),
        _ => None,
    };
    let Some((by, old, new)) = keyed else {
        overlay.insert(key.to_owned(), to.into());
        return;
    };
    let deleted = from.iter().map(|item| &item[by]).filter(|id| !new.contains_key(*id));
    let mut items: Vec<Value> = deleted.map(|id| json!({by: id, PATCH: "delete"})).collect();
    for item in to {
        let before = old.get(&item[by]).copied().unwrap_or(&NO_MAP);
        let mut changed = of_maps(before, item.as_object().unwrap_or(&NO_MAP), of.and_then(|of| of.member(key)));
        if !changed.is_empty() {
            changed.insert(by.to_owned(), item[by].clone());
            items.push(changed.into());
        }
    }
    let kept: HashSet<&Value> = new.keys().copied().collect();
    let order = |items: &[Value]| -> Vec<Value> {
        items.iter().map(|item| item[by].clone()).filter(|id| kept.contains(id)).collect()
    };
    if order(from) != order(to) {
        let order: Vec<Value> = to.iter().map(|item| json!({by: item[by]})).collect();
        overlay.insert(format!("{ELEMENT_ORDER}{key}"), order.into());
    }
    if !items.is_empty() {
        overlay.insert(key.to_owned(), items.into());
    }
}

/// Whether the member `key` of an overlay from [`difference`] sets a value, and does not only remove or order values.
pub(crate) fn sets(key: &str, change: &Value) -> bool {
    let sets_in = |members: &Map<String, Value>| members.iter().filter(|(key, change)| sets(key, change)).count();
    match change {
        Value::Null => false,
        _ if directive::is_directive(key) => false,
        Value::Object(members) => members.is_empty() || sets_in(members) > 0,
        // An element contains its key and what changes. A new element may contain its key only.
        Value::Array(items) => items.iter().any(|item| match item {
            Value::Object(item) => !item.contains_key(PATCH) && (item.len() == 1 || sets_in(item) > 1),
            _ => true,
        }),
        _ => true,
    }
}

/// Whether the member `key` of an overlay from [`difference`] removes a value.
pub(crate) fn removes(key: &str, change: &Value) -> bool {
    let removes_in = |members: &Map<String, Value>| members.iter().any(|(key, change)| removes(key, change));
    match change {
        Value::Null => true,
        _ if directive::is_directive(key) => key == PATCH,
        Value::Object(members) => removes_in(members),
        Value::Array(items) => items.iter().filter_map(Value::as_object).any(removes_in),
        _ => false,
    }
}

/// Returns the elements of a list by key; `None` if an element has no key, or two elements have the same.
pub(super) fn indexed<'v>(items: &'v [Value], by: &str) -> Option<HashMap<&'v Value, &'v Map<String, Value>>> {
    let mut indexed = HashMap::new();
    for item in items {
        let item = item.as_object()?;
        if indexed.insert(item.get(by).filter(|id| !id.is_null())?, item).is_some() {
            return None;
        }
    }
    Some(indexed)
}
