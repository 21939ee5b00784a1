//! Parses the test output of each guest, and formats the support matrix of all guests.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};

use crate::guest::{Console, last};
use crate::variant::Variant;

/// The results of the trials in one guest.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    passed: Vec<String>,
    failed: Vec<String>,
    /// The number of ignored trials for each reason.
    ignored: BTreeMap<String, usize>,
    /// The number of trials that were not selected.
    left_out: usize,
}

impl Outcome {
    /// Parses the lines `test NAME ... ok` on the console. Fails if their counts differ from those in the line `test
    /// result:`.
    pub(crate) fn read(console: &Console) -> Result<Self> {
        let mut outcome = Self::default();
        let trials = console.lines.iter().filter_map(|line| line.strip_prefix("test ")?.split_once(" ... "));
        for (name, result) in trials {
            let name = name.trim().replace("::", "/");
            match result.split_once(' ').unwrap_or((result, "")) {
                ("ok", _) => outcome.passed.push(name),
                ("ignored", reason) => {
                    *outcome.ignored.entry(reason.trim_matches(['(', ')']).to_owned()).or_default() += 1;
                }
                _ => outcome.failed.push(name),
            }
        }
        let result = console.lines.iter().find_map(|line| line.strip_prefix("test result: "));
        let result = result.with_context(|| format!("the guest ran no trials:\n{}", last(&console.lines)))?;
        let counts = (outcome.passed.len(), outcome.failed.len(), outcome.ignored.values().sum::<usize>());
        let counts = format!(". {} passed; {} failed; {} ignored;", counts.0, counts.1, counts.2);
        ensure!(result.contains(&counts), "the trials' lines result in{counts} but the last line is {result}");
        ensure!((console.status == 0) == outcome.failed.is_empty(), "exit code {} after {result}", console.status);
        let left_out = result.split_once(" filtered out").and_then(|(text, _)| text.rsplit(' ').next()?.parse().ok());
        outcome.left_out = left_out.with_context(|| format!("no number of filtered trials in {result}"))?;
        Ok(outcome)
    }

    /// Returns how the results differ from those that are expected of the variant; `None` if they do not.
    pub(crate) fn fault(&self, variant: &Variant) -> Option<String> {
        let (passed, least) = (self.passed.len(), variant.at_least);
        if !self.failed.is_empty() {
            return Some(format!("failed: {}", self.failed.join(", ")));
        }
        if passed < least {
            return Some(format!("only {passed} trials passed, expected at least {least}"));
        }
        let is_unexplained = self.ignored.is_empty() != variant.lacks.is_empty();
        is_unexplained
            .then(|| format!("the kernel lacks {:?} and the ignored trials are {:?}", variant.lacks, self.ignored))
    }

    /// Returns the counts and the reasons of ignored trials.
    pub(crate) fn summary(&self) -> String {
        let mut text =
            format!("{} passed, {} failed, {} left out", self.passed.len(), self.failed.len(), self.left_out);
        for (reason, count) in &self.ignored {
            let _ = write!(text, ", {count} ignored: {reason}");
        }
        text
    }

    /// Returns a row of [`table`].
    pub(crate) fn row(&self, variant: &Variant, release: &str) -> String {
        let of = |way: &str| {
            let count = |names: &[String]| names.iter().filter(|n| n.starts_with("truth/") && n.ends_with(way)).count();
            match (count(&self.passed), count(&self.failed)) {
                (0, 0) => "—".to_owned(),
                (passed, failed) => format!("{passed}/{}", passed + failed),
            }
        };
        let ignored: usize = self.ignored.values().sum();
        format!(
            "| {variant} ({release}) | {} {} | {} | {} | {} | {} passed, {ignored} ignored |",
            variant.chosen(),
            of("/own-chosen"),
            of("/own-nftables"),
            of("/own-legacy"),
            variant.families(),
            self.passed.len(),
        )
    }
}

/// Formats the support matrix: passed configurations of the truth table for each backend.
pub(crate) fn table(mut rows: Vec<(usize, String)>) -> String {
    rows.sort();
    let mut text = "| kernel | chosen | native nftables | iptables-legacy | families | trials |\n".to_owned()
        + "|---|---|---|---|---|---|\n";
    rows.iter().for_each(|(_, row)| text.extend([row.as_str(), "\n"]));
    text
}
