//! Lists that are merged by key, and the order of what comes out.

use serde_json::Value;

use super::directive::Directive;
use super::schema::Schema;
use super::{Error, fresh, merge_map};
use crate::inject::member::member_of;

/// Merges `overlay` into `original`; `by` is the field that identifies elements of the list `name`.
pub(super) fn merge_keyed(
    original: &mut Vec<Value>,
    overlay: Vec<Value>,
    (name, by): (&str, &'static str),
    element: Schema,
) -> Result<(), Error> {
    let no_key = || Error::NoKey { list: name.to_owned(), key: by };
    let Elements { additions, replace } = take_directives(original, overlay, by, no_key)?;
    if replace {
        *original = additions.into_iter().map(fresh).collect();
        return Ok(());
    }
    let order = keys(&additions, by);
    if order.iter().any(Value::is_null) {
        return Err(no_key());
    }
    let before = keys(original, by);
    for addition in additions {
        let key = key_of(&addition, by);
        match (original.iter_mut().find(|item| key_of(item, by) == key), addition) {
            (Some(Value::Object(old)), Value::Object(new)) => merge_map(old, new, element)?,
            (_, new) => original.push(fresh(new)),
        }
    }
    *original = interleave(std::mem::take(original), &order, &before, by);
    Ok(())
}

struct Elements {
    additions: Vec<Value>,
    replace: bool,
}

/// Carries out elements that are directives; the rest is left to be merged.
fn take_directives(
    original: &mut Vec<Value>,
    overlay: Vec<Value>,
    by: &str,
    no_key: impl Fn() -> Error,
) -> Result<Elements, Error> {
    let mut elements = Elements { additions: Vec::with_capacity(overlay.len()), replace: false };
    for mut item in overlay {
        match item.as_object_mut().map(Directive::take).transpose()?.flatten() {
            None => elements.additions.push(item),
            Some(Directive::Replace) => elements.replace = true,
            Some(Directive::Delete) => {
                let key = key_of(&item, by);
                if key.is_null() {
                    return Err(no_key());
                }
                original.retain(|old| key_of(old, by) != key);
            }
            Some(Directive::Merge) => return Err(Error::Directive("merge".to_owned())),
        }
    }
    Ok(elements)
}

/// Puts the elements into the order that `$setElementOrder` lists; those that it does not list keep theirs.
pub(super) fn ordered(items: Vec<Value>, order: &[Value], before: &[Value], by: &str) -> Vec<Value> {
    interleave(items, &keys(order, by), &keys(before, by), by)
}

/// What the overlay has stands in its order, the rest in the order of `before`. Where both could come next, the rest
/// does only if both were there before and it stood in front.
fn interleave(items: Vec<Value>, order: &[Value], before: &[Value], by: &str) -> Vec<Value> {
    let place = |keys: &[Value], item: &Value| {
        let wanted = key_of(item, by);
        keys.iter().position(|key| key == wanted)
    };
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

/// Adds a scalar to a set.
pub(super) fn insert_scalar(items: &mut Vec<Value>, item: Value) {
    if !items.contains(&item) {
        items.push(item);
    }
}

fn keys(items: &[Value], by: &str) -> Vec<Value> {
    items.iter().map(|item| key_of(item, by).clone()).collect()
}

fn key_of<'a>(item: &'a Value, by: &str) -> &'a Value {
    member_of(item, by).unwrap_or(&Value::Null)
}
