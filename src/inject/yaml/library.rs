//! Reading YAML with serde-saphyr, with the settings of Go's reader.
//!
//! `yaml` calls it for documents that `block` leaves to it, `scalar` for single scalars.

use std::cell::Cell;
use std::rc::Rc;

use gotemplate::{Budget, Exceeded};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Options;
use serde_saphyr::budget::BudgetReport;
use serde_saphyr::options::DuplicateKeyPolicy;

use super::node::Node;

/// The size limit of a text in bytes: the API server's limit for an object, and space for a template's comments.
pub const LIMIT: usize = 6 << 20;

/// Steps for one event of the library's reader: a scalar, the start or the end of a map or list, and each of those that an
/// alias repeats.
const STEPS_PER_EVENT: usize = 8;

/// A text that cannot be read as YAML.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text exceeds [`LIMIT`].
    #[error("{0} bytes of YAML are more than the {LIMIT} that are read")]
    Large(usize),
    /// The text is not YAML, or not a value of the requested type.
    #[error(transparent)]
    Syntax(Box<serde_saphyr::Error>),
    /// Reading the text exceeds the budget.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
}

/// Reads one document.
///
/// # Errors
/// The text is too large, is not YAML, or is not a value of `T`.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    if text.len() > LIMIT {
        return Err(Error::Large(text.len()));
    }
    read_with(text, options())
}

/// Reads one document as a plain value; an empty text is null. [`super::value`] must agree with it.
///
/// # Errors
/// As [`read`].
pub fn value(text: &str) -> Result<Value, Error> {
    read::<Option<Node>>(text).map(|node| node.map(|Node(value)| value).unwrap_or_default())
}

/// Reads one document as [`value`] does, within a budget. The library stops at the limits that remain in the budget, and its
/// report is charged.
///
/// # Errors
/// As [`read`], and [`Error::Exceeded`].
pub(super) fn value_within(text: &str, budget: &mut Budget) -> Result<Value, Error> {
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
    let node = read_with::<Option<Node>>(text, options.with_budget_report(move |report| reported.set(report)));
    let BudgetReport { events, recorded_anchor_events, total_scalar_bytes, recorded_anchor_bytes, .. } = report.take();
    budget.step(events.saturating_add(recorded_anchor_events).saturating_mul(STEPS_PER_EVENT))?;
    budget.bytes(total_scalar_bytes.saturating_add(recorded_anchor_bytes))?;
    node.map(|node| node.map(|Node(value)| value).unwrap_or_default())
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

fn read_with<T: DeserializeOwned>(text: &str, options: Options) -> Result<T, Error> {
    serde_saphyr::from_str_with_options(text, options).map_err(|error| Error::Syntax(Box::new(error)))
}
