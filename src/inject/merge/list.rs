//! Merging of lists by key, and the order of the merged elements.

use std::collections::{HashMap, HashSet};

use gotemplate::{Budget, member_of};
use serde_json::Value;

use super::directive::Directive;
use super::{Error, Struct, cleaned, merge_map};

/// Merges `overlay` into `original`, the list `name`, whose merge key is the field `by`.
pub(super) fn merge_keyed(
    original: &mut Vec<Value>,
    overlay: Vec<Value>,
    (name, by): (&str, &'static str),
    element: Option<Struct>,
    budget: &mut Budget,
) -> Result<(), Error> {
    let no_key = || Error::NoKey { list: name.to_owned(), key: by };
    let Elements { additions, replace } = take_directives(original, overlay, by, no_key)?;
    if replace {
        *original = additions.into_iter().map(cleaned).collect();
        return Ok(());
    }
    let order = Indices::of(&additions, by);
    if order.0.contains_key(&Value::Null) {
        return Err(no_key());
    }
    let mut indices = Indices::of(original, by);
    let before = original.len();
    for addition in additions {
        let key = key_of(&addition, by);
        match indices.get(key).and_then(|at| original.get_mut(at)) {
            Some(old) => match (old, addition) {
                (Value::Object(old), Value::Object(new)) => merge_map(old, new, element, budget)?,
                (_, new) => original.push(cleaned(new)),
            },
            None => {
                indices.0.insert(key.clone(), original.len());
                original.push(cleaned(addition));
            }
        }
    }
    *original = interleave(std::mem::take(original), &order, &indices.up_to(before), by);
    Ok(())
}

struct Elements {
    additions: Vec<Value>,
    replace: bool,
}

/// Applies the elements that are directives and returns the others.
fn take_directives(
    original: &mut Vec<Value>,
    overlay: Vec<Value>,
    by: &str,
    no_key: impl Fn() -> Error,
) -> Result<Elements, Error> {
    let mut elements = Elements { additions: Vec::with_capacity(overlay.len()), replace: false };
    let mut deleted = HashSet::new();
    for mut item in overlay {
        match item.as_object_mut().map(Directive::take).transpose()?.flatten() {
            None => elements.additions.push(item),
            Some(Directive::Replace) => elements.replace = true,
            Some(Directive::Delete) => match key_of(&item, by) {
                Value::Null => return Err(no_key()),
                key => drop(deleted.insert(key.clone())),
            },
            Some(Directive::Merge) => return Err(Error::Directive("merge".to_owned())),
        }
    }
    if !deleted.is_empty() {
        original.retain(|old| !deleted.contains(key_of(old, by)));
    }
    Ok(elements)
}

/// Sorts the elements into the order that `$setElementOrder` lists; elements that it does not list keep their order.
pub(super) fn ordered(items: Vec<Value>, order: &[Value], by: &str) -> Vec<Value> {
    let before = Indices::of(&items, by);
    interleave(items, &Indices::of(order, by), &before, by)
}

/// Interleaves two parts of `items`: the elements that `order` lists, in this order, and all other elements, in their
/// present order. An element of the second part precedes one of the first part only if it preceded it in `before`.
fn interleave(items: Vec<Value>, order: &Indices, before: &Indices, by: &str) -> Vec<Value> {
    let place = |indices: &Indices, item: &Value| indices.get(key_of(item, by));
    let (mut listed, rest): (Vec<Value>, Vec<Value>) = items.into_iter().partition(|item| place(order, item).is_some());
    listed.sort_by_cached_key(|item| place(order, item));
    let mut merged = Vec::with_capacity(listed.len() + rest.len());
    let (mut listed, mut rest) = (listed.into_iter().peekable(), rest.into_iter().peekable());
    while let (Some(l), Some(r)) = (listed.peek(), rest.peek()) {
        let rest_first = matches!((place(before, r), place(before, l)), (Some(r), Some(l)) if r < l);
        merged.extend(if rest_first { rest.next() } else { listed.next() });
    }
    merged.extend(listed);
    merged.extend(rest);
    merged
}

/// Adds the scalars that the list lacks.
pub(super) fn unite(items: &mut Vec<Value>, more: Vec<Value>) {
    let mut present: HashSet<Value> = items.iter().cloned().collect();
    items.extend(more.into_iter().filter(|item| present.insert(item.clone())));
}

/// The index of the first element with each key.
struct Indices(HashMap<Value, usize>);

impl Indices {
    fn of(items: &[Value], by: &str) -> Self {
        let mut indices = HashMap::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            indices.entry(key_of(item, by).clone()).or_insert(at);
        }
        Self(indices)
    }

    fn get(&self, key: &Value) -> Option<usize> {
        self.0.get(key).copied()
    }

    /// Keeps only the elements whose index is below `end`.
    fn up_to(mut self, end: usize) -> Self {
        self.0.retain(|_, at| *at < end);
        self
    }
}

fn key_of<'a>(item: &'a Value, by: &str) -> &'a Value {
    member_of(item, by).unwrap_or(&Value::Null)
}
