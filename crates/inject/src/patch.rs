//! JSON patch (RFC 6902): the difference between two documents, and its application.
//!
//! The operations follow the order of members in the documents, so that equal reviews get equal responses. Only `add`,
//! `remove` and `replace` are used.

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
    let mut operations = Operations { list: Vec::new(), left: usize::MAX, exceeded: false };
    compare(&mut String::new(), before, after, &mut operations);
    operations.list
}

/// Returns the operations as [`diff`] does, or `None` if they take more than `limit` bytes of JSON without their
/// values. They can be several times larger than the document, because each path repeats keys.
pub(super) fn diff_within<'a>(before: &Value, after: &'a Value, limit: usize) -> Option<Vec<Operation<&'a Value>>> {
    let mut operations = Operations { list: Vec::new(), left: limit, exceeded: false };
    compare(&mut String::new(), before, after, &mut operations);
    (!operations.exceeded).then_some(operations.list)
}

/// Whether operations take at most `limit` bytes of JSON without their values.
pub(super) fn is_within(operations: &[Operation], limit: usize) -> bool {
    operations.iter().map(|operation| operation.path().len() + SHORTEST).sum::<usize>() <= limit
}

/// A list of operations whose size is limited.
struct Operations<'a> {
    list: Vec<Operation<&'a Value>>,
    /// The bytes that are left for further operations.
    left: usize,
    exceeded: bool,
}

impl<'a> Operations<'a> {
    /// Appends an operation at `path`, which is copied only if the operation is within the limit.
    fn push(&mut self, path: &str, operation: impl FnOnce(String) -> Operation<&'a Value>) {
        match self.left.checked_sub(path.len() + SHORTEST) {
            Some(left) => {
                self.left = left;
                self.list.push(operation(path.to_owned()));
            }
            None => self.exceeded = true,
        }
    }
}

/// The length of the shortest operation as JSON, without its path. The size of each operation is taken to be this
/// length plus the length of its path.
const SHORTEST: usize = r#"{"op":"remove","path":""}"#.len();

fn compare<'a>(path: &mut String, before: &Value, after: &'a Value, operations: &mut Operations<'a>) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => compare_maps(path, before, after, operations),
        (Value::Array(before), Value::Array(after)) => compare_lists(path, before, after, operations),
        (before, after) if before == after => {}
        (_, value) => operations.push(path, |path| Operation::Replace { path, value }),
    }
}

fn compare_maps<'a>(
    path: &mut String,
    before: &Map<String, Value>,
    after: &'a Map<String, Value>,
    operations: &mut Operations<'a>,
) {
    let mut members = OrderedLookup::with(after);
    for key in before.keys().filter(|key| members.get(key).is_none()) {
        within(path, key, |path| operations.push(path, |path| Operation::Remove { path }));
    }
    let mut members = OrderedLookup::with(before);
    for (key, value) in after {
        within(path, key, |path| match members.get(key) {
            Some(old) => compare(path, old, value, operations),
            None => operations.push(path, |path| Operation::Add { path, value }),
        });
    }
}

/// Skips common elements at both ends, compares the elements between them index by index, and removes or adds the
/// remaining elements.
///
/// The comparisons that find common elements take linear time over all levels of nesting: a comparison ends at the
/// first difference, and two lists of different lengths differ without a comparison of their elements, so that no
/// comparison enters an inner list whose common elements will be skipped later.
fn compare_lists<'a>(path: &mut String, before: &[Value], after: &'a [Value], operations: &mut Operations<'a>) {
    // In lists of equal length, elements at the same index correspond, and none is skipped: to skip elements, each
    // level of nested lists would compare the inner lists once more.
    let is_moved = before.len() != after.len();
    let skipped = |(before, after): &(&Value, &Value)| is_moved && equal(before, after);
    let head = before.iter().zip(after).take_while(skipped).count();
    let (before, after) = (&before[head..], &after[head..]);
    let tail = before.iter().rev().zip(after.iter().rev()).take_while(skipped).count();
    let (before, after) = (&before[..before.len() - tail], &after[..after.len() - tail]);
    let both = before.len().min(after.len());
    for (place, (old, new)) in before.iter().zip(after).enumerate() {
        within(path, &(head + place).to_string(), |path| compare(path, old, new, operations));
    }
    for place in (both..before.len()).rev() {
        within(path, &(head + place).to_string(), |path| operations.push(path, |path| Operation::Remove { path }));
    }
    for (place, value) in after.iter().enumerate().skip(both) {
        within(path, &(head + place).to_string(), |path| operations.push(path, |path| Operation::Add { path, value }));
    }
}

/// Compares like `==`, but without searching for keys if both maps have the same order.
fn equal(left: &Value, right: &Value) -> bool {
    #[cfg(test)]
    tests::COMPARED.set(tests::COMPARED.get() + 1);
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

/// Looks up members of a map. Keys that are looked up in the order of the map are found without a search.
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

/// Calls `act` with `key` appended to the JSON pointer `path`.
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

/// An operation cannot be applied: the document lacks its path, or has a value of another type there.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the document has no value at {0} that the patch could change")]
pub struct PatchError(String);

/// Applies a patch.
///
/// # Errors
/// An operation cannot be applied. The document is lost in this case.
pub fn apply<V: Borrow<Value>>(mut document: Value, operations: &[Operation<V>]) -> Result<Value, PatchError> {
    for operation in operations {
        let path = operation.path();
        apply_one(&mut document, &operation.borrowed(), path).ok_or_else(|| PatchError(path.to_owned()))?;
    }
    Ok(document)
}

fn apply_one(document: &mut Value, operation: &Operation<&Value>, path: &str) -> Option<()> {
    if path.is_empty() {
        // The empty pointer refers to the whole document.
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

    thread_local! {
        /// The number of values that [`equal`] compared.
        pub(super) static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

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
    fn a_change_in_nested_lists_is_one_operation() {
        let nested = |inner: Value| (0..100).fold(inner, |list, _| json!([1, list, 1]));
        let (before, after) = (nested(json!({"a": 1, "b": 2})), nested(json!({"a": 1, "b": 3})));
        let path = format!("{}/b", "/1".repeat(100));
        assert_eq!(diff(&before, &after), [Operation::Replace { path, value: &json!(3) }]);
        let longer = json!([0, 1, {"a": 1}, 2]);
        let operations = diff(&json!([1, {"a": 1}, 2]), &longer);
        assert_eq!(apply(json!([1, {"a": 1}, 2]), &operations), Ok(longer.clone()));
    }

    #[test]
    fn nested_lists_of_different_lengths_are_compared_in_linear_time() {
        /// Nested lists with equal elements before and after each inner list. If `more` is set, each list has one more
        /// element.
        fn nested(levels: usize, equal: usize, more: bool) -> Value {
            let inner = |inner: Value, _| {
                let map = json!({"a": vec![1; equal], "b": inner, "c": vec![1; equal]});
                let mut list = vec![map; 1];
                list.extend(more.then_some(json!(2)));
                json!({"l": list, "m": vec![json!({"x": 1}); equal]})
            };
            (0..levels).fold(json!(0), inner)
        }
        let compared = |levels: usize, equal: usize| {
            let (before, after) = (nested(levels, equal, false), nested(levels, equal, true));
            COMPARED.set(0);
            assert_eq!(diff(&before, &after).len(), levels);
            COMPARED.get()
        };
        let (few, many) = (compared(15, 400), compared(60, 100));
        assert!(few < many * 2 && many < few * 2, "{many} values in 60 levels, {few} in 15 of the same size");
    }

    #[test]
    fn operations_are_bounded_with_their_paths() {
        let key = "k".repeat(1000);
        let members: Map<String, Value> = (0..100).map(|number| (format!("m{number}"), json!(1))).collect();
        let (before, after) = (json!({&*key: members, "l": [1, 2, 3]}), json!({&*key: {}, "l": [2]}));
        let all = diff(&before, &after);
        let least: usize = all.iter().map(|operation| operation.path().len() + SHORTEST).sum();
        assert!(all.len() == 103 && least < serde_json::to_string(&all).unwrap().len());
        assert_eq!(diff_within(&before, &after, least), Some(all));
        assert_eq!(diff_within(&before, &after, least - 1), None);
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
