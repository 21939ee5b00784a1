//! Finds the paths in a source file: in its `use` declarations, its expressions and types, and its macros. The tests of the sources'
//! structure use it. It reads no file.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A path as it is written in a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Path {
    /// The module that contains the path.
    pub(super) module: Vec<String>,
    pub(super) segments: Vec<String>,
    /// The name that the path has in its module, if it is imported by `use`.
    pub(super) alias: Option<String>,
    pub(super) line: usize,
}

/// Returns the paths in `tokens`, a part of `module`.
pub(super) fn paths(tokens: TokenStream, module: &[String]) -> Vec<Path> {
    let mut found = Vec::new();
    collect(tokens, module, &mut found);
    found
}

fn collect(tokens: TokenStream, module: &[String], found: &mut Vec<Path>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut rest = tokens.as_slice();
    while let Some((token, after)) = rest.split_first() {
        rest = match (token, after) {
            (TokenTree::Ident(word), [TokenTree::Ident(name), TokenTree::Group(body), after @ ..])
                if *word == "mod" =>
            {
                collect(body.stream(), &[module, &[name.to_string()]].concat(), found);
                after
            }
            (TokenTree::Ident(word), [TokenTree::Ident(_), ..]) if *word == "use" => {
                tree(after, &Path { module: module.to_vec(), segments: Vec::new(), alias: None, line: 0 }, true, found)
            }
            (TokenTree::Ident(_), _) if is_path(after) => {
                let empty = Path { module: module.to_vec(), segments: Vec::new(), alias: None, line: 0 };
                tree(rest, &empty, false, found)
            }
            (TokenTree::Group(group), _) => {
                collect(group.stream(), module, found);
                after
            }
            _ => after,
        };
    }
}

fn is_path(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [first, second, ..] if is_punct(first, ':') && is_punct(second, ':'))
}

fn is_punct(token: &TokenTree, character: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == character)
}

/// Adds the paths of a path or `use` tree that follows `base` to `found`, and returns the tokens after it. `imports` is true in a `use`
/// declaration.
fn tree<'a>(tokens: &'a [TokenTree], base: &Path, imports: bool, found: &mut Vec<Path>) -> &'a [TokenTree] {
    let extended = |name: &str, token: &TokenTree| {
        let mut path = Path { line: token.span().start().line, ..base.clone() };
        path.segments.push(name.to_owned());
        path
    };
    match tokens {
        [token @ TokenTree::Ident(ident), after @ ..] => {
            let mut path = extended(&ident.to_string(), token);
            if is_path(after) {
                return tree(&after[2..], &path, imports, found);
            }
            path.alias = imports.then(|| alias(&path.segments, after)).flatten();
            found.push(path);
            after
        }
        [TokenTree::Group(group), after @ ..] if group.delimiter() == Delimiter::Brace => {
            let tokens: Vec<TokenTree> = group.stream().into_iter().collect();
            for tokens in tokens.split(|token| is_punct(token, ',')).filter(|tokens| !tokens.is_empty()) {
                tree(tokens, base, imports, found);
            }
            after
        }
        [star, after @ ..] if is_punct(star, '*') => {
            found.push(extended("*", star));
            after
        }
        // Generic arguments follow; the caller reads their tokens.
        rest => {
            found.push(base.clone());
            rest
        }
    }
}

/// Returns the name of an imported path: the one after `as`, or the last segment that names an item.
fn alias(segments: &[String], after: &[TokenTree]) -> Option<String> {
    match after {
        [TokenTree::Ident(word), TokenTree::Ident(name), ..] if *word == "as" => Some(name.to_string()),
        _ => segments.iter().rfind(|segment| *segment != "self").cloned(),
    }
}
