//! Findings of checks, each with its remedy, as text and JSON. Pure.

use std::fmt::Write as _;

use contract::diagnostics::terminal::{Colour, Style, printable};
use serde_json::{Value, json};

/// The documentation pages to which findings refer, each with the anchor of a section.
pub mod page {
    pub const KERNEL: &str = "docs/troubleshooting.md#the-kernel";
    pub const RUNTIME: &str = "docs/troubleshooting.md#the-container-runtimes-directories";
    pub const CHAIN: &str = "docs/troubleshooting.md#the-chain-of-plugins";
    pub const CONFLICTS: &str = "docs/troubleshooting.md#other-plugins";
    pub const SECURITY: &str = "docs/troubleshooting.md#selinux-and-podsecurity";
    pub const CGROUPS: &str = "docs/troubleshooting.md#cgroups";
    pub const AGENTS: &str = "docs/troubleshooting.md#the-agents";
    pub const WEBHOOK: &str = "docs/troubleshooting.md#the-webhook";
    pub const RIGHTS: &str = "docs/troubleshooting.md#rights";
    pub const NODES: &str = "docs/platforms.md#nodes";
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub subject: &'static str,
    pub outcome: Outcome,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Right,
    /// Redirection does not work, or may not work, in some cases.
    Warning(Advice),
    /// Pods are not redirected, or do not start.
    Failed(Advice),
}

/// The remedy, and the page that explains it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    pub remedy: String,
    /// A constant of [`page`].
    pub page: &'static str,
}

impl Finding {
    pub fn right(subject: &'static str, text: impl Into<String>) -> Self {
        Self { subject, outcome: Outcome::Right, text: text.into() }
    }

    pub fn warning(
        subject: &'static str,
        text: impl Into<String>,
        remedy: impl Into<String>,
        page: &'static str,
    ) -> Self {
        Self { subject, outcome: Outcome::Warning(Advice { remedy: remedy.into(), page }), text: text.into() }
    }

    pub fn failed(
        subject: &'static str,
        text: impl Into<String>,
        remedy: impl Into<String>,
        page: &'static str,
    ) -> Self {
        Self { subject, outcome: Outcome::Failed(Advice { remedy: remedy.into(), page }), text: text.into() }
    }
}

impl Outcome {
    /// Returns the outcome's name in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Right => "ok",
            Self::Warning(_) => "warning",
            Self::Failed(_) => "failed",
        }
    }

    pub fn advice(&self) -> Option<&Advice> {
        match self {
            Self::Right => None,
            Self::Warning(advice) | Self::Failed(advice) => Some(advice),
        }
    }
}

/// The findings of a series of checks, in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Returns the number of failed checks.
    pub fn failed(&self) -> usize {
        self.count(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    /// Formats each finding as a line, followed by its remedy and the page of the documentation. The last line counts
    /// the findings.
    pub fn text(&self, style: Style) -> String {
        let width = self.0.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Finding { subject, outcome, text: found } in &self.0 {
            let (mark, colour) = match outcome {
                Outcome::Right => ("✓", Colour::Green),
                Outcome::Warning(_) => ("!", Colour::Yellow),
                Outcome::Failed(_) => ("✗", Colour::Red),
            };
            let _ = writeln!(text, "{} {subject:<width$}  {}", style.paint(colour, mark), printable(found));
            if let Some(advice) = outcome.advice() {
                let _ = writeln!(text, "  {:<width$}  {}", "", printable(&advice.remedy));
                let _ = writeln!(text, "  {:<width$}  {}", "", style.paint(Colour::Dim, advice.page));
            }
        }
        let warnings = self.count(|outcome| matches!(outcome, Outcome::Warning(_)));
        let right = self.0.len() - warnings - self.failed();
        let _ = writeln!(text, "{right} ok, {warnings} to look at, {} failed", self.failed());
        text
    }

    pub fn json(&self) -> Value {
        let finding = |Finding { subject, outcome, text }: &Finding| {
            let mut json = json!({ "check": subject, "result": outcome.as_str(), "text": text });
            if let Some(advice) = outcome.advice() {
                json["remedy"] = json!(advice.remedy);
                json["documentation"] = json!(advice.page);
            }
            json
        };
        json!({ "ok": self.failed() == 0, "findings": self.0.iter().map(finding).collect::<Vec<_>>() })
    }

    fn count(&self, is: impl Fn(&Outcome) -> bool) -> usize {
        self.0.iter().filter(|finding| is(&finding.outcome)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings() -> Findings {
        Findings(vec![
            Finding::right("kernel", "6.1"),
            Finding::warning("chain", "a\u{1b}b", "wait", page::CHAIN),
            Finding::failed("SELinux", "it refuses", "set a type", page::SECURITY),
        ])
    }

    #[test]
    fn lines_have_a_mark_a_remedy_and_a_page() {
        let expected = "✓ kernel   6.1\n! chain    a\\u{1b}b\n           wait\n           docs/troubleshooting.md#the-chain-of-plugins\n\
                        ✗ SELinux  it refuses\n           set a type\n           docs/troubleshooting.md#selinux-and-podsecurity\n\
                        1 ok, 1 to look at, 1 failed\n";
        assert_eq!(findings().text(Style::PLAIN), expected);
        assert!(findings().text(Style::COLOURED).contains("\u{1b}[31m✗\u{1b}[0m SELinux"));
    }

    #[test]
    fn json_has_the_same() {
        let json = findings().json();
        assert_eq!(json["ok"], false);
        assert_eq!(json["findings"][0], json!({ "check": "kernel", "result": "ok", "text": "6.1" }));
        assert_eq!(
            (&json["findings"][2]["result"], &json["findings"][2]["remedy"]),
            (&json!("failed"), &json!("set a type"))
        );
        assert_eq!(Findings(vec![Finding::right("kernel", "")]).json()["ok"], true);
    }
}
