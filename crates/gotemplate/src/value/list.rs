//! Lists in the data, and lists that functions make.

use std::cell::RefCell;
use std::rc::Rc;

use serde_json::Value as Json;

use super::{Value, nesting};
use crate::budget::Budget;
use crate::error::Reason;
use crate::shape::Kind;

/// A list in the data, whose elements have one kind, or a list that a function made.
#[derive(Debug, Clone)]
pub enum List<'a> {
    /// A list in the data.
    Json(&'a [Json], Kind),
    /// A list that a function made.
    Made(Made<'a>),
}

/// A list that a function made: the first `len` elements of a buffer, which it shares with the lists that `append`
/// derives from it.
#[derive(Debug, Clone)]
pub struct Made<'a> {
    buffer: Rc<RefCell<Vec<Value<'a>>>>,
    len: usize,
    /// Levels of nesting.
    depth: usize,
}

impl<'a> List<'a> {
    /// Creates a list of these elements.
    ///
    /// # Errors
    /// [`Reason::TooDeep`]: the elements nest more than 99 levels deep.
    pub(super) fn made(items: Vec<Value<'a>>) -> Result<Self, Reason> {
        let (len, depth) = (items.len(), nesting(items.iter())?);
        Ok(Self::Made(Made { buffer: Rc::new(RefCell::new(items)), len, depth }))
    }

    /// Returns the list with one more element. If the list ends where its buffer ends, any value except a list or map is pushed onto the
    /// buffer, so that a loop of appends is linear; otherwise, the list is copied. Lists and maps are never pushed, because a buffer could
    /// then contain itself. The budget is charged for the elements that are pushed or copied.
    ///
    /// # Errors
    /// The budget is spent, or the element nests too deep.
    pub(crate) fn appended(&self, value: Value<'a>, budget: &mut Budget) -> Result<Self, Reason> {
        let is_scalar = !matches!(value, Value::List(_) | Value::Map(_));
        if let Self::Made(Made { buffer, len, depth }) = self
            && is_scalar
            && buffer.borrow().len() == *len
        {
            budget.bytes(size_of::<Value<'_>>())?;
            buffer.borrow_mut().push(value);
            return Ok(Self::Made(Made { buffer: Rc::clone(buffer), len: len + 1, depth: *depth }));
        }
        budget.step(self.len())?;
        budget.bytes((self.len() + 1).saturating_mul(size_of::<Value<'_>>()))?;
        Self::made(self.iter().chain([value]).collect())
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Json(items, _) => items.len(),
            Self::Made(made) => made.len,
        }
    }

    /// Whether the list has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the element at an index, from 0.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        match self {
            Self::Json(items, of) => items.get(index).map(|item| of.view(Some(item))),
            Self::Made(made) if index < made.len => made.buffer.borrow().get(index).cloned(),
            Self::Made(_) => None,
        }
    }

    /// Iterates over all elements.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + '_ {
        (0..self.len()).filter_map(|index| self.get(index))
    }

    pub(super) fn depth(&self) -> usize {
        match self {
            Self::Json(..) => 1,
            Self::Made(made) => made.depth,
        }
    }

    /// Returns the elements of a list that a function made and that nothing else refers to; returns no elements of any
    /// other list.
    pub(super) fn into_elements(self) -> Vec<Value<'a>> {
        match self {
            Self::Made(made) => Rc::into_inner(made.buffer).map(RefCell::into_inner).unwrap_or_default(),
            Self::Json(..) => Vec::new(),
        }
    }
}
