//! Checks the repository's documents: links and anchors resolve, and ARCHITECTURE.md lists all crates and modules and does
//! not exceed its maximum length.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns the paths of the repository's Markdown documents.
fn documents() -> Vec<PathBuf> {
    let entries =
        [".", "docs", "docs/decisions", "docs/reference", "install"].iter().flat_map(|dir| fs::read_dir(dir).unwrap());
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Returns a document without its code blocks.
fn prose(text: &str) -> String {
    let mut code = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !fence && !code
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the targets of all links `[text](target)`.
fn links(text: &str) -> Vec<String> {
    let parts = text.split("](").skip(1).filter_map(|part| part.split_once(')'));
    parts.map(|(target, _)| target.to_owned()).collect()
}

/// Returns the anchor that code hosts give a heading: lower case, with hyphens for spaces and without punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    let kept = kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c }).collect()
}

fn has_anchor(text: &str, wanted: &str) -> bool {
    if text.contains(&format!("<a id=\"{wanted}\">")) {
        return true;
    }
    let headings = text.lines().filter_map(|line| line.trim_start_matches('#').strip_prefix(' '));
    headings.map(anchor).any(|found| found == wanted)
}

/// Returns an error message if a link in a document is broken.
fn broken(document: &Path, target: &str) -> Option<String> {
    if target.contains("://") {
        return None;
    }
    let (file, wanted) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { document.to_owned() } else { document.parent().unwrap().join(file) };
    if !path.exists() {
        return Some(format!("{}: {target} does not exist", document.display()));
    }
    let missing = !wanted.is_empty() && !has_anchor(&prose(&fs::read_to_string(path).unwrap()), wanted);
    missing.then(|| format!("{}: {target} has no such heading", document.display()))
}

#[test]
fn links_resolve() {
    let documents = documents();
    assert!(documents.len() > 15, "found {documents:?}");
    let check = |document: &PathBuf| {
        let text = prose(&fs::read_to_string(document).unwrap());
        links(&text).into_iter().filter_map(|target| broken(document, &target)).collect::<Vec<_>>()
    };
    let broken: Vec<String> = documents.iter().flat_map(check).collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_broken_link_is_named() {
    let readme = Path::new("./README.md");
    assert_eq!(broken(readme, "docs/none.md").unwrap(), "./README.md: docs/none.md does not exist");
    assert_eq!(broken(readme, "docs/node.md#none").unwrap(), "./README.md: docs/node.md#none has no such heading");
    assert_eq!(broken(readme, "docs/node.md#identities"), None);
}

/// Returns the names of the directories in `crates`, in the order of the workspace's members.
fn crates() -> Vec<String> {
    let manifest = fs::read_to_string("Cargo.toml").unwrap();
    let (_, members) = manifest.split_once("members = [").unwrap();
    let (members, _) = members.split_once(']').unwrap();
    let members = members.split('"').filter_map(|member| member.strip_prefix("crates/").map(str::to_owned));
    let members: Vec<String> = members.collect();
    let name = |entry: fs::DirEntry| entry.file_name().into_string().unwrap();
    let directories: BTreeSet<String> = fs::read_dir("crates").unwrap().map(|entry| name(entry.unwrap())).collect();
    assert_eq!(BTreeSet::from_iter(members.clone()), directories, "members of the workspace and directories in crates");
    members
}

#[test]
fn a_crate_is_listed_after_those_that_it_depends_on() {
    let crates = crates();
    assert!(!crates.is_empty());
    for (at, name) in crates.iter().enumerate() {
        let manifest = fs::read_to_string(format!("crates/{name}/Cargo.toml")).unwrap();
        let dependencies = manifest.split("[dev-dependencies]").next().unwrap();
        let paths = dependencies.split("path = \"../").skip(1).filter_map(|rest| rest.split('"').next());
        let later: Vec<&str> = paths.filter(|path| !crates[..at].iter().any(|earlier| earlier == path)).collect();
        assert!(later.is_empty(), "Cargo.toml lists crates/{name} before {later:?}, on which it depends");
    }
}

#[test]
fn the_architecture_lists_each_module_in_order_within_1500_words() {
    let text = fs::read_to_string("ARCHITECTURE.md").unwrap();
    let words = text.split_whitespace().count();
    assert!(words <= 1500, "{words} words; details belong in docs/");
    let lib = fs::read_to_string("src/lib.rs").unwrap();
    let modules = lib.lines().filter_map(|l| l.strip_prefix("pub mod ")?.strip_suffix(';').map(str::to_owned));
    let expected: Vec<String> = crates().into_iter().chain(modules).collect();
    let listed: Vec<&str> = text.lines().filter_map(|l| l.strip_prefix("| `")?.split('`').next()).collect();
    assert_eq!(listed, expected);
}
