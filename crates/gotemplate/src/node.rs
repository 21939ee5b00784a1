//! A parsed template.
//!
//! `parse` makes it, `exec` walks it. Variables are slots already, functions and texts are held; nothing refers to the source.

use std::collections::HashMap;
use std::sync::Arc;

use super::Delims;
use super::function::{Function, Functions};

/// Where an expression stands in the source: byte offsets of its start and end.
pub(super) type Span = (u32, u32);

/// The templates of one source by name, and the unnamed rest.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Vec<Node>,
    pub(super) named: HashMap<String, Vec<Node>>,
    /// Functions that it calls and nobody provides.
    pub(super) undefined: Vec<String>,
    /// What a text that is rendered on the way is parsed with.
    pub(super) delims: Delims,
    pub(super) functions: Functions,
}

/// What is rendered in turn.
#[derive(Debug)]
pub(super) enum Node {
    /// Text as it is.
    Text(Box<str>),
    /// The value of a pipeline, or nothing where it declares.
    Action(Pipe),
    /// `if`
    If(Branch),
    /// `with`
    With(Branch),
    /// `range`
    Range(Branch),
    /// `template` or `block`
    Template(Span, Box<str>, Option<Pipe>),
    /// `break`
    Break,
    /// `continue`
    Continue,
}

/// A pipeline, and what is rendered where it holds or does not.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) pipe: Pipe,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// Commands, each of which gets the value of the one before it.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) span: Span,
    pub(super) commands: Vec<Command>,
    /// The slots that take the value; for `range` index and element.
    pub(super) slots: Vec<usize>,
    /// The slots are declared here.
    pub(super) declares: bool,
}

/// An operand and its arguments.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) span: Span,
    pub(super) head: Operand,
    pub(super) arguments: Vec<Operand>,
}

/// What an expression consists of.
#[derive(Debug)]
pub(super) enum Operand {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
    /// `.A.B`
    Field(Span, Box<[Box<str>]>),
    /// `$x.A.B`
    Variable(Span, usize, Box<[Box<str>]>),
    /// `(…).A.B`
    Chain(Span, Box<Operand>, Box<[Box<str>]>),
    Call(Span, Arc<Function>),
    Pipe(Box<Pipe>),
}
