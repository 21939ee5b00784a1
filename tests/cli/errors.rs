//! The error rule: a variant either has a source, and its text omits it, or prints its cause and has no source.
//!
//! Reports print the chain of sources after the text, so a variant with both prints its cause twice.

use std::fs;
use std::path::Path;

use super::layers::sources;

/// A variant, or a struct, with the text of its `#[error(…)]`.
#[derive(Debug)]
struct Variant<'a> {
    text: &'a str,
    fields: &'a str,
    line: usize,
}

/// The part of `text` up to the bracket that closes the one before it; strings are skipped.
fn enclosed(text: &str) -> &str {
    let (mut depth, mut quoted, mut escaped) = (1, false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' | '{' if !quoted => depth += 1,
            ')' | '}' if !quoted => {
                depth -= 1;
                if depth == 0 {
                    return &text[..at];
                }
            }
            _ => {}
        }
    }
    text
}

/// The fields after an attribute: those in brackets before the variant ends.
fn fields(rest: &str) -> &str {
    let name = rest.find(|c: char| c.is_uppercase()).unwrap_or(rest.len());
    let body = rest[name..].trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').trim_start();
    if body.starts_with(['(', '{']) { enclosed(&body[1..]) } else { "" }
}

/// Variants whose text is not that of their source.
fn variants(file: &str) -> Vec<Variant<'_>> {
    const ATTRIBUTE: &str = "#[error(";
    let found = file.match_indices(ATTRIBUTE).map(|(at, _)| {
        let text = enclosed(&file[at + ATTRIBUTE.len()..]);
        let rest = &file[at + ATTRIBUTE.len() + text.len() + ")]".len()..];
        let code = rest.trim_start();
        let declared = code.strip_prefix("pub struct ").or_else(|| code.strip_prefix("struct ")).unwrap_or(code);
        Variant { text, fields: fields(declared), line: file[..at].matches('\n').count() + 1 }
    });
    found.filter(|variant| !variant.text.contains("transparent")).collect()
}

/// Whether the text prints what thiserror takes for the source.
fn prints_its_source(variant: &Variant<'_>) -> bool {
    let attributed = variant.fields.contains("#[from]") || variant.fields.contains("#[source]");
    let named = variant.fields.contains("source:") || variant.fields.contains("source :");
    let first = variant.text.contains("{0") || variant.text.contains(".0");
    (named && variant.text.contains("source")) || (attributed && (first || variant.text.contains("{source")))
}

#[test]
fn no_cause_is_printed_twice() {
    let mut files = Vec::new();
    for dir in ["src", "crates"] {
        sources(Path::new(dir), &mut files);
    }
    let mut twice = Vec::new();
    let mut variants_seen = 0;
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let found = variants(&text);
        variants_seen += found.len();
        let wrong = found.iter().filter(|variant| prints_its_source(variant));
        twice.extend(wrong.map(|variant| format!("{}:{}: {}", file.display(), variant.line, variant.text)));
    }
    assert!(variants_seen > 150, "found {variants_seen} variants");
    assert!(twice.is_empty(), "these print a cause that is their source as well:\n{}", twice.join("\n"));
}

#[test]
fn a_variant_that_prints_its_source_is_found() {
    let file = r#"
        #[error("cannot read {}: {source}", path.display())]
        Read { path: PathBuf, source: io::Error },
        #[error("no JSON: {0}")]
        Json(#[from] serde_json::Error),
        #[error(transparent)]
        Other(#[from] Other),
        #[error("cannot write")]
        Write(#[source] io::Error),
        #[error("cannot listen: {cause}; is the port free?")]
        Listen { cause: io::Error },
        #[error("name {0:?}")]
        Name(String),
    "#;
    let found: Vec<_> = variants(file).into_iter().filter(prints_its_source).map(|variant| variant.line).collect();
    assert_eq!(found, [2, 4]);
}
