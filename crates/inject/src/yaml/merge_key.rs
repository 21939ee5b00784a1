//! Finds the merge keys of a text by the parser's events, because the library's reader does not distinguish a merge key
//! from an ordinary key `<<`, such as a quoted one.
//!
//! `library` creates a [`Source`]; `node` looks up the position of each key in it.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_saphyr::{Location, Spanned};

/// The key that copies the members of other maps.
pub(super) const MERGE: &str = "<<";

/// A text with the positions of its merge keys, as byte offsets. A merge key is `<<` without quotes and without a tag,
/// or with the tag of merge keys (`!!merge`).
#[derive(Debug)]
pub(super) struct Source<'t> {
    pub(super) text: Cow<'t, str>,
    merge_keys: HashSet<usize>,
    /// The positions of aliases that are keys. An alias is not a merge key, even if it refers to one.
    aliases: HashSet<usize>,
}

impl<'t> Source<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let Scan { merge_keys, aliases, .. } = Scan::of(text);
        let merge_keys = merge_keys.into_iter().map(|(_, at)| at).collect();
        Self { text: Cow::Borrowed(text), merge_keys, aliases }
    }

    /// Returns a text in which the tag of each merge key differs from all others, so that the library does not treat
    /// several merge keys of a map as a repeated key. In a map with integer keys, the library drops all but the last
    /// value of a repeated key.
    pub(super) fn of_distinct(text: &'t str) -> Self {
        let found = Scan::of(text).merge_keys;
        if found.len() < 2 {
            return Self::of(text);
        }
        let (mut distinct, mut merge_keys, mut done) = (String::with_capacity(text.len()), HashSet::new(), 0);
        for (number, (tag, at)) in found.into_iter().enumerate() {
            distinct.push_str(text.get(done..tag.start).unwrap_or_default());
            distinct.push_str(&format!("!{number} "));
            distinct.push_str(text.get(tag.end..at).unwrap_or_default());
            merge_keys.insert(distinct.len());
            done = at;
        }
        distinct.push_str(text.get(done..).unwrap_or_default());
        let aliases = Scan::of(&distinct).aliases;
        Self { text: Cow::Owned(distinct), merge_keys, aliases }
    }

    /// Whether the text has merge keys. If it has none, `node` reads keys without their positions.
    pub(super) fn has_merge_keys(&self) -> bool {
        !self.merge_keys.is_empty()
    }

    /// Whether a key is a merge key.
    pub(super) fn is_merge<T>(&self, key: &Spanned<T>) -> bool {
        let at = |location: Location| location.span().byte_offset().and_then(|at| usize::try_from(at).ok());
        at(key.defined).is_some_and(|at| self.merge_keys.contains(&at))
            && at(key.referenced).is_none_or(|at| !self.aliases.contains(&at))
    }
}

/// The role of the next node in a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Key,
    Value,
    Element,
}

/// The result of parsing a text without reading its values.
#[derive(Debug, Default)]
struct Scan {
    /// For each merge key, the range of its tag, which is empty if it has no tag, and the position of the key.
    merge_keys: Vec<(Range<usize>, usize)>,
    aliases: HashSet<usize>,
    /// The role of the next node in each open collection.
    open: Vec<Next>,
}

impl Scan {
    /// Scans a text up to its first error, which the library reports. A text without `<<` has no merge keys.
    fn of(text: &str) -> Self {
        let mut scan = Self::default();
        if text.contains(MERGE) {
            let events = Parser::new_from_str(text).map_while(Result::ok);
            events.for_each(|(event, span)| scan.add(&event, &span));
        }
        scan
    }

    fn add(&mut self, event: &Event<'_>, span: &Span) {
        let is_key = is_node(event) && self.count();
        match event {
            Event::Scalar(value, style, _, tag) if is_key && value == MERGE && is_merge(*style, tag.as_deref()) => {
                self.merge_keys.extend(places(span));
            }
            Event::Alias(_) if is_key => self.aliases.extend(span.start.byte_offset()),
            Event::SequenceStart(..) => self.open.push(Next::Element),
            Event::MappingStart(..) => self.open.push(Next::Key),
            Event::SequenceEnd | Event::MappingEnd => drop(self.open.pop()),
            _ => {}
        }
    }

    /// Counts a node in the innermost open collection. Returns whether it is a key.
    fn count(&mut self) -> bool {
        let Some(next) = self.open.last_mut() else { return false };
        let is_key = *next == Next::Key;
        *next = match next {
            Next::Key => Next::Value,
            Next::Value => Next::Key,
            Next::Element => Next::Element,
        };
        is_key
    }
}

/// Whether an event starts a node.
fn is_node(event: &Event<'_>) -> bool {
    matches!(event, Event::Scalar(..) | Event::Alias(_) | Event::SequenceStart(..) | Event::MappingStart(..))
}

/// Whether a key `<<` is a merge key. A key with the tag `!` is treated like a key without a tag.
fn is_merge(style: ScalarStyle, tag: Option<&Tag>) -> bool {
    match tag.map(|tag| (tag.handle(), tag.suffix())) {
        None | Some(("!", "") | ("", "!")) => style == ScalarStyle::Plain,
        Some((handle, suffix)) => format!("{handle}{suffix}") == "tag:yaml.org,2002:merge",
    }
}

/// Returns the range of a scalar's tag and the position of the scalar.
fn places(span: &Span) -> Option<(Range<usize>, usize)> {
    let at = span.start.byte_offset()?;
    let tag = span.tag_span().and_then(|tag| tag.byte_range());
    Some((tag.unwrap_or(at..at), at))
}
