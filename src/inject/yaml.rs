//! YAML as Kubernetes' own tools read it: what templates render, configuration and documents on the command line.
//!
//! The settings are those of Go's reader: a repeated key counts once, with its last value; `yes` and `on` are booleans,
//! `0644` is octal, and such a key is the text of the
//! value that it stands for. Anything larger than a request may be is refused before it is read.

mod block;
mod flow;
mod node;
mod scalar;
#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::rc::Rc;

use gotemplate::{Budget, Exceeded};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Options;
use serde_saphyr::budget::BudgetReport;
use serde_saphyr::options::DuplicateKeyPolicy;

use node::Node;

/// The most text that is read, in bytes: what the API server accepts as one object, and room for a template's comments.
pub const LIMIT: usize = 6 << 20;

/// Why text is no usable YAML.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It exceeds [`LIMIT`].
    #[error("{0} bytes of YAML are more than the {LIMIT} that are read")]
    Large(usize),
    /// It cannot be parsed, or is of another shape than was asked for.
    #[error(transparent)]
    Syntax(Box<serde_saphyr::Error>),
    /// Reading it exceeds the budget.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

/// Bytes of text that are read in the time of one step.
const BYTES_PER_STEP: usize = 16;
/// Steps for a value: it is read, merged, compared, written and freed.
const STEPS_PER_VALUE: usize = 5;
/// Steps for one event of the library's reader: a scalar, the start or the end of a map or list, and each of those that an
/// alias repeats.
const STEPS_PER_EVENT: usize = 8;

/// Reads one document.
///
/// # Errors
/// The text is too large, no YAML, or not of the shape of `T`.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    if text.len() > LIMIT {
        return Err(Error::Large(text.len()));
    }
    read_by(text, options())
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn read_by<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options).map_err(|error| Error::Syntax(Box::new(error)))
}

/// Reads one document as plain value; text without any is null.
///
/// # Errors
/// As [`read`].
pub fn value(text: &str) -> Result<Value, Error> {
    match block::read(text).filter(|_| text.len() <= LIMIT) {
        Some(value) => Ok(value),
        None => whole(text),
    }
}

/// Reads one document, which a pod's author may have written in part, as plain value. The budget bounds the document with all
/// that its aliases repeat.
///
/// # Errors
/// As [`read`], and [`Error::Exceeded`].
pub fn value_within(text: &str, budget: &mut Budget) -> Result<Value, Error> {
    budget.step(text.len() / BYTES_PER_STEP)?;
    // Each value but the first follows one of these.
    let values = text.bytes().filter(|byte| matches!(byte, b'\n' | b',' | b':' | b'[' | b'{')).count();
    budget.step(values.saturating_mul(STEPS_PER_VALUE))?;
    match block::read(text).filter(|_| text.len() <= LIMIT) {
        Some(value) => Ok(value),
        None if text.len() > LIMIT => Err(Error::Large(text.len())),
        None => whole_within(text, budget),
    }
}

/// [`whole`] within a budget: the library ends where it exceeds its own, and reports how far it was.
fn whole_within(text: &str, budget: &mut Budget) -> Result<Value, Error> {
    let left = budget.left();
    let events = usize::try_from(left.steps).unwrap_or(usize::MAX) / STEPS_PER_EVENT;
    let mut options = options();
    options.budget = serde_saphyr::budget! {
        max_events: events,
        max_nodes: events,
        max_recorded_anchor_events: events,
        max_total_scalar_bytes: left.bytes,
        max_recorded_anchor_bytes: left.bytes,
    };
    let report = Rc::new(Cell::new(BudgetReport::default()));
    let reported = Rc::clone(&report);
    let node = read_by::<Option<Node>>(text, options.with_budget_report(move |report| reported.set(report)));
    let BudgetReport { events, recorded_anchor_events, total_scalar_bytes, recorded_anchor_bytes, .. } = report.take();
    budget.step(events.saturating_add(recorded_anchor_events).saturating_mul(STEPS_PER_EVENT))?;
    budget.bytes(total_scalar_bytes.saturating_add(recorded_anchor_bytes))?;
    node.map(|node| node.map(|Node(value)| value).unwrap_or_default())
}

/// The same by the library alone.
fn whole(text: &str) -> Result<Value, Error> {
    read::<Option<Node>>(text).map(|node| node.map(|Node(value)| value).unwrap_or_default())
}
