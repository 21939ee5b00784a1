//! Maps of templates: those of the data, and those that functions make, which a template can change.
//!
//! `value` has them among its variants.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::Value as Json;

use super::budget::Budget;
use super::error::Reason;
use super::member::member;
use super::shape::Kind;
use super::value::{List, MAX_NESTING, Text, Value, nesting};

/// A map from text: JSON's, whose elements are of a kind, or one that a function made.
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

/// The entries of a map that a function made, which all who hold the map share.
#[derive(Debug)]
struct Made<'a> {
    entries: RefCell<BTreeMap<Text<'a>, Value<'a>>>,
    /// How deep it nested when it was made.
    depth: usize,
}

/// Maps that were put into each other may nest deeper than a stack: they are taken apart one by one.
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
                Value::List(List::Made(mut items, _)) => {
                    pending.extend(Rc::get_mut(&mut items).into_iter().flatten().map(std::mem::take));
                }
                _ => {}
            }
        }
    }
}

impl<'a> Map<'a> {
    /// JSON's object, whose elements are of a kind.
    pub fn json(entries: Option<&'a serde_json::Map<String, Json>>, of: Kind) -> Self {
        Self { entries: entries.map_or(Entries::None, Entries::Json), of }
    }

    /// One that was made on the way.
    pub fn made(entries: BTreeMap<Text<'a>, Value<'a>>, of: Kind) -> Result<Self, Reason> {
        let depth = nesting(entries.values())?;
        Ok(Self { entries: Entries::Made(Rc::new(Made { entries: RefCell::new(entries), depth })), of })
    }

    /// A map of its own with the same entries.
    pub fn copied(&self) -> Result<Self, Reason> {
        Self::made(self.sorted().into_iter().collect(), self.of)
    }

    /// Whether a function of the template made it, so that the template may change it.
    pub fn is_made(&self) -> bool {
        matches!(self.entries, Entries::Made(_))
    }

    /// Sets an entry, for all who hold the map. A map of the data is not changed, for other pods see it, too.
    pub fn set(&self, key: Text<'a>, value: Value<'a>, budget: &mut Budget) -> Result<(), Reason> {
        let made = self.to_change()?;
        if holds(&value, made, MAX_NESTING, budget)? {
            return Err(Reason::Refused("a map cannot be put into itself".to_owned()));
        }
        budget.bytes(key.as_str().len() + size_of::<(Text<'_>, Value<'_>)>())?;
        made.entries.borrow_mut().insert(key, value);
        Ok(())
    }

    /// Takes an entry away, for all who hold the map.
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

    /// How many entries there are.
    pub fn len(&self) -> usize {
        match &self.entries {
            Entries::None => 0,
            Entries::Json(entries) => entries.len(),
            Entries::Made(made) => made.entries.borrow().len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The kind of its elements; their zero is what `index` finds under an absent key.
    pub fn of(&self) -> Kind {
        self.of
    }

    /// The value under a key.
    pub fn get(&self, key: &str) -> Option<Value<'a>> {
        match &self.entries {
            Entries::None => None,
            Entries::Json(entries) => member(entries, key).map(|value| self.of.view(Some(value))),
            Entries::Made(made) => made.entries.borrow().get(key).cloned(),
        }
    }

    /// All entries by ascending key.
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

/// Whether a value is a map or has it within, at most so deep.
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
        Value::List(List::Made(items, _)) => any(items.iter(), |value| holds(value, map, below, budget)),
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
