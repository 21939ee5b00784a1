//! Errors, read from the `#[error(…)]` attributes of the sources, and the rule that no cause is printed twice.
//!
//! A variant either has a source, and its text omits it, or prints its cause and has no source. Reports print the chain
//! of sources after the text, so a variant with both would print its cause twice.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, iter};

use contract::diagnostics::kebab;

use super::table::{code, head, sentence, table};

/// A variant of an error enum, or a struct.
#[derive(Debug)]
struct Variant<'a> {
    /// The enum or struct.
    of: &'a str,
    /// Empty for a struct.
    name: &'a str,
    /// The arguments of `#[error(…)]`.
    text: &'a str,
    fields: &'a str,
    doc: String,
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

/// The first identifier of `code`.
fn identifier(code: &str) -> &str {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The fields after a name: those in brackets before the variant ends.
fn fields<'a>(rest: &'a str, name: &str) -> &'a str {
    let body = rest[name.len()..].trim_start();
    if body.starts_with(['(', '{']) { enclosed(&body[1..]) } else { "" }
}

/// Documentation in the lines directly before or after an attribute.
fn documentation<'a>(lines: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let lines = lines.map(str::trim).take_while(|line| line.starts_with("///") || line.starts_with("#["));
    lines.filter_map(|line| line.strip_prefix("///")).map(str::trim).collect()
}

/// Returns the part of a file before the module of its unit tests. A declaration `mod tests;`, whose module is another
/// file, ends nothing.
fn without_tests(file: &str) -> &str {
    const TESTS: &str = "#[cfg(test)]\nmod ";
    let is_inline = |at: &usize| file[at + TESTS.len()..].lines().next().is_some_and(|line| line.ends_with('{'));
    let end = file.match_indices(TESTS).map(|(at, _)| at).find(is_inline);
    &file[..end.unwrap_or(file.len())]
}

/// Returns the variants with a text of their own, without those of unit tests. A transparent variant prints the text of
/// its source instead.
fn variants(file: &str) -> Vec<Variant<'_>> {
    all_variants(file).into_iter().filter(|variant| !variant.text.contains("transparent")).collect()
}

/// Returns all variants with an `#[error(…)]` attribute, without those of unit tests.
fn all_variants(file: &str) -> Vec<Variant<'_>> {
    const ATTRIBUTE: &str = "#[error(";
    let file = without_tests(file);
    let found = file.match_indices(ATTRIBUTE).map(|(at, _)| {
        let (before, after) = (&file[..at], &file[at + ATTRIBUTE.len()..]);
        let text = enclosed(after);
        let rest = after[text.len() + ")]".len()..].trim_start();
        let mut doc = documentation(before.trim_end().lines().rev());
        doc.reverse();
        doc.extend(documentation(rest.lines()));
        let declared: usize =
            rest.lines().take_while(|line| line.trim().starts_with("//")).map(|line| line.len() + 1).sum();
        let rest = rest[declared..].trim_start();
        let rest = rest.strip_prefix("pub ").unwrap_or(rest);
        let (of, name, rest) = match rest.strip_prefix("struct ") {
            Some(rest) => (identifier(rest), "", rest),
            None => (before.rsplit("enum ").next().map(identifier).unwrap_or_default(), identifier(rest), rest),
        };
        let fields = fields(rest, if name.is_empty() { of } else { name });
        Variant { of, name, text, fields, doc: doc.join(" "), line: before.matches('\n').count() + 1 }
    });
    found.collect()
}

impl Variant<'_> {
    fn has_source(&self) -> bool {
        let is_word = |at: usize| !self.fields[..at].ends_with(|c: char| c == '_' || c.is_alphanumeric());
        let is_named = self.fields.match_indices("source:").any(|(at, _)| is_word(at));
        self.fields.contains("#[from]") || self.fields.contains("#[source]") || is_named
    }

    /// Whether the text prints the field that thiserror takes as the source.
    fn prints_its_source(&self) -> bool {
        let attributed = self.fields.contains("#[from]") || self.fields.contains("#[source]");
        let named = self.fields.split(|c: char| c != '_' && !c.is_alphanumeric()).any(|word| word == "source");
        let first = self.text.contains("{0") || self.text.contains(".0");
        (named && self.text.contains("{source")) || (attributed && (first || self.text.contains("{source")))
    }

    /// The text as it is printed, with the names of values in angle brackets.
    fn printed(&self) -> String {
        let string = self.text.trim().trim_start_matches('"');
        let end = string.char_indices().scan(false, |escaped, (at, c)| {
            let ends = c == '"' && !*escaped;
            *escaped = c == '\\' && !*escaped;
            Some((at, ends))
        });
        let end = end.into_iter().find(|(_, ends)| *ends).map_or(string.len(), |(at, _)| at);
        let mut arguments = string[end..].trim_start_matches('"').split(',').skip(1).map(str::trim);
        let mut text = String::new();
        let format = string[..end].split("\\\n").map(str::trim_start).collect::<String>().replace("\\\"", "\"");
        let mut rest = &*format;
        while let Some(at) = rest.find(['{', '}']) {
            text.push_str(&rest[..at]);
            let escaped = ["{{", "}}"].iter().any(|pair| rest[at..].starts_with(pair));
            if escaped {
                text.push_str(&rest[at..=at]);
                rest = &rest[at + 2..];
                continue;
            }
            let (value, after) = rest[at + 1..].split_once('}').unwrap_or((&rest[at + 1..], ""));
            let name = match identifier(value) {
                "" => identifier(arguments.next().unwrap_or("value").trim_start_matches('.')),
                name => name,
            };
            let name = if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() { "value" } else { name };
            text.push_str(&format!("<{name}>"));
            rest = after;
        }
        let cause = if self.has_source() { ": <cause>" } else { "" };
        format!("{text}{rest}{cause}")
    }

    /// The anchor: module, enum and variant in lower case.
    fn anchor(&self, module: &str) -> String {
        let parts = [module.to_owned(), kebab(self.of), kebab(self.name)];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    }
}

/// Documentation without links to other items, of which only the names are left.
fn without_links(doc: &str) -> String {
    let mut parts = doc.replace("[`", "`").replace("`]", "`\u{1}");
    while let Some(start) = parts.find("\u{1}(") {
        let end = parts[start..].find(')').map_or(parts.len(), |end| start + end + 1);
        parts.replace_range(start..end, "");
    }
    parts.replace('\u{1}', "")
}

/// Crates whose modules are named without the crate, as before they were crates: logs name their entries.
const UNNAMED: [&str; 1] = ["crates/podnet/src/"];

/// The path of a module: `src/serve/http.rs` → `serve-http`, `crates/gotemplate/src/yaml.rs` → `gotemplate-yaml`.
fn module(file: &Path) -> String {
    let path = file.with_extension("").display().to_string();
    let path = UNNAMED.iter().find_map(|crate_root| path.strip_prefix(crate_root)).unwrap_or(&path);
    let path = match path.strip_prefix("crates/") {
        Some(inside) => inside.replacen("/src/", "/", 1),
        None => path.trim_start_matches("src/").to_owned(),
    };
    path.trim_end_matches("/error").trim_end_matches("/lib").replace(['/', '_'], "-")
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !path.starts_with("src/reference") {
            found.push(path);
        }
    }
}

/// The sources of the package and of all crates.
pub(super) fn files() -> Vec<(PathBuf, String)> {
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path().join("src"));
    let directories: BTreeSet<PathBuf> = crates.collect();
    let mut files = Vec::new();
    for directory in iter::once(PathBuf::from("src")).chain(directories) {
        sources(&directory, &mut files);
    }
    files.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

pub(super) fn page() -> String {
    let mut text = head("Errors", "the `#[error(…)]` attributes of `src` and `crates`");
    text.push_str(
        "Names in angle brackets stand for values, `<cause>` for the chain of causes that follows. Each row has an anchor, \
         `errors.md#NAME`.\n\n",
    );
    for (path, file) in files() {
        let module = module(&path);
        let row = |variant: &Variant<'_>| {
            let anchor = variant.anchor(&module);
            [
                format!("<a id=\"{anchor}\"></a>{anchor}"),
                code(&variant.printed()),
                sentence(&without_links(&variant.doc)),
            ]
        };
        let rows: Vec<_> = variants(&file).iter().map(row).collect();
        if !rows.is_empty() {
            text.push_str(&format!("## {module}\n\n"));
            text.push_str(&table(["Error", "Text", "Meaning"], &rows));
        }
    }
    text.trim_end().to_owned() + "\n"
}

#[test]
fn no_cause_is_printed_twice() {
    let (mut twice, mut seen) = (Vec::new(), 0);
    for (path, file) in files() {
        let found = variants(&file);
        seen += found.len();
        let wrong = found.iter().filter(|variant| variant.prints_its_source());
        twice.extend(wrong.map(|variant| format!("{}:{}: {}", path.display(), variant.line, variant.text)));
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
    for (path, file) in files() {
        let (count, found) = undocumented(&path, &file);
        seen += count;
        wrong.extend(found);
    }
    assert!(seen > 6, "found {seen} implementations");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // Another enum's implementation of `Documented` names this entry.
    assert!(page().contains("<a id=\"install-server-invalid-host\"></a>"));
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
    for (path, file) in files() {
        for variant in variants(&file) {
            let anchor = variant.anchor(&module(&path));
            assert!(!anchors.contains(&anchor), "{}:{}: a second {anchor}", path.display(), variant.line);
            anchors.push(anchor);
        }
    }
}

#[cfg(test)]
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
    let found: Vec<_> =
        variants(EXAMPLE).into_iter().filter(Variant::prints_its_source).map(|variant| variant.line).collect();
    assert_eq!(found, [4, 6]);
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
