//! Why a template is refused or its rendering ended, and where.

use super::budget::Exceeded;

/// Why a template cannot be used, or not with this data.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It is not a template.
    #[error("template {template}, line {line}: {reason}")]
    Syntax {
        /// Its name.
        template: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: Syntax,
    },
    /// It cannot be rendered with this data.
    #[error(transparent)]
    Render(#[from] Box<Failure>),
}

/// Where and why rendering ended.
#[derive(Debug, thiserror::Error)]
#[error("template {template}, line {line}, column {column}, at <{at}>: {reason}; rendered last: {rendered:?}")]
pub struct Failure {
    /// The template's name.
    pub template: String,
    /// The line, from 1.
    pub line: usize,
    /// The column, from 1, in bytes.
    pub column: usize,
    /// The expression.
    pub at: String,
    /// What is wrong with it.
    #[source]
    pub reason: Reason,
    /// The end of what had been rendered.
    pub rendered: String,
}

/// What is wrong with the text of a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Syntax {
    /// An action, a comment, a string or a parenthesis has no end.
    #[error("unclosed {0}")]
    Unclosed(&'static str),
    /// A character that no action has.
    #[error("unexpected character {0:?} in an action")]
    Character(char),
    /// A literal that cannot be read.
    #[error("{0} is no literal")]
    Literal(String),
    /// Something stands where it may not.
    #[error("unexpected {found} in {context}")]
    Unexpected {
        /// What was found.
        found: String,
        /// In what.
        context: &'static str,
    },
    /// A pipeline or command without anything in it.
    #[error("missing value for {0}")]
    Empty(&'static str),
    /// Something that is neither function, field nor method gets a pipeline's value.
    #[error("non executable command in pipeline stage {0}")]
    NotExecutable(usize),
    /// A variable that is not declared here.
    #[error("undefined variable {0:?}")]
    Variable(String),
    /// `break` or `continue` outside of `range`.
    #[error("{{{{{0}}}}} outside {{{{range}}}}")]
    OutsideRange(&'static str),
    /// Two definitions of one name with content.
    #[error("template {0:?} is defined twice")]
    Redefined(String),
    /// Blocks and parentheses nest too deep.
    #[error("more than {0} blocks and parentheses within each other")]
    TooDeep(usize),
}

/// Why rendering ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    /// A struct has no such field: the template may be of another version than the data.
    #[error("can't evaluate field {field} in type {of}")]
    UnknownField {
        /// The field.
        field: String,
        /// The type.
        of: String,
    },
    /// A field of null.
    #[error("nil pointer evaluating {of}.{field}")]
    NilPointer {
        /// The field.
        field: String,
        /// The type.
        of: String,
    },
    /// Arguments stand behind what takes none.
    #[error("can't give argument to non-function")]
    NotAFunction,
    /// `nil` alone.
    #[error("nil is not a command")]
    Nil,
    /// A call with the wrong number of arguments.
    #[error("wrong number of args for {function}: got {got}")]
    Arity {
        /// The function.
        function: String,
        /// How many it got.
        got: usize,
    },
    /// An argument of another type.
    #[error("wrong type for value; expected {expected}; got {got}")]
    Type {
        /// What the function takes.
        expected: &'static str,
        /// What it got.
        got: String,
    },
    /// Something that has no elements.
    #[error("range can't iterate over {0}")]
    Range(String),
    /// A function that nobody provides; a template of a newer Istio may call one.
    #[error("function {0:?} not defined")]
    Undefined(String),
    /// A template that is not defined.
    #[error("template {0:?} not defined")]
    Template(String),
    /// A function refuses its arguments.
    #[error("error calling {function}: {why}")]
    Call {
        /// The function.
        function: String,
        /// Why.
        why: String,
    },
    /// What a function says about its arguments; the evaluator adds the function.
    #[error("{0}")]
    Refused(String),
    /// The budget is spent.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// Templates, blocks or values within each other.
    #[error("nested deeper than {0}")]
    TooDeep(usize),
}
