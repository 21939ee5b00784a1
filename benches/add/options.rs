//! The command line.

use anyhow::{Result, bail};

/// The parsed command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// The number of timed runs of each subject; rates have four times as many.
    pub(crate) runs: usize,
    /// Whether to print JSON instead of tables.
    pub(crate) json: bool,
}

impl Options {
    const USAGE: &'static str = "cargo bench --bench add -- [--runs N] [--quick] [--json]";

    /// Parses the arguments after the program's name.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self { runs: 40, json: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => options.runs = 7,
                // An argument of `cargo bench`.
                "--bench" => {}
                "--json" => options.json = true,
                "--runs" => match words.next().and_then(|n| n.parse().ok()) {
                    Some(runs) if runs > 0 => options.runs = runs,
                    _ => bail!("--runs takes a number from 1: {}", Self::USAGE),
                },
                _ => bail!("{word:?} is unknown: {}", Self::USAGE),
            }
        }
        Ok(options)
    }
}
