//! The texts in a pod that have characters with a meaning in YAML, and copies of the pod in which these texts are harmless.

use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value};

/// The characters, other than control characters and line breaks, that end a scalar in YAML or start another construct.
const MEANINGFUL: &str = "\"'\\{}[]#&*!|>%@`:?";
/// The characters that do so at the start of a text.
const AT_START: [char; 10] = ['&', '!', '|', '>', '%', '@', '`', '*', '#', ','];

/// The characters that replace meaningful ones. Those of [`FIRST`](Self::FIRST) and [`SECOND`](Self::SECOND) differ. A replacement sorts
/// near the original character, because templates sort keys.
#[derive(Debug, Clone, Copy)]
pub(super) struct Letters([char; 4]);

impl Letters {
    pub(super) const FIRST: Self = Self(['0', 'A', 'a', 'x']);
    pub(super) const SECOND: Self = Self(['1', 'B', 'b', 'y']);

    fn of(self, c: char) -> char {
        let Self([digit, upper, lower, last]) = self;
        match c {
            ..'0' => digit,
            ..'A' => upper,
            ..'a' => lower,
            _ => last,
        }
    }
}

/// How a text is changed in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// The text stays.
    Kept,
    /// Meaningful characters are replaced.
    Replaced,
    /// The text is JSON, and meaningful characters in its strings and keys are replaced.
    Members,
    /// The text is JSON, and is written in another form: the same value or, if `marked`, the value with one string added.
    Written { escaped: bool, marked: bool },
}

/// The properties of a text that is a map or a list in JSON.
#[derive(Debug, Clone, Copy)]
struct Json {
    /// Whether it has a non-empty string, as a value or as a key.
    strings: bool,
    /// Whether it has characters escaped as `\u`.
    escapes: bool,
    elements: bool,
}

/// The texts with meaningful characters, in the order in which [`collect`](Self::collect) finds them.
pub(super) struct Texts {
    fields: Vec<String>,
    /// The properties of each text; `None` if it is not a map or a list in JSON.
    json: Vec<Option<Json>>,
}

impl Texts {
    /// Finds the texts of a pod, its proxy configuration and its owner.
    pub(super) fn of(pod: &Value, proxy_config: &Value, owner: &[&str], budget: &mut Budget) -> Result<Self, Exceeded> {
        let mut texts = Self { fields: Vec::new(), json: Vec::new() };
        for (name, value) in [("", pod), ("proxyConfig", proxy_config)] {
            texts.collect(value, name, budget)?;
        }
        for (text, name) in owner.iter().zip(["apiVersion", "kind", "name", "namespace"]) {
            texts.push(text, || format!("owner.{name}"));
        }
        Ok(texts)
    }

    fn collect(&mut self, value: &Value, path: &str, budget: &mut Budget) -> Result<(), Exceeded> {
        budget.step(1)?;
        match value {
            Value::String(text) => self.push(text, || path.to_owned()),
            Value::Array(items) => {
                for (at, item) in items.iter().enumerate() {
                    self.collect(item, &format!("{path}[{at}]"), budget)?;
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    let path = below(path, key);
                    self.push(key, || path.clone());
                    self.collect(member, &path, budget)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn push(&mut self, text: &str, field: impl FnOnce() -> String) {
        if is_meaningful(text) {
            self.fields.push(field());
            let json = json(text);
            self.json.push(json.map(|json| Json {
                strings: has_strings(&json),
                escapes: text.contains("\\u"),
                elements: !json.as_array().is_some_and(Vec::is_empty) && !json.as_object().is_some_and(Map::is_empty),
            }));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn is_json(&self, at: usize) -> bool {
        self.json[at].is_some()
    }

    /// Whether a text is JSON with a non-empty string.
    pub(super) fn has_strings(&self, at: usize) -> bool {
        self.json[at].is_some_and(|json| json.strings)
    }

    /// Whether a text is a map or a list in JSON that is not empty.
    pub(super) fn has_elements(&self, at: usize) -> bool {
        self.json[at].is_some_and(|json| json.elements)
    }

    /// Whether a text is JSON with characters escaped as `\u`.
    pub(super) fn has_escapes(&self, at: usize) -> bool {
        self.json[at].is_some_and(|json| json.escapes)
    }

    /// Returns the path of a text, for an error.
    pub(super) fn field(&self, at: usize) -> &str {
        &self.fields[at]
    }

    /// Returns a copy of the document with treated texts.
    pub(super) fn treated(
        &self,
        document: &Value,
        treatments: &[Treatment],
        letters: Letters,
        budget: &mut Budget,
    ) -> Result<Value, Exceeded> {
        Copy { treatments: treatments.iter(), letters, budget }.of(document)
    }
}

/// Returns the path of a member. A key that is not a plain word is quoted.
fn below(path: &str, key: &str) -> String {
    const LONGEST: usize = 100;
    let is_word = key.chars().all(|c| c.is_ascii_alphanumeric()) && !key.is_empty();
    match (is_word, path) {
        (true, "") => key.to_owned(),
        (true, path) => format!("{path}.{key}"),
        (false, path) => format!("{path}[{:?}]", key.chars().take(LONGEST).collect::<String>()),
    }
}

/// Copies a document and treats its texts, in the order of [`Texts`].
struct Copy<'c, 'b> {
    treatments: std::slice::Iter<'c, Treatment>,
    letters: Letters,
    budget: &'b mut Budget,
}

impl Copy<'_, '_> {
    fn of(&mut self, value: &Value) -> Result<Value, Exceeded> {
        self.budget.step(1)?;
        Ok(match value {
            Value::String(text) => self.text(text)?.into(),
            Value::Array(items) => items.iter().map(|item| self.of(item)).collect::<Result<_, _>>()?,
            Value::Object(members) => {
                let mut copy = Map::new();
                for (key, member) in members {
                    let key = self.text(key)?;
                    copy.insert(key, self.of(member)?);
                }
                Value::Object(copy)
            }
            other => other.clone(),
        })
    }

    fn text(&mut self, text: &str) -> Result<String, Exceeded> {
        self.budget.step(text.len() / 64)?;
        if !is_meaningful(text) {
            return Ok(text.to_owned());
        }
        Ok(match (self.treatments.next().copied().unwrap_or(Treatment::Replaced), json(text)) {
            (Treatment::Kept, _) => text.to_owned(),
            (Treatment::Written { escaped, marked }, Some(json)) => {
                // White space at the ends stays, because a template may test the first and the last character.
                let (start, end) = (text.len() - text.trim_start().len(), text.trim_end().len());
                format!("{}{}{}", &text[..start], written(json, escaped, marked).trim(), &text[end..])
            }
            (Treatment::Members, Some(mut json)) => {
                replace_in(&mut json, self.letters);
                json.to_string()
            }
            (Treatment::Replaced | Treatment::Written { .. } | Treatment::Members, _) => replaced(text, self.letters),
        })
    }
}

/// Writes JSON with a space on both sides of each token. `escaped`: the first and the last character of each string are escaped as `\u`,
/// which functions that remove white space, quotes or brackets do not hide. `marked`: a string is added to the value.
fn written(mut json: Value, escaped: bool, marked: bool) -> String {
    match &mut json {
        Value::Array(items) if marked => items.push(serde_json::json!({"x": "x"})),
        Value::Object(members) if marked => drop(members.insert("x".to_owned(), "x".into())),
        _ => {}
    }
    let mut text = String::new();
    write(&json, escaped, &mut text);
    text
}

fn write(value: &Value, escaped: bool, text: &mut String) {
    let separator = |at: usize| if at == 0 { "" } else { " , " };
    match value {
        Value::String(string) => write_string(string, escaped, text),
        Value::Array(items) => {
            text.push_str(" [ ");
            for (at, item) in items.iter().enumerate() {
                text.push_str(separator(at));
                write(item, escaped, text);
            }
            text.push_str(" ] ");
        }
        Value::Object(members) => {
            text.push_str(" { ");
            for (at, (key, member)) in members.iter().enumerate() {
                text.push_str(separator(at));
                write_string(key, escaped, text);
                text.push_str(" : ");
                write(member, escaped, text);
            }
            text.push_str(" } ");
        }
        other => text.push_str(&other.to_string()),
    }
}

fn write_string(string: &str, escaped: bool, text: &mut String) {
    let end = |c: Option<char>| c.filter(|_| escaped).map_or(0, char::len_utf8);
    let first = end(string.chars().next());
    let last = end(string[first..].chars().next_back());
    let (start, rest) = string.split_at(first);
    let (middle, end) = rest.split_at(rest.len() - last);
    let numbers = |part: &str| part.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>();
    let quoted = Value::from(middle).to_string();
    text.push('"');
    text.extend(numbers(start));
    text.push_str(&quoted[1..quoted.len() - 1]);
    text.extend(numbers(end));
    text.push('"');
}

/// Whether a value has a non-empty string, as a value or as a key.
fn has_strings(value: &Value) -> bool {
    match value {
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => items.iter().any(has_strings),
        Value::Object(members) => members.iter().any(|(key, member)| !key.is_empty() || has_strings(member)),
        _ => false,
    }
}

/// Parses a text that is a map or a list in JSON; `None` for any other text.
fn json(text: &str) -> Option<Value> {
    text.trim_start().starts_with(['{', '[']).then(|| serde_json::from_str(text).ok()).flatten()
}

fn replace_in(value: &mut Value, letters: Letters) {
    match value {
        Value::String(text) => *text = replaced(text, letters),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_in(item, letters)),
        Value::Object(members) => {
            let all = std::mem::take(members);
            members.extend(all.into_iter().map(|(key, mut member)| {
                replace_in(&mut member, letters);
                (replaced(&key, letters), member)
            }));
        }
        _ => {}
    }
}

/// Whether a text has characters with which it can break out of its place in YAML.
fn is_meaningful(text: &str) -> bool {
    let is_inside = |c: char| is_break(c) || "\"'\\{}[]".contains(c);
    let start = text.trim_start_matches(' ');
    let is_entry = || matches!(start, "-" | "?") || ["- ", "? "].iter().any(|indicator| start.starts_with(indicator));
    start.starts_with(AT_START) && start != "*"
        || is_entry()
        || text.trim_end_matches(' ').ends_with(':')
        || text.contains(is_inside)
        || [": ", " #"].iter().any(|indicator| text.contains(indicator))
}

/// Replaces meaningful characters with letters or digits, one for each byte, because template functions may cut texts by their length.
pub(super) fn replaced(text: &str, letters: Letters) -> String {
    if !is_meaningful(text) {
        return text.to_owned();
    }
    let start = text.len() - text.trim_start_matches(' ').len();
    let mut copy = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if is_break(c) || MEANINGFUL.contains(c) || at == start && matches!(c, '-' | ',') {
            copy.extend(std::iter::repeat_n(letters.of(c), c.len_utf8()));
        } else {
            copy.push(c);
        }
    }
    copy
}

/// Whether YAML treats a character as a line break, or does not allow it.
fn is_break(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}')
}
