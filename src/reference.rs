//! Writes the tables of `docs/reference` from the definitions that the programs use, and tests that they are current.
//!
//! Compiled only for tests. `make reference` writes the tables.
#![expect(clippy::disallowed_methods, reason = "reads the sources and writes the tables")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod annotations;
mod charts;
mod environment;
mod errors;
mod flags;
mod guides;
mod metrics;
mod table;

use std::path::Path;
use std::{env, fs};

const DIRECTORY: &str = "docs/reference";
/// The environment variable with which the test writes the tables instead of comparing them.
const UPDATE: &str = "UPDATE";

/// A document: its file name, and its text.
type Page = (&'static str, String);

fn pages() -> [Page; 6] {
    [
        ("flags.md", flags::page()),
        ("environment.md", environment::page()),
        ("values.md", charts::page()),
        ("metrics.md", metrics::page()),
        ("annotations.md", annotations::page()),
        ("errors.md", errors::page()),
    ]
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
    for (name, text) in pages() {
        let path = Path::new(DIRECTORY).join(name);
        if env::var_os(UPDATE).is_some() {
            fs::create_dir_all(DIRECTORY).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let lines = difference(&fs::read_to_string(&path).unwrap_or_default(), &text);
        if !lines.is_empty() {
            report.push(format!("{}:\n{}", path.display(), lines.join("\n")));
        }
    }
    assert!(report.is_empty(), "`make reference` updates these tables:\n{}", report.join("\n"));
}

#[test]
fn a_difference_is_named() {
    assert_eq!(difference("a\nb\n", "a\nc\n"), ["- b", "+ c"]);
    assert_eq!(difference("a\nb\n", "b\na\n"), ["the order of the lines differs"]);
    assert_eq!(difference("a\n", "a\n"), Vec::<String>::new());
}
