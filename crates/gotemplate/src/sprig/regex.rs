//! sprig's functions on regular expressions, in Go's syntax.

use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

use crate::budget::Budget;
use crate::error::Reason;
use crate::function::{Args, Functions};
use crate::value::Value;

type Result<'a> = std::result::Result<Value<'a>, Reason>;

/// The maximum size of a compiled expression, in bytes. A larger expression is refused as invalid.
const LARGEST: usize = 1 << 20;
/// The number of bytes of text whose search costs one step.
const BYTES_PER_STEP: usize = 16;
/// The number of steps that compiling an expression costs, however short it is.
const COMPILING: usize = 1000;

pub(super) fn register(functions: Functions) -> Functions {
    functions
        .with("regexMatch", 2, 2, |budget, args| match compiled(budget, args, 1) {
            Err(Reason::Refused(_)) => Ok(Value::Bool(false)),
            regex => Ok(Value::Bool(regex?.is_match(args.str(1)?))),
        })
        .with("mustRegexMatch", 2, 2, |budget, args| Ok(Value::Bool(compiled(budget, args, 1)?.is_match(args.str(1)?))))
        .with("regexFind", 2, 2, |budget, args| {
            let found = compiled(budget, args, 1)?.find(args.str(1)?).map(|found| found.as_str().to_owned());
            Ok(Value::from(found.unwrap_or_default()))
        })
        .with("regexFindAll", 3, 3, |budget, args| {
            let (regex, count) = (compiled(budget, args, 1)?, limit(args.int(2)?));
            let matches = regex.find_iter(args.str(1)?).take(count);
            Value::list(matches.map(|found| piece(budget, found.as_str())).collect::<std::result::Result<_, _>>()?)
        })
        .with("regexSplit", 3, 3, split)
        .with("regexReplaceAll", 3, 3, |budget, args| replaced(budget, args, true))
        .with("regexReplaceAllLiteral", 3, 3, |budget, args| replaced(budget, args, false))
        .with("regexQuoteMeta", 1, 1, |_, args| Ok(Value::from(quoted(args.str(0)?))))
        .alias("mustRegexFind", "regexFind")
        .alias("mustRegexFindAll", "regexFindAll")
        .alias("mustRegexSplit", "regexSplit")
        .alias("mustRegexReplaceAll", "regexReplaceAll")
        .alias("mustRegexReplaceAllLiteral", "regexReplaceAllLiteral")
}

/// Compiles the expression in the first argument. Charges the budget for that and for searching the text, which is the
/// argument with the index `text`.
fn compiled(budget: &mut Budget, args: Args<'_, '_>, text: usize) -> std::result::Result<Regex, Reason> {
    let pattern = args.str(0)?;
    budget.step(COMPILING + pattern.len() + args.str(text)?.len() / BYTES_PER_STEP)?;
    let built = RegexBuilder::new(&translated(pattern)).size_limit(LARGEST).dfa_size_limit(LARGEST).build();
    built.map_err(|_| Reason::Refused(format!("error parsing regexp: {pattern:?} is none")))
}

/// Charges the budget for a part of the text as an element of a list, and returns the element.
fn piece<'a>(budget: &mut Budget, text: &str) -> Result<'a> {
    budget.step(1)?;
    budget.bytes(text.len().saturating_add(size_of::<Value<'_>>()))?;
    Ok(Value::made(text))
}

/// Replaces each match in the text. Before each replacement, the budget is charged for the greatest length of the
/// replacement, in which each group is as long as the whole match.
fn replaced<'a>(budget: &mut Budget, args: Args<'_, 'a>, expand: bool) -> Result<'a> {
    let regex = compiled(budget, args, 1)?;
    let (text, with) = (args.str(1)?, args.str(2)?);
    budget.step(with.len() / BYTES_PER_STEP)?;
    let groups = if expand { with.matches('$').count() } else { 0 };
    let (mut out, mut end) = (String::new(), 0);
    for captures in regex.captures_iter(text) {
        let Some(found) = captures.get(0) else { continue };
        budget.step(1)?;
        budget.bytes(with.len().saturating_add(groups.saturating_mul(found.len())))?;
        out.push_str(&text[end..found.start()]);
        if expand {
            captures.expand(with, &mut out);
        } else {
            out.push_str(with);
        }
        end = found.end();
    }
    out.push_str(&text[end..]);
    Ok(Value::from(out))
}

/// Translates a pattern from Go's syntax to the syntax of the crate `regex`. Go's classes, such as `\d`, are ASCII; its
/// bracket expressions have neither nested classes nor set operations; and a brace that does not start a repetition is
/// literal.
fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len() + 16);
    let (mut chars, mut class) = (pattern.chars().peekable(), false);
    while let Some(next) = chars.next() {
        match (next, class) {
            ('\\', _) => match chars.next() {
                Some('d') => out.push_str("[0-9]"),
                Some('D') => out.push_str("[^0-9]"),
                Some('w') => out.push_str("[0-9A-Za-z_]"),
                Some('W') => out.push_str("[^0-9A-Za-z_]"),
                Some('s') => out.push_str("[\\t\\n\\x0c\\r ]"),
                Some('S') => out.push_str("[^\\t\\n\\x0c\\r ]"),
                Some('b') if !class => out.push_str("(?-u:\\b)"),
                Some('Q') if !class => literal(&mut chars, &mut out),
                // The brace of `\p{…}`, `\P{…}` and `\x{…}` is part of the escape.
                Some(own @ ('p' | 'P' | 'x')) => {
                    out.extend(['\\', own]);
                    out.extend(chars.next_if_eq(&'{'));
                }
                other => {
                    out.push('\\');
                    out.extend(other);
                }
            },
            ('[', false) => {
                class = true;
                out.push('[');
                out.extend(chars.next_if_eq(&'^'));
                // A closing bracket at the start of a class is literal.
                if chars.next_if_eq(&']').is_some() {
                    out.push_str("\\]");
                }
            }
            ('[', true) if chars.peek() != Some(&':') => out.push_str("\\["),
            ('[', true) => {
                out.push('[');
                for next in chars.by_ref() {
                    out.push(next);
                    if next == ']' {
                        break;
                    }
                }
            }
            (']', true) => {
                class = false;
                out.push(']');
            }
            ('&' | '~', true) => {
                out.push('\\');
                out.push(next);
            }
            ('{', false) if !repeats(chars.clone()) => out.push_str("\\{"),
            (next, _) => out.push(next),
        }
    }
    out
}

/// Quotes the text up to `\E` or the end.
fn literal(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    while let Some(next) = chars.next() {
        if next == '\\' && chars.next_if_eq(&'E').is_some() {
            break;
        }
        quote(next, out);
    }
}

/// Whether the text after a brace makes it a repetition: `2}`, `2,}` or `2,3}`.
fn repeats(mut behind: Peekable<Chars<'_>>) -> bool {
    if behind.next_if(char::is_ascii_digit).is_none() {
        return false;
    }
    while behind.next_if(char::is_ascii_digit).is_some() {}
    if behind.next_if_eq(&',').is_some() {
        while behind.next_if(char::is_ascii_digit).is_some() {}
    }
    behind.next() == Some('}')
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    text.chars().for_each(|next| quote(next, &mut out));
    out
}

fn quote(next: char, out: &mut String) {
    if r"\.+*?()|[]{}^$".contains(next) {
        out.push('\\');
    }
    out.push(next);
}

fn limit(count: i64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Implements `regexSplit`: returns the parts between matches, at most the requested number.
fn split<'a>(budget: &mut Budget, args: Args<'_, 'a>) -> Result<'a> {
    let regex = compiled(budget, args, 1)?;
    let (pattern, text, count) = (args.str(0)?, args.str(1)?, limit(args.int(2)?));
    if count == 0 {
        return Value::list(Vec::new());
    }
    if !pattern.is_empty() && text.is_empty() {
        return Value::list(vec![Value::from("")]);
    }
    let (mut parts, mut begin, mut end) = (Vec::new(), 0, 0);
    for found in regex.find_iter(text).take(count) {
        if parts.len() + 1 == count {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(piece(budget, &text[begin..end])?);
        }
        begin = found.end();
    }
    if end != text.len() {
        parts.push(piece(budget, &text[begin..])?);
    }
    Value::list(parts)
}
