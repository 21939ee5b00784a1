//! Checks that modules in the same directory do not import each other in a cycle. Imports in tests, and imports between a module and its
//! parent, are ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use crate::paths::{self, paths};

/// The path of a module from the crate's root.
type Module = Vec<String>;

/// The maximum number of imports that are followed from one name. An item that is imported from a crate of the same name would otherwise be
/// followed forever.
const MAX_IMPORTS: usize = 8;

/// The references between the modules of one parent. For each pair, the files with such a reference, each with the line of the first.
type Edges = BTreeMap<(String, String), BTreeMap<PathBuf, usize>>;

/// The modules of a crate and the paths in their files, except tests.
#[derive(Default)]
struct Tree {
    modules: BTreeSet<Module>,
    files: Vec<(PathBuf, Vec<paths::Path>)>,
    /// The imports of each module by the name that they have in it.
    imports: BTreeMap<(Module, String), Vec<paths::Path>>,
}

impl Tree {
    /// Adds the module of a file, and the modules that the file declares. `read` returns a file's content.
    fn add(&mut self, file: &Path, module: &[String], read: &dyn Fn(&Path) -> String) {
        let tokens = TokenStream::from_str(&read(file)).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let tokens = without_tests(tokens);
        // The root's submodules are next to its file; other modules have theirs in a directory with the module's name.
        let directory = if module.is_empty() { file.with_file_name("") } else { file.with_extension("") };
        for name in declared(tokens.clone()) {
            let file = directory.join(format!("{name}.rs"));
            self.add(&file, &[module, &[name]].concat(), read);
        }
        self.modules.insert(module.to_vec());
        let paths = paths(tokens, module);
        for path in &paths {
            if let Some(alias) = &path.alias {
                self.imports.entry((path.module.clone(), alias.clone())).or_default().push(path.clone());
            }
        }
        self.files.push((file.to_owned(), paths));
    }

    /// Returns the modules that own what `path` names. An imported item belongs to the module from which it is imported. At most `imports`
    /// imports are followed.
    fn owners(&self, path: &paths::Path, imports: usize) -> Vec<Module> {
        let (mut module, segments) = (path.module.clone(), path.segments.as_slice());
        for (at, segment) in segments.iter().enumerate() {
            let child = [module.as_slice(), std::slice::from_ref(segment)].concat();
            match segment.as_str() {
                "crate" => module.clear(),
                "self" => {}
                "super" => drop(module.pop()),
                _ if self.modules.contains(&child) => module = child,
                name => {
                    let named = self.imports.get(&(module.clone(), name.to_owned())).into_iter().flatten();
                    let follow = |import: &paths::Path| {
                        let segments = [&import.segments, &segments[at + 1..]].concat();
                        self.owners(&paths::Path { segments, ..import.clone() }, imports - 1)
                    };
                    let found: Vec<Module> = named.filter(|_| imports > 0).flat_map(follow).collect();
                    return if found.is_empty() { vec![module] } else { found };
                }
            }
        }
        vec![module]
    }

    /// Returns for each parent the references between its modules.
    fn edges(&self) -> BTreeMap<Module, Edges> {
        let mut parents: BTreeMap<Module, Edges> = BTreeMap::new();
        for (file, path) in self.files.iter().flat_map(|(file, paths)| paths.iter().map(move |path| (file, path))) {
            for owner in self.owners(path, MAX_IMPORTS) {
                let common = owner.iter().zip(&path.module).take_while(|(a, b)| a == b).count();
                if let (Some(from), Some(to)) = (path.module.get(common), owner.get(common)) {
                    let edges = parents.entry(owner[..common].to_vec()).or_default();
                    let places = edges.entry((from.clone(), to.clone())).or_default();
                    places.entry(file.clone()).or_insert(path.line);
                }
            }
        }
        parents
    }
}

/// Removes the items that are compiled for tests only.
fn without_tests(tokens: TokenStream) -> TokenStream {
    let mut tokens = tokens.into_iter().peekable();
    let mut kept = TokenStream::new();
    while let Some(token) = tokens.next() {
        let is_hash = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '#');
        if is_hash && matches!(tokens.peek(), Some(TokenTree::Group(group)) if is_of_tests(group)) {
            let mut in_path = false;
            tokens.next();
            for token in tokens.by_ref() {
                match token {
                    TokenTree::Group(group) if group.delimiter() == Delimiter::Brace && !in_path => break,
                    TokenTree::Punct(punct) if punct.as_char() == ';' => break,
                    TokenTree::Punct(punct) => in_path = punct.as_char() == ':',
                    _ => in_path = false,
                }
            }
        } else if let TokenTree::Group(group) = token {
            kept.extend([TokenTree::Group(Group::new(group.delimiter(), without_tests(group.stream())))]);
        } else {
            kept.extend([token]);
        }
    }
    kept
}

/// Whether an attribute is `cfg(test)`, `cfg(doctest)` or `cfg(all(test, …))`.
fn is_of_tests(attribute: &Group) -> bool {
    let text = attribute.stream().to_string().replace(' ', "");
    text == "cfg(test)" || text.starts_with("cfg(all(test,") || text == "cfg(doctest)"
}

/// Returns the names of the modules that are declared without a body, and thus are in files of their own.
fn declared(tokens: TokenStream) -> Vec<String> {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let declaration = |tokens: &[TokenTree]| match tokens {
        [TokenTree::Ident(word), TokenTree::Ident(name), TokenTree::Punct(_)] if *word == "mod" => {
            Some(name.to_string())
        }
        _ => None,
    };
    tokens.windows(3).filter_map(declaration).collect()
}

/// Returns a description of each cycle among the modules of one parent: the modules' names, and a line for each reference.
fn circles(edges: &Edges) -> Vec<String> {
    let modules: BTreeSet<&String> = edges.keys().map(|(from, _)| from).collect();
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        modules.into_iter().map(|from| (from, reached(edges, from))).collect();
    let is_mutual = |a: &String, b: &String| reached.get(b).is_some_and(|reached| reached.contains(a));
    let circle = |(from, reached): (&&String, &BTreeSet<&String>)| -> Vec<String> {
        reached.iter().filter(|to| is_mutual(from, to)).map(ToString::to_string).collect()
    };
    let found: BTreeSet<Vec<String>> = reached.iter().map(circle).filter(|circle| !circle.is_empty()).collect();
    let describe = |circle: &Vec<String>| {
        let inside = edges.iter().filter(|((from, to), _)| circle.contains(from) && circle.contains(to));
        let lines = inside.flat_map(|((from, to), places)| {
            places.iter().map(move |(file, line)| format!("  {from} → {to}: {}:{line}\n", file.display()))
        });
        format!("{}\n{}", circle.join(", "), lines.collect::<String>())
    };
    found.iter().map(describe).collect()
}

/// Returns the modules to which a module refers, directly or through others.
fn reached<'a>(edges: &'a Edges, from: &'a String) -> BTreeSet<&'a String> {
    let (mut reached, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        let targets = edges.keys().filter(|(from, _)| from == module).map(|(_, to)| to);
        next.extend(targets.filter(|to| reached.insert(*to)));
    }
    reached
}

/// Returns the cycles in the crate with this root file, each with its directory.
fn circles_of(root: &Path, read: &dyn Fn(&Path) -> String) -> Vec<String> {
    let mut tree = Tree::default();
    tree.add(root, &[], read);
    let in_directory = |(parent, edges): (Module, Edges)| {
        let directory: PathBuf = root.parent().into_iter().chain(parent.iter().map(Path::new)).collect();
        circles(&edges).into_iter().map(move |circle| format!("{}: {circle}", directory.display()))
    };
    tree.edges().into_iter().flat_map(in_directory).collect()
}

#[test]
fn no_modules_import_each_other() {
    let members = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path().join("src/lib.rs"));
    let roots: BTreeSet<PathBuf> = members.chain([PathBuf::from("src/lib.rs")]).collect();
    let circles = |root: &PathBuf| circles_of(root, &|file| fs::read_to_string(file).unwrap());
    let found: Vec<String> = roots.iter().flat_map(circles).collect();
    let advice = "move what the modules share to a third one, or to their parent";
    assert!(found.is_empty(), "{} circles; {advice}:\n{}", found.len(), found.join("\n"));
}

#[test]
fn a_circle_is_found() {
    let root = "mod a; mod b; mod c; pub use b::Item; pub use b::Item as Renamed; use std::fmt; struct Own;";
    let ab = "src: a, b\n  a → b: src/a.rs:1\n  b → a: src/b.rs:1\n";
    let inner = "src: a, b\n  a → b: src/a/inner.rs:2\n  b → a: src/b.rs:1\n";
    let abc = "src: a, b, c\n  a → b: src/a.rs:1\n  b → c: src/b.rs:1\n  c → a: src/c.rs:1\n";
    for (a, b, c, expected) in [
        ("use super::b;", "use crate::a;", "", &[ab][..]),
        ("use crate::{fmt, b::{self, Item}};", "fn f() -> super::a::X { }", "", &[ab]),
        ("use super::Item;", "use crate::a::X;", "", &[ab]),
        ("use crate as root; fn f() { root::Renamed::new() }", "use crate::a::X;", "", &[ab]),
        ("fn f() { format!(\"{}\", crate::b::x::<u8>()) }", "use super::a as other;", "", &[ab]),
        ("mod inner;", "use super::a::inner::X;", "", &[inner]),
        ("use super::b;", "use super::c;", "use super::a;", &[abc]),
        ("use super::b;", "use super::{Own, fmt}; const X: &str = \"super::a\"; // super::a", "use super::a;", &[]),
        ("use super::b;", "#[cfg(test)] mod tests { use crate::a; }", "use crate::{a, b};", &[]),
        ("use super::b;", "#[cfg(test)] use super::{a}; #[cfg(test)] fn f() -> crate::a::X { } mod own { }", "", &[]),
        ("use super::b;", "#[cfg(test)] mod missing; mod own { use super::super::b; }", "", &[]),
    ] {
        let read = |file: &Path| match file.to_str().unwrap() {
            "src/lib.rs" => root.to_owned(),
            "src/a.rs" => a.to_owned(),
            "src/a/inner.rs" => "use super::super::c;\nuse super::super::b;".to_owned(),
            "src/b.rs" => b.to_owned(),
            "src/c.rs" => c.to_owned(),
            other => panic!("{other} is read"),
        };
        assert_eq!(circles_of(Path::new("src/lib.rs"), &read), expected, "{a} {b} {c}");
    }
}
