//! Formats the explanation of a pod as text or JSON.

use std::fmt::Write as _;

use contract::SANDBOX;
use contract::diagnostics::terminal::{Colour, Style, printable};
use inject::istio::Sandbox;
use ruleset::{Family, RuleSet, Table, restore};
use serde_json::{Value, json};

use super::decision::{Explained, Injection, Redirection};
use super::form::Detail;
use super::next;
use super::parameters::{Parameter, mode};
use super::purpose::phrase;

/// The width of the column of parameter names, in characters.
const NAMES: usize = 24;
/// The maximum width of a column, in characters. A longer entry shifts the following columns of its line.
const MAX_WIDTH: usize = 60;

impl Explained {
    /// Formats the explanation as text. Names and values are escaped, because the pod's author can choose them.
    pub(super) fn text(&self, detail: Detail, style: Style) -> String {
        let mut text = style.paint(Colour::Bold, &format!("pod {}", printable(&self.subject()))).into_owned() + "\n";
        let mut line = |name: &str, colour: Option<Colour>, value: &str| {
            let value = printable(value);
            let value = colour.map_or_else(|| value.to_string(), |colour| style.paint(colour, &value).into_owned());
            let _ = writeln!(text, "  {:<11} {value}", format!("{name}:"));
        };
        line("injected", None, &self.injection.sentence());
        if let Some(dapr) = &self.dapr {
            line("dapr", None, &dapr.sentence());
        }
        self.warnings.iter().for_each(|warning| line("warning", Some(Colour::Yellow), warning));
        line("redirected", Some(self.redirection.colour()), &self.redirection.sentence());
        if let Redirection::Yes { warnings, .. } = &self.redirection {
            warnings.iter().for_each(|warning| line("warning", Some(Colour::Yellow), warning));
        }
        if let Some(live) = &self.live {
            line("live", None, &live.sentence());
        }
        if let Some(failed) = &self.validation {
            line("validation", Some(Colour::Red), &failed.sentence());
        }
        if let Some(difference) = self.difference() {
            line("differs", Some(Colour::Red), &difference);
        }
        next::steps(self).iter().for_each(|step| line("next", None, step));
        if let Redirection::Yes { parameters, rules, .. } = &self.redirection {
            text += &parameter_lines(parameters, detail, style);
            text += &rule_lines(rules, style);
        }
        text
    }

    /// Formats as JSON.
    pub(super) fn json(&self) -> Value {
        let mut json = json!({ "pod": self.subject(), "injection": self.injection.json(), "redirection": self.redirection.json() });
        if let Some(dapr) = &self.dapr {
            json["dapr"] = dapr.json();
        }
        if let Some(live) = &self.live {
            json["live"] = live.json();
            json["differs"] = json!(self.difference());
        }
        if let Some(failed) = &self.validation {
            json["validation"] = failed.json();
        }
        json["warnings"] = json!(self.warnings);
        json["next"] = json!(next::steps(self));
        json
    }
}

/// Formats a table of name, value and source.
fn parameter_lines(parameters: &[Parameter], detail: Detail, style: Style) -> String {
    let values: Vec<String> = parameters.iter().map(|parameter| printable(&parameter.text()).into_owned()).collect();
    let width = width(values.iter().map(String::as_str));
    let mut text = "  parameters:\n".to_owned();
    for (parameter, value) in parameters.iter().zip(values) {
        let source = parameter.source.text();
        let _ = writeln!(text, "    {:<NAMES$} {value:<width$}  {}", parameter.name, style.paint(Colour::Dim, &source));
        if detail == Detail::Wide && !parameter.meaning().is_empty() {
            let _ = writeln!(text, "    {:<NAMES$} {}", "", parameter.meaning());
        }
    }
    text
}

/// Formats the rules of each address family in the form of `iptables-restore`, each with a phrase that explains it.
fn rule_lines(rules: &RuleSet, style: Style) -> String {
    let mut text = String::new();
    for (family, title) in families(rules) {
        let lines = explained_rules(rules, family);
        let width = width(lines.iter().filter(|(_, phrase)| phrase.is_some()).map(|(line, _)| line.as_str()));
        let _ = writeln!(text, "  rules ({title}):");
        for (line, phrase) in lines {
            let _ = match phrase {
                None => writeln!(text, "    {line}"),
                Some(phrase) => {
                    writeln!(text, "    {line:<width$}  {}", style.paint(Colour::Dim, &format!("# {phrase}")))
                }
            };
        }
    }
    text
}

fn width<'a>(column: impl Iterator<Item = &'a str>) -> usize {
    column.map(|entry| entry.chars().count()).filter(|width| *width <= MAX_WIDTH).max().unwrap_or(0)
}

/// Returns the lines of `iptables-restore`. Each line that is a rule has a phrase that explains it.
fn explained_rules(rules: &RuleSet, family: Family) -> Vec<(String, Option<String>)> {
    // The tables, in the order in which `restore` formats them.
    let tables = [Table::Mangle, Table::Nat, Table::Raw];
    let mut phrases = tables.iter().flat_map(|table| rules.of(family).filter(|rule| rule.table == *table)).map(phrase);
    let text = restore::render(rules, family);
    let explained = text.lines().map(|line| {
        let is_rule = line.starts_with("-A ") || line.starts_with("-I ");
        (line.to_owned(), if is_rule { phrases.next() } else { None })
    });
    explained.collect()
}

impl Injection {
    fn sentence(&self) -> String {
        match self {
            Self::Already => "already".to_owned(),
            Self::Yes { reason, added, .. } => format!("yes: {reason}; it gets {}", added.join(", ")),
            Self::No { reason, .. } => format!("no: {reason}"),
            Self::Fails(error) => format!("it is refused: {error}"),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Already => json!({ "injected": true, "rule": "already" }),
            Self::Yes { rule, reason, added } => {
                json!({ "injected": true, "rule": rule, "reason": reason, "containers": added })
            }
            Self::No { rule, reason } => json!({ "injected": false, "rule": rule, "reason": reason }),
            Self::Fails(error) => json!({ "injected": false, "rule": "error", "reason": error }),
        }
    }
}

impl Redirection {
    pub(super) fn sentence(&self) -> String {
        match self {
            Self::Yes { redirect, rules, .. } => {
                format!("yes, by {} with {} rules", mode(redirect), rules.rules.len())
            }
            Self::No(reason) => format!("no: {reason} ({})", reason.meaning()),
            Self::Unfit(reason) => format!("no: {} ({reason})", reason.label()),
            Self::Sandboxed(sandbox) => format!("no: {SANDBOX} ({})", unreached(sandbox)),
            Self::Fails(error) => format!("it does not start: {error}"),
            Self::NoPod => "there is no pod".to_owned(),
        }
    }

    fn colour(&self) -> Colour {
        match self {
            Self::Yes { .. } => Colour::Green,
            Self::Fails(_) | Self::Sandboxed(Sandbox { is_validated: true, .. }) => Colour::Red,
            Self::No(_) | Self::Unfit(_) | Self::Sandboxed(_) | Self::NoPod => Colour::Yellow,
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Yes { parameters, rules, warnings, .. } => {
                let of = |(family, title): (Family, &str), part: &dyn Fn((String, Option<String>)) -> Value| {
                    (title.to_owned(), explained_rules(rules, family).into_iter().map(part).collect::<Value>())
                };
                let families = families(rules);
                let lines = families.iter().map(|family| of(*family, &|(line, _)| json!(line)));
                let phrases = families.iter().map(|family| of(*family, &|(_, phrase)| json!(phrase)));
                let values = parameters.iter().map(|of| (of.name.to_owned(), of.value.clone()));
                let sources = parameters.iter().map(|of| (of.name.to_owned(), of.source.json()));
                json!({
                    "redirected": true, "warnings": warnings,
                    "parameters": Value::Object(values.collect()),
                    "sources": Value::Object(sources.collect()),
                    "rules": Value::Object(lines.collect()),
                    "phrases": Value::Object(phrases.collect()),
                })
            }
            Self::No(reason) => json!({ "redirected": false, "reason": reason.as_str() }),
            Self::Unfit(reason) => json!({ "redirected": false, "reason": reason.label() }),
            Self::Sandboxed(sandbox) => {
                json!({ "redirected": false, "reason": SANDBOX, "meaning": unreached(sandbox) })
            }
            Self::Fails(error) => json!({ "redirected": false, "reason": "error", "error": error }),
            Self::NoPod => json!({ "redirected": false, "reason": "no_pod" }),
        }
    }
}

/// Explains why rules do not reach a pod with a sandboxed runtime.
fn unreached(sandbox: &Sandbox) -> String {
    let reason = format!("rules of the node's kernel do not reach the sandbox of runtimeClassName {:?}", sandbox.class);
    match sandbox.is_validated {
        true => format!("{reason}, where istio-validation never succeeds: the pod does not start"),
        false => reason,
    }
}

fn families(rules: &RuleSet) -> Vec<(Family, &'static str)> {
    let all = [(Family::V4, "IPv4"), (Family::V6, "IPv6")];
    all.into_iter().filter(|(family, _)| *family == Family::V4 || rules.ipv6).collect()
}

#[cfg(test)]
mod tests {
    use podfacts::SkipReason;

    use super::*;

    #[test]
    fn colours_are_only_in_the_style_that_has_them() {
        let (namespace, name) = ("shop".to_owned(), "web".to_owned());
        let redirection = Redirection::No(SkipReason::NoProxy);
        let injection = Injection::No { rule: "policy", reason: "the policy says so".into() };
        let (node, dapr, live, validation, ips, warnings) = (None, None, None, None, Vec::new(), Vec::new());
        let pod = Explained { namespace, name, node, ips, injection, dapr, warnings, redirection, live, validation };
        let plain = pod.text(Detail::Usual, Style::PLAIN);
        assert!(!plain.contains('\u{1b}'), "{plain:?}");
        let coloured = pod.text(Detail::Usual, Style::COLOURED);
        assert!(coloured.contains("\u{1b}[1mpod shop/web\u{1b}[0m"), "{coloured:?}");
        let mut bare = coloured.clone();
        for code in ["\u{1b}[0m", "\u{1b}[1m", "\u{1b}[33m"] {
            bare = bare.replace(code, "");
        }
        assert_eq!(bare, plain);
    }
}
