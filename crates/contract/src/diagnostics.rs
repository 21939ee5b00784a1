//! Istio's log levels and scopes, errors with their causes on one line, and the page that explains an error.
//!
//! `plugin`, `iptables`, `repair` and the daemons' logs share this module, which performs no I/O.

pub mod terminal;

use std::error::Error;
use std::io;

/// A level of Istio's logging, from the most to the least verbose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    Debug,
    #[default]
    Info,
    Warn,
    Error,
    /// Accepted as a threshold; nothing is logged at this level.
    Fatal,
    /// No output.
    None,
}

impl Level {
    const ALL: [Self; 6] = [Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Fatal, Self::None];

    /// Returns the level's name in Istio's flags and log lines.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
            Self::Fatal => "fatal",
            Self::None => "none",
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

/// A name by which users set the level of log lines, and the module whose log lines have this name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogScope {
    module: &'static str,
    name: &'static str,
}

impl LogScope {
    /// Creates the scope `name` for the log lines of `module` and its submodules. Users write the name in flags, so it
    /// must stay when the module is renamed.
    pub const fn new(module: &'static str, name: &'static str) -> Self {
        Self { module, name }
    }

    /// Returns the scope of a module: of the modules with a scope in `scopes`, the innermost one that contains it
    /// decides.
    pub fn of(module: &str, scopes: &[Self]) -> Option<&'static str> {
        let contains = |scope: &&Self| {
            module.strip_prefix(scope.module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        };
        scopes.iter().filter(contains).max_by_key(|scope| scope.module.len()).map(|scope| scope.name)
    }
}

/// The page that lists all errors.
const ERRORS: &str = "docs/reference/errors.md";

/// An error enum whose variants all have an entry in the reference, to which log lines refer.
pub trait Documented: Error {
    /// The prefix of the anchors of these entries: module and type. A test compares it with the reference.
    const ENTRY: &'static str;

    /// Returns the page of the inner error if this variant is `#[error(transparent)]`, and `None` otherwise.
    fn transparent(&self) -> Option<String> {
        None
    }

    /// Returns the page of the error, with the anchor of its entry.
    fn page(&self) -> String {
        self.transparent().unwrap_or_else(|| {
            // The output of a derived `Debug` begins with the name of the variant.
            let debug = format!("{self:?}");
            let variant = debug.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default();
            page(&format!("{}-{}", Self::ENTRY, kebab(variant)))
        })
    }
}

/// Returns the page of errors with this anchor.
pub fn page(anchor: &str) -> String {
    format!("{ERRORS}#{anchor}")
}

/// Converts a name to kebab case: `MissingName` becomes `missing-name`.
pub fn kebab(name: &str) -> String {
    let hyphen =
        |(at, c): (usize, char)| (at > 0 && c.is_uppercase()).then_some('-').into_iter().chain(c.to_lowercase());
    name.char_indices().flat_map(hyphen).collect()
}

/// Formats an error and its causes on one line: `error: cause: cause of the cause`.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    joined(Some(error))
}

/// Formats only an error's causes on one line; empty if the error has none.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    joined(error.source())
}

fn joined(first: Option<&(dyn Error + 'static)>) -> String {
    std::iter::successors(first, |error| (**error).source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Returns an error of `tempfile` without the path that `tempfile` appends. The path contains a random name, so that a
/// repeated failure would be reported as a new one. The cause is cut out of the message, because the error does not
/// give access to it.
pub fn without_path(error: io::Error) -> io::Error {
    match error.to_string().rsplit_once(" at path \"") {
        Some((cause, _)) => io::Error::new(error.kind(), cause.to_owned()),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_to_create_a_temporary_file_have_the_same_message() {
        let dir = tempfile::tempdir().unwrap();
        let gone = dir.path().join("gone");
        let failure = || tempfile::Builder::new().prefix("some-").tempfile_in(&gone).unwrap_err();
        assert!(failure().to_string().contains("some-"), "{}", failure());
        let bare = without_path(failure());
        assert_eq!(
            (bare.kind(), bare.to_string()),
            (io::ErrorKind::NotFound, "No such file or directory (os error 2)".to_owned())
        );
        assert_eq!(without_path(io::Error::from_raw_os_error(5)).raw_os_error(), Some(5));
    }

    #[derive(Debug, thiserror::Error)]
    #[error("the outer")]
    struct Outer(#[source] std::fmt::Error);

    #[derive(Debug, thiserror::Error)]
    enum Outside {
        #[error("the port {0} is taken")]
        PortTaken(u16),
        #[error(transparent)]
        Inside(#[from] Inside),
    }

    #[derive(Debug, thiserror::Error)]
    enum Inside {
        #[error("no file {path:?}")]
        NoFile { path: &'static str },
    }

    impl Documented for Outside {
        const ENTRY: &'static str = "x-outside";

        fn transparent(&self) -> Option<String> {
            match self {
                Self::Inside(error) => Some(error.page()),
                Self::PortTaken(_) => None,
            }
        }
    }

    impl Documented for Inside {
        const ENTRY: &'static str = "y-inside";
    }

    #[test]
    fn an_error_names_the_entry_of_its_variant_or_of_the_transparent_one() {
        assert_eq!(Outside::PortTaken(7).page(), page("x-outside-port-taken"));
        let error = Outside::from(Inside::NoFile { path: "/x" });
        assert_eq!(error.page(), page("y-inside-no-file"));
    }

    #[test]
    fn an_error_is_followed_by_its_causes() {
        let error = Outer(std::fmt::Error);
        assert_eq!(chain(&error), format!("the outer: {}", std::fmt::Error));
        assert_eq!(causes(&error), std::fmt::Error.to_string());
        assert_eq!(causes(&std::fmt::Error), "");
    }

    #[test]
    fn a_module_has_the_scope_of_the_innermost_module_around_it() {
        let scopes = [LogScope::new("a", "default"), LogScope::new("a::b::c", "inner"), LogScope::new("a::b", "outer")];
        for (module, expected) in [
            ("a", Some("default")),
            ("a::bc", Some("default")),
            ("a::b", Some("outer")),
            ("a::b::d", Some("outer")),
            ("a::b::c::d", Some("inner")),
            ("ab", None),
            ("b", None),
        ] {
            assert_eq!(LogScope::of(module, &scopes), expected, "{module}");
        }
    }

    #[test]
    fn every_level_is_found_by_its_name() {
        assert_eq!(Level::ALL.map(|level| Level::named(level.as_str())), Level::ALL.map(Some));
        assert_eq!(Level::named("loud"), None);
    }
}
