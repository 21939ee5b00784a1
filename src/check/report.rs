//! Formats findings as text or JSON. Pure.

use std::fmt::Write as _;

use contract::diagnostics::terminal::{Colour, Style, printable};
use serde_json::{Value, json};

use super::{Finding, Outcome};

/// The findings of a check, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report(pub Vec<Finding>);

impl Report {
    /// The number of failed checks.
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
    use super::super::page;
    use super::*;

    fn report() -> Report {
        Report(vec![
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
        assert_eq!(report().text(Style::PLAIN), expected);
        assert!(report().text(Style::COLOURED).contains("\u{1b}[31m✗\u{1b}[0m SELinux"));
    }

    #[test]
    fn json_has_the_same() {
        let json = report().json();
        assert_eq!(json["ok"], false);
        assert_eq!(json["findings"][0], json!({ "check": "kernel", "result": "ok", "text": "6.1" }));
        assert_eq!(
            (&json["findings"][2]["result"], &json["findings"][2]["remedy"]),
            (&json!("failed"), &json!("set a type"))
        );
        assert_eq!(Report(vec![Finding::right("kernel", "")]).json()["ok"], true);
    }
}
