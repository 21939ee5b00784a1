//! Functions that templates call, by name.
//!
//! `go` and `sprig` fill the registry with functions of their own; callers add further ones.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::budget::Budget;
use super::error::Reason;
use super::value::{Text, Value};

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
            other => Err(other.type_error("string")),
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
            other => Err(other.type_error("int")),
        }
    }
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
    /// Renders its argument as a template, with the same data.
    Render,
    /// Nobody provides it: a call ends the rendering.
    Undefined,
    /// Takes all arguments.
    Call(Box<Body>),
}

impl Function {
    /// A function that nobody provides.
    pub(super) fn undefined(name: &str) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), least: 0, most: ANY, body: FunctionBody::Undefined })
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.least)
    }
}

/// Functions by name; later ones replace earlier ones.
#[derive(Debug, Clone, Default)]
pub struct Functions(Arc<HashMap<String, Arc<Function>>>);

/// As many arguments as there are.
pub const ANY: usize = usize::MAX;

impl Functions {
    /// With `render`: it renders its argument as a template with the same data, and yields nothing where that fails.
    #[must_use]
    pub fn with_render(mut self) -> Self {
        self.insert("render", 1, 1, FunctionBody::Render);
        self
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

    /// With a further name for one of them.
    #[must_use]
    pub(super) fn alias(mut self, name: &str, of: &str) -> Self {
        if let Some(function) = self.get(of) {
            Arc::make_mut(&mut self.0).insert(name.to_owned(), function);
        }
        self
    }

    pub(super) fn insert(&mut self, name: &str, least: usize, most: usize, body: FunctionBody) {
        let function = Arc::new(Function { name: name.to_owned(), least, most, body });
        Arc::make_mut(&mut self.0).insert(name.to_owned(), function);
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Function>> {
        self.0.get(name).cloned()
    }
}
