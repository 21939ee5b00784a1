//! Checks that every source file has a module comment, and that the lints stay enabled.

use std::fs;
use std::path::{Path, PathBuf};

/// Adds the Rust files below `dir` to `found`.
pub(super) fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_file_has_a_module_comment() {
    let mut files = Vec::new();
    for dir in ["src", "tests", "crates", "benches", "examples", "xtask"] {
        sources(Path::new(dir), &mut files);
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} has no module comment", file.display());
    }
}

#[test]
fn the_lint_table_is_live() {
    let lints = fs::read_to_string("Cargo.toml").unwrap();
    for lint in ["unsafe_code = \"forbid\"", "disallowed_methods = \"warn\"", "too_many_lines = \"warn\""] {
        assert!(lints.contains(lint), "Cargo.toml lost {lint}");
    }
    let threshold = fs::read_to_string("clippy.toml").unwrap();
    assert!(threshold.contains("too-many-lines-threshold = 70"));
}
