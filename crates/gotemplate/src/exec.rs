//! The evaluator: Go's rules for fields, variables, pipelines and control structures.
//!
//! Execution charges the budget for each expression, so that every template ends with any data.

mod call;

use super::budget::Budget;
use super::error::Reason;
use super::node;
use super::node::{Branch, Node, Operand, Pipe, Span, Tree};
use super::print::{self, Sink};
use super::value::{Text, Value};

/// The position and the reason at which rendering ended, with the output so far.
pub(super) struct Stop {
    pub(super) reason: Reason,
    pub(super) span: Span,
    pub(super) rendered: String,
}

/// The maximum number of expressions without a value that are recorded.
const MAX_MISSING: usize = 8;

/// The output of a template.
pub(super) struct Rendered {
    pub(super) text: String,
    /// The first [`MAX_MISSING`] expressions that printed `<no value>`.
    pub(super) missing: Vec<Span>,
    /// The branches that were taken, and the booleans that functions returned.
    pub(super) taken: Vec<Taken>,
}

/// A decision: the span of an `if` or `with` pipeline and whether its first branch was taken, or the span of a call and the boolean that it
/// returned.
pub(super) type Taken = (Span, bool);

/// Renders a tree with `data` as `.` and `$`. `path`: the decisions to repeat, whatever this data yields.
pub(super) fn render(
    tree: &Tree,
    data: &Value<'_>,
    path: Option<&[Taken]>,
    budget: &mut Budget,
) -> Result<Rendered, Stop> {
    let (out, missing, taken, variables) = (String::new(), Vec::new(), Vec::new(), vec![data.clone()]);
    let mut run = Run { tree, budget, out, missing, path, taken, variables, base: 0, depth: 0, span: (0, 0) };
    match run.walk(&tree.root, data).and_then(|_| run.arrive()) {
        Ok(()) => Ok(Rendered { text: run.out, missing: run.missing, taken: run.taken }),
        Err(reason) => Err(Stop { reason, span: run.span, rendered: run.out }),
    }
}

struct Run<'t, 'a, 'b> {
    tree: &'t Tree,
    budget: &'b mut Budget,
    out: String,
    missing: Vec<Span>,
    path: Option<&'t [Taken]>,
    /// The budget bounds this list, because each branch and each call costs steps.
    taken: Vec<Taken>,
    /// The values of the variables. Slot 0 of the current template is at `base`.
    variables: Vec<Value<'a>>,
    base: usize,
    depth: usize,
    /// The expression being evaluated, which errors name.
    span: Span,
}

/// What ended the rendering of a list of nodes: the end of the list (`Next`), `break` or `continue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t, 'a> Run<'t, 'a, '_> {
    fn nested<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T, Reason>) -> Result<T, Reason> {
        if self.depth == self.budget.depth() {
            return Err(Reason::TooDeep(self.depth));
        }
        self.depth += 1;
        let result = run(self);
        self.depth -= 1;
        result
    }

    fn walk(&mut self, nodes: &'t [Node], dot: &Value<'a>) -> Result<Flow, Reason> {
        self.nested(|run| {
            for node in nodes {
                match run.node(node, dot)? {
                    Flow::Next => {}
                    flow => return Ok(flow),
                }
            }
            Ok(Flow::Next)
        })
    }

    fn node(&mut self, node: &'t Node, dot: &Value<'a>) -> Result<Flow, Reason> {
        self.budget.step(1)?;
        match node {
            Node::Text(text) => {
                self.budget.bytes(text.len())?;
                self.out.push_str(text);
            }
            Node::Action(pipe) => {
                let value = self.pipe(pipe, dot)?;
                if pipe.slots.is_empty() {
                    if matches!(value, Value::Missing) && self.missing.len() < MAX_MISSING {
                        self.missing.push(pipe.span);
                    }
                    print::value(&mut Sink::new(&mut self.out, self.budget), &value)?;
                }
            }
            Node::If(branch) => return self.choose(branch, dot, false),
            Node::With(branch) => return self.choose(branch, dot, true),
            Node::Range(branch) => return self.range(branch, dot),
            Node::Template(span, name, pipe) => return self.template(*span, name, pipe.as_ref(), dot),
            Node::Break => return Ok(Flow::Break),
            Node::Continue => return Ok(Flow::Continue),
        }
        Ok(Flow::Next)
    }

    fn choose(&mut self, branch: &'t Branch, dot: &Value<'a>, with: bool) -> Result<Flow, Reason> {
        let value = self.pipe(&branch.pipe, dot)?;
        match self.take(branch.pipe.span, value.is_true())? {
            true => self.walk(&branch.body, if with { &value } else { dot }),
            false => self.walk(&branch.otherwise, dot),
        }
    }

    /// Returns a decision and records it: the one in the path or, without a path, `is_true`, which this data yields.
    fn take(&mut self, span: Span, is_true: bool) -> Result<bool, Reason> {
        let is_taken = match self.path {
            None => is_true,
            Some(path) => match path.get(self.taken.len()) {
                Some((of, is_taken)) if *of == span => *is_taken,
                _ => return Err(Reason::Path),
            },
        };
        self.taken.push((span, is_taken));
        Ok(is_taken)
    }

    /// Checks that all decisions of the path were repeated.
    fn arrive(&self) -> Result<(), Reason> {
        self.path.is_none_or(|path| path.len() == self.taken.len()).then_some(()).ok_or(Reason::Path)
    }

    fn template(&mut self, span: Span, name: &str, pipe: Option<&'t Pipe>, dot: &Value<'a>) -> Result<Flow, Reason> {
        let tree = self.tree;
        let Some(nodes) = tree.named.get(name) else {
            self.span = span;
            return Err(Reason::Template(name.to_owned()));
        };
        let dot = match pipe {
            Some(pipe) => self.pipe(pipe, dot)?,
            None => Value::Missing,
        };
        self.span = span;
        let (base, length) = (self.base, self.variables.len());
        self.base = length;
        self.variables.push(dot.clone());
        self.walk(nodes, &dot)?;
        self.variables.truncate(length);
        self.base = base;
        Ok(Flow::Next)
    }

    fn range(&mut self, branch: &'t Branch, dot: &Value<'a>) -> Result<Flow, Reason> {
        let value = self.pipe(&branch.pipe, dot)?;
        self.span = branch.pipe.span;
        let any = match &value {
            Value::Missing => false,
            Value::Int(number) | Value::Enum { number, .. } => self.count(branch, *number, Value::Int)?,
            Value::Long(number) => self.count(branch, *number, Value::Long)?,
            Value::List(list) => {
                let indexed = list.iter().enumerate().map(|(index, item)| (number(index), item));
                self.iterate(branch, indexed)?
            }
            Value::Map(map) => {
                self.budget.step(map.len())?;
                let entries = map.sorted().into_iter().map(|(key, item)| (Value::Text(key), item));
                self.iterate(branch, entries)?
            }
            other => return Err(Reason::Range(format!("a value of type {}", other.type_name()))),
        };
        match any {
            true => Ok(Flow::Next),
            false => self.walk(&branch.otherwise, dot),
        }
    }

    fn count(&mut self, branch: &'t Branch, number: i64, of: fn(i64) -> Value<'a>) -> Result<bool, Reason> {
        match branch.pipe.slots.len() {
            2.. => Err(Reason::Range(format!("{number} with more than one variable"))),
            _ => self.iterate(branch, (0..number).map(|item| (Value::Missing, of(item)))),
        }
    }

    /// Renders the body of a `range` once for each item, and returns whether there was any item.
    fn iterate(
        &mut self,
        branch: &'t Branch,
        items: impl Iterator<Item = (Value<'a>, Value<'a>)>,
    ) -> Result<bool, Reason> {
        let mut any = false;
        for (index, item) in items {
            any = true;
            self.budget.step(1)?;
            match branch.pipe.slots.as_slice() {
                [] => {}
                [only] => self.set(*only, item.clone(), false),
                [first, second, ..] => {
                    self.set(*first, index, false);
                    self.set(*second, item.clone(), false);
                }
            }
            if self.walk(&branch.body, &item)? == Flow::Break {
                break;
            }
        }
        Ok(any)
    }

    fn set(&mut self, slot: usize, value: Value<'a>, declares: bool) {
        let at = self.base + slot;
        if declares {
            self.variables.resize(at + 1, Value::Missing);
        }
        if let Some(variable) = self.variables.get_mut(at) {
            *variable = value;
        }
    }

    fn pipe(&mut self, pipe: &'t Pipe, dot: &Value<'a>) -> Result<Value<'a>, Reason> {
        let mut last = None;
        for command in &pipe.commands {
            last = Some(self.command(command, dot, last)?.out_of_pipeline());
        }
        let value = last.unwrap_or_default();
        for slot in &pipe.slots {
            self.set(*slot, value.clone(), pipe.declares);
        }
        Ok(value)
    }

    fn command(
        &mut self,
        command: &'t node::Command,
        dot: &Value<'a>,
        last: Option<Value<'a>>,
    ) -> Result<Value<'a>, Reason> {
        self.budget.step(1)?;
        let given = !command.arguments.is_empty() || last.is_some();
        match &command.head {
            Operand::Call(_, function) => return self.call(function, command.span, &command.arguments, last, dot),
            Operand::Field(span, names) => return self.fields(*span, dot.clone(), names, given),
            Operand::Variable(span, slot, names) if !names.is_empty() => {
                let value = self.variable(*slot);
                return self.fields(*span, value, names, given);
            }
            Operand::Chain(span, base, names) => {
                let value = self.argument(base, dot)?.out_of_pipeline();
                return self.fields(*span, value, names, given);
            }
            _ => {}
        }
        self.span = command.span;
        match &command.head {
            _ if given => Err(Reason::NotAFunction),
            Operand::Nil => Err(Reason::Nil),
            head => self.argument(head, dot),
        }
    }

    /// Evaluates an operand to which no arguments are given.
    fn argument(&mut self, operand: &'t Operand, dot: &Value<'a>) -> Result<Value<'a>, Reason> {
        match operand {
            Operand::Dot => Ok(dot.clone()),
            Operand::Nil => Ok(Value::Nil),
            Operand::Bool(truth) => Ok(Value::Bool(*truth)),
            Operand::Int(number) => Ok(Value::Int(*number)),
            Operand::Float(number) => Ok(Value::Float(*number)),
            Operand::Unsupported(span, text) => {
                self.span = *span;
                Err(Reason::Refused(format!("the number {text} is complex or too large")))
            }
            Operand::Text(text) => Ok(Value::Text(Text::Shared(text.clone()))),
            Operand::Field(span, names) => self.fields(*span, dot.clone(), names, false),
            Operand::Variable(span, slot, names) => {
                let value = self.variable(*slot);
                self.fields(*span, value, names, false)
            }
            Operand::Chain(span, base, names) => {
                let value = self.nested(|run| run.argument(base, dot))?.out_of_pipeline();
                self.fields(*span, value, names, false)
            }
            Operand::Call(span, function) => self.call(function, *span, &[], None, dot),
            Operand::Pipe(pipe) => self.nested(|run| run.pipe(pipe, dot)),
        }
    }

    fn variable(&self, slot: usize) -> Value<'a> {
        self.variables.get(self.base + slot).cloned().unwrap_or_default()
    }

    /// Reads a field of a value, then a field of that field, and so on, by `names`. `given`: the last field is given
    /// arguments. This is an error, because no field is a function; but fields of a missing value, which are missing
    /// too, ignore arguments.
    fn fields(&mut self, span: Span, value: Value<'a>, names: &[Box<str>], given: bool) -> Result<Value<'a>, Reason> {
        self.span = span;
        self.budget.step(names.len())?;
        let mut value = value;
        for (index, name) in names.iter().enumerate() {
            let missing = matches!(value, Value::Missing);
            value = value.field(name)?;
            if given && !missing && index + 1 == names.len() {
                return Err(Reason::NotAFunction);
            }
        }
        Ok(value)
    }
}

fn number<'a>(index: usize) -> Value<'a> {
    Value::Int(i64::try_from(index).unwrap_or(i64::MAX))
}
