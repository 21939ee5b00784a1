//! The layers: a module imports only modules above it in `lib.rs`, and every file says what it owns.

use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use proc_macro2::{TokenStream, TokenTree};

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

/// Returns the modules of the crate that a file names: in `use` trees, in paths of expressions and types, and in macros.
/// `module` is the path of the file's module.
fn named(text: &str, module: &[String]) -> Vec<String> {
    let tokens = TokenStream::from_str(text).unwrap_or_else(|error| panic!("{module:?}: {error}"));
    let mut found = Vec::new();
    collect(&tokens.into_iter().collect::<Vec<_>>(), module, &mut found);
    found
}

fn collect(tokens: &[TokenTree], module: &[String], found: &mut Vec<String>) {
    let mut rest = tokens;
    while let Some((token, after)) = rest.split_first() {
        rest = after;
        match token {
            TokenTree::Ident(ident) if *ident == "mod" => {
                if let [TokenTree::Ident(name), TokenTree::Group(body), ..] = after {
                    let inner = [module, &[name.to_string()]].concat();
                    collect(&body.stream().into_iter().collect::<Vec<_>>(), &inner, found);
                    rest = &after[2..];
                }
            }
            TokenTree::Ident(ident) if (*ident == "crate" || *ident == "super") && is_path(after) => {
                rest = resolve(rest_of(tokens, after), module, found);
            }
            TokenTree::Group(group) => collect(&group.stream().into_iter().collect::<Vec<_>>(), module, found),
            _ => {}
        }
    }
}

/// The tokens from the one before `after`.
fn rest_of<'a>(tokens: &'a [TokenTree], after: &[TokenTree]) -> &'a [TokenTree] {
    &tokens[tokens.len() - after.len() - 1..]
}

fn is_path(tokens: &[TokenTree]) -> bool {
    let is_colon = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ':');
    matches!(tokens, [first, second, ..] if is_colon(first) && is_colon(second))
}

/// Adds the modules that a path or a `use` tree names, relative to `base`, and returns the tokens after it.
fn resolve<'a>(tokens: &'a [TokenTree], base: &[String], found: &mut Vec<String>) -> &'a [TokenTree] {
    match tokens {
        [TokenTree::Ident(ident), after @ ..] => {
            let parent = base.len().saturating_sub(1);
            let base = match ident.to_string().as_str() {
                "crate" => &[],
                "super" => &base[..parent],
                "self" => base,
                name if base.is_empty() => {
                    found.push(name.to_owned());
                    return after;
                }
                _ => return after,
            };
            if is_path(after) { resolve(&after[2..], base, found) } else { after }
        }
        [TokenTree::Group(group), after @ ..] => {
            let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
            let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(punct) if punct.as_char() == ',');
            for tree in tokens.split(is_comma) {
                resolve(tree, base, found);
            }
            after
        }
        // A glob imports every module.
        [TokenTree::Punct(star), after @ ..] if star.as_char() == '*' && base.is_empty() => {
            found.push("*".to_owned());
            after
        }
        rest => rest,
    }
}

/// Imports in `text`, a file of `module`, of modules below it in the list.
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
