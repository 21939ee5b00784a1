//! Functions that templates call, by name, and what one rendering may still spend.
//!
//! `Functions::go`, `sprig` and `istio` fill the registry; callers add what needs more than its arguments.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::error::Reason;
use super::value::{Text, Value};
use super::{Limits, go, istio, sprig};

/// What one rendering may still spend. Functions that make much of little pay before they make it.
#[derive(Debug)]
pub struct Budget {
    limits: Limits,
    steps: u64,
    bytes: usize,
}

impl Budget {
    pub(in crate::inject) fn new(limits: Limits) -> Self {
        Self { limits, steps: limits.steps, bytes: limits.bytes }
    }

    /// Takes so many steps: about one for each expression, function, element or 64 bytes that are looked at.
    pub fn step(&mut self, steps: usize) -> Result<(), Reason> {
        let left = u64::try_from(steps).ok().and_then(|steps| self.steps.checked_sub(steps));
        self.steps = left.ok_or(Reason::Steps(self.limits.steps))?;
        Ok(())
    }

    /// Takes so many bytes, of output or of what is made on the way.
    pub fn bytes(&mut self, bytes: usize) -> Result<(), Reason> {
        self.bytes = self.bytes.checked_sub(bytes).ok_or(Reason::Bytes(self.limits.bytes))?;
        Ok(())
    }
}

/// The arguments of a call, read as Go's functions declare them.
#[derive(Debug, Clone, Copy)]
pub struct Args<'s, 'a>(pub(super) &'s [Value<'a>]);

impl<'s, 'a> Args<'s, 'a> {
    /// How many there are.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn all(self) -> &'s [Value<'a>] {
        self.0
    }

    /// One of any type. The registry has checked that it is there.
    pub fn any(self, index: usize) -> &'s Value<'a> {
        self.0.get(index).unwrap_or(&Value::Missing)
    }

    /// One that is text.
    pub fn text(self, index: usize) -> Result<&'s Text<'a>, Reason> {
        match self.any(index) {
            Value::Text(text) => Ok(text),
            other => Err(wrong("string", other)),
        }
    }

    /// One that is text, to be read.
    pub fn str(self, index: usize) -> Result<&'s str, Reason> {
        self.text(index).map(Text::as_str)
    }

    /// One that is an integer.
    pub fn int(self, index: usize) -> Result<i64, Reason> {
        match self.any(index) {
            Value::Int(number) => Ok(*number),
            other => Err(wrong("int", other)),
        }
    }
}

pub(super) fn wrong(expected: &'static str, value: &Value<'_>) -> Reason {
    Reason::Type { expected, got: value.type_name() }
}

type Body = dyn for<'a> Fn(&mut Budget, Args<'_, 'a>) -> Result<Value<'a>, Reason> + Send + Sync;

/// A function with its name and how many arguments it takes.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) body: FunctionBody,
}

/// How a function is evaluated.
pub(super) enum FunctionBody {
    /// Stops at the first false argument.
    And,
    /// Stops at the first true argument.
    Or,
    /// Takes all arguments.
    Call(Box<Body>),
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.least)
    }
}

/// Functions by name; later ones replace earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Functions(HashMap<String, Arc<Function>>);

/// As many arguments as there are.
pub const ANY: usize = usize::MAX;

impl Functions {
    /// Go's own functions.
    pub fn go() -> Self {
        let mut functions = Self::default();
        functions.insert("and", 1, ANY, FunctionBody::And);
        functions.insert("or", 1, ANY, FunctionBody::Or);
        go::register(functions)
    }

    /// With those of sprig that make sense here: all that neither look at the world nor at the clock, and change no value.
    #[must_use]
    pub fn with_sprig(self) -> Self {
        sprig::register(self)
    }

    /// With those of Istio's that need nothing but their arguments.
    #[must_use]
    pub fn with_istio(self) -> Self {
        istio::register(self)
    }

    /// With one more, which takes at least and at most so many arguments.
    #[must_use]
    pub fn with<F>(mut self, name: &str, least: usize, most: usize, function: F) -> Self
    where
        F: for<'a> Fn(&mut Budget, Args<'_, 'a>) -> Result<Value<'a>, Reason> + Send + Sync + 'static,
    {
        self.insert(name, least, most, FunctionBody::Call(Box::new(function)));
        self
    }

    fn insert(&mut self, name: &str, least: usize, most: usize, body: FunctionBody) {
        self.0.insert(name.to_owned(), Arc::new(Function { name: name.to_owned(), least, most, body }));
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Function>> {
        self.0.get(name).cloned()
    }
}
