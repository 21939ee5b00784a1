//! A reader of the subset of YAML that templates render, in one pass: block maps and lists, scalars of one line,
//! literal block scalars.
//!
//! `yaml` calls this reader before the library, since reading is most of the cost of an injection. The reader must
//! return the same value as the library, and returns `None` for texts outside of the subset: with anchors, tags, folded
//! block scalars, tabs, repeated keys or syntax errors.

use serde_json::{Map, Value};

use super::flow::{self, DEPTH};
use super::scalar::{Scalars, is_name, is_text};

/// Reads a document, or returns `None` if it is outside of the subset.
pub(super) fn read(text: &str) -> Option<Value> {
    // Tabs, carriage returns and Unicode's line breaks are outside of the subset.
    if text.bytes().any(|byte| !matches!(byte, b'\n' | b' '..=b'~')) {
        return None;
    }
    let mut lines = Lines::of(text)?;
    let Some(first) = lines.next_line() else { return Some(Value::Null) };
    let value = if first.is_item() { lines.list(first.indent, 0) } else { lines.map(first.indent, 0) }?;
    lines.next_line().is_none().then_some(value)
}

/// A line, or the part of a line after the dashes of list items that have been read.
#[derive(Debug, Clone, Copy)]
struct Line<'t> {
    /// The column in which `text` begins.
    indent: usize,
    /// The line without spaces at both ends.
    text: &'t str,
    /// The line with all of its spaces.
    untrimmed: &'t str,
}

impl Line<'_> {
    fn is_item(&self) -> bool {
        self.text == "-" || self.text.starts_with("- ")
    }

    /// Whether the line is empty or a comment.
    fn is_blank(&self) -> bool {
        self.text.is_empty() || self.text.starts_with('#')
    }
}

#[derive(Debug)]
struct Lines<'t> {
    document: &'t str,
    lines: Vec<Line<'t>>,
    at: usize,
    scalars: Scalars,
}

impl<'t> Lines<'t> {
    fn of(text: &'t str) -> Option<Self> {
        let line = |untrimmed: &'t str| {
            let text = untrimmed.trim_start_matches(' ');
            let special =
                text.len() == untrimmed.len() && ["---", "...", "%"].iter().any(|mark| text.starts_with(mark));
            (!special).then(|| Line {
                indent: untrimmed.len() - text.len(),
                text: text.trim_end_matches(' '),
                untrimmed,
            })
        };
        let lines = text.lines().map(line).collect::<Option<_>>()?;
        Some(Self { document: text, lines, at: 0, scalars: Scalars::default() })
    }

    /// Returns the next line that is not blank, without consuming it.
    fn next_line(&mut self) -> Option<Line<'t>> {
        while self.lines.get(self.at)?.is_blank() {
            self.at += 1;
        }
        self.lines.get(self.at).copied()
    }

    /// Returns the next line of a block that begins in `column`, or `Some(None)` after the end of the block. Returns
    /// `None` if the line has a larger indentation, which is outside of the subset.
    fn next_in(&mut self, column: usize) -> Option<Option<Line<'t>>> {
        match self.next_line() {
            Some(line) if line.indent > column => None,
            line => Some(line.filter(|line| line.indent == column)),
        }
    }

    fn map(&mut self, column: usize, depth: usize) -> Option<Value> {
        let mut map = Map::new();
        while let Some(line) = self.next_in(column)? {
            if line.is_item() {
                return None;
            }
            let (key, rest) = key(line.text)?;
            self.at += 1;
            let value = self.value(rest, column, true, depth)?;
            if map.insert(key, value).is_some() {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    fn list(&mut self, column: usize, depth: usize) -> Option<Value> {
        let mut list = Vec::new();
        while let Some(line) = self.next_in(column)?.filter(Line::is_item) {
            let rest = line.text[1..].trim_start_matches(' ');
            let indent = column + line.text.len() - rest.len();
            let inner = Line { indent, text: rest, untrimmed: line.untrimmed };
            list.push(if inner.is_item() || key(rest).is_some() {
                self.lines[self.at] = inner;
                self.block(inner, depth)?
            } else {
                self.at += 1;
                self.value(rest, column, false, depth)?
            });
        }
        Some(Value::Array(list))
    }

    fn block(&mut self, first: Line<'t>, depth: usize) -> Option<Value> {
        match depth + 1 {
            DEPTH => None,
            depth if first.is_item() => self.list(first.indent, depth),
            depth => self.map(first.indent, depth),
        }
    }

    /// Reads the value after a key or a dash in this column, from the same line or from the lines below.
    fn value(&mut self, rest: &'t str, column: usize, in_map: bool, depth: usize) -> Option<Value> {
        match rest.bytes().next() {
            None | Some(b'#') => match self.next_line() {
                Some(line) if line.indent > column || (in_map && line.indent == column && line.is_item()) => {
                    self.block(line, depth)
                }
                _ => Some(Value::Null),
            },
            Some(b'|') => self.literal(rest, column),
            Some(b'"' | b'\'' | b'[' | b'{') => self.flow(rest, column, depth),
            Some(_) => plain(rest, &self.scalars),
        }
    }

    /// Reads a quoted scalar or a flow collection, which may end on a later line.
    fn flow(&mut self, start: &'t str, column: usize, depth: usize) -> Option<Value> {
        let text = &self.document[start.as_ptr().addr() - self.document.as_ptr().addr()..];
        let (value, rest) = flow::node(text, depth, &self.scalars)?;
        let lines = text[..text.len() - rest.len()].matches('\n').count();
        let inside = |line: &Line<'_>| {
            line.text.is_empty() || line.indent > column || (line.indent == column && line.text.starts_with([']', '}']))
        };
        self.lines.get(self.at..self.at + lines)?.iter().all(inside).then_some(())?;
        self.at += lines;
        is_end(rest.split('\n').next()?).then_some(value)
    }

    /// Reads a literal block scalar, with the header `|` or `|-`.
    fn literal(&mut self, header: &str, column: usize) -> Option<Value> {
        let indent = self.lines.get(self.at).filter(|line| !line.text.is_empty())?.indent;
        if indent <= column || !matches!(header, "|" | "|-") {
            return None;
        }
        let mut text = String::new();
        while let Some(line) = self.lines.get(self.at).filter(|line| line.indent >= indent || line.text.is_empty()) {
            text.push_str(line.untrimmed.get(indent..).unwrap_or_default());
            text.push('\n');
            self.at += 1;
        }
        if self.at == self.lines.len() && !self.document.ends_with('\n') {
            return None;
        }
        // `|` keeps one line break at the end, `|-` none.
        let end = text.trim_end_matches('\n').len() + usize::from(header == "|");
        text.truncate(end);
        Some(Value::String(text))
    }
}

/// Splits a key from the text after its colon.
fn key(text: &str) -> Option<(String, &str)> {
    let (key, rest) = match text.bytes().next()? {
        b'"' | b'\'' => flow::quoted(text)?,
        _ => {
            let length = text.bytes().position(|byte| !is_name(byte)).unwrap_or(text.len());
            (text[..length].to_owned(), &text[length..])
        }
    };
    let rest = rest.strip_prefix(':')?;
    let plain = matches!(text.as_bytes(), [b'"' | b'\'', ..]) || is_text(&key);
    let ends = rest.is_empty() || rest.starts_with(' ');
    // A key `<<` in quotes is left to the library's reader, which distinguishes it from a merge key.
    (plain && ends && key != "<<" && key.len() <= 256).then(|| (key, rest.trim_start_matches(' ')))
}

/// Whether the rest of a line is empty or a comment.
fn is_end(rest: &str) -> bool {
    let text = rest.trim_start_matches(' ');
    text.is_empty() || (text.len() < rest.len() && text.starts_with('#'))
}

/// Reads a plain scalar, which ends with its line.
fn plain(line: &str, scalars: &Scalars) -> Option<Value> {
    let text = line.split_once(" #").map_or(line, |(text, _)| text.trim_end_matches(' '));
    if text.contains(": ") || text.ends_with(':') {
        return None;
    }
    scalars.value(text)
}
