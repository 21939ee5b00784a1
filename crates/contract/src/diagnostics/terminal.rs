//! Formats text for terminals: colours it if the output is a terminal, and escapes control characters.
//!
//! `check` and `cnictl` use this module, which performs no I/O.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;

/// Whether text is coloured, and the width to which tables are fitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Style {
    colour: bool,
    width: Option<usize>,
}

/// A colour or weight of text, a parameter of the escape sequence SGR (ECMA-48).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

impl Style {
    /// Without colours.
    pub const PLAIN: Self = Self { colour: false, width: None };
    pub const COLOURED: Self = Self { colour: true, width: None };

    /// Returns a style that is coloured on a terminal, unless `NO_COLOR` is set and not empty or `TERM` is `dumb`.
    pub fn of(is_terminal: bool, no_color: Option<&OsStr>, term: Option<&OsStr>) -> Self {
        let refused = no_color.is_some_and(|value| !value.is_empty()) || term.is_some_and(|term| term == "dumb");
        Self { colour: is_terminal && !refused, width: None }
    }

    /// Returns this style for a terminal of this width in columns; `None` if the output is not a terminal.
    #[must_use]
    pub fn with_width(self, width: Option<usize>) -> Self {
        Self { width, ..self }
    }

    /// Returns the width of the terminal in columns.
    pub fn width(self) -> Option<usize> {
        self.width
    }

    pub fn paint(self, colour: Colour, text: &str) -> Cow<'_, str> {
        if !self.colour || text.is_empty() {
            return Cow::Borrowed(text);
        }
        let code = match colour {
            Colour::Bold => 1,
            Colour::Dim => 2,
            Colour::Red => 31,
            Colour::Green => 32,
            Colour::Yellow => 33,
        };
        Cow::Owned(format!("\u{1b}[{code}m{text}\u{1b}[0m"))
    }
}

/// Escapes the characters with which text could change a terminal's state or the direction of other text. Names and
/// values of pods come from anyone who may create pods.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_unprintable(c) {
            let _ = write!(escaped, "{}", c.escape_default());
        } else {
            escaped.push(c);
        }
    }
    Cow::Owned(escaped)
}

/// Whether a character is a control character, a separator of lines or paragraphs, or one of Unicode's bidirectional
/// controls.
pub fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_for_terminals_that_want_them() {
        let of = |terminal, no_color: Option<&str>, term: Option<&str>| {
            Style::of(terminal, no_color.map(OsStr::new), term.map(OsStr::new))
        };
        assert_eq!(of(true, None, Some("xterm")), Style::COLOURED);
        assert_eq!(of(true, Some(""), None), Style::COLOURED);
        for style in [of(false, None, None), of(true, Some("1"), None), of(true, None, Some("dumb"))] {
            assert_eq!(style, Style::PLAIN);
        }
        assert_eq!(Style::COLOURED.paint(Colour::Red, "x"), "\u{1b}[31mx\u{1b}[0m");
        assert_eq!(Style::PLAIN.paint(Colour::Red, "x"), "x");
    }

    #[test]
    fn controls_are_escaped_and_other_text_is_kept() {
        for (text, expected) in [
            ("web-0", "web-0"),
            ("größe 语", "größe 语"),
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("a\nb\r\u{9b}", "a\\nb\\r\\u{9b}"),
            ("\u{202e}cba", "\\u{202e}cba"),
        ] {
            assert_eq!(printable(text), expected);
        }
    }
}
