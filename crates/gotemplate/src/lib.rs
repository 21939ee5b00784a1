//! Go's `text/template` with sprig's functions, over borrowed JSON and within a budget.
//!
//! ```
//! use gotemplate::{Budget, Delims, Functions, Template, Value};
//!
//! let functions = Functions::go().with_sprig();
//! let text = "{{ range .hosts }}{{ . | upper | quote }} {{ else }}none{{ end }}";
//! let template = Template::parse("hosts", text, Delims::BRACES, &functions)?;
//!
//! let data = serde_json::json!({ "hosts": ["a.example", "b.example"] });
//! let rendered = template.render(&Value::json(&data), &mut Budget::default())?;
//! assert_eq!(rendered, r#""A.EXAMPLE" "B.EXAMPLE" "#);
//! # Ok::<_, gotemplate::Error>(())
//! ```
//!
//! A [`Template`] is parsed once and rendered any number of times, also by several threads at once:
//!
//! ```text
//! text ─ lex ─▶ tokens ─ parse ─▶ tree ─ exec(Value, Budget) ─▶ text
//!                          └ Functions: Go's, sprig's, the caller's
//! ```
//!
//! - **Data** is a [`Value`]: untyped JSON, JSON with the field names, types and zero values of a Go struct
//!   ([`Shape`]), or fields that the caller computes ([`Record`]). Values borrow the JSON; only functions make new
//!   values.
//! - **Functions** are [`Functions`]. [`Functions::with`] adds functions of the caller and replaces others.
//! - **Limits** on steps, bytes, nesting and time are set by a [`Budget`]. Rendering reads no clock, file, environment
//!   variable or network.
//! - **Errors** name the template and the line; errors of rendering also name the column and the expression, with the
//!   end of the output so far.
//!
//! # Differences from Go
//!
//! - A call to an undefined function ends the rendering that reaches it; Go refuses the template. The names of such
//!   functions are in [`Template::undefined`].
//! - Values have no methods, except the getters of a [`Shape`] that requests them and `String` of a constant.
//! - `set` and `unset` refuse maps of the data, which other renderings share; a `deepCopy` of such a map can be
//!   changed.
//! - sprig's functions for dates, random values, the environment, hosts, keys, passwords and certificates are left out.
//! - Complex numbers, and integers from 2^63 on, end the rendering that reaches them.

mod budget;
mod error;
mod exec;
mod function;
mod go;
mod json;
mod lex;
mod literal;
mod member;
mod names;
mod node;
mod parse;
mod paths;
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
pub use names::Names;
pub use paths::Paths;
pub use print::{float as general_float, sprint};
pub use shape::{Field, Kind, Shape};
pub use value::{List, Map, Record, Struct, Text, Value};
pub use yaml::write_yaml;

/// The delimiters of actions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delims {
    /// Starts an action.
    pub left: &'static str,
    /// Ends an action.
    pub right: &'static str,
}

impl Delims {
    /// Go's default: `{{` and `}}`.
    pub const BRACES: Self = Self { left: "{{", right: "}}" };
    /// `[[` and `]]`, for templates that pass through another template engine first.
    pub const BRACKETS: Self = Self { left: "[[", right: "]]" };
}

/// Bytes of the output that an error quotes.
const QUOTED: usize = 120;

/// A parsed template. Threads may share it.
#[derive(Debug)]
pub struct Template {
    name: String,
    source: String,
    tree: node::Tree,
}

/// The output of a template, with a record of its rendering.
#[derive(Debug)]
pub struct Rendered {
    /// The output.
    pub text: String,
    /// The expressions that printed `<no value>`, at most eight.
    pub missing: Vec<String>,
    /// The decisions of this rendering, which [`Template::render_recorded`] can repeat with other data.
    pub path: Path,
}

/// The branches that the `if` and `with` actions of a template took and the booleans that its functions except `and`
/// and `or` returned, in the order of the rendering.
#[derive(Debug)]
pub struct Path(Vec<exec::Taken>);

impl Template {
    /// Parses a template. Errors call it `name`.
    ///
    /// A call to an unknown function is not an error here: it ends the rendering that reaches it.
    ///
    /// # Errors
    /// [`Error::Syntax`]: the text is not a template, or uses an undeclared variable.
    pub fn parse(name: &str, text: &str, delims: Delims, functions: &Functions) -> Result<Self, Error> {
        let fault =
            |(reason, at): (Syntax, usize)| Error::Syntax { template: name.to_owned(), line: line(text, at), reason };
        let tree = parse::tree(text, delims, functions).map_err(fault)?;
        Ok(Self { name: name.to_owned(), source: text.to_owned(), tree })
    }

    /// Returns the name of the template.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the source of the template.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Returns the names of the functions that the template calls and [`Template::parse`] was not given, in
    /// alphabetical order.
    pub fn undefined(&self) -> &[String] {
        &self.tree.undefined
    }

    /// Renders the template with `data` as `.` and `$`.
    ///
    /// # Errors
    /// [`Error::Render`]: the data does not fit the template, a function fails, or the budget is spent.
    pub fn render(&self, data: &Value<'_>, budget: &mut Budget) -> Result<String, Error> {
        self.render_recorded(data, None, budget).map(|rendered| rendered.text)
    }

    /// Renders the template as [`Template::render`] does, and records the rendering.
    ///
    /// With a `path`, each `if` and `with` takes the branch that it took in the recorded rendering, and each function that returned a
    /// boolean there returns the same boolean, whatever `data` yields. A `range` still iterates over `data`, and a template that the
    /// function `render` renders takes its own branches.
    ///
    /// # Errors
    /// See [`Template::render`]. [`Reason::Path`]: the path does not fit, for example because a `range` has a different number of elements.
    pub fn render_recorded(
        &self,
        data: &Value<'_>,
        path: Option<&Path>,
        budget: &mut Budget,
    ) -> Result<Rendered, Error> {
        let path = path.map(|path| path.0.as_slice());
        let rendered = exec::render(&self.tree, data, path, budget).map_err(|stop| self.error(stop))?;
        let mut missing: Vec<String> = rendered.missing.into_iter().map(|span| self.text(span).to_owned()).collect();
        missing.dedup();
        Ok(Rendered { text: rendered.text, missing, path: Path(rendered.taken) })
    }

    /// Returns the source of an expression.
    fn text(&self, (start, end): node::Span) -> &str {
        let at = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX).min(self.source.len());
        self.source.get(at(start)..at(end)).unwrap_or_default().trim()
    }

    fn error(&self, stop: exec::Stop) -> Error {
        let at = |offset: u32| usize::try_from(offset).unwrap_or(usize::MAX).min(self.source.len());
        let start = at(stop.span.0);
        let before = self.source.get(..start).unwrap_or_default();
        Error::from(Box::new(Failure {
            template: self.name.clone(),
            line: line(&self.source, start),
            column: start - before.rfind('\n').map_or(0, |newline| newline + 1) + 1,
            at: self.text(stop.span).to_owned(),
            reason: stop.reason,
            rendered: tail(&stop.rendered).to_owned(),
        }))
    }
}

fn line(text: &str, at: usize) -> usize {
    text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1
}

/// Returns at most the last [`QUOTED`] bytes of the output, in whole characters.
fn tail(rendered: &str) -> &str {
    let start = rendered.len().saturating_sub(QUOTED);
    (start..=rendered.len()).find_map(|start| rendered.get(start..)).unwrap_or_default()
}

#[cfg(test)]
mod tests;

/// The examples of the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
