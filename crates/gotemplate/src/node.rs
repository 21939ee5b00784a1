//! The syntax tree of a template.
//!
//! Variables are resolved to slots and functions to their implementations; the tree does not refer to the source.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::Delims;
use super::function::{Function, Functions};

/// Byte offsets of the start and the end of an expression in the source.
pub(super) type Span = (u32, u32);

/// The syntax tree of a source: its named templates, and the nodes outside of them.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Vec<Node>,
    pub(super) named: HashMap<String, Vec<Node>>,
    /// Names of undefined functions.
    pub(super) undefined: Vec<String>,
    /// The delimiters with which the function `render` parses its argument as a template.
    pub(super) delims: Delims,
    pub(super) functions: Functions,
}

impl Tree {
    /// Returns the nodes outside of named templates, and the nodes of each named template that they call directly or indirectly.
    pub(super) fn called(&self) -> Vec<&[Node]> {
        let mut called = vec![&*self.root];
        let mut names = HashSet::new();
        let mut at = 0;
        while let Some(nodes) = called.get(at) {
            let mut found = Vec::new();
            calls(nodes, &mut found);
            let new = found.into_iter().filter(|name| names.insert(*name));
            called.extend(new.filter_map(|name| self.named.get(name)).map(Vec::as_slice));
            at += 1;
        }
        called
    }
}

/// Finds the names of the templates that nodes call.
fn calls<'n>(nodes: &'n [Node], found: &mut Vec<&'n str>) {
    for node in nodes {
        match node {
            Node::Template(_, name, _) => found.push(name),
            Node::If(branch) | Node::With(branch) | Node::Range(branch) => {
                calls(&branch.body, found);
                calls(&branch.otherwise, found);
            }
            Node::Text(_) | Node::Action(_) | Node::Break | Node::Continue => {}
        }
    }
}

/// Part of a template.
#[derive(Debug)]
pub(super) enum Node {
    /// Text outside of actions.
    Text(Box<str>),
    /// An action that prints the value of its pipeline, or nothing if the pipeline sets variables.
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

/// A pipeline with the nodes that are rendered if it is true, and if it is not.
#[derive(Debug)]
pub(super) struct Branch {
    pub(super) pipe: Pipe,
    pub(super) body: Vec<Node>,
    pub(super) otherwise: Vec<Node>,
}

/// A pipeline: commands, each of which takes the value of the command before it as its last argument.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) span: Span,
    pub(super) commands: Vec<Command>,
    /// Slots of the variables that are set; for `range`, index and element.
    pub(super) slots: Vec<usize>,
    /// Whether the pipeline declares the variables (`:=`) or assigns to existing ones (`=`).
    pub(super) declares: bool,
}

/// An operand and its arguments.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) span: Span,
    pub(super) head: Operand,
    pub(super) arguments: Vec<Operand>,
}

/// Part of an expression.
#[derive(Debug)]
pub(super) enum Operand {
    Dot,
    Nil,
    Bool(bool),
    Int(i64),
    Float(f64),
    /// A number for which this crate has no type: an error when it is evaluated, so that the rest of the template is usable.
    Unsupported(Span, Box<str>),
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
