//! Tests of the sources' errors: log lines name existing entries, and no cause is printed twice.
//!
//! A variant either has a source, and its message omits it, or its message includes the cause and it has no source. Reports print the chain
//! of sources after the message, so a variant with both would print its cause twice.

use super::*;

/// Whether the message includes the field that thiserror takes as the source.
fn prints_its_source(variant: &Variant<'_>) -> bool {
    let attributed = variant.fields.contains("#[from]") || variant.fields.contains("#[source]");
    let named = variant.fields.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|word| word == "source");
    let first = variant.text.contains("{0") || variant.text.contains(".0");
    (named && variant.text.contains("{source")) || (attributed && (first || variant.text.contains("{source")))
}

#[test]
fn no_cause_is_printed_twice() {
    let (mut twice, mut seen) = (Vec::new(), 0);
    for (path, file) in files().unwrap() {
        let found = variants(&file);
        seen += found.len();
        let wrong = found.iter().filter(|variant| prints_its_source(variant));
        twice.extend(wrong.map(|variant| format!("{}: {}: {}", path.display(), variant.name, variant.text)));
    }
    assert!(seen > 150, "found {seen} variants");
    assert!(twice.is_empty(), "these print a cause that is their source as well:\n{}", twice.join("\n"));
}

/// Returns the number of implementations of `Documented` in a file, and their faults: an `ENTRY` that does not name the
/// enum, or a transparent variant without a page.
fn undocumented(path: &Path, file: &str) -> (usize, Vec<String>) {
    const IMPLEMENTATION: &str = "impl Documented for ";
    let file = without_tests(file);
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for body in file.split(IMPLEMENTATION).skip(1) {
        seen += 1;
        let of = identifier(body);
        let body = body.split("\n}\n").next().unwrap_or_default();
        let expected = format!("{}-{}", module(path), kebab(of));
        if !body.contains(&format!("const ENTRY: &'static str = \"{expected}\";")) {
            wrong.push(format!("{}: the entry of {of} is {expected}", path.display()));
        }
        let transparent =
            all_variants(file).into_iter().filter(|variant| variant.of == of && variant.text.contains("transparent"));
        let missing = transparent.filter(|variant| !body.contains(&format!("Self::{}(", variant.name)));
        wrong.extend(missing.map(|variant| format!("{}: {of}::{} has no page", path.display(), variant.name)));
    }
    (seen, wrong)
}

#[test]
fn entries_that_log_lines_name_exist() {
    let (mut seen, mut wrong) = (0, Vec::new());
    for (path, file) in files().unwrap() {
        let (count, found) = undocumented(&path, &file);
        seen += count;
        wrong.extend(found);
    }
    assert!(seen > 6, "found {seen} implementations");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Another enum's implementation of `Documented` names this entry.
    assert!(page().unwrap().contains("<a id=\"install-server-invalid-host\"></a>"));
}

#[test]
fn a_wrong_entry_and_a_variant_without_a_page_are_found() {
    let example =
        format!("{EXAMPLE}\nimpl Documented for Error {{\n    const ENTRY: &'static str = \"pod-error\";\n}}\n");
    let (seen, wrong) = undocumented(Path::new("src/pod/api.rs"), &example);
    assert_eq!(seen, 1);
    assert_eq!(
        wrong,
        ["src/pod/api.rs: the entry of Error is pod-api-error", "src/pod/api.rs: Error::Other has no page"]
    );
}

#[test]
fn anchors_are_unique() {
    let mut anchors: Vec<String> = Vec::new();
    for (path, file) in files().unwrap() {
        for variant in variants(&file) {
            let anchor = variant.anchor(&module(&path));
            assert!(!anchors.contains(&anchor), "{}: a second {anchor}", path.display());
            anchors.push(anchor);
        }
    }
}

const EXAMPLE: &str = r#"
    pub enum Error {
        /// A file cannot be read.
        #[error("cannot read {}: {source}", path.display())]
        Read { path: PathBuf, source: io::Error },
        #[error("no JSON: {0}")]
        Json(#[from] serde_json::Error),
        #[error(transparent)]
        Other(#[from] Other),
        #[error("cannot write")]
        Write(#[source] io::Error),
        #[error("cannot listen: {cause}; is the \
                 port free?")]
        Listen { cause: io::Error },
        #[error("name {{{0:?}}}")]
        Name(String),
        #[error("too much {resource}")]
        Excess { resource: String },
    }
"#;

#[test]
fn a_variant_that_prints_its_source_is_found() {
    let found: Vec<_> = variants(EXAMPLE).into_iter().filter(prints_its_source).map(|variant| variant.name).collect();
    assert_eq!(found, ["Read", "Json"]);
}

#[test]
fn variants_are_read_with_name_text_and_documentation() {
    let found = variants(EXAMPLE);
    let read: Vec<_> = found.iter().map(|v| (v.anchor("pod-api"), v.printed(), &*v.doc)).collect();
    let expected = [
        ("pod-api-error-read", "cannot read <path>: <source>: <cause>", "A file cannot be read."),
        ("pod-api-error-json", "no JSON: <value>: <cause>", ""),
        ("pod-api-error-write", "cannot write: <cause>", ""),
        ("pod-api-error-listen", "cannot listen: <cause>; is the port free?", ""),
        ("pod-api-error-name", "name {<value>}", ""),
        ("pod-api-error-excess", "too much <resource>", ""),
    ];
    assert_eq!(read, expected.map(|(anchor, text, doc)| (anchor.to_owned(), text.to_owned(), doc)));
}
