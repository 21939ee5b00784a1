//! Writes the tables of `docs/reference` from the definitions that the programs use, and the schemas and defaults of the charts;
//! tests that they are current.
//!
//! Compiled only for tests. `make reference` writes the files.
#![expect(clippy::disallowed_methods, reason = "reads the sources and writes the tables")]

mod annotations;
mod charts;
mod environment;
mod errors;
mod flags;
mod guides;
mod metrics;
mod schema;
mod table;

use std::{env, fs};

use self::charts::{CHARTS, Values};

/// The environment variable with which the test writes the tables instead of comparing them.
const UPDATE: &str = "UPDATE";

/// A file: its path, and its text.
type Page = (String, String);

fn pages() -> Vec<Page> {
    let tables = [
        ("docs/reference/flags.md", flags::page()),
        ("docs/reference/environment.md", environment::page()),
        ("docs/reference/values.md", charts::page()),
        ("docs/reference/metrics.md", metrics::page()),
        ("docs/reference/annotations.md", annotations::page()),
        ("docs/reference/errors.md", errors::page()),
    ];
    let tables = tables.map(|(path, text)| (path.to_owned(), text));
    let charts = CHARTS.into_iter().flat_map(|(chart, root)| {
        let (values, directory) = (Values::of(chart, root), format!("install/helm/{chart}"));
        let defaults = (format!("{directory}/files/defaults.json"), schema::defaults(&values));
        [(format!("{directory}/values.schema.json"), schema::page(&values)), defaults]
    });
    tables.into_iter().chain(charts).collect()
}

/// The lines that only one of two texts has: `-` those of the file, `+` those of the definitions.
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
    for (path, text) in pages() {
        if env::var_os(UPDATE).is_some() {
            fs::write(&path, &text).unwrap();
        }
        let lines = difference(&fs::read_to_string(&path).unwrap_or_default(), &text);
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
