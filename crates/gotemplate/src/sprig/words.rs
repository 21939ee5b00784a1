//! sprig's functions on words: their case, their initials and line wrapping.

use crate::budget::Budget;
use crate::error::Reason;
use crate::function::{Args, Functions};
use crate::value::Value;

type Result<'a> = std::result::Result<Value<'a>, Reason>;

pub(super) fn register(functions: Functions) -> Functions {
    let text = |functions: Functions, name: &str, change: fn(&str) -> String| {
        functions.with(name, 1, 1, move |_, args| Ok(Value::from(change(args.str(0)?))))
    };
    let functions = text(functions, "untitle", untitled);
    let functions = text(functions, "swapcase", swapped);
    let functions = text(functions, "initials", initials);
    let functions = text(functions, "snakecase", |text| joined(text, '_'));
    let functions = text(functions, "kebabcase", |text| joined(text, '-'));
    let functions = text(functions, "camelcase", camel);
    functions
        .with("abbrev", 2, 2, |_, args| abbreviated(0, args.int(0)?, args.str(1)?))
        .with("abbrevboth", 3, 3, |_, args| abbreviated(args.int(0)?, args.int(1)?, args.str(2)?))
        .with("wrap", 2, 2, |budget, args| wrapped(budget, args.int(0)?, "\n", args.str(1)?, false))
        .with("wrapWith", 3, 3, wrap_with)
}

fn wrap_with<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let between = if args.str(1)?.is_empty() { "\n" } else { args.str(1)? };
    wrapped(budget, args.int(0)?, between, args.str(2)?, true)
}

fn untitled(text: &str) -> String {
    let mut first = true;
    let lower = |next: char| {
        let is_first = std::mem::replace(&mut first, next.is_whitespace());
        if is_first && !next.is_whitespace() { single(next.to_lowercase(), next) } else { next }
    };
    text.chars().map(lower).collect()
}

/// Returns the character to which `itself` is converted, or `itself` if the conversion yields several characters.
fn single(mut changed: impl Iterator<Item = char>, itself: char) -> char {
    match (changed.next(), changed.next()) {
        (Some(one), None) => one,
        _ => itself,
    }
}

fn lower(next: char) -> char {
    single(next.to_lowercase(), next)
}

fn upper(next: char) -> char {
    single(next.to_uppercase(), next)
}

fn swapped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for next in text.chars() {
        out.push(match next {
            next if next.is_uppercase() => lower(next),
            next if next.is_lowercase() => upper(next),
            next => next,
        });
    }
    out
}

/// Returns the first byte of each word, as a character.
fn initials(text: &str) -> String {
    let mut gap = true;
    let initial = |byte: &u8| {
        let next = char::from(*byte);
        let was_gap = std::mem::replace(&mut gap, next.is_whitespace());
        was_gap && !next.is_whitespace()
    };
    text.bytes().filter(initial).map(char::from).collect()
}

/// Returns text with an ellipsis in place of omitted parts.
fn abbreviated<'a>(left: i64, width: i64, text: &str) -> Result<'a> {
    let (length, mut offset) = (i64::try_from(text.len()).unwrap_or(i64::MAX), left);
    if width < 4 || (left > 0 && width < 7) || length <= width {
        return Ok(Value::made(text));
    }
    offset = offset.min(length);
    if length - offset < width - 3 {
        offset = length - (width - 3);
    }
    let at = |at: i64| text.floor_char_boundary(usize::try_from(at).unwrap_or_default());
    if offset <= 4 {
        return Ok(Value::from(format!("{}...", &text[..at(width - 3)])));
    }
    if offset + width - 3 < length {
        let rest = &text[at(offset)..];
        let shown =
            if width - 3 < 4 { "" } else { &rest[..rest.floor_char_boundary(usize::try_from(width - 6).unwrap_or(0))] };
        let dots = if shown.is_empty() { "" } else { "..." };
        return Ok(Value::from(format!("...{shown}{dots}")));
    }
    Ok(Value::from(format!("...{}", &text[at(length - (width - 3))..])))
}

/// Wraps text at spaces into lines of at most `width` bytes; longer words get a line of their own, or are cut.
fn wrapped<'a>(budget: &mut Budget, width: i64, between: &str, text: &str, cut: bool) -> Result<'a> {
    let width = usize::try_from(width).unwrap_or(0).max(1);
    budget.bytes((text.len() / width + 1).saturating_mul(between.len()))?;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while rest.len() > width {
        if let Some(behind) = rest.strip_prefix(' ') {
            rest = behind;
            continue;
        }
        let end = rest.floor_char_boundary(width + 1);
        let (line, behind) = match rest[..end].rfind(' ') {
            Some(space) => (&rest[..space], &rest[space + 1..]),
            None if cut => rest.split_at(rest.floor_char_boundary(width).max(1)),
            None => match rest[rest.floor_char_boundary(width)..].find(' ') {
                Some(space) => {
                    let space = rest.floor_char_boundary(width) + space;
                    (&rest[..space], &rest[space + 1..])
                }
                None => break,
            },
        };
        budget.step(1)?;
        out.push_str(line);
        out.push_str(between);
        rest = behind;
    }
    out.push_str(rest);
    Ok(Value::from(out))
}

fn is_connector(next: char) -> bool {
    next == '-' || next == '_' || next.is_whitespace()
}

/// Converts text to `PascalCase`; hyphens, underscores and spaces at its start stay unchanged.
fn camel(text: &str) -> String {
    let start = text.find(|next| !is_connector(next)).unwrap_or(text.len());
    let (mut out, mut rest) = (text[..start].to_owned(), text[start..].chars());
    let Some(first) = rest.next() else { return out };
    let mut upper_first = first.is_uppercase();
    let mut before = upper(first);
    for next in rest {
        let mut next = next;
        if is_connector(next) && is_connector(before) {
            out.push(before);
            continue;
        }
        if is_connector(before) {
            upper_first = next.is_uppercase();
            next = upper(next);
        } else {
            match upper_first && next.is_uppercase() {
                true => next = lower(next),
                false => upper_first = false,
            }
            out.push(before);
        }
        before = next;
    }
    out.push(before);
    out
}

/// Class of a run of characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    None,
    Number,
    Upper,
    Letters,
    Connector,
    Punctuation,
    Other,
}

fn is_letter(next: char) -> bool {
    next.is_alphabetic() && (next.is_uppercase() || next.is_lowercase())
}

fn is_punctuation(next: char) -> bool {
    // In Unicode, the ASCII characters $+<=>^`|~ are symbols and not punctuation.
    matches!(next, '!'..='/' | ':'..='@' | '['..='`' | '{'..='~') && !"$+<=>^`|~".contains(next)
}

/// Returns the next run of characters with its class, and the rest.
fn next_word(text: &str) -> (Word, &str, &str) {
    let mut chars = text.chars();
    let Some(first) = chars.next() else { return (Word::None, "", "") };
    let run = |is: &dyn Fn(char) -> bool| {
        chars.as_str().find(|next| !is(next)).map_or(text.len(), |at| first.len_utf8() + at)
    };
    let small = |next: char| is_letter(next) && !next.is_uppercase();
    let (word, mut end) = match first {
        first if is_connector(first) => (Word::Connector, run(&is_connector)),
        first if is_punctuation(first) => (Word::Punctuation, run(&is_punctuation)),
        first if first.is_uppercase() => match chars.as_str().starts_with(char::is_uppercase) {
            true => (Word::Upper, run(&char::is_uppercase)),
            false => (Word::Upper, run(&small)),
        },
        first if is_letter(first) => (Word::Letters, run(&small)),
        first if first.is_numeric() => (Word::Number, run(&char::is_numeric)),
        _ => {
            let other = |next| !(is_connector(next) || is_letter(next) || next.is_numeric() || is_punctuation(next));
            (Word::Other, run(&other))
        }
    };
    // `HTTPStatus` is split into `HTTP` and `Status`.
    let several = text[..end].chars().nth(1).is_some_and(char::is_uppercase);
    if word == Word::Upper && several && text[end..].starts_with(is_letter) {
        end = text[..end].char_indices().next_back().map_or(end, |(at, _)| at);
    }
    (word, &text[..end], &text[end..])
}

fn push_lower(out: &mut String, (word, text): (Word, &str), connector: char) {
    match word {
        Word::Upper | Word::Connector => {
            out.extend(text.chars().map(|next| if is_connector(next) { connector } else { lower(next) }));
        }
        _ => out.push_str(text),
    }
}

/// Splits `camelCase` and the like into words, and joins the words in lower case with the connector.
fn joined(text: &str, connector: char) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    let joins = |word: Word| !matches!(word, Word::None | Word::Connector | Word::Punctuation);
    let (mut word, mut part, mut rest) = next_word(text);
    while !rest.is_empty() {
        if word != Word::Connector {
            push_lower(&mut out, (word, part), connector);
        }
        let (previous, last) = (word, part);
        (word, part, rest) = next_word(rest);
        match previous {
            Word::Number => {
                while matches!(word, Word::Letters | Word::Number) {
                    push_lower(&mut out, (word, part), connector);
                    (word, part, rest) = next_word(rest);
                }
                out.extend(joins(word).then_some(connector));
            }
            Word::Connector => push_lower(&mut out, (previous, last), connector),
            Word::Punctuation => {}
            _ if word != Word::Number => out.extend(joins(word).then_some(connector)),
            _ if rest.is_empty() => {}
            _ => {
                let number = part;
                (word, part, rest) = next_word(rest);
                if word != Word::Letters {
                    push_lower(&mut out, (Word::Number, number), connector);
                } else {
                    // `HTTP2xx` becomes `http_2xx`.
                    out.push(connector);
                    push_lower(&mut out, (Word::Number, number), connector);
                    while matches!(word, Word::Letters | Word::Number) {
                        push_lower(&mut out, (word, part), connector);
                        (word, part, rest) = next_word(rest);
                    }
                }
                out.extend(joins(word).then_some(connector));
            }
        }
    }
    push_lower(&mut out, (word, part), connector);
    out
}
