//! The command line.

use anyhow::{Result, bail};

/// What is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Options {
    /// Timed runs of each subject.
    pub(crate) runs: usize,
    /// Runs of each rate.
    pub(crate) parallel_runs: usize,
    /// Print JSON instead of tables.
    pub(crate) json: bool,
}

impl Options {
    const USAGE: &'static str = "bench [--runs N] [--quick] [--json]";

    /// Reads the words after the program's name. Cargo's own `--bench` is passed over.
    pub(crate) fn parse(mut words: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self { runs: 40, parallel_runs: 192, json: false };
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => (options.runs, options.parallel_runs) = (7, 32),
                "--json" => options.json = true,
                "--bench" => {}
                "--runs" => match words.next().and_then(|n| n.parse::<usize>().ok()) {
                    Some(runs) if runs > 0 => (options.runs, options.parallel_runs) = (runs, 32 * runs.div_ceil(8)),
                    _ => bail!("--runs takes a number from 1: {}", Self::USAGE),
                },
                _ => bail!("{word:?} is unknown: {}", Self::USAGE),
            }
        }
        Ok(options)
    }
}
