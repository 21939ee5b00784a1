//! The texts of a pod with characters that mean something in YAML, and copies of the pod in which they are harmless.

use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value};

/// The characters, other than control characters and line breaks, that end a text in YAML or start something else.
const MEANINGFUL: &str = "\"'\\{}[]#&*!|>%@`:?";
/// Those that do so only at the start of a text.
const AT_START: [char; 10] = ['&', '!', '|', '>', '%', '@', '`', '*', '#', ','];

/// The treatment of a text in a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// The text stays.
    Kept,
    /// Meaningful characters are replaced.
    Replaced,
    /// The text is JSON, and meaningful characters of its members are replaced.
    Members,
    /// The text is JSON, and gets other white space.
    Spaced,
}

/// The meaningful texts in the order in which [`visit`] finds them.
pub(super) struct Texts {
    fields: Vec<String>,
    /// Whether each text is a map or a list in JSON.
    json: Vec<bool>,
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
            self.json.push(json(text).is_some());
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(super) fn is_json(&self, at: usize) -> bool {
        self.json[at]
    }

    /// The path of a text, for an error.
    pub(super) fn field(&self, at: usize) -> &str {
        &self.fields[at]
    }

    /// Returns a copy of the document with treated texts.
    pub(super) fn treated(
        &self,
        document: &Value,
        treatments: &[Treatment],
        letter: char,
        budget: &mut Budget,
    ) -> Result<Value, Exceeded> {
        Copy { treatments: treatments.iter(), letter, budget }.of(document)
    }
}

/// The path of a member. A key that is no plain word is quoted.
fn below(path: &str, key: &str) -> String {
    const LONGEST: usize = 100;
    let is_word = key.chars().all(|c| c.is_ascii_alphanumeric()) && !key.is_empty();
    match (is_word, path) {
        (true, "") => key.to_owned(),
        (true, path) => format!("{path}.{key}"),
        (false, path) => format!("{path}[{:?}]", key.chars().take(LONGEST).collect::<String>()),
    }
}

/// Copies a document text by text, in the order of [`Texts`].
struct Copy<'c, 'b> {
    treatments: std::slice::Iter<'c, Treatment>,
    letter: char,
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
            (Treatment::Spaced, Some(json)) => spaced(text, &json),
            (Treatment::Members, Some(mut json)) => {
                replace_in(&mut json, self.letter);
                json.to_string()
            }
            (Treatment::Replaced | Treatment::Spaced | Treatment::Members, _) => replaced(text, self.letter),
        })
    }
}

/// Returns JSON with other white space than in `text`, within and at both ends.
fn spaced(text: &str, json: &Value) -> String {
    let spaced = format!(" {json} ");
    if spaced == text { format!(" {spaced} ") } else { spaced }
}

/// Returns a text that is a map or a list in JSON.
fn json(text: &str) -> Option<Value> {
    text.trim_start().starts_with(['{', '[']).then(|| serde_json::from_str(text).ok()).flatten()
}

fn replace_in(value: &mut Value, letter: char) {
    match value {
        Value::String(text) => *text = replaced(text, letter),
        Value::Array(items) => items.iter_mut().for_each(|item| replace_in(item, letter)),
        Value::Object(members) => {
            let all = std::mem::take(members);
            members.extend(all.into_iter().map(|(key, mut member)| {
                replace_in(&mut member, letter);
                (replaced(&key, letter), member)
            }));
        }
        _ => {}
    }
}

/// Whether a text has characters by which it can leave its place in YAML.
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

/// Replaces meaningful characters with a letter, byte by byte: functions of templates cut texts by their length.
fn replaced(text: &str, letter: char) -> String {
    if !is_meaningful(text) {
        return text.to_owned();
    }
    let start = text.len() - text.trim_start_matches(' ').len();
    let mut copy = String::with_capacity(text.len());
    for (at, c) in text.char_indices() {
        if is_break(c) || MEANINGFUL.contains(c) || at == start && matches!(c, '-' | ',') {
            copy.extend(std::iter::repeat_n(letter, c.len_utf8()));
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
