//! Maps in the data, and maps that functions make, which a template can change.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value as Json;

use super::{List, MAX_NESTING, Text, Value, nesting};
use crate::budget::Budget;
use crate::error::Reason;
use crate::member::member;
use crate::shape::Kind;

/// A map with string keys: either a JSON object in the data, whose elements have one kind, or a map that a function
/// made.
#[derive(Debug, Clone)]
pub struct Map<'a> {
    entries: Entries<'a>,
    of: Kind,
}

#[derive(Debug, Clone)]
enum Entries<'a> {
    None,
    Json(&'a serde_json::Map<String, Json>),
    Made(Rc<Made<'a>>),
}

/// Entries of a map that a function made. Clones of the map share them.
#[derive(Debug)]
struct Made<'a> {
    entries: RefCell<BTreeMap<Text<'a>, Value<'a>>>,
    /// The levels of nesting when the map was created; `set` may nest it deeper afterwards.
    depth: usize,
}

/// Drops nested maps in a loop, because `set` can nest them too deeply for recursion on the stack.
impl Drop for Made<'_> {
    fn drop(&mut self) {
        let mut pending: Vec<Value<'_>> = std::mem::take(self.entries.get_mut()).into_values().collect();
        while let Some(value) = pending.pop() {
            match value {
                Value::Map(Map { entries: Entries::Made(mut made), .. }) => {
                    if let Some(made) = Rc::get_mut(&mut made) {
                        pending.extend(std::mem::take(made.entries.get_mut()).into_values());
                    }
                }
                Value::List(list) => pending.extend(list.into_elements()),
                _ => {}
            }
        }
    }
}

impl<'a> Map<'a> {
    /// Wraps a JSON object whose elements have this kind; without an object, the map is empty.
    pub fn json(entries: Option<&'a serde_json::Map<String, Json>>, of: Kind) -> Self {
        Self { entries: entries.map_or(Entries::None, Entries::Json), of }
    }

    /// Creates a map of these entries, which a template can change.
    ///
    /// # Errors
    /// [`Reason::TooDeep`]: the entries nest more than 99 levels deep.
    pub fn made(entries: BTreeMap<Text<'a>, Value<'a>>, of: Kind) -> Result<Self, Reason> {
        let depth = nesting(entries.values())?;
        Ok(Self { entries: Entries::Made(Rc::new(Made { entries: RefCell::new(entries), depth })), of })
    }

    /// Returns a map with the same entries, which a template can change.
    ///
    /// # Errors
    /// See [`Map::made`].
    pub fn copied(&self) -> Result<Self, Reason> {
        Self::made(self.sorted().into_iter().collect(), self.of)
    }

    /// Whether a function made the map, so that a template can change it.
    pub fn is_made(&self) -> bool {
        matches!(self.entries, Entries::Made(_))
    }

    /// Sets an entry in this map and its clones.
    ///
    /// # Errors
    /// The map is part of the data, the value contains the map, or the budget is spent.
    pub fn set(&self, key: Text<'a>, value: Value<'a>, budget: &mut Budget) -> Result<(), Reason> {
        let made = self.to_change()?;
        if holds(&value, made, MAX_NESTING, budget)? {
            return Err(Reason::Refused("a map cannot be put into itself".to_owned()));
        }
        budget.bytes(key.as_str().len() + size_of::<(Text<'_>, Value<'_>)>())?;
        made.entries.borrow_mut().insert(key, value);
        Ok(())
    }

    /// Removes an entry from this map and its clones.
    ///
    /// # Errors
    /// The map is part of the data.
    pub fn unset(&self, key: &str) -> Result<(), Reason> {
        self.to_change()?.entries.borrow_mut().remove(key);
        Ok(())
    }

    fn to_change(&self) -> Result<&Made<'a>, Reason> {
        match &self.entries {
            Entries::Made(made) => Ok(made),
            _ => Err(Reason::Refused("a map of the data cannot be changed; a deepCopy of it can".to_owned())),
        }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        match &self.entries {
            Entries::None => 0,
            Entries::Json(entries) => entries.len(),
            Entries::Made(made) => made.entries.borrow().len(),
        }
    }

    /// Whether the map has no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the kind of the elements, whose zero value `index` finds under an absent key.
    pub fn of(&self) -> Kind {
        self.of
    }

    /// Returns the value under a key.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        match &self.entries {
            Entries::None => None,
            Entries::Json(entries) => member(entries, key).map(|value| self.of.view(Some(value))),
            Entries::Made(made) => made.entries.borrow().get(key).cloned(),
        }
    }

    /// Returns all entries in the order of their keys.
    pub fn sorted(&self) -> Vec<(Text<'a>, Value<'a>)> {
        match &self.entries {
            Entries::None => Vec::new(),
            Entries::Json(entries) => {
                let mut sorted: Vec<_> = entries
                    .iter()
                    .map(|(key, value)| (Text::Borrowed(key.as_str()), self.of.view(Some(value))))
                    .collect();
                sorted.sort_by(|(left, _), (right, _)| left.cmp(right));
                sorted
            }
            Entries::Made(made) => {
                made.entries.borrow().iter().map(|(key, value)| (key.clone(), value.clone())).collect()
            }
        }
    }

    pub(super) fn depth(&self) -> usize {
        match &self.entries {
            Entries::None | Entries::Json(_) => 1,
            Entries::Made(made) => made.depth,
        }
    }
}

/// Whether a value is this map or contains it. Nesting of more than `depth` levels is an error.
fn holds(value: &Value<'_>, map: &Made<'_>, depth: usize, budget: &mut Budget) -> Result<bool, Reason> {
    budget.step(1)?;
    let below = depth.checked_sub(1).ok_or(Reason::TooDeep(MAX_NESTING))?;
    match value {
        Value::Map(Map { entries: Entries::Made(made), .. }) => {
            if std::ptr::addr_eq(Rc::as_ptr(made), map) {
                return Ok(true);
            }
            any(made.entries.borrow().values(), |value| holds(value, map, below, budget))
        }
        Value::List(list @ List::Made(_)) => any(list.iter(), |value| holds(&value, map, below, budget)),
        _ => Ok(false),
    }
}

fn any<T>(items: impl Iterator<Item = T>, mut is: impl FnMut(T) -> Result<bool, Reason>) -> Result<bool, Reason> {
    for item in items {
        if is(item)? {
            return Ok(true);
        }
    }
    Ok(false)
}
