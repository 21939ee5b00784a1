//! The functions of a template, by name.
//!
//! The modules `go` and `sprig` add their functions, and callers of the crate add their own.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::budget::Budget;
use super::error::Reason;
use super::value::{Text, Value};

/// The arguments of a call, with accessors that check them against the parameter types of a Go function.
#[derive(Debug, Clone, Copy)]
pub struct Args<'s, 'a>(pub(super) &'s [Value<'a>]);

impl<'s, 'a> Args<'s, 'a> {
    /// Returns the number of arguments.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether the call has no argument.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Returns all arguments.
    pub fn all(self) -> &'s [Value<'a>] {
        self.0
    }

    /// Returns an argument of any type, or [`Value::Missing`] after the last argument.
    pub fn any(self, index: usize) -> &'s Value<'a> {
        self.0.get(index).unwrap_or(&Value::Missing)
    }

    /// Returns a string argument.
    ///
    /// # Errors
    /// [`Reason::Type`]: the argument has another type.
    pub fn text(self, index: usize) -> Result<&'s Text<'a>, Reason> {
        match self.any(index) {
            Value::Text(text) => Ok(text),
            other => Err(other.type_error("string")),
        }
    }

    /// Returns the contents of a string argument.
    ///
    /// # Errors
    /// See [`Args::text`].
    pub fn str(self, index: usize) -> Result<&'s str, Reason> {
        self.text(index).map(Text::as_str)
    }

    /// Returns an integer argument.
    ///
    /// # Errors
    /// [`Reason::Type`]: the argument has another type.
    pub fn int(self, index: usize) -> Result<i64, Reason> {
        match self.any(index) {
            Value::Int(number) => Ok(*number),
            other => Err(other.type_error("int")),
        }
    }
}

type Body = dyn for<'a> Fn(&mut Budget, Args<'_, 'a>) -> Result<Value<'a>, Reason> + Send + Sync;

/// A function with its name and the numbers of arguments that it takes.
pub(super) struct Function {
    pub(super) name: String,
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) body: FunctionBody,
}

/// The implementation of a function.
pub(super) enum FunctionBody {
    /// Stops at the first false argument.
    And,
    /// Stops at the first true argument.
    Or,
    /// Renders its argument as a template with the same data.
    Render,
    /// Undefined: a call ends the rendering.
    Undefined,
    /// Takes the values of all arguments.
    Call(Box<Body>),
    /// Takes the values of all arguments, and charges the budget itself.
    Charging(Box<Body>),
}

impl Function {
    /// Creates the placeholder for a function that was not given to the parser.
    pub(super) fn undefined(name: &str) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), least: 0, most: ANY, body: FunctionBody::Undefined })
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.name, self.least)
    }
}

/// Functions by name. Adding a function replaces an earlier one of the same name. Clones are cheap.
#[derive(Debug, Clone, Default)]
pub struct Functions(Arc<HashMap<String, Arc<Function>>>);

/// The upper limit of arguments, in [`Functions::with`], of a function that takes any number of them.
pub const ANY: usize = usize::MAX;

impl Functions {
    /// Adds `render`, which renders its argument as a template with the same data. If the argument is not a valid
    /// template or its rendering fails, the result is an empty string; a spent budget or too deep nesting ends the
    /// outer rendering as well.
    #[must_use]
    pub fn with_render(mut self) -> Self {
        self.insert("render", 1, 1, FunctionBody::Render);
        self
    }

    /// Adds a function that takes from `least` to `most` arguments ([`ANY`]: without limit).
    ///
    /// The evaluator charges the budget for arguments and results. The function itself charges the budget for
    /// intermediate values, and before it makes a large result. It reports unusable arguments by [`Reason::Refused`].
    ///
    /// ```
    /// use gotemplate::{Functions, Value, write_yaml};
    ///
    /// let functions = Functions::go()
    ///     .with_sprig()
    ///     .with("toYaml", 1, 1, |budget, args| Ok(Value::from(write_yaml(args.any(0), budget)?)));
    /// # let _ = functions;
    /// ```
    #[must_use]
    pub fn with<F>(mut self, name: &str, least: usize, most: usize, function: F) -> Self
    where
        F: for<'a> Fn(&mut Budget, Args<'_, 'a>) -> Result<Value<'a>, Reason> + Send + Sync + 'static,
    {
        self.insert(name, least, most, FunctionBody::Call(Box::new(function)));
        self
    }

    /// Adds a function as [`Functions::with`] does, but one that itself charges the budget for its arguments and its
    /// result.
    #[must_use]
    pub(super) fn with_own_charge<F>(mut self, name: &str, least: usize, most: usize, function: F) -> Self
    where
        F: for<'a> Fn(&mut Budget, Args<'_, 'a>) -> Result<Value<'a>, Reason> + Send + Sync + 'static,
    {
        self.insert(name, least, most, FunctionBody::Charging(Box::new(function)));
        self
    }

    /// Adds `name` as another name of the function `of`.
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
