//! Unicode's line and paragraph separators, which are line breaks for Go's reader and ordinary characters for the
//! library.
//!
//! In a text with separators, `library` replaces the line breaks around each separator with stand-in characters and one
//! line break. After reading, the stand-ins in the value are replaced with the line breaks for which they stand.

use std::collections::HashSet;
use std::ops::RangeInclusive;

use serde_json::Value;

const SEPARATORS: [char; 2] = ['\u{2028}', '\u{2029}'];
/// The line breaks for which stand-ins are used.
const BREAKS: [char; 3] = ['\n', SEPARATORS[0], SEPARATORS[1]];
/// The private-use characters, of which three that a text lacks become its stand-ins.
const PRIVATE: RangeInclusive<char> = '\u{e000}'..='\u{f8ff}';

/// The characters that stand for [`BREAKS`] in a text with separators.
#[derive(Debug)]
pub(super) struct StandIns([char; 3]);

impl StandIns {
    /// Returns the stand-ins for a text; `None` for a text without separators.
    pub(super) fn of(text: &str) -> Option<Self> {
        text.contains(SEPARATORS).then_some(())?;
        let present: HashSet<char> = text.chars().filter(|c| PRIVATE.contains(c)).collect();
        let mut absent = PRIVATE.filter(|c| !present.contains(c));
        Some(Self([absent.next()?, absent.next()?, absent.next()?]))
    }

    /// Replaces each run of line breaks that contains a separator with stand-ins and one line break. The stand-ins are
    /// at the end of the line or, after the header of a block scalar, after the indentation of the next line.
    pub(super) fn replace(&self, text: &str) -> String {
        let mut replaced = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(BREAKS) {
            let (line, behind) = rest.split_at(at);
            let next = behind.trim_start_matches(BREAKS);
            let breaks = &behind[..behind.len() - next.len()];
            replaced.push_str(line);
            rest = next;
            if !breaks.contains(SEPARATORS) {
                replaced.push_str(breaks);
            } else if opens_block(line) && breaks.starts_with('\n') {
                let content = next.trim_start_matches(' ');
                replaced.push('\n');
                replaced.push_str(&next[..next.len() - content.len()]);
                replaced.extend(breaks.chars().skip(1).map(|c| self.instead_of(c)));
                rest = content;
            } else {
                replaced.extend(breaks.chars().map(|c| self.instead_of(c)));
                replaced.push('\n');
            }
        }
        replaced.push_str(rest);
        replaced
    }

    fn instead_of(&self, broken: char) -> char {
        BREAKS.iter().zip(self.0).find(|(of, _)| **of == broken).map_or(broken, |(_, stand_in)| stand_in)
    }

    /// Restores the line breaks in the strings of a value.
    pub(super) fn restore(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.contains(self.0) => *text = self.restored(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.restore(item)),
            Value::Object(members) => {
                members.values_mut().for_each(|member| self.restore(member));
                if members.keys().any(|key| key.contains(self.0)) {
                    *members = std::mem::take(members).into_iter().map(|(key, of)| (self.restored(&key), of)).collect();
                }
            }
            _ => {}
        }
    }

    /// Replaces the stand-ins in a string with their line breaks, and removes the line break after them, or the space
    /// to which it was folded. Stand-ins at the end are removed: they are for line breaks after the scalar.
    fn restored(&self, text: &str) -> String {
        let text = text.trim_end_matches(self.0);
        let mut restored = String::with_capacity(text.len());
        let mut was_stand_in = false;
        for next in text.chars() {
            let stands_for = BREAKS.iter().zip(self.0).find(|(_, stand_in)| *stand_in == next);
            match stands_for {
                Some((broken, _)) => restored.push(*broken),
                None if was_stand_in && matches!(next, '\n' | ' ') => {}
                None => restored.push(next),
            }
            was_stand_in = stands_for.is_some();
        }
        restored
    }
}

/// Whether a line ends with the header of a block scalar.
fn opens_block(line: &str) -> bool {
    let last = line.trim_end_matches(' ').rsplit(' ').next().unwrap_or_default();
    last.strip_prefix(['|', '>']).is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || "+-".contains(c)))
}

#[cfg(test)]
mod tests {
    use gotemplate::{Budget, write_yaml};
    use proptest::prelude::*;
    use serde_json::json;

    use crate::yaml;

    #[test]
    fn separators_are_line_breaks_as_for_go() {
        // The expected values are from sigs.k8s.io/yaml.
        for (text, value) in [
            ("a: |\n  x\u{2029}  y\nb: c\n", json!({"a": "x\u{2029}y\n", "b": "c"})),
            ("a: |-\n  x\n\u{2028}  y\n", json!({"a": "x\n\u{2028}y"})),
            ("a: |2-\n\u{2028}  x\n  y\n", json!({"a": "\u{2028}x\ny"})),
            ("- 'x\u{2028}  y'\n- \"\\L z\"\n", json!(["x\u{2028}y", "\u{2028} z"])),
            ("a: x # y\u{2028}b: c\n", json!({"a": "x", "b": "c"})),
            ("a: x\u{2028}  y\n", json!({"a": "x\u{2028}y"})),
        ] {
            assert_eq!(yaml::value(text).unwrap(), value, "{text:?}");
            assert_eq!(yaml::value_within(text, &mut Budget::default()).unwrap(), value, "{text:?}");
            assert_eq!(yaml::read::<serde_json::Value>(text).unwrap(), value, "{text:?}");
        }
        assert!(
            yaml::value("a:\n  b: |\n    x\u{2028}  y\n").is_err(),
            "the line behind the separator is outside of the block"
        );
    }

    #[test]
    fn blanks_before_a_separator_and_breaks_behind_the_last_one_of_a_block_stay() {
        // Go's reader drops both.
        for (text, value) in [
            ("a: 'x  \u{2028}y'\n", json!({"a": "x  \u{2028}y"})),
            ("a: |\n  x\u{2028}\n  b: c\n", json!({"a": "x\u{2028}\nb: c\n"})),
        ] {
            assert_eq!(yaml::value(text).unwrap(), value, "{text:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_inside_a_document_is_refused() {
        let error = yaml::value("a: \u{feff}b\n").unwrap_err().to_string();
        assert!(error.contains("BOM"), "{error}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(texts in proptest::collection::vec("[ab][ab :'\n\u{2028}\u{2029}\u{e000}]{0,12}", 1..4)) {
            for value in [json!(texts), json!({"a": {"b": texts}, "c": texts[0]})] {
                let written = write_yaml(&gotemplate::Value::yaml(&value), &mut Budget::default()).unwrap();
                prop_assert_eq!(yaml::value(&written).unwrap(), value, "{:?}", written);
            }
        }
    }
}
