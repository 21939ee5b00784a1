//! Name patterns with the semantics of Go's `path.Match`.
//!
//! `*` and `?` do not match `/`, but classes do; `\` escapes the next character. Patterns are compiled once, so that an
//! invalid pattern is reported when settings are parsed and not during an admission review.

use std::str::Chars;

/// A compiled pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob(Vec<Token>);

/// An invalid pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{fault} at byte {position}")]
pub struct GlobError {
    /// The byte offset in the pattern.
    pub position: usize,
    pub fault: Fault,
}

/// A syntax error in a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A character class has no closing bracket.
    #[error("unclosed character class")]
    Unclosed,
    /// `[]`, `[^]`, `[-a]`: a character is missing.
    #[error("incomplete character class")]
    NoCharacter,
    /// The last character is `\`.
    #[error("backslash without a character after it")]
    Escape,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// Any number of characters except `/`.
    Star,
    /// One character except `/`.
    Any,
    /// This character.
    One(char),
    /// One character in any of the ranges, or in none of them if negated.
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Token {
    fn takes(&self, c: char) -> bool {
        match self {
            Self::Star => false,
            Self::Any => c != '/',
            Self::One(wanted) => c == *wanted,
            Self::Class { negated, ranges } => ranges.iter().any(|(low, high)| (low..=high).contains(&&c)) != *negated,
        }
    }
}

impl Glob {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// The pattern is malformed.
    pub fn parse(pattern: &str) -> Result<Self, GlobError> {
        let mut reader = Reader { pattern, rest: pattern.chars() };
        let mut tokens = Vec::new();
        while let Some(c) = reader.rest.next() {
            match c {
                // Consecutive stars are equivalent to one.
                '*' if tokens.last() == Some(&Token::Star) => {}
                '*' => tokens.push(Token::Star),
                '?' => tokens.push(Token::Any),
                '[' => tokens.push(reader.class()?),
                '\\' => tokens.push(Token::One(reader.escaped()?)),
                c => tokens.push(Token::One(c)),
            }
        }
        Ok(Self(tokens))
    }

    /// Whether the pattern matches the whole `name`.
    ///
    /// As in Go, a star matches as few characters as possible, and the match of the part before a later star is final.
    /// The time is bounded by the product of both lengths.
    pub fn matches(&self, name: &str) -> bool {
        let (mut at, mut rest) = (0, name.chars());
        let mut retry: Option<(usize, Chars<'_>)> = None;
        loop {
            match self.0.get(at) {
                Some(Token::Star) => {
                    at += 1;
                    retry = Some((at, rest.clone()));
                    continue;
                }
                Some(token) => {
                    let mut ahead = rest.clone();
                    if ahead.next().is_some_and(|c| token.takes(c)) {
                        (at, rest) = (at + 1, ahead);
                        continue;
                    }
                }
                None if rest.as_str().is_empty() => return true,
                None => {}
            }
            let Some((after_star, from)) = &mut retry else { return false };
            if from.next().is_none_or(|c| c == '/') {
                return false;
            }
            (at, rest) = (*after_star, from.clone());
        }
    }
}

/// The parser of a pattern.
struct Reader<'a> {
    pattern: &'a str,
    rest: Chars<'a>,
}

impl Reader<'_> {
    fn position(&self) -> usize {
        self.pattern.len() - self.rest.as_str().len()
    }

    fn fault(&self, position: usize, fault: Fault) -> GlobError {
        debug_assert!(position <= self.pattern.len());
        GlobError { position, fault }
    }

    /// Parses the character after `\`.
    fn escaped(&mut self) -> Result<char, GlobError> {
        let position = self.position() - 1;
        self.rest.next().ok_or_else(|| self.fault(position, Fault::Escape))
    }

    /// Parses a class after `[`, including `]`.
    fn class(&mut self) -> Result<Token, GlobError> {
        let start = self.position() - 1;
        let negated = self.rest.as_str().starts_with('^');
        if negated {
            self.rest.next();
        }
        let mut ranges = Vec::new();
        loop {
            if !ranges.is_empty() && self.rest.as_str().starts_with(']') {
                self.rest.next();
                return Ok(Token::Class { negated, ranges });
            }
            let low = self.bound(start)?;
            let high = if self.rest.as_str().starts_with('-') {
                self.rest.next();
                self.bound(start)?
            } else {
                low
            };
            ranges.push((low, high));
        }
    }

    /// Parses one bound of a range in the class that starts at `start`.
    fn bound(&mut self, start: usize) -> Result<char, GlobError> {
        let position = self.position();
        match self.rest.next() {
            None => Err(self.fault(start, Fault::Unclosed)),
            Some(']' | '-') => Err(self.fault(position, Fault::NoCharacter)),
            Some('\\') => self.escaped(),
            Some(c) => Ok(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_as_in_go() {
        for (pattern, name, expected) in [
            ("", "", true),
            ("", "a", false),
            ("foo*bar", "foobar", true),
            ("foo*bar", "fooXYZbar", true),
            ("foo*bar", "foobaz", false),
            ("*", "a/b", false),
            ("a?c", "a/c", false),
            ("a[/]c", "a/c", true),
            ("a[^x]c", "a/c", true),
            ("[^a-c]", "d", true),
            ("[^a-c]", "b", false),
            ("[!a]", "!", true),
            ("[a\\-z]", "-", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a]", "a]", true),
            ("ä?", "äö", true),
            ("*a*b", "xaybzb", true),
            ("*[/a]*b", "a/b", false),
        ] {
            assert_eq!(Glob::parse(pattern).expect(pattern).matches(name), expected, "{pattern} {name}");
        }
        for pattern in ["[", "[a", "[]", "[]a]", "[^]", "[-a]", "[a-]", "[a-", "\\", "[\\", "*[", "a["] {
            assert!(Glob::parse(pattern).is_err(), "{pattern}");
        }
    }
}
