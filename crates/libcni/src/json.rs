//! Scans JSON as Go's `encoding/json` does, and records the byte range of each value. Pure.
//!
//! `conflist` reads network configurations with it, because container runtimes read them with Go's package. serde_json has other
//! rules: Go accepts bytes that are not UTF-8 and lone surrogates, both as U+FFFD, and 10000 levels of nesting.

use std::ops::Range;

/// The number of nested arrays and objects that Go accepts (`maxNestingDepth`).
pub(super) const MAX_DEPTH: usize = 10_000;

/// Why Go refuses a document as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("it ends too early")]
    End,
    /// JSON does not allow this byte at this offset, counted from 0.
    #[error("unexpected byte '{}' at offset {at}", byte.escape_ascii())]
    Unexpected { byte: u8, at: usize },
    #[error("more than {MAX_DEPTH} levels of nesting")]
    Depth,
}

/// The type of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number,
    String,
    Array,
    Object,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    kind: Kind,
    start: usize,
    end: usize,
    /// The index of the first node after this value and its children.
    next: usize,
}

/// A document and its values, each before its children. The keys of an object are strings before their values. A flat vector is
/// dropped without recursion, whatever the nesting.
#[derive(Debug)]
pub(super) struct Document<'a> {
    bytes: &'a [u8],
    nodes: Vec<Node>,
    /// The largest number of nested arrays and objects.
    pub(super) depth: usize,
}

/// A value of a document.
#[derive(Debug, Clone, Copy)]
pub(super) struct Value<'d> {
    document: &'d Document<'d>,
    at: usize,
}

impl<'a> Document<'a> {
    /// Scans a document, which must be one JSON value.
    pub(super) fn scan(bytes: &'a [u8]) -> Result<Self, Error> {
        let mut scanner = Scanner { bytes, at: 0, nodes: Vec::new(), open: Vec::new(), depth: 0 };
        scanner.value()?;
        while let Some(&container) = scanner.open.last() {
            scanner.child(container)?;
        }
        scanner.space();
        match scanner.peek() {
            Ok(byte) => Err(Error::Unexpected { byte, at: scanner.at }),
            Err(_) => Ok(Self { bytes, nodes: scanner.nodes, depth: scanner.depth }),
        }
    }

    /// Returns the outermost value.
    pub(super) fn root(&self) -> Value<'_> {
        Value { document: self, at: 0 }
    }
}

impl<'d> Value<'d> {
    fn node(self) -> Node {
        self.document.nodes[self.at]
    }

    pub(super) fn kind(self) -> Kind {
        self.node().kind
    }

    /// Returns the value's byte range in the document.
    pub(super) fn range(self) -> Range<usize> {
        self.node().start..self.node().end
    }

    /// Returns the numbers in this value, at any depth, as they are written.
    pub(super) fn numbers(self) -> impl Iterator<Item = &'d str> {
        let Document { bytes, nodes, .. } = self.document;
        let numbers = nodes[self.at..self.node().next].iter().filter(|node| node.kind == Kind::Number);
        numbers.map(|node| std::str::from_utf8(&bytes[node.start..node.end]).unwrap_or_default())
    }

    /// Returns the elements of an array, or the keys and values of an object.
    fn children(self) -> impl Iterator<Item = Self> {
        let end = self.node().next;
        let child = move |at: usize| (at < end).then_some(Self { at, ..self });
        std::iter::successors(child(self.at + 1), move |value| child(value.node().next))
    }

    /// Returns the elements of an array; none for other values.
    pub(super) fn elements(self) -> impl Iterator<Item = Self> {
        self.children().filter(move |_| self.kind() == Kind::Array)
    }

    /// Returns the keys and values of an object in document order; none for other values.
    pub(super) fn members(self) -> impl Iterator<Item = (Self, Self)> {
        let mut children = self.children().filter(move |_| self.kind() == Kind::Object);
        std::iter::from_fn(move || Some((children.next()?, children.next()?)))
    }

    /// Returns the content of a string, without escapes; `None` for other values.
    pub(super) fn text(self) -> Option<String> {
        let Range { start, end } = self.range();
        (self.kind() == Kind::String).then(|| unquoted(&self.document.bytes[start + 1..end - 1]))
    }
}

/// Resolves the escapes of a valid string. Each byte that is not UTF-8 becomes one U+FFFD, and so does a lone surrogate.
fn unquoted(mut inner: &[u8]) -> String {
    let mut text = String::new();
    while let Some(at) = inner.iter().position(|byte| *byte == b'\\') {
        push_lossy(&mut text, &inner[..at]);
        let escape = inner.get(at + 1).copied().unwrap_or_default();
        inner = &inner[(at + 2).min(inner.len())..];
        match escape {
            b'u' => text.push(escaped_char(&mut inner)),
            b'b' => text.push('\u{8}'),
            b'f' => text.push('\u{c}'),
            b'n' => text.push('\n'),
            b'r' => text.push('\r'),
            b't' => text.push('\t'),
            other => text.push(char::from(other)),
        }
    }
    push_lossy(&mut text, inner);
    text
}

fn push_lossy(text: &mut String, bytes: &[u8]) {
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
}

/// Reads the four digits after `\u`, and the next escape if the two are a pair of surrogates.
fn escaped_char(inner: &mut &[u8]) -> char {
    let first = code_unit(inner).unwrap_or_default();
    *inner = &inner[4.min(inner.len())..];
    let second = inner.strip_prefix(b"\\u").and_then(code_unit);
    if let Some(Ok(char)) = second.and_then(|second| char::decode_utf16([first, second]).next())
        && char > '\u{ffff}'
    {
        *inner = &inner[6..];
        return char;
    }
    char::from_u32(first.into()).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn code_unit(digits: &[u8]) -> Option<u16> {
    u16::from_str_radix(std::str::from_utf8(digits.get(..4)?).ok()?, 16).ok()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    nodes: Vec<Node>,
    /// The indexes of the arrays and objects around `at`.
    open: Vec<usize>,
    depth: usize,
}

impl Scanner<'_> {
    fn peek(&self) -> Result<u8, Error> {
        self.bytes.get(self.at).copied().ok_or(Error::End)
    }

    fn unexpected(&self) -> Error {
        self.peek().map_or_else(|end| end, |byte| Error::Unexpected { byte, at: self.at })
    }

    fn space(&mut self) {
        while self.peek().is_ok_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn expect(&mut self, byte: u8) -> Result<(), Error> {
        match self.peek()? {
            found if found == byte => self.at += 1,
            _ => return Err(self.unexpected()),
        }
        Ok(())
    }

    /// Scans a scalar, or opens an array or object.
    fn value(&mut self) -> Result<(), Error> {
        self.space();
        let start = self.at;
        let kind = match self.peek()? {
            b'{' => return self.open(Kind::Object),
            b'[' => return self.open(Kind::Array),
            b'"' => self.string().map(|()| Kind::String)?,
            b'-' | b'0'..=b'9' => self.number().map(|()| Kind::Number)?,
            b't' => self.literal(b"true").map(|()| Kind::Bool(true))?,
            b'f' => self.literal(b"false").map(|()| Kind::Bool(false))?,
            b'n' => self.literal(b"null").map(|()| Kind::Null)?,
            _ => return Err(self.unexpected()),
        };
        self.push(kind, start);
        Ok(())
    }

    fn push(&mut self, kind: Kind, start: usize) {
        let next = self.nodes.len() + 1;
        self.nodes.push(Node { kind, start, end: self.at, next });
    }

    fn open(&mut self, kind: Kind) -> Result<(), Error> {
        self.open.push(self.nodes.len());
        self.push(kind, self.at);
        self.at += 1;
        self.depth = self.depth.max(self.open.len());
        if self.open.len() > MAX_DEPTH { Err(Error::Depth) } else { Ok(()) }
    }

    /// Scans the next element or member of a container, or the container's end.
    fn child(&mut self, container: usize) -> Result<(), Error> {
        let is_object = self.nodes[container].kind == Kind::Object;
        self.space();
        if self.peek()? == if is_object { b'}' } else { b']' } {
            self.at += 1;
            self.open.pop();
            (self.nodes[container].end, self.nodes[container].next) = (self.at, self.nodes.len());
            return Ok(());
        }
        if self.nodes.len() > container + 1 {
            self.expect(b',')?;
        }
        if is_object {
            self.space();
            let start = self.at;
            self.string()?;
            self.push(Kind::String, start);
            self.space();
            self.expect(b':')?;
        }
        self.value()
    }

    fn literal(&mut self, word: &[u8]) -> Result<(), Error> {
        word.iter().try_for_each(|byte| self.expect(*byte))
    }

    fn string(&mut self) -> Result<(), Error> {
        self.expect(b'"')?;
        loop {
            match self.peek()? {
                b'"' => return self.expect(b'"'),
                b'\\' => self.escape()?,
                0..0x20 => return Err(self.unexpected()),
                _ => self.at += 1,
            }
        }
    }

    fn escape(&mut self) -> Result<(), Error> {
        self.at += 1;
        match self.peek()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => self.at += 1,
            b'u' => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek()?.is_ascii_hexdigit() {
                        return Err(self.unexpected());
                    }
                    self.at += 1;
                }
            }
            _ => return Err(self.unexpected()),
        }
        Ok(())
    }

    fn number(&mut self) -> Result<(), Error> {
        self.skip(|byte| byte == b'-');
        match self.peek()? {
            b'0' => self.at += 1,
            _ => self.digits()?,
        }
        if self.skip(|byte| byte == b'.') {
            self.digits()?;
        }
        if self.skip(|byte| matches!(byte, b'e' | b'E')) {
            self.skip(|byte| matches!(byte, b'-' | b'+'));
            self.digits()?;
        }
        Ok(())
    }

    /// Skips the next byte if it has a property; returns whether it was skipped.
    fn skip(&mut self, has_property: impl Fn(u8) -> bool) -> bool {
        let skips = self.peek().is_ok_and(has_property);
        self.at += usize::from(skips);
        skips
    }

    fn digits(&mut self) -> Result<(), Error> {
        if !self.peek()?.is_ascii_digit() {
            return Err(self.unexpected());
        }
        while self.skip(|byte| byte.is_ascii_digit()) {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &[u8]) -> Option<String> {
        Document::scan(json).ok()?.root().text()
    }

    #[test]
    fn strings_are_read_as_by_go() {
        let cases: [(&[u8], &str); 5] = [
            (b"\"a\\n\\u0041\\/\"", "a\nA/"),
            (b"\"\\ud83d\\ude00\"", "\u{1f600}"),
            (b"\"\\ud83dx\\ude00\\ud83d\\u0041\"", "\u{fffd}x\u{fffd}\u{fffd}A"),
            (b"\"caf\xe9\"", "caf\u{fffd}"),
            // Go replaces each byte, Rust each incomplete sequence.
            (b"\"\xe2\x82\"", "\u{fffd}\u{fffd}"),
        ];
        for (json, expected) in cases {
            assert_eq!(text(json).as_deref(), Some(expected), "{}", json.escape_ascii());
        }
    }

    #[test]
    fn an_invalid_text_has_a_reason() {
        let cases: [(&[u8], &str); 9] = [
            (b"", "it ends too early"),
            (b"{\"a\":", "it ends too early"),
            (b"\xef\xbb\xbf{}", "unexpected byte '\\xef' at offset 0"),
            (b"{} x", "unexpected byte 'x' at offset 3"),
            (b"[1,]", "unexpected byte ']' at offset 3"),
            (b"[01]", "unexpected byte '1' at offset 2"),
            (b"{1:2}", "unexpected byte '1' at offset 1"),
            (b"\"\t\"", "unexpected byte '\\t' at offset 1"),
            (b"[tru]", "unexpected byte ']' at offset 4"),
        ];
        for (json, reason) in cases {
            let error = Document::scan(json).map(drop).unwrap_err().to_string();
            assert_eq!(error, reason, "{}", json.escape_ascii());
        }
        let nested = |depth: usize| [vec![b'['; depth], vec![b']'; depth]].concat();
        assert_eq!(Document::scan(&nested(MAX_DEPTH)).map(|document| document.depth), Ok(MAX_DEPTH));
        assert_eq!(Document::scan(&nested(MAX_DEPTH + 1)).map(drop), Err(Error::Depth));
    }
}
