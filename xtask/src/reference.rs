//! Generates the tables in `docs/reference`, from the definitions that the programs use, and the schemas and defaults of the charts. Tests
//! compare the files with them.
#![expect(clippy::disallowed_methods, reason = "reads the sources and writes the tables")]

mod annotations;
mod charts;
mod environment;
mod errors;
mod flags;
#[cfg(test)]
mod guides;
mod metrics;
mod schema;
mod table;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use self::charts::{CHARTS, Values};

/// A file: its path in the repository, and its content.
type Page = (String, String);

/// Writes all files.
///
/// # Errors
/// If a file cannot be read, parsed or written; the error names the file.
pub fn write() -> Result<()> {
    for (path, text) in pages()? {
        fs::write(in_repository(&path), text).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

fn in_repository(path: impl AsRef<Path>) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Reads a file of the repository.
fn read(path: &str) -> Result<String> {
    fs::read_to_string(in_repository(path)).with_context(|| format!("cannot read {path}"))
}

fn pages() -> Result<Vec<Page>> {
    let tables = [
        ("docs/reference/flags.md", flags::page()),
        ("docs/reference/environment.md", environment::page()),
        ("docs/reference/values.md", charts::page()?),
        ("docs/reference/metrics.md", metrics::page()?),
        ("docs/reference/annotations.md", annotations::page()),
        ("docs/reference/errors.md", errors::page()?),
    ];
    let tables = tables.map(|(path, text)| (path.to_owned(), text));
    let mut pages: Vec<Page> = tables.into();
    for (chart, root) in CHARTS {
        let (values, directory) = (Values::of(chart, root)?, format!("install/helm/{chart}"));
        pages.push((format!("{directory}/values.schema.json"), schema::page(&values)));
        pages.push((format!("{directory}/files/defaults.json"), schema::defaults(&values)));
    }
    Ok(pages)
}

/// Returns the lines that only one of two texts has: `-` marks lines of the file, `+` lines of the definitions.
#[cfg(test)]
fn difference(file: &str, expected: &str) -> Vec<String> {
    let of = |text: &str, other: &str, sign: char| {
        let other: Vec<&str> = other.lines().collect();
        let only = text.lines().filter(|line| !other.contains(line));
        only.map(|line| format!("{sign} {line}")).collect::<Vec<_>>()
    };
    let mut lines = of(file, expected, '-');
    lines.extend(of(expected, file, '+'));
    if lines.is_empty() && file != expected {
        lines.push("the order of the lines differs".to_owned());
    }
    lines
}

#[test]
fn tables_are_current() {
    let mut report = Vec::new();
    for (path, text) in pages().unwrap() {
        let lines = difference(&fs::read_to_string(in_repository(&path)).unwrap_or_default(), &text);
        if !lines.is_empty() {
            report.push(format!("{path}:\n{}", lines.join("\n")));
        }
    }
    assert!(report.is_empty(), "`make reference` updates these files:\n{}", report.join("\n"));
}

#[test]
fn a_difference_is_named() {
    assert_eq!(difference("a\nb\n", "a\nc\n"), ["- b", "+ c"]);
    assert_eq!(difference("a\nb\n", "b\na\n"), ["the order of the lines differs"]);
    assert_eq!(difference("a\n", "a\n"), Vec::<String>::new());
}
