//! Checks the layers of the crate: a module imports only modules that come before it in `lib.rs`, and every file has a
//! module comment.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use proc_macro2::TokenStream;

use crate::paths::paths;

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

/// Returns the crate's modules in the order of `lib.rs`.
fn modules() -> Vec<String> {
    let lib = fs::read_to_string("src/lib.rs").unwrap();
    lib.lines()
        .filter_map(|l| l.trim_start_matches("pub ").strip_prefix("mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

/// Returns the top-level modules of the crate to which a file refers: in `use` trees, in paths of expressions and
/// types, and in macros. `module` is the path of the file's own module.
fn named(text: &str, module: &[String]) -> Vec<String> {
    let tokens = TokenStream::from_str(text).unwrap_or_else(|error| panic!("{module:?}: {error}"));
    let absolute = paths(tokens, module).into_iter().filter_map(|path| path.absolute());
    let mut modules: Vec<String> = absolute.filter_map(|path| path.into_iter().next()).collect();
    // A `use` tree has a path for each of its items.
    modules.dedup();
    modules
}

/// Returns the modules that `text`, a file of `module`, imports although they come after `module` in `modules`.
fn upward(text: &str, module: &[&str], modules: &[String]) -> Vec<String> {
    let path: Vec<String> = module.iter().map(|&name| name.to_owned()).collect();
    let place = |name: &str| modules.iter().position(|module| module == name);
    let is_below = |name: &String| name == "*" || place(name) > place(module[0]);
    named(text, &path).into_iter().filter(is_below).collect()
}

#[test]
fn imports_point_upwards() {
    let modules = modules();
    assert!(modules.len() > 8, "lib.rs lists the modules, found {modules:?}");
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files);
    for file in files {
        let inside = file.strip_prefix("src").unwrap().with_extension("");
        let path: Vec<&str> = inside.iter().map(|part| part.to_str().unwrap()).collect();
        if ["bin", "lib"].contains(&path[0]) {
            continue;
        }
        assert!(modules.iter().any(|module| module == path[0]), "{} is not in lib.rs", file.display());
        let wrong = upward(&fs::read_to_string(&file).unwrap(), &path, &modules);
        assert!(wrong.is_empty(), "{} imports {wrong:?}, which are below it in lib.rs", file.display());
    }
}

#[test]
fn an_import_against_the_order_is_found() {
    let modules = ["contract", "cni", "pod", "plugin", "serve"].map(str::to_owned);
    for (text, file, expected) in [
        ("use crate::plugin::Verdict;", &["cni"][..], &["plugin"][..]),
        ("use crate::{contract, plugin::log};", &["cni"], &["plugin"]),
        (
            "use crate::{\n    contract::{annotation, {proxy_env}},\n    plugin::{self, log},\n    serve,\n};",
            &["cni"],
            &["plugin", "serve"],
        ),
        ("pub(crate) use crate::plugin as p;", &["cni"], &["plugin"]),
        ("use super::plugin;", &["cni"], &["plugin"]),
        ("use super::{call, super::{contract, serve}};", &["cni", "args"], &["serve"]),
        ("mod tests { use super::super::super::plugin; }", &["cni", "args"], &["plugin"]),
        ("mod tests { use super::plugin; }", &["cni"], &[]),
        (
            "fn f() -> crate::serve::Port { crate::plugin::run(super::super::serve::X) }",
            &["pod", "api"],
            &["serve", "plugin", "serve"],
        ),
        (
            "macro_rules! m { () => { $crate::plugin::run() } } fn f() { format!(\"{}\", crate::serve::x()) }",
            &["cni"],
            &["plugin", "serve"],
        ),
        ("use crate::*;", &["cni"], &["*"]),
        (
            "/* crate::plugin */ use crate::cni::Call; // crate::plugin\nconst X: &str = \"crate::plugin\";",
            &["cni"],
            &[],
        ),
        ("use crate::cni::Call; use super::pod;", &["plugin"], &[]),
    ] {
        assert_eq!(upward(text, file, &modules), expected, "{text}");
    }
}

#[test]
fn every_file_says_what_it_owns() {
    let mut files = Vec::new();
    for dir in ["src", "tests", "crates", "benches", "examples", "tools"] {
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
