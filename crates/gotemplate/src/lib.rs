//! Go's text/template with sprig's functions, over borrowed JSON and within a budget.
//!
//! ```text
//! text ─ lex ─▶ tokens ─ parse ─▶ Tree ─ exec(Value) ─▶ text
//!                          └ Functions: Go's, sprig's, the caller's
//! ```
//!
//! A template is parsed once and rendered any number of times. Rendering reads nothing but its data: no clock, file,
//! environment or network. It ends within its [`Budget`].

mod budget;
mod error;
mod exec;
mod function;
mod go;
mod json;
mod lex;
mod literal;
mod map;
mod member;
mod node;
mod parse;
mod print;
mod printf;
mod shape;
mod sprig;
mod value;
mod yaml;

pub use budget::{Budget, Exceeded, Limits, Stop};
pub use error::{Error, Failure, Reason, Syntax};
pub use function::{ANY, Args, Functions};
pub use json::{number as json_number, write_json};
pub use member::{member, member_of};
pub use print::{float as general_float, sprint};
pub use shape::{Field, Kind, Shape, Struct};
pub use value::{List, Map, Record, Text, Value};
pub use yaml::write_yaml;

/// What actions are enclosed in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delims {
    /// What starts one.
    pub left: &'static str,
    /// What ends one.
    pub right: &'static str,
}

impl Delims {
    /// Go's own.
    pub const BRACES: Self = Self { left: "{{", right: "}}" };
    /// Those of Istio up to 1.1, which were not to clash with Helm's.
    pub const BRACKETS: Self = Self { left: "[[", right: "]]" };
}

/// How much of the output an error quotes, in bytes.
const QUOTED: usize = 120;

/// A template, ready to be rendered any number of times, also at once.
#[derive(Debug)]
pub struct Template {
    name: String,
    source: String,
    tree: node::Tree,
}

impl Template {
    /// Parses a template. A call of a function that is not among those given ends the rendering that gets there; Go refuses the
    /// template.
    pub fn parse(name: &str, text: &str, delims: Delims, functions: &Functions) -> Result<Self, Error> {
        let fault =
            |(reason, at): (Syntax, usize)| Error::Syntax { template: name.to_owned(), line: line(text, at), reason };
        let tree = parse::tree(text, delims, functions).map_err(fault)?;
        Ok(Self { name: name.to_owned(), source: text.to_owned(), tree })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The functions that it calls and nobody provides.
    pub fn undefined(&self) -> &[String] {
        &self.tree.undefined
    }

    /// Renders it with `.` and `$` as the data.
    pub fn render(&self, data: &Value<'_>, budget: &mut Budget) -> Result<String, Error> {
        exec::render(&self.tree, data, budget).map_err(|stop| self.error(stop))
    }

    fn error(&self, stop: exec::Stop) -> Error {
        let at = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX).min(self.source.len());
        let (start, end) = (at(stop.span.0), at(stop.span.1));
        let before = self.source.get(..start).unwrap_or_default();
        Error::from(Box::new(Failure {
            template: self.name.clone(),
            line: line(&self.source, start),
            column: start - before.rfind('\n').map_or(0, |newline| newline + 1) + 1,
            at: self.source.get(start..end).unwrap_or_default().trim().to_owned(),
            reason: stop.reason,
            rendered: tail(&stop.rendered).to_owned(),
        }))
    }
}

fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// The end of what was rendered, whole characters of it.
fn tail(rendered: &str) -> &str {
    let start = rendered.len().saturating_sub(QUOTED);
    (start..=rendered.len()).find_map(|start| rendered.get(start..)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
