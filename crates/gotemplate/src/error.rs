//! Errors of parsing and rendering, with their positions.

use super::budget::Exceeded;

/// Error of [`Template::parse`](crate::Template::parse) or [`Template::render`](crate::Template::render).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is not a template.
    #[error("template {template}, line {line}: {reason}")]
    Syntax {
        /// Name of the template.
        template: String,
        /// Line, from 1.
        line: usize,
        /// The fault.
        reason: Syntax,
    },
    /// The template cannot be rendered with this data.
    #[error(transparent)]
    Render(#[from] Box<Failure>),
}

/// The position and the reason at which rendering ended.
#[derive(Debug, thiserror::Error)]
#[error("template {template}, line {line}, column {column}, at <{at}>: {reason}; rendered last: {rendered:?}")]
pub struct Failure {
    /// Name of the template.
    pub template: String,
    /// Line of the expression, from 1.
    pub line: usize,
    /// Column of the expression, from 1, in bytes.
    pub column: usize,
    /// Source of the expression.
    pub at: String,
    /// The fault. The message of the failure includes it, so it is not the `source` of the error.
    pub reason: Reason,
    /// The end of the output so far, at most 120 bytes.
    pub rendered: String,
}

/// Fault in the source of a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Syntax {
    /// An action, a comment, a string or a parenthesis has no end.
    #[error("unclosed {0}")]
    Unclosed(&'static str),
    /// A character that is not allowed in an action.
    #[error("unexpected character {0:?} in an action")]
    Character(char),
    /// A malformed literal.
    #[error("invalid literal {0}")]
    Literal(String),
    /// A token that is not allowed at its place.
    #[error("unexpected {found} in {context}")]
    Unexpected {
        /// The token.
        found: String,
        /// The construct that contains it.
        context: &'static str,
    },
    /// An empty pipeline or command.
    #[error("missing value for {0}")]
    Empty(&'static str),
    /// A stage of a pipeline after the first that can take no argument, such as a literal; counted from 1.
    #[error("non executable command in pipeline stage {0}")]
    NotExecutable(usize),
    /// An undeclared variable.
    #[error("undefined variable {0:?}")]
    Variable(String),
    /// `break` or `continue` outside of `range`.
    #[error("{{{{{0}}}}} outside {{{{range}}}}")]
    OutsideRange(&'static str),
    /// A template is defined twice, both times with content.
    #[error("template {0:?} is defined twice")]
    Redefined(String),
    /// Too many levels of blocks and parentheses.
    #[error("blocks and parentheses are nested deeper than {0} levels")]
    TooDeep(usize),
}

/// Reason why rendering ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// An unknown field of a struct: the template may be for another version of the data.
    #[error("can't evaluate field {field} in type {of}")]
    UnknownField {
        /// The field.
        field: String,
        /// The type.
        of: String,
    },
    /// A field of a null value was read.
    #[error("nil pointer evaluating {of}.{field}")]
    NilPointer {
        /// The field.
        field: String,
        /// The type.
        of: String,
    },
    /// Arguments were given to an operand that takes none.
    #[error("can't give argument to non-function")]
    NotAFunction,
    /// `nil` as a command.
    #[error("nil is not a command")]
    Nil,
    /// A call with the wrong number of arguments.
    #[error("wrong number of args for {function}: got {got}")]
    Arity {
        /// The function.
        function: String,
        /// Number of arguments.
        got: usize,
    },
    /// An argument has a type that the function does not take.
    #[error("wrong type for value; expected {expected}; got {got}")]
    Type {
        /// Type that the function takes.
        expected: &'static str,
        /// Type of the argument.
        got: String,
    },
    /// The [`Path`](crate::Path) of another rendering has no decision for this branch or call.
    #[error("the path of another rendering has no such branch at this place")]
    Path,
    /// `range` over a value without elements.
    #[error("range can't iterate over {0}")]
    Range(String),
    /// A call to a function that was not given to [`Template::parse`](crate::Template::parse).
    #[error("function {0:?} not defined")]
    Undefined(String),
    /// `template` with a name that is not defined.
    #[error("template {0:?} not defined")]
    Template(String),
    /// A function refused its arguments.
    #[error("error calling {function}: {why}")]
    Call {
        /// The function.
        function: String,
        /// The function's message.
        why: String,
    },
    /// A function's message about its arguments. The evaluator turns it into [`Reason::Call`].
    #[error("{0}")]
    Refused(String),
    /// The budget is spent.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// Too many levels of templates, blocks or values.
    #[error("templates, blocks or values are nested deeper than {0} levels")]
    TooDeep(usize),
}
