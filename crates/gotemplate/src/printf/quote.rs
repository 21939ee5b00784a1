//! Go's quoted strings and characters.

use std::fmt::Write;

/// Returns a Go string literal. `ascii`: other characters are escaped.
pub(crate) fn quoted(text: &str, ascii: bool) -> String {
    quote(text.chars(), '"', ascii)
}

/// Returns a Go character literal. `ascii`: another character is escaped.
pub(super) fn quoted_char(next: char, ascii: bool) -> String {
    quote(std::iter::once(next), '\'', ascii)
}

fn quote(text: impl Iterator<Item = char>, quote: char, ascii: bool) -> String {
    let mut out = String::from(quote);
    for next in text {
        let short = match next {
            '\x07' => "\\a",
            '\x08' => "\\b",
            '\x0c' => "\\f",
            '\n' => "\\n",
            '\r' => "\\r",
            '\t' => "\\t",
            '\x0b' => "\\v",
            '\\' => "\\\\",
            next if next == quote => {
                if quote == '"' {
                    "\\\""
                } else {
                    "\\'"
                }
            }
            next if is_printable(next) && (next.is_ascii() || !ascii) => {
                out.push(next);
                continue;
            }
            _ => "",
        };
        out.push_str(short);
        if short.is_empty() {
            let code = u32::from(next);
            // Writing to a string cannot fail.
            let _ = match code {
                0..0x20 | 0x7f => write!(out, "\\x{code:02x}"),
                0x20..0x1_0000 => write!(out, "\\u{code:04x}"),
                _ => write!(out, "\\U{code:08x}"),
            };
        }
    }
    out.push(quote);
    out
}

/// Whether the character is printed unescaped. Rust's own escaping determines which characters are not printable.
fn is_printable(next: char) -> bool {
    match next {
        ' '..='~' => true,
        '\0'..='\u{9f}' => false,
        next => next.escape_debug().len() == 1 && !next.is_whitespace(),
    }
}
