//! The words in which all programs of the house report: Istio's levels, and an error with what caused it.
//!
//! `plugin`, `iptables`, `repair` and the daemons' log write them. Pure; who reads them, and where, is not known here.

use std::error::Error;

/// Levels of Istio's logging, silent last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    /// Everything.
    Debug,
    /// The default.
    #[default]
    Info,
    /// Oddities.
    Warn,
    /// Failures.
    Error,
    /// Nothing that is said here.
    Fatal,
    /// Silence.
    None,
}

impl Level {
    const ALL: [Self; 6] = [Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Fatal, Self::None];

    /// Istio's word.
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

    /// The level of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|level| level.as_str() == name)
    }
}

/// An error and all that caused it, on one line.
pub fn chain(error: &(dyn Error + 'static)) -> String {
    joined(Some(error))
}

/// What an error's own words do not repeat: the causes below it, on one line.
pub fn causes(error: &(dyn Error + 'static)) -> String {
    joined(error.source())
}

fn joined(first: Option<&(dyn Error + 'static)>) -> String {
    std::iter::successors(first, |error| (**error).source()).map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the outer")]
    struct Outer(#[source] std::fmt::Error);

    #[test]
    fn an_error_is_followed_by_its_causes() {
        let error = Outer(std::fmt::Error);
        assert_eq!(chain(&error), format!("the outer: {}", std::fmt::Error));
        assert_eq!(causes(&error), std::fmt::Error.to_string());
        assert_eq!(causes(&std::fmt::Error), "");
    }

    #[test]
    fn a_level_is_known_by_its_word() {
        assert_eq!(Level::ALL.map(|level| Level::named(level.as_str())), Level::ALL.map(Some));
        assert_eq!(Level::named("loud"), None);
    }
}
