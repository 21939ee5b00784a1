//! Strings in YAML: plain, quoted or as a block.

mod resolve;

use crate::error::Reason;
use crate::print::{Sink, is_break};

/// The column after which a line is folded, at the next space.
const WIDTH: usize = 80;

/// The longest key, in bytes, that is written without `?`.
const MAX_KEY: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// Properties of a string that restrict its style.
#[derive(Debug, Default)]
struct Traits {
    indicator: bool,
    breaks: bool,
    special: bool,
    edge: bool,
    trailing_space: bool,
    break_space: bool,
    space_break: bool,
}

/// Whether a string is written as a literal block. If the string ends with a line break, so does the block, and the
/// caller adds no further line break.
pub(super) fn is_literal(text: &str) -> bool {
    text.contains('\n') && style(text, false) == Style::Literal
}

/// Writes the key of a mapping. Returns false if the key is too long or has several lines, and so is written after a
/// `?`.
pub(super) fn key(sink: &mut Sink<'_>, text: &str, indent: usize) -> Result<bool, Reason> {
    if text.len() <= MAX_KEY && !text.contains(is_break) {
        write(sink, text, style(text, true), indent, false)?;
        return Ok(true);
    }
    sink.push("? ")?;
    write(sink, text, style(text, false), indent + 2, true)?;
    sink.push(if sink.ends_line() { "" } else { "\n" })?;
    sink.fill(' ', indent)?;
    Ok(false)
}

/// Writes a string as a value; if it is folded, the lines after the first are indented by `indent` spaces.
pub(super) fn value(sink: &mut Sink<'_>, text: &str, indent: usize) -> Result<(), Reason> {
    write(sink, text, style(text, false), indent, true)
}

fn style(text: &str, key: bool) -> Style {
    let traits = traits(text);
    if text.contains('\n') {
        let block = !traits.trailing_space && !traits.space_break && !traits.special && !key;
        return if block { Style::Literal } else { Style::Double };
    }
    if !resolve::is_text(text) {
        return Style::Double;
    }
    let quotable = !traits.break_space && !traits.space_break && !traits.special;
    let plain = quotable && !traits.indicator && !traits.breaks && !traits.edge;
    match (plain, quotable) {
        (true, _) => Style::Plain,
        (false, true) if !(key && traits.breaks) => Style::Single,
        _ => Style::Double,
    }
}

fn traits(text: &str) -> Traits {
    let mut traits = Traits { indicator: text.starts_with("---") || text.starts_with("..."), ..Traits::default() };
    let (mut after_space, mut after_break, mut after_blank) = (false, false, true);
    for (at, next) in text.char_indices() {
        let behind = &text[at + next.len_utf8()..];
        let last = behind.is_empty();
        let before_blank = last || behind.starts_with([' ', '\t']);
        traits.indicator |= match next {
            '#' if at > 0 => after_blank,
            '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => at == 0,
            '?' | '-' => at == 0 && before_blank,
            ':' => before_blank,
            _ => false,
        };
        traits.special |= !is_printable(next);
        let (space, line) = (next == ' ', is_break(next));
        traits.breaks |= line;
        traits.edge |= (space || line) && (at == 0 || last);
        traits.trailing_space |= space && last;
        traits.break_space |= space && after_break;
        traits.space_break |= line && after_space;
        (after_space, after_break) = (space, line);
        after_blank = space || line || next == '\t' || next == '\0';
    }
    traits
}

fn is_printable(next: char) -> bool {
    matches!(next, '\n' | ' '..='~' | '\u{a0}'..='\u{fffd}') && next != '\u{feff}'
}

fn write(sink: &mut Sink<'_>, text: &str, style: Style, indent: usize, folds: bool) -> Result<(), Reason> {
    match style {
        Style::Plain if !folds || !text.contains(' ') => sink.push(text),
        Style::Literal => literal(sink, text, indent),
        style => {
            let start = sink.column();
            let mut out = String::with_capacity(text.len() + 2);
            quoted(&mut out, text, style, Fold { start, indent, folds });
            sink.push(&out)
        }
    }
}

/// The column at which a scalar starts, the indentation of its lines after the first, and whether it is folded.
#[derive(Clone, Copy)]
struct Fold {
    start: usize,
    indent: usize,
    folds: bool,
}

fn quoted(out: &mut String, text: &str, style: Style, fold: Fold) {
    let quote = match style {
        Style::Single => "'",
        Style::Double => "\"",
        _ => "",
    };
    out.push_str(quote);
    let mut column = fold.start + quote.len();
    let (mut after_space, mut after_break) = (false, false);
    for (at, next) in text.char_indices() {
        let behind = &text[at + next.len_utf8()..];
        let inner = quote.is_empty() || at > 0 && at + 1 < text.len();
        let before_space = next == ' ' && behind.starts_with(' ');
        if next == ' '
            && fold.folds
            && !after_space
            && column > WIDTH
            && inner
            && (style == Style::Double || !before_space)
        {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', fold.indent));
            column = fold.indent;
            if before_space {
                out.push('\\');
                column += 1;
            }
        } else if style == Style::Single && is_break(next) {
            out.push(next);
            column = 0;
            after_break = true;
        } else {
            if std::mem::take(&mut after_break) {
                out.extend(std::iter::repeat_n(' ', fold.indent));
                column = fold.indent;
            }
            let length = out.len();
            push(out, next, style);
            column += out[length..].chars().count();
        }
        after_space = next == ' ';
    }
    out.push_str(quote);
}

fn push(out: &mut String, next: char, style: Style) {
    match style {
        Style::Single if next == '\'' => out.push_str("''"),
        Style::Double => escape(out, next),
        _ => out.push(next),
    }
}

fn escape(out: &mut String, next: char) {
    let short = match next {
        '\0' => "\\0",
        '\x07' => "\\a",
        '\x08' => "\\b",
        '\t' => "\\t",
        '\n' => "\\n",
        '\x0b' => "\\v",
        '\x0c' => "\\f",
        '\r' => "\\r",
        '\x1b' => "\\e",
        '"' => "\\\"",
        '\\' => "\\\\",
        '\u{85}' => "\\N",
        '\u{2028}' => "\\L",
        '\u{2029}' => "\\P",
        next if is_printable(next) => return out.push(next),
        next => {
            let code = u32::from(next);
            return out.push_str(&match code {
                0..=0xff => format!("\\x{code:02X}"),
                0x100..=0xffff => format!("\\u{code:04X}"),
                _ => format!("\\U{code:08X}"),
            });
        }
    };
    out.push_str(short);
}

/// Writes a literal block; the indicator in its first line states how many of the line breaks at the end belong to the
/// string.
fn literal(sink: &mut Sink<'_>, text: &str, indent: usize) -> Result<(), Reason> {
    sink.push("|")?;
    sink.push(if text.starts_with(' ') || text.starts_with(is_break) { "2" } else { "" })?;
    let mut backwards = text.chars().rev();
    sink.push(match (backwards.next().is_some_and(is_break), backwards.next().is_none_or(is_break)) {
        (false, _) => "-",
        (true, true) => "+",
        (true, false) => "",
    })?;
    sink.push("\n")?;
    for line in text.split_inclusive(is_break) {
        sink.fill(' ', if line.starts_with(is_break) { 0 } else { indent })?;
        sink.push(line)?;
    }
    Ok(())
}
