//! Reading YAML with serde-saphyr, with the settings of Go's reader.
//!
//! `yaml` calls this module for documents that `block` leaves to the library, and `scalar` for single scalars.

use std::cell::Cell;
use std::rc::Rc;

use gotemplate::{Budget, Exceeded};
use serde::Deserializer as _;
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::Options;
use serde_saphyr::budget::{BudgetBreach, BudgetReport};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy};

use super::merge_key::{MERGE, Source};
use super::node::{Merges, Node};
use super::separators::StandIns;
use super::{LIMIT, forms, overflow};

/// The maximum number of members that the merge keys of a document may copy if it is read without a budget.
const MAX_MERGED: usize = 250_000;

/// Unicode's next line (NEL).
const NEXT_LINE: char = '\u{85}';

/// Steps for one event of the library's reader: a scalar, or the start or end of a map or list. Events that an alias
/// repeats are charged again.
const STEPS_PER_EVENT: usize = 8;
/// The number of bytes of text that are charged as one step when merge keys are searched.
const BYTES_PER_SCAN_STEP: usize = 4;
/// Steps for a member that a merge key copies.
const STEPS_PER_MERGED: usize = 4;
/// The maximum depth of a document that is read within a budget. It limits the cost of a key that is a map or list:
/// before such a key is refused, the library copies it once for each level of nesting in it.
const DEPTH: usize = 32;
/// The maximum depth of a document with repeated keys. In such a document, the library may copy at each level
/// everything below that level. Pods do not reach this depth.
const REPEATED_KEYS_DEPTH: usize = 16;
/// Steps for one event of a document with repeated keys. The library may copy the event once for each level above it.
const STEPS_PER_COPIED_EVENT: usize = REPEATED_KEYS_DEPTH * STEPS_PER_EVENT;

/// A text that cannot be read as YAML.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text exceeds [`LIMIT`].
    #[error("the YAML has {0} bytes: at most {LIMIT} are allowed")]
    Large(usize),
    /// The text is not YAML, or not a value of the requested type.
    #[error(transparent)]
    Syntax(Box<serde_saphyr::Error>),
    /// The text goes on after the end of its document. Go's reader drops the rest.
    #[error(
        "line {0} is after the end of the document, where only comments are allowed; Go's YAML reader ignores it silently"
    )]
    AfterEnd(u64),
    /// The document is too deep.
    #[error("the document is deeper than {0} levels")]
    Deep(usize),
    /// A document with repeated keys is too deep.
    #[error("a document with repeated keys is deeper than {0} levels: remove all but the last value of each key")]
    RepeatedKeys(usize),
    /// A scalar has the tag of another type.
    #[error(transparent)]
    Tagged(#[from] forms::Tagged),
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
    if StandIns::of(text).is_some() {
        return T::deserialize(value(text)?).map_err(|error| Error::of(serde::de::Error::custom(error)));
    }
    with_forms(text, |text| {
        check_end(text)?;
        serde_saphyr::from_str_with_options(text, options(DuplicateKeyPolicy::LastWins)).map_err(Error::of)
    })
}

/// Reads one document as a plain value; an empty text is null. [`super::value`] must return the same value.
///
/// # Errors
/// As for [`read`].
pub fn value(text: &str) -> Result<Value, Error> {
    if text.len() > LIMIT {
        return Err(Error::Large(text.len()));
    }
    with_separators(text, |text| {
        with_repeated_keys(text, |source, keys| read_value(source, options(keys), &Merges::new(source, MAX_MERGED)))
    })
}

/// Reads one document as [`value`] does, within a budget.
///
/// # Errors
/// As for [`read`], and [`Error::Exceeded`] if the budget is spent.
pub(super) fn value_within(text: &str, budget: &mut Budget) -> Result<Value, Error> {
    let mut is_first = true;
    with_separators(text, |text| {
        if text.contains(MERGE) || !is_first {
            // The text is parsed once more to find its merge keys, or was already read once and is read again in
            // another form.
            budget.step(text.len() / BYTES_PER_SCAN_STEP)?;
        }
        is_first = false;
        with_repeated_keys(text, |source, keys| charged(source, keys, budget))
    })
}

/// Calls `read` as [`with_forms`] does, with stand-ins for the line breaks that only Go's reader recognizes.
fn with_separators(text: &str, read: impl FnMut(&str) -> Result<Value, Error>) -> Result<Value, Error> {
    let Some(stand_ins) = StandIns::of(text) else { return with_forms(text, read) };
    let mut value = with_forms(&stand_ins.replace(text), read)?;
    stand_ins.restore(&mut value);
    Ok(value)
}

/// Calls `read` with line breaks and scalars rewritten to what Go reads. If the library refuses the text, calls `read`
/// again with quotes around numbers that no float can hold, or with indented quoted scalars, both of which Go reads.
fn with_forms<T>(text: &str, mut read: impl FnMut(&str) -> Result<T, Error>) -> Result<T, Error> {
    // Go's reader treats U+0085 as a line break.
    let broken = text.contains(NEXT_LINE).then(|| text.replace(NEXT_LINE, "\n"));
    let text = broken.as_deref().unwrap_or(text);
    match with_scalars(text, &mut read) {
        Err(Error::Syntax(error)) => match forms::indented(text) {
            Some(indented) => with_scalars(&indented, &mut read),
            None => Err(Error::Syntax(error)),
        },
        result => result,
    }
}

fn with_scalars<T>(text: &str, read: &mut impl FnMut(&str) -> Result<T, Error>) -> Result<T, Error> {
    let text = &*forms::of_scalars(text)?;
    match read(text) {
        Err(Error::Syntax(error)) if is_non_finite(&error) => match overflow::quoted(text) {
            Some(quoted) => read(&quoted),
            None => Err(Error::Syntax(error)),
        },
        result => result,
    }
}

fn is_non_finite(error: &serde_saphyr::Error) -> bool {
    match error {
        serde_saphyr::Error::AliasError { error, .. } => is_non_finite(error),
        error => matches!(error, serde_saphyr::Error::NonFiniteFloat { .. }),
    }
}

/// Calls `read` with an option that makes repeated keys an error and, if the document has repeated keys, again with an
/// option that uses the last value of each key. Only with the second option does the library copy the part of each map
/// from its first integer key on, and copy the maps under integer keys in this part again.
fn with_repeated_keys(
    text: &str,
    mut read: impl FnMut(&Source<'_>, DuplicateKeyPolicy) -> Result<Value, Error>,
) -> Result<Value, Error> {
    match read(&Source::of(text), DuplicateKeyPolicy::Error) {
        Err(Error::Syntax(error)) if is_repeated_key(&error) => {
            read(&Source::of_distinct(text), DuplicateKeyPolicy::LastWins)
        }
        result => result,
    }
}

fn is_repeated_key(error: &serde_saphyr::Error) -> bool {
    match error {
        serde_saphyr::Error::AliasError { error, .. } => is_repeated_key(error),
        error => matches!(error, serde_saphyr::Error::DuplicateMappingKey { .. }),
    }
}

/// Reads a document once. The library stops at the limits that remain in the budget. The events and bytes that it
/// reports as read are charged to the budget.
fn charged(source: &Source<'_>, keys: DuplicateKeyPolicy, budget: &mut Budget) -> Result<Value, Error> {
    let copies = matches!(keys, DuplicateKeyPolicy::LastWins);
    let steps_per_event = if copies { STEPS_PER_COPIED_EVENT } else { STEPS_PER_EVENT };
    let (left, mut options) = (budget.left(), options(keys));
    let steps = usize::try_from(left.steps).unwrap_or(usize::MAX);
    let mut limits = limits(steps / steps_per_event, left.bytes);
    let depth = if copies { REPEATED_KEYS_DEPTH } else { DEPTH };
    limits.max_depth = depth;
    options.budget = Some(limits);
    let report = Rc::new(Cell::new(BudgetReport::default()));
    let reported = Rc::clone(&report);
    let merges = Merges::new(source, steps / STEPS_PER_MERGED);
    let options = options.with_budget_report(move |report| reported.set(report));
    let value = read_value(source, options, &merges);
    let BudgetReport { breached, events, recorded_anchor_events, total_scalar_bytes, recorded_anchor_bytes, .. } =
        report.take();
    budget.step(events.saturating_add(recorded_anchor_events).saturating_mul(steps_per_event))?;
    budget.step(merges.copied().saturating_mul(STEPS_PER_MERGED))?;
    budget.bytes(total_scalar_bytes.saturating_add(recorded_anchor_bytes))?;
    match breached {
        Some(BudgetBreach::Depth { .. }) if copies => Err(Error::RepeatedKeys(depth)),
        Some(BudgetBreach::Depth { .. }) => Err(Error::Deep(depth)),
        _ => value,
    }
}

/// Returns the library's limits for this number of events and bytes.
fn limits(events: usize, bytes: usize) -> serde_saphyr::Budget {
    let mut limits = serde_saphyr::Budget::default();
    (limits.max_events, limits.max_nodes, limits.max_recorded_anchor_events) = (events, events, events);
    (limits.max_total_scalar_bytes, limits.max_recorded_anchor_bytes) = (bytes, bytes);
    limits
}

fn options(keys: DuplicateKeyPolicy) -> Options {
    serde_saphyr::options! {
        duplicate_keys: keys,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// Reads a value; `merges` applies the merge keys.
fn read_value(source: &Source<'_>, mut options: Options, merges: &Merges<'_>) -> Result<Value, Error> {
    let text = &*source.text;
    check_end(text)?;
    options.merge_keys = MergeKeyPolicy::AsOrdinary;
    let read = |reader: serde_saphyr::Deserializer<'_, '_>| reader.deserialize_option(Node::of(merges));
    serde_saphyr::with_deserializer_from_str_with_options(text, options, read).map_err(Error::of)
}

/// Refuses text after the end marker `...`, which the library itself ignores if it is not YAML.
fn check_end(text: &str) -> Result<(), Error> {
    let mut lines = (1..).zip(text.lines()).skip_while(|(_, line)| after_marker(line).is_none());
    let is_more = |line: &str| {
        let rest = after_marker(line).unwrap_or(line).trim_start();
        !rest.is_empty() && !rest.starts_with('#')
    };
    match lines.find(|(_, line)| is_more(line)) {
        Some((number, _)) => Err(Error::AfterEnd(number)),
        None => Ok(()),
    }
}

/// Returns the rest of a line that begins with the marker of a document's end.
fn after_marker(line: &str) -> Option<&str> {
    line.strip_prefix("...").filter(|rest| rest.is_empty() || rest.starts_with([' ', '\t']))
}

impl Error {
    fn of(error: serde_saphyr::Error) -> Self {
        match &error {
            serde_saphyr::Error::MultipleDocuments { location, .. } => Self::AfterEnd(location.line()),
            _ => Self::Syntax(Box::new(error)),
        }
    }
}
