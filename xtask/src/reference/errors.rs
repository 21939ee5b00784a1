//! Generates the page of errors from the `#[error(…)]` attributes of the sources.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io, iter};

use anyhow::{Context as _, Result};
use contract::diagnostics::kebab;

use super::in_repository;
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
}

/// Returns the part of `text` up to the bracket that closes the one before `text`. Brackets in strings are ignored.
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

/// Returns the first identifier in `code`.
fn identifier(code: &str) -> &str {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// Returns the fields after a name: those in brackets before the variant ends.
fn fields<'a>(rest: &'a str, name: &str) -> &'a str {
    let body = rest[name.len()..].trim_start();
    if body.starts_with(['(', '{']) { enclosed(&body[1..]) } else { "" }
}

/// Returns the documentation in the lines directly before or after an attribute.
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

/// Returns the variants with a message of their own, except those of unit tests. A transparent variant prints the message of its source
/// instead.
fn variants(file: &str) -> Vec<Variant<'_>> {
    all_variants(file).into_iter().filter(|variant| !variant.text.contains("transparent")).collect()
}

/// Returns all variants with an `#[error(…)]` attribute, except those of unit tests.
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
        Variant { of, name, text, fields, doc: doc.join(" ") }
    });
    found.collect()
}

impl Variant<'_> {
    fn has_source(&self) -> bool {
        let is_word = |at: usize| !self.fields[..at].ends_with(|c: char| c == '_' || c.is_alphanumeric());
        let is_named = self.fields.match_indices("source:").any(|(at, _)| is_word(at));
        self.fields.contains("#[from]") || self.fields.contains("#[source]") || is_named
    }

    /// Returns the message as it is printed, with the names of values in angle brackets.
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

    /// Returns the anchor: module, enum and variant in lower case.
    fn anchor(&self, module: &str) -> String {
        let parts = [module.to_owned(), kebab(self.of), kebab(self.name)];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
    }
}

/// Returns the documentation without links to other items; only the items' names stay.
fn without_links(doc: &str) -> String {
    let mut parts = doc.replace("[`", "`").replace("`]", "`\u{1}");
    while let Some(start) = parts.find("\u{1}(") {
        let end = parts[start..].find(')').map_or(parts.len(), |end| start + end + 1);
        parts.replace_range(start..end, "");
    }
    parts.replace('\u{1}', "")
}

/// Crates that are omitted from the names of their modules. The modules were named before they became crates, and logs refer to these
/// names.
const UNNAMED: [&str; 1] = ["crates/podnet/src/"];

/// Returns the name of a module: `serve-http` for `src/serve/http.rs`, `gotemplate-yaml` for `crates/gotemplate/src/yaml.rs`.
fn module(file: &Path) -> String {
    let path = file.with_extension("").display().to_string();
    let path = UNNAMED.iter().find_map(|crate_root| path.strip_prefix(crate_root)).unwrap_or(&path);
    let path = match path.strip_prefix("crates/") {
        Some(inside) => inside.replacen("/src/", "/", 1),
        None => path.trim_start_matches("src/").to_owned(),
    };
    path.trim_end_matches("/error").trim_end_matches("/lib").replace(['/', '_'], "-")
}

/// Returns the paths in a directory of the repository, sorted.
fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(in_repository(directory)).and_then(|entries| {
        entries.map(|entry| Ok(directory.join(entry?.file_name()))).collect::<io::Result<BTreeSet<PathBuf>>>()
    });
    Ok(listed.with_context(|| format!("cannot list {}", directory.display()))?.into_iter().collect())
}

fn sources(directory: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for path in entries(directory)? {
        if in_repository(&path).is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// Returns the sources of the package and of all crates.
pub(super) fn files() -> Result<Vec<(PathBuf, String)>> {
    let crates = entries(Path::new("crates"))?.into_iter().map(|path| path.join("src"));
    let mut files = Vec::new();
    for directory in iter::once(PathBuf::from("src")).chain(crates) {
        sources(&directory, &mut files)?;
    }
    let text = |path: PathBuf| {
        let text = fs::read_to_string(in_repository(&path)).with_context(|| format!("cannot read {}", path.display()));
        text.map(|text| (path, text))
    };
    files.into_iter().map(text).collect()
}

pub(super) fn page() -> Result<String> {
    let mut text = head("Errors", "the `#[error(…)]` attributes of `src` and `crates`");
    text.push_str(
        "Names in angle brackets stand for values, `<cause>` for the chain of causes that follows. Each row has an anchor, \
         `errors.md#NAME`.\n\n",
    );
    for (path, file) in files()? {
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
    Ok(text.trim_end().to_owned() + "\n")
}
