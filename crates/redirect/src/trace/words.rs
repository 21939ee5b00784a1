//! Splits a line of `iptables-save` into words.

/// What crate `netfilter` prints in place of options that it cannot print.
pub(super) const OMITTED: &str = "[...]";

/// The words of a line; quotes enclose a word with spaces.
pub(super) struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    pub(super) fn split(line: &'a str) -> Self {
        Self { rest: line.trim() }
    }

    pub(super) fn rest(&self) -> &'a str {
        self.rest
    }

    pub(super) fn next(&mut self) -> Option<String> {
        let (word, rest) = match self.rest.strip_prefix('"') {
            Some(quoted) => quoted_word(quoted),
            None => {
                let end = self.rest.find(char::is_whitespace).unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                (word.to_owned(), rest)
            }
        };
        let at_end = self.rest.is_empty();
        self.rest = rest.trim_start();
        (!at_end).then_some(word)
    }

    pub(super) fn peek(&self) -> Option<&'a str> {
        self.rest.split_whitespace().next()
    }

    /// Reads the words up to the next option, `!`, or unprintable part.
    pub(super) fn values(&mut self) -> Vec<String> {
        let mut values = Vec::new();
        while let Some(next) = self.peek() {
            let is_option = next == "!" || next.strip_prefix('-').is_some_and(|name| !name.is_empty());
            if is_option || is_unprintable(next) {
                break;
            }
            values.extend(self.next());
        }
        values
    }
}

/// Whether the word is what crate `netfilter` prints for an expression without iptables syntax (`[range]`), or [`OMITTED`]. An
/// address in brackets has a colon.
pub(super) fn is_unprintable(word: &str) -> bool {
    let name = word.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    name.is_some_and(|name| name.bytes().all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'.')))
}

/// Reads up to the closing quote; `\` escapes the next character. Returns the word and the text after it.
fn quoted_word(text: &str) -> (String, &str) {
    let mut word = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (word, text.get(at + 1..).unwrap_or_default()),
            '\\' => word.extend(chars.next().map(|(_, escaped)| escaped)),
            other => word.push(other),
        }
    }
    (word, "")
}
