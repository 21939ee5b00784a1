//! JSON patch (RFC 6902): the difference of two documents, and its application.
//!
//! The operations follow the order of the documents, so that equal reviews get equal answers. Only `add`, `remove` and `replace`
//! are used.

use std::borrow::Borrow;
use std::iter::Peekable;

use gotemplate::member;
use serde::Serialize;
use serde_json::{Map, Value, map};

/// An operation of a patch. The value is owned, or borrowed from the resulting document.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Operation<V = Value> {
    /// Sets a member, or inserts before an index of a list (`-`: appends).
    Add {
        /// JSON pointer.
        path: String,
        /// The value to set.
        value: V,
    },
    /// Removes a member or an element.
    Remove {
        /// JSON pointer.
        path: String,
    },
    /// Replaces an existing value.
    Replace {
        /// JSON pointer.
        path: String,
        /// The value to set.
        value: V,
    },
}

impl<V: Borrow<Value>> Operation<V> {
    /// Borrows the value.
    pub(super) fn borrowed(&self) -> Operation<&Value> {
        match self {
            Self::Add { path, value } => Operation::Add { path: path.clone(), value: value.borrow() },
            Self::Remove { path } => Operation::Remove { path: path.clone() },
            Self::Replace { path, value } => Operation::Replace { path: path.clone(), value: value.borrow() },
        }
    }

    fn path(&self) -> &str {
        match self {
            Self::Add { path, .. } | Self::Remove { path } | Self::Replace { path, .. } => path,
        }
    }
}

/// Returns the operations that turn `before` into `after`; none if they are equal.
pub fn diff<'a>(before: &Value, after: &'a Value) -> Vec<Operation<&'a Value>> {
    let mut operations = Vec::new();
    compare(&mut String::new(), before, after, &mut operations);
    operations
}

fn compare<'a>(path: &mut String, before: &Value, after: &'a Value, operations: &mut Vec<Operation<&'a Value>>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => compare_maps(path, before, after, operations),
        (Value::Array(before), Value::Array(after)) => compare_lists(path, before, after, operations),
        (before, after) if before == after => {}
        (_, value) => operations.push(Operation::Replace { path: path.clone(), value }),
    }
}

fn compare_maps<'a>(
    path: &mut String,
    before: &Map<String, Value>,
    after: &'a Map<String, Value>,
    operations: &mut Vec<Operation<&'a Value>>,
) {
    let mut members = OrderedLookup::with(after);
    for key in before.keys().filter(|key| members.get(key).is_none()) {
        within(path, key, |path| operations.push(Operation::Remove { path: path.clone() }));
    }
    let mut members = OrderedLookup::with(before);
    for (key, value) in after {
        within(path, key, |path| match members.get(key) {
            Some(old) => compare(path, old, value, operations),
            None => operations.push(Operation::Add { path: path.clone(), value }),
        });
    }
}

/// Skips common elements at both ends, compares the rest index by index, and removes or adds elements at the end of it.
fn compare_lists<'a>(
    path: &mut String,
    before: &[Value],
    after: &'a [Value],
    operations: &mut Vec<Operation<&'a Value>>,
) {
    let head = before.iter().zip(after).take_while(|(b, a)| equal(b, a)).count();
    let (before, after) = (&before[head..], &after[head..]);
    let tail = before.iter().rev().zip(after.iter().rev()).take_while(|(b, a)| equal(b, a)).count();
    let (before, after) = (&before[..before.len() - tail], &after[..after.len() - tail]);
    let both = before.len().min(after.len());
    for (place, (old, new)) in before.iter().zip(after).enumerate() {
        within(path, &(head + place).to_string(), |path| compare(path, old, new, operations));
    }
    for place in (both..before.len()).rev() {
        within(path, &(head + place).to_string(), |path| operations.push(Operation::Remove { path: path.clone() }));
    }
    for (place, value) in after.iter().enumerate().skip(both) {
        within(path, &(head + place).to_string(), |path| operations.push(Operation::Add { path: path.clone(), value }));
    }
}

/// Compares like `==`, without searches if the members of maps have the same order.
fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            let mut members = OrderedLookup::with(right);
            left.len() == right.len()
                && left.iter().all(|(key, value)| members.get(key).is_some_and(|other| equal(value, other)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| equal(left, right))
        }
        (left, right) => left == right,
    }
}

/// Looks up members of a map; needs no search for keys in the map's order.
struct OrderedLookup<'m> {
    map: &'m Map<String, Value>,
    next: Peekable<map::Iter<'m>>,
}

impl<'m> OrderedLookup<'m> {
    fn with(map: &'m Map<String, Value>) -> Self {
        Self { map, next: map.iter().peekable() }
    }

    fn get(&mut self, key: &str) -> Option<&'m Value> {
        match self.next.next_if(|(next, _)| *next == key) {
            Some((_, value)) => Some(value),
            None => member(self.map, key),
        }
    }
}

/// Calls `act` with `key` appended to the pointer.
fn within(path: &mut String, key: &str, act: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    push_escaped(path, key);
    act(path);
    path.truncate(length);
}

/// Appends `key` to a JSON pointer, escaped.
pub(super) fn push_escaped(path: &mut String, key: &str) {
    for c in key.chars() {
        match c {
            '~' => path.push_str("~0"),
            '/' => path.push_str("~1"),
            c => path.push(c),
        }
    }
}

/// An operation whose path the document lacks, or has with a value of another type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is nothing at {0} that a patch could change")]
pub struct PatchError(String);

/// Applies a patch.
///
/// # Errors
/// An operation cannot be applied; the document is dropped then.
pub fn apply<V: Borrow<Value>>(mut document: Value, operations: &[Operation<V>]) -> Result<Value, PatchError> {
    for operation in operations {
        let path = operation.path();
        apply_one(&mut document, &operation.borrowed(), path).ok_or_else(|| PatchError(path.to_owned()))?;
    }
    Ok(document)
}

fn apply_one(document: &mut Value, operation: &Operation<&Value>, path: &str) -> Option<()> {
    if path.is_empty() {
        // The empty pointer refers to the document.
        let (Operation::Add { value, .. } | Operation::Replace { value, .. }) = operation else { return None };
        *document = (*value).clone();
        return Some(());
    }
    let (parent, key) = path.rsplit_once('/')?;
    let key = key.replace("~1", "/").replace("~0", "~");
    match (document.pointer_mut(parent)?, operation) {
        (Value::Object(map), Operation::Add { value, .. }) => drop(map.insert(key, (*value).clone())),
        (Value::Object(map), Operation::Remove { .. }) => drop(map.shift_remove(&key)?),
        (Value::Object(map), Operation::Replace { value, .. }) => *map.get_mut(&key)? = (*value).clone(),
        (Value::Array(items), Operation::Add { value, .. }) => {
            let at = if key == "-" { items.len() } else { key.parse().ok()? };
            (at <= items.len()).then(|| items.insert(at, (*value).clone()))?;
        }
        (Value::Array(items), Operation::Remove { .. }) => {
            let at: usize = key.parse().ok()?;
            (at < items.len()).then(|| drop(items.remove(at)))?;
        }
        (Value::Array(items), Operation::Replace { value, .. }) => {
            *items.get_mut(key.parse::<usize>().ok()?)? = (*value).clone();
        }
        _ => return None,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_root_of_a_document_can_be_replaced() {
        for (before, after) in [(json!(4), json!({"a": 1})), (json!([]), json!("x")), (json!({"a": 1}), json!(null))] {
            let operations = diff(&before, &after);
            assert_eq!(apply(before.clone(), &operations), Ok(after.clone()), "{before}: {operations:?}");
        }
        let nothing = Operation::<Value>::Remove { path: String::new() };
        assert_eq!(apply(json!(4), &[nothing]), Err(PatchError(String::new())));
    }

    #[test]
    fn a_number_is_the_same_after_it_was_written_and_read() {
        for text in ["55555555555555555555555555555555555555555555", "14E-99", "0.1"] {
            let number: Value = serde_json::from_str(text).unwrap();
            let operations = serde_json::to_string(&diff(&json!(null), &number)).unwrap();
            let read: Value = serde_json::from_str(&operations).unwrap();
            assert_eq!(read[0]["value"], number, "{operations}");
        }
    }
}
