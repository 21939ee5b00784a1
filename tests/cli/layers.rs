//! The layers: a module imports only modules above it in `lib.rs`, and every file says what it owns.

use std::fs;
use std::path::{Path, PathBuf};

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

/// Modules in the order of `lib.rs`.
fn modules() -> Vec<String> {
    let lib = fs::read_to_string("src/lib.rs").unwrap();
    lib.lines()
        .filter_map(|l| l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

/// Names that follow `prefix` in a text, except in comments.
fn names_after<'a>(text: &'a str, prefix: &str) -> Vec<&'a str> {
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    code.flat_map(|line| line.split(prefix).skip(1))
        .flat_map(|rest| match rest.strip_prefix('{') {
            Some(group) => group.split(['}', ';']).next().unwrap_or("").split(',').map(str::trim).collect(),
            None => vec![rest],
        })
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Imports in `text`, a file of `module`, of modules below it.
fn upward<'a>(text: &'a str, module: &str, modules: &[String]) -> Vec<&'a str> {
    let place = |name: &str| modules.iter().position(|r| r == name);
    names_after(text, "crate::").into_iter().filter(|name| place(name) > place(module)).collect()
}

#[test]
fn imports_point_upwards() {
    let modules = modules();
    assert!(modules.len() > 8, "lib.rs lists the modules, found {modules:?}");
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files);
    for file in files {
        let inside = file.strip_prefix("src").unwrap().with_extension("");
        let module = inside.components().next().unwrap().as_os_str().to_str().unwrap().to_owned();
        if module == "bin" || module == "lib" {
            continue;
        }
        assert!(modules.contains(&module), "{} belongs to no module of lib.rs", file.display());
        let text = fs::read_to_string(&file).unwrap();
        let wrong = upward(&text, &module, &modules);
        assert!(wrong.is_empty(), "{} imports {wrong:?}, which are below it in lib.rs", file.display());
    }
}

#[test]
fn an_import_against_the_order_is_found() {
    let modules = ["contract", "cni", "plugin"].map(str::to_owned);
    assert_eq!(upward("use crate::plugin::Verdict;", "cni", &modules), ["plugin"]);
    assert_eq!(upward("use crate::{contract, plugin::log};", "cni", &modules), ["plugin"]);
    assert_eq!(upward("    crate::plugin::run()", "contract", &modules), ["plugin"]);
    assert_eq!(upward("use crate::cni::Call; // crate::plugin", "plugin", &modules), Vec::<&str>::new());
}

#[test]
fn every_file_says_what_it_owns() {
    let mut files = Vec::new();
    for dir in ["src", "tests", "crates"] {
        sources(Path::new(dir), &mut files);
    }
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.starts_with("//!"), "{} does not start with what it owns", file.display());
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
