//! Checks that each module that logs defines its scope, and that a program lists it. Without a scope its lines would have the
//! name of the crate, and flags that name the scope would have no effect.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::files::sources;

/// The definition of a scope.
const DEFINITION: &str = "pub const LOG_SCOPE: LogScope = LogScope::new(module_path!(), ";
/// The events of `tracing`.
const EVENTS: [&str; 4] = ["tracing::error!", "tracing::warn!", "tracing::info!", "tracing::debug!"];
/// A module that no program uses.
const UNUSED: &str = "ambient";

/// Returns the directories of the modules that define a scope, such as `src/agent`.
fn defined() -> BTreeSet<PathBuf> {
    let texts = texts().into_iter().filter(|(_, text)| text.contains(DEFINITION));
    texts
        .map(|(file, _)| if file.ends_with("lib.rs") { file.with_file_name("") } else { file.with_extension("") })
        .collect()
}

/// Returns the sources of the node agent and of the crates.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    sources(Path::new("src"), &mut files);
    for entry in fs::read_dir("crates").unwrap() {
        sources(&entry.unwrap().path().join("src"), &mut files);
    }
    files
}

/// Returns the sources of libraries with their contents.
fn texts() -> Vec<(PathBuf, String)> {
    files()
        .into_iter()
        .filter(|file| !is_of_program(file))
        .map(|file| (file.clone(), fs::read_to_string(file).unwrap()))
        .collect()
}

/// Whether a file belongs to a program rather than to a library.
fn is_of_program(file: &Path) -> bool {
    file.ends_with("src/main.rs") || file.starts_with("src/bin")
}

#[test]
fn modules_that_log_define_a_scope() {
    let defined = defined();
    let logging = texts().into_iter().filter(|(_, text)| EVENTS.iter().any(|event| text.contains(event)));
    let logging: Vec<PathBuf> = logging.map(|(file, _)| file).collect();
    assert!(logging.len() > 30, "{logging:?}");
    let is_missing = |file: &&PathBuf| !defined.iter().any(|module| file.with_extension("").starts_with(module));
    let missing: Vec<_> = logging.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "these log, but no module around them has a LOG_SCOPE: {missing:?}");
}

#[test]
fn programs_list_the_scopes_of_their_modules() {
    let programs = files().into_iter().filter(|file| is_of_program(file));
    let programs: String = programs.map(|file| fs::read_to_string(file).unwrap()).collect();
    let names = defined().into_iter().map(|module| {
        let module = if module.ends_with("src") { module.parent().unwrap() } else { &module };
        module.file_name().unwrap().to_str().unwrap().to_owned()
    });
    let missing: Vec<String> =
        names.filter(|name| name != UNUSED && !programs.contains(&format!("{name}::LOG_SCOPE"))).collect();
    assert!(missing.is_empty(), "no program lists the LOG_SCOPE of {missing:?}");
}
