//! Go's `printf`: verbs, flags, widths, precisions, and the errors in the output, such as `%!d(string=a)`.

mod number;
mod quote;

use super::budget::Budget;
use super::error::Reason;
use super::print::{self, Sink};
use super::value::Value;

pub(super) use quote::quoted;

/// Widths and precisions beyond this are ignored, as in Go.
const MAX_WIDTH: usize = 1_000_000;

/// Flags, width and precision of a verb.
#[derive(Debug, Clone, Copy, Default)]
struct Spec {
    plus: bool,
    minus: bool,
    sharp: bool,
    space: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

/// Formats arguments as Go's `fmt.Sprintf` does.
pub(super) fn format(budget: &mut Budget, format: &str, args: &[Value<'_>]) -> Result<String, Reason> {
    let mut out = String::new();
    let mut printer = Printer { rest: format, args, next: 0, reordered: false };
    let mut sink = Sink::new(&mut out, budget);
    while let Some(at) = printer.rest.find('%') {
        sink.push(&printer.rest[..at])?;
        printer.rest = &printer.rest[at + 1..];
        printer.directive(&mut sink)?;
    }
    sink.push(printer.rest)?;
    printer.extra(&mut sink)?;
    Ok(out)
}

struct Printer<'f, 'a> {
    rest: &'f str,
    args: &'f [Value<'a>],
    next: usize,
    reordered: bool,
}

impl Printer<'_, '_> {
    fn eat(&mut self, next: char) -> bool {
        let stripped = self.rest.strip_prefix(next);
        self.rest = stripped.unwrap_or(self.rest);
        stripped.is_some()
    }

    fn directive(&mut self, sink: &mut Sink<'_>) -> Result<(), Reason> {
        let mut spec = self.flags();
        let mut good = true;
        let mut positioned = self.position(&mut good);
        if self.eat('*') {
            positioned = false;
            let width = self.measured().map_or_else(|| sink.push("%!(BADWIDTH)").map(|()| 0), Ok)?;
            spec.minus |= width < 0;
            spec.zero &= width >= 0;
            spec.width = usize::try_from(width.unsigned_abs()).unwrap_or(0);
        } else if let Some(width) = self.digits() {
            good &= !positioned;
            spec.width = width;
        }
        if self.rest.len() > 1 && self.eat('.') {
            good &= !positioned;
            positioned = self.position(&mut good);
            if self.eat('*') {
                positioned = false;
                spec.precision = self.measured().and_then(|precision| usize::try_from(precision).ok());
                sink.push(if spec.precision.is_none() { "%!(BADPREC)" } else { "" })?;
            } else {
                spec.precision = Some(self.digits().unwrap_or(0));
            }
        }
        if !positioned {
            self.position(&mut good);
        }
        self.verb(sink, spec, good)
    }

    fn verb(&mut self, sink: &mut Sink<'_>, spec: Spec, good: bool) -> Result<(), Reason> {
        let Some(verb) = self.rest.chars().next() else { return sink.push("%!(NOVERB)") };
        self.rest = &self.rest[verb.len_utf8()..];
        match (verb, self.args.get(self.next)) {
            ('%', _) => sink.push("%"),
            _ if !good => sink.push(&format!("%!{verb}(BADINDEX)")),
            (_, None) => sink.push(&format!("%!{verb}(MISSING)")),
            ('T', Some(value)) if !matches!(value, Value::Missing | Value::Nil) => {
                self.next += 1;
                spec.string(sink, 's', &value.type_name())
            }
            (_, Some(value)) => {
                self.next += 1;
                // In Go, `%+v` prints the names of fields instead of a sign before positive numbers; `v` ignores the
                // flag here.
                let plus = spec.plus && verb != 'v';
                Spec { plus, ..spec }.print(sink, verb, value)
            }
        }
    }

    fn flags(&mut self) -> Spec {
        let mut spec = Spec::default();
        loop {
            let Some(flag) = self.rest.chars().next() else { return spec };
            match flag {
                '+' => spec.plus = true,
                '-' => spec.minus = true,
                '#' => spec.sharp = true,
                ' ' => spec.space = true,
                '0' => spec.zero = true,
                _ => return spec,
            }
            self.rest = &self.rest[1..];
        }
    }

    /// Reads `[n]`, which selects the next argument, and returns whether it holds a number. Clears `good` if there is
    /// no such argument.
    fn position(&mut self, good: &mut bool) -> bool {
        let Some(inner) = self.rest.strip_prefix('[') else { return false };
        self.reordered = true;
        let (digits, rest) = inner.split_once(']').unwrap_or(("", inner));
        self.rest = rest;
        let position = digits.parse::<usize>().ok();
        match position.and_then(|position| position.checked_sub(1)).filter(|position| *position < self.args.len()) {
            Some(position) => self.next = position,
            None => *good = false,
        }
        position.is_some()
    }

    /// Takes a width or precision from the next argument (`*`).
    fn measured(&mut self) -> Option<i64> {
        let arg = self.args.get(self.next)?;
        self.next += 1;
        match arg {
            Value::Int(number) | Value::Long(number) if number.unsigned_abs() <= MAX_WIDTH as u64 => Some(*number),
            _ => None,
        }
    }

    /// Reads a width or precision that the format contains as digits.
    fn digits(&mut self) -> Option<usize> {
        let end = self.rest.find(|next: char| !next.is_ascii_digit()).unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        self.rest = rest;
        digits.parse().ok().filter(|number| *number <= MAX_WIDTH)
    }

    /// Writes the arguments that no verb took.
    fn extra(&self, sink: &mut Sink<'_>) -> Result<(), Reason> {
        let Some(extra @ [_, ..]) = self.args.get(self.next..).filter(|_| !self.reordered) else { return Ok(()) };
        sink.push("%!(EXTRA ")?;
        for (index, value) in extra.iter().enumerate() {
            sink.push(if index > 0 { ", " } else { "" })?;
            typed(sink, value)?;
        }
        sink.push(")")
    }
}

/// Writes a value after its type (`string=a`), or nil without a type.
fn typed(sink: &mut Sink<'_>, value: &Value<'_>) -> Result<(), Reason> {
    if !matches!(value, Value::Missing | Value::Nil) {
        sink.push(&value.type_name())?;
        sink.push("=")?;
    }
    print::verb_v(sink, value)
}

impl Spec {
    fn print(self, sink: &mut Sink<'_>, verb: char, value: &Value<'_>) -> Result<(), Reason> {
        match (value, verb) {
            (Value::Missing | Value::Nil, 'v' | 'T') => self.text(sink, "<nil>"),
            (Value::Bool(truth), 't' | 'v') => self.text(sink, if *truth { "true" } else { "false" }),
            (Value::Text(text), _) => self.string(sink, verb, text.as_str()),
            (Value::Int(_) | Value::Long(_), _) => self.integer(sink, verb, value),
            (Value::Float(number), _) => self.float(sink, verb, *number),
            (Value::Enum { name, .. }, 'v' | 's' | 'q' | 'x' | 'X') => self.string(sink, verb, name),
            (Value::Enum { number, .. }, _) => self.integer(sink, verb, &Value::Int(*number)),
            (Value::List(items), _) => sink.nested(|sink| self.elements(sink, verb, items.iter())),
            (Value::Map(entries), _) => sink.nested(|sink| {
                sink.push("map[")?;
                for (index, (key, value)) in entries.sorted().iter().enumerate() {
                    sink.push(if index > 0 { " " } else { "" })?;
                    self.string(sink, verb, key.as_str())?;
                    sink.push(":")?;
                    self.element(sink, verb, value)?;
                }
                sink.push("]")
            }),
            (Value::Struct(_) | Value::Record(_), 'v' | 's') => print::verb_v(sink, value),
            _ => self.bad(sink, verb, value),
        }
    }

    fn elements<'a>(
        self,
        sink: &mut Sink<'_>,
        verb: char,
        items: impl Iterator<Item = Value<'a>>,
    ) -> Result<(), Reason> {
        sink.push("[")?;
        for (index, item) in items.enumerate() {
            sink.push(if index > 0 { " " } else { "" })?;
            self.element(sink, verb, &item)?;
        }
        sink.push("]")
    }

    /// Writes an element of a list: nil is printed as `<nil>` for every verb.
    fn element(self, sink: &mut Sink<'_>, verb: char, item: &Value<'_>) -> Result<(), Reason> {
        match item {
            Value::Missing | Value::Nil => sink.push("<nil>"),
            item => self.print(sink, verb, item),
        }
    }

    fn bad(self, sink: &mut Sink<'_>, verb: char, value: &Value<'_>) -> Result<(), Reason> {
        sink.push(&format!("%!{verb}("))?;
        if matches!(value, Value::Missing | Value::Nil) {
            return sink.push("<nil>)");
        }
        sink.push(&value.type_name())?;
        sink.push("=")?;
        Self { sharp: false, ..self }.print(sink, 'v', value)?;
        sink.push(")")
    }

    fn string(self, sink: &mut Sink<'_>, verb: char, text: &str) -> Result<(), Reason> {
        let shown = match self.precision {
            Some(precision) if verb != 'x' && verb != 'X' => {
                text.char_indices().nth(precision).map_or(text, |(end, _)| &text[..end])
            }
            _ => text,
        };
        match verb {
            'v' if self.sharp => self.text(sink, &quoted(shown, false)),
            'v' | 's' => self.text(sink, shown),
            'q' if self.sharp && !shown.contains('`') && !shown.chars().any(char::is_control) => {
                self.text(sink, &format!("`{shown}`"))
            }
            'q' => self.text(sink, &quoted(shown, self.plus)),
            'x' | 'X' => self.text(sink, &self.hexadecimal(text, verb == 'X')),
            _ => self.bad(sink, verb, &Value::from(text)),
        }
    }

    fn hexadecimal(self, text: &str, upper: bool) -> String {
        let bytes = text.bytes().take(self.precision.unwrap_or(usize::MAX));
        let prefix = if upper { "0X" } else { "0x" };
        let mut out = String::new();
        for (index, byte) in bytes.enumerate() {
            out.push_str(if self.space && index > 0 { " " } else { "" });
            out.push_str(if self.sharp && (self.space || index == 0) { prefix } else { "" });
            out.push_str(&if upper { format!("{byte:02X}") } else { format!("{byte:02x}") });
        }
        out
    }

    /// Writes text, padded to the width.
    fn text(self, sink: &mut Sink<'_>, text: &str) -> Result<(), Reason> {
        let missing = self.width.saturating_sub(text.chars().count());
        let with = if self.zero && !self.minus { '0' } else { ' ' };
        if !self.minus {
            sink.fill(with, missing)?;
        }
        sink.push(text)?;
        sink.fill(' ', if self.minus { missing } else { 0 })
    }
}
