//! Calls of functions.

use super::Run;
use crate::error::Reason;
use crate::function::{Args, Function, FunctionBody};
use crate::node::{Operand, Span};
use crate::parse;
use crate::value::{List, Text, Value};

impl<'t, 'a> Run<'t, 'a, '_> {
    /// Calls a function; the last argument may come from the pipeline.
    pub(super) fn call(
        &mut self,
        function: &'t Function,
        span: Span,
        arguments: &'t [Operand],
        last: Option<Value<'a>>,
        dot: &Value<'a>,
    ) -> Result<Value<'a>, Reason> {
        self.span = span;
        let got = arguments.len() + usize::from(last.is_some());
        if got < function.least || got > function.most {
            return Err(Reason::Arity { function: function.name.clone(), got });
        }
        match &function.body {
            FunctionBody::Undefined => Err(Reason::Undefined(function.name.clone())),
            FunctionBody::And => self.until(false, arguments, last, dot),
            FunctionBody::Or => self.until(true, arguments, last, dot),
            FunctionBody::Render => {
                match arguments.first().map(|text| self.argument(text, dot)).transpose()?.or(last) {
                    Some(Value::Text(text)) => self.nested(|run| run.again(text.as_str())),
                    other => Err(other.unwrap_or_default().type_error("string")),
                }
            }
            FunctionBody::Charging(body) => {
                let values = self.values(arguments, last, dot)?;
                self.span = span;
                self.budget.step(1)?;
                let result = body(self.budget, Args(&values)).map_err(|reason| named(reason, function))?;
                self.answer(span, result)
            }
            FunctionBody::Call(body) => {
                let values = self.values(arguments, last, dot)?;
                self.span = span;
                self.budget.step(1 + values.iter().map(reading).sum::<usize>())?;
                let result = body(self.budget, Args(&values)).map_err(|reason| named(reason, function))?;
                self.budget.bytes(making(&result))?;
                self.answer(span, result)
            }
        }
    }

    /// Returns the result of a call. A boolean is recorded, and replaced by the boolean in the path if there is a path.
    fn answer(&mut self, span: Span, result: Value<'a>) -> Result<Value<'a>, Reason> {
        match result {
            Value::Bool(is_true) => Ok(Value::Bool(self.take(span, is_true)?)),
            other => Ok(other),
        }
    }

    /// Evaluates the arguments of a call.
    fn values(
        &mut self,
        arguments: &'t [Operand],
        last: Option<Value<'a>>,
        dot: &Value<'a>,
    ) -> Result<Vec<Value<'a>>, Reason> {
        let mut values = Vec::with_capacity(arguments.len() + 1);
        for argument in arguments {
            values.push(self.argument(argument, dot)?);
        }
        values.extend(last);
        Ok(values)
    }

    /// Renders a string as a template, with the same data as the whole rendering and with what is left of its budget.
    fn again(&mut self, text: &str) -> Result<Value<'a>, Reason> {
        self.budget.step(1 + text.len())?;
        let Ok(tree) = parse::tree(text, self.tree.delims, &self.tree.functions) else { return Ok(Value::from("")) };
        let data = self.variables.first().cloned().unwrap_or_default();
        let mut inner = Run {
            tree: &tree,
            budget: &mut *self.budget,
            out: String::new(),
            // What the inner rendering records is discarded: its spans refer to this string, not to the source of the outer template.
            missing: Vec::new(),
            path: None,
            taken: Vec::new(),
            variables: vec![data.clone()],
            base: 0,
            depth: self.depth,
            span: self.span,
        };
        match inner.walk(&tree.root, &data) {
            Ok(_) => Ok(Value::from(inner.out)),
            Err(limit @ (Reason::Exceeded(_) | Reason::TooDeep(_))) => Err(limit),
            Err(_) => Ok(Value::from("")),
        }
    }

    /// Implements `and` (`truth` is false) and `or` (`truth` is true): evaluates the arguments up to the first argument
    /// with this truth, and returns it. Without such an argument, returns the last one.
    fn until(
        &mut self,
        truth: bool,
        arguments: &'t [Operand],
        last: Option<Value<'a>>,
        dot: &Value<'a>,
    ) -> Result<Value<'a>, Reason> {
        let mut value = Value::Missing;
        for argument in arguments {
            value = self.argument(argument, dot)?;
            if value.is_true() == truth {
                return Ok(value);
            }
        }
        Ok(last.unwrap_or(value))
    }
}

/// Returns the number of steps that a call is charged for reading an argument.
fn reading(value: &Value<'_>) -> usize {
    match value {
        Value::Text(text) => text.as_str().len() / 64,
        Value::List(list) => list.len(),
        Value::Map(map) => map.len(),
        _ => 0,
    }
}

/// Returns the number of bytes that a call is charged for its result, unless the result is part of the data.
fn making(value: &Value<'_>) -> usize {
    match value {
        Value::Text(Text::Shared(text)) => text.len(),
        Value::List(list @ List::Made(_)) => list.len() * size_of::<Value<'_>>(),
        _ => 0,
    }
}

fn named(reason: Reason, function: &Function) -> Reason {
    match reason {
        Reason::Refused(why) => Reason::Call { function: function.name.clone(), why },
        reason => reason,
    }
}
