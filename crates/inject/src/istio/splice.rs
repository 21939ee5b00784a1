//! Detects strings (texts) in a pod that break out of their place in the YAML that a template renders, such as a value with quotes and line
//! breaks that adds fields to a container.
//!
//! Templates insert texts into YAML, and which quotes surround a text depends on the template. So a template is rendered again with
//! harmless texts of the same length: characters with a meaning in YAML are replaced with letters. The output must have the same structure,
//! and the same value in each place that does not depend on the replaced texts. A rendering with other letters shows which places do. Pods
//! without such characters are rendered once.
//!
//! A template may also test a text, for example whether it has a prefix. When it is rendered again, each `if` and `with` therefore takes
//! the branch that it took with the pod's texts, and functions return the same booleans.

mod harmless;

use std::collections::HashSet;

use gotemplate::{Budget, Path, Rendered, Template};
use serde_json::{Map, Value};

use super::config::Config;
use super::data::Data;
use super::subject::Subject;
use super::{Error, Owner};
use crate::yaml;
use harmless::{Letters, Texts, Treatment};

/// A template, and the branches that it takes.
#[derive(Debug, Clone, Copy)]
struct Source<'t> {
    template: &'t Template,
    /// The branches that it took in another rendering, and must take again.
    path: Option<&'t Path>,
}

/// The texts in a pod that may break out of their place.
pub(super) struct Spliced<'a> {
    config: &'a Config,
    subject: &'a Subject<'a>,
    /// What templates see: the pod, its proxy configuration and its owner.
    document: Value,
    texts: Texts,
}

impl<'a> Spliced<'a> {
    /// Collects the texts; `None` if there are none. `pod`: the pod that templates see.
    ///
    /// # Errors
    /// The budget is spent.
    pub(super) fn of(
        config: &'a Config,
        subject: &'a Subject<'a>,
        pod: &Value,
        budget: &mut Budget,
    ) -> Result<Option<Self>, Error> {
        let owner = &subject.owner;
        let parts = [&owner.api_version, &owner.kind, &owner.name, &owner.namespace];
        let texts = Texts::of(pod, &subject.proxy_config, &parts.map(String::as_str), budget)?;
        if texts.is_empty() {
            return Ok(None);
        }
        let document = serde_json::json!([pod, subject.proxy_config, parts]);
        Ok(Some(Self { config, subject, document, texts }))
    }

    /// Checks the output of a template.
    ///
    /// # Errors
    /// A text breaks out of its place, or the budget is spent.
    pub(super) fn check(&self, template: &Template, output: &Rendered, budget: &mut Budget) -> Result<(), Error> {
        let Rendered { text, path, .. } = output;
        let source = Source { template, path: Some(path) };
        let treatments = self.treatments(source, text, budget)?;
        let replaced = self.rendered(source, &treatments, Letters::FIRST, budget)?;
        if replaced.as_ref() == Some(text) {
            return Ok(());
        }
        let other = self.rendered(source, &treatments, Letters::SECOND, budget)?;
        let (Some(replaced), Some(other)) = (replaced, other) else {
            return Err(self.refusal(template, self.needed(source, &treatments, budget)?));
        };
        let read = |text: &str, budget: &mut Budget| match yaml::value_within(text, budget) {
            Ok(value) => Ok(Some(value)),
            Err(yaml::Error::Exceeded(exceeded)) => Err(Error::from(exceeded)),
            Err(_) => Ok(None),
        };
        let (Some(first), Some(second)) = (read(&replaced, budget)?, read(&other, budget)?) else {
            // If the output with the original texts is not YAML either, its reader reports the error.
            return match read(text, budget)? {
                Some(_) => Err(self.refusal(template, self.needed(source, &treatments, budget)?)),
                None => Ok(()),
            };
        };
        let in_comments = |text: &str, value: &Value| text.matches('#').count().saturating_sub(hashes(value));
        let comments = in_comments(&replaced, &first);
        let holds = |text: &str, budget: &mut Budget| {
            let value = read(text, budget)?;
            Ok::<_, Error>(
                value.is_some_and(|value| is_same(&value, &first, &second) && in_comments(text, &value) <= comments),
            )
        };
        if holds(text, budget)? {
            return Ok(());
        }
        for at in 0..self.texts.len() {
            let mut alone = treatments.clone();
            alone[at] = Treatment::Kept;
            let holds = match self.rendered(source, &alone, Letters::FIRST, budget)? {
                Some(text) => holds(&text, budget)?,
                None => false,
            };
            if !holds {
                return Err(self.refusal(template, at));
            }
        }
        Err(self.refusal(template, 0))
    }

    /// Chooses the treatment of each text. In a text that the template parses as JSON, only the strings are treated, because the template
    /// could not parse it otherwise.
    fn treatments(&self, source: Source<'_>, text: &str, budget: &mut Budget) -> Result<Vec<Treatment>, Error> {
        let json: Vec<usize> = (0..self.texts.len()).filter(|at| self.texts.is_json(*at)).collect();
        let mut treatments = vec![Treatment::Replaced; self.texts.len()];
        if json.is_empty() {
            return Ok(treatments);
        }
        let all = self.is_read(source, text, &json, budget)?;
        for at in json {
            if all || self.is_read(source, text, &[at], budget)? {
                treatments[at] = Treatment::Members;
            }
        }
        Ok(treatments)
    }

    /// Whether the template parses these texts, which are JSON, as JSON: its output does not depend on how their values are written.
    ///
    /// The template is rendered with the same values in other white space and escapes. Other white space alone proves nothing, because a
    /// template may remove it. A value without strings has nothing to escape, so a string is added to it. The output then differs from the
    /// pod's, but must be the same with and without escapes.
    fn is_read(&self, source: Source<'_>, text: &str, which: &[usize], budget: &mut Budget) -> Result<bool, Error> {
        let mut is_same = |escaped| {
            let treatments = self.written(which, Treatment::Written { escaped, marked: false });
            let rendered = self.rendered(source, &treatments, Letters::FIRST, budget)?;
            Ok::<_, Error>(rendered.as_deref() == Some(text))
        };
        // A text with escapes of its own may equal the escaped form, and must be rendered without escapes, too.
        let has_escapes = which.iter().any(|at| self.texts.has_escapes(*at));
        if !is_same(true)? || has_escapes && !is_same(false)? {
            return Ok(false);
        }
        let bare: Vec<usize> = which.iter().copied().filter(|at| !self.texts.has_strings(*at)).collect();
        if bare.is_empty() {
            return Ok(true);
        }
        let marked = |escaped| self.written(&bare, Treatment::Written { escaped, marked: true });
        let plain = Source { path: None, ..source };
        let Some(plain) = self.recorded(plain, &marked(false), Letters::FIRST, budget)? else {
            // A template may fail because of the added element. An empty map or list is harmless.
            return Ok(!bare.iter().any(|at| self.texts.has_elements(*at)));
        };
        let along = Source { path: Some(&plain.path), ..source };
        Ok(self.rendered(along, &marked(true), Letters::FIRST, budget)? == Some(plain.text))
    }

    /// Returns treatments that change only these texts.
    fn written(&self, which: &[usize], treatment: Treatment) -> Vec<Treatment> {
        let mut treatments = vec![Treatment::Kept; self.texts.len()];
        which.iter().for_each(|at| treatments[*at] = treatment);
        treatments
    }

    /// Renders the template with treated texts; `None` if it cannot be rendered with them.
    fn rendered(
        &self,
        source: Source<'_>,
        treatments: &[Treatment],
        letters: Letters,
        budget: &mut Budget,
    ) -> Result<Option<String>, Error> {
        Ok(self.recorded(source, treatments, letters, budget)?.map(|rendered| rendered.text))
    }

    /// Renders the template as [`Self::rendered`] does, and returns the branches, too.
    fn recorded(
        &self,
        source: Source<'_>,
        treatments: &[Treatment],
        letters: Letters,
        budget: &mut Budget,
    ) -> Result<Option<Rendered>, Error> {
        let treated = self.texts.treated(&self.document, treatments, letters, budget)?;
        let text = |at: usize| treated[2][at].as_str().unwrap_or_default().to_owned();
        let owner = Owner { api_version: text(0), kind: text(1), name: text(2), namespace: text(3) };
        let subject = Subject {
            namespace: self.subject.namespace,
            native: self.subject.native,
            ids: self.subject.ids,
            ..Subject::plain(&treated[0], owner, treated[1].clone())
        };
        let data = Data::new(self.config, &subject, &treated[0]);
        match source.template.render_recorded(&data.value(), source.path, budget) {
            Ok(rendered) => Ok(Some(rendered)),
            Err(error) => match Error::from(error) {
                error if error.is_exceeded() => Err(error),
                _ => Ok(None),
            },
        }
    }

    /// Returns the first text whose original characters make the output YAML: it alone is left untreated.
    fn needed(&self, source: Source<'_>, treatments: &[Treatment], budget: &mut Budget) -> Result<usize, Error> {
        for at in 0..self.texts.len() {
            let mut others = treatments.to_vec();
            others[at] = Treatment::Kept;
            let Some(text) = self.rendered(source, &others, Letters::FIRST, budget)? else { continue };
            match yaml::value_within(&text, budget) {
                Ok(_) => return Ok(at),
                Err(yaml::Error::Exceeded(exceeded)) => return Err(exceeded.into()),
                Err(_) => {}
            }
        }
        Ok(0)
    }

    fn refusal(&self, template: &Template, at: usize) -> Error {
        Error::Spliced {
            template: template.name().to_owned(),
            field: self.texts.field(at).to_owned(),
            is_json: self.texts.is_json(at),
        }
    }
}

/// Whether a value has the structure of two others, and equals them in each scalar in which these two agree.
fn is_same(value: &Value, replaced: &Value, other: &Value) -> bool {
    match (value, replaced, other) {
        (Value::Array(value), Value::Array(replaced), Value::Array(other)) => {
            value.len() == replaced.len()
                && value.len() == other.len()
                && value.iter().zip(replaced).zip(other).all(|((v, r), o)| is_same(v, r, o))
        }
        (Value::Object(value), Value::Object(replaced), Value::Object(other)) => {
            value.len() == replaced.len() && value.len() == other.len() && are_same(value, replaced, other)
        }
        (Value::Array(_) | Value::Object(_), ..)
        | (_, Value::Array(_) | Value::Object(_), _)
        | (_, _, Value::Array(_) | Value::Object(_)) => false,
        (value, replaced, other) => {
            value == replaced || replaced != other && value.is_null() == (replaced.is_null() && other.is_null())
        }
    }
}

/// Whether the members of a map are the same as those of two others. A key that depends on replaced texts may be at another position,
/// because templates sort keys: it corresponds to the key that the replacement makes of it, or else to the next key that has no counterpart
/// yet.
fn are_same(value: &Map<String, Value>, replaced: &Map<String, Value>, other: &Map<String, Value>) -> bool {
    let (mut of_replaced, mut of_other) = (HashSet::new(), HashSet::new());
    let mut left = Vec::new();
    for (key, v) in value {
        let replacements = (harmless::replaced(key, Letters::FIRST), harmless::replaced(key, Letters::SECOND));
        let keys = [(key, key), (&replacements.0, &replacements.1)];
        let found = keys.into_iter().find_map(|(x, y)| Some((replaced.get_key_value(x)?, other.get_key_value(y)?)));
        match found {
            Some(((x, r), (y, o))) => {
                if !(of_replaced.insert(x) && of_other.insert(y) && is_same(v, r, o)) {
                    return false;
                }
            }
            None => left.push(v),
        }
    }
    let rest_of_replaced = replaced.iter().filter(|(key, _)| !of_replaced.contains(key));
    let rest_of_other = other.iter().filter(|(key, _)| !of_other.contains(key));
    let mut rest = left.into_iter().zip(rest_of_replaced).zip(rest_of_other);
    rest.all(|((v, (x, r)), (y, o))| x != y && is_same(v, r, o))
}

/// Returns the number of `#` in a value. Any other `#` in the YAML from which the value was parsed starts a comment or is part of one.
fn hashes(value: &Value) -> usize {
    match value {
        Value::String(text) => text.matches('#').count(),
        Value::Array(items) => items.iter().map(hashes).sum(),
        Value::Object(members) => members.iter().map(|(key, member)| key.matches('#').count() + hashes(member)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
