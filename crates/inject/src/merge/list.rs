//! Merges lists by key and orders the merged elements.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};

use gotemplate::{Budget, member_of};
use serde_json::Value;

use super::directive::{self, Directive};
use super::{Error, Struct, merge_map, stripped};

/// The merge key of a container's ports.
const PORT: &str = "containerPort";

/// The key by which elements of two lists are merged.
#[derive(Debug, Clone, Copy)]
struct Key {
    by: &'static str,
    /// Whether the key of a port includes its protocol.
    with_protocol: bool,
}

impl Key {
    fn field(by: &'static str) -> Self {
        Self { by, with_protocol: false }
    }

    /// Returns the key by which two lists are merged. Kubernetes merges ports by number alone and would lose one of two
    /// ports that differ only in protocol; here, the protocol is part of the key if a list has such ports.
    fn of(by: &'static str, lists: [&[Value]; 2]) -> Self {
        let has_twice = |items: &[Value]| {
            let mut protocols: HashMap<&Value, &str> = HashMap::new();
            items.iter().any(|item| {
                let own = protocol(item);
                *protocols.entry(key_of(item, by)).or_insert(own) != own
            })
        };
        Self { by, with_protocol: by == PORT && lists.into_iter().any(has_twice) }
    }

    fn value(self, item: &Value) -> Cow<'_, Value> {
        match key_of(item, self.by) {
            number if self.with_protocol && !number.is_null() => {
                Cow::Owned(Value::from(vec![number.clone(), protocol(item).into()]))
            }
            value => Cow::Borrowed(value),
        }
    }
}

fn protocol(port: &Value) -> &str {
    member_of(port, "protocol").and_then(Value::as_str).filter(|protocol| !protocol.is_empty()).unwrap_or("TCP")
}

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
    let key = Key::of(by, [original.as_slice(), additions.as_slice()]);
    let order = Indices::of(&additions, key);
    if order.0.contains_key(&Value::Null) {
        return Err(no_key());
    }
    if replace {
        *original = additions.into_iter().map(stripped).collect();
        return Ok(());
    }
    let mut indices = Indices::of(original, key);
    let before = original.len();
    for addition in additions {
        let id = key.value(&addition);
        match indices.get(&id).and_then(|at| original.get_mut(at)) {
            Some(old) => match (old, addition) {
                (Value::Object(old), Value::Object(new)) => merge_map(old, new, element, budget)?,
                (_, new) => original.push(stripped(new)),
            },
            None => {
                indices.0.insert(id.into_owned(), original.len());
                original.push(stripped(addition));
            }
        }
    }
    *original = interleave(std::mem::take(original), &order, &indices.up_to(before), Some(key));
    Ok(())
}

struct Elements {
    additions: Vec<Value>,
    replace: bool,
}

/// Applies the directives among the elements, except for `replace`, and returns the other elements.
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
        }
    }
    if !deleted.is_empty() {
        original.retain(|old| !deleted.contains(key_of(old, by)));
    }
    Ok(elements)
}

/// The order that `$setElementOrder` lists; elements that it does not list keep their order.
#[derive(Debug)]
pub(super) struct Order {
    /// The merge key of the elements; `None` if they are scalars.
    by: Option<Key>,
    listed: Indices,
    /// The order of the elements before the merge.
    before: Indices,
}

impl Order {
    /// Creates the order of the list `name`. `overlay` and `original` are the elements of the list in each.
    ///
    /// # Errors
    /// `order` lacks an element of the overlay or lists it in another order, or an element of `order` lacks the merge
    /// key.
    pub(super) fn new(
        name: &str,
        order: &[Value],
        (overlay, original): (&[Value], &[Value]),
        by: Option<&'static str>,
    ) -> Result<Self, Error> {
        let no_key = |key| Error::NoKey { list: name.to_owned(), key };
        if let Some(key) = by.filter(|by| order.iter().any(|item| key_of(item, by).is_null())) {
            return Err(no_key(key));
        }
        if !order.is_empty() && !is_in_order(overlay, order, by) {
            return Err(Error::Order(name.to_owned()));
        }
        let of = |items: &[Value]| match by {
            Some(by) => Indices::of(items, Key::field(by)),
            None => Indices::of_scalars(items),
        };
        Ok(Self { by: by.map(Key::field), listed: of(order), before: of(original) })
    }

    /// Returns the elements of the merged list in this order.
    pub(super) fn of(&self, items: Vec<Value>) -> Vec<Value> {
        interleave(items, &self.listed, &self.before, self.by)
    }
}

/// Whether `order` lists the elements of an overlay in their order. As in Kubernetes, elements that delete others are
/// ignored, and elements with another directive are ignored only before a listed element.
fn is_in_order(overlay: &[Value], order: &[Value], by: Option<&str>) -> bool {
    let patch = |item: &Value| by.and_then(|_| member_of(item, directive::PATCH)).cloned();
    let id = |item: &'_ Value| by.map_or(item.clone(), |by| key_of(item, by).clone());
    let mut added = overlay.iter().filter(|item| patch(item).is_none_or(|patch| patch != "delete")).peekable();
    for listed in order {
        while added.next_if(|item| patch(item).is_some()).is_some() {}
        added.next_if(|item| id(item) == id(listed));
    }
    added.peek().is_none()
}

/// Interleaves two parts of `items`: the elements that `order` lists, in this order, and all other elements, sorted by
/// [`settled`]. An element of the second part precedes one of the first part only if it preceded it in `before`.
fn interleave(items: Vec<Value>, order: &Indices, before: &Indices, by: Option<Key>) -> Vec<Value> {
    let place = |indices: &Indices, item: &Value| match by {
        Some(key) => indices.get(&key.value(item)),
        None => indices.get(item),
    };
    let (mut listed, rest): (Vec<Value>, Vec<Value>) = items.into_iter().partition(|item| place(order, item).is_some());
    listed.sort_by_cached_key(|item| place(order, item));
    let rest = settled(rest, |item| place(before, item));
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

/// Sorts elements by their place before the merge. Elements without a place are new elements that an empty order does
/// not list. Kubernetes' comparison does not order them consistently: its insertion sort moves each of them before all
/// elements that it has sorted so far, and moves each element with a place before them.
fn settled(items: Vec<Value>, place: impl Fn(&Value) -> Option<usize>) -> Vec<Value> {
    let (mut first, mut known, mut last) = (VecDeque::new(), Vec::new(), VecDeque::new());
    for item in items {
        match (place(&item).is_some(), known.is_empty()) {
            (true, _) => known.push(item),
            (false, true) => last.push_front(item),
            (false, false) => first.push_front(item),
        }
    }
    known.sort_by_cached_key(|item| place(item));
    first.into_iter().chain(known).chain(last).collect()
}

/// Adds the scalars that the list lacks, each once, and orders the list as if it were merged by key.
pub(super) fn unite(items: &mut Vec<Value>, more: Vec<Value>) {
    let (order, before) = (Indices::of_scalars(&more), Indices::of_scalars(items));
    let mut present = HashSet::new();
    let all = std::mem::take(items).into_iter().chain(more);
    let united = all.filter(|item| present.insert(item.clone())).collect();
    *items = interleave(united, &order, &before, None);
}

/// The index of the first element with each key.
#[derive(Debug)]
struct Indices(HashMap<Value, usize>);

impl Indices {
    fn of(items: &[Value], key: Key) -> Self {
        let mut indices = HashMap::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            indices.entry(key.value(item).into_owned()).or_insert(at);
        }
        Self(indices)
    }

    /// Returns the indices of scalars, which are their own keys.
    fn of_scalars(items: &[Value]) -> Self {
        let mut indices = HashMap::with_capacity(items.len());
        for (at, item) in items.iter().enumerate() {
            indices.entry(item.clone()).or_insert(at);
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
