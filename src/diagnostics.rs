//! Istio's log levels, and errors with their causes on one line.
//!
//! `plugin`, `iptables`, `repair` and the daemons' logs share them. Pure.

use std::error::Error;

/// A level of Istio's logging, from the most to the least verbose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Level {
    Debug,
    #[default]
    Info,
    Warn,
    Error,
    /// Accepted as a threshold; this project logs nothing at it.
    Fatal,
    /// No output.
    None,
}

impl Level {
    const ALL: [Self; 6] = [Self::Debug, Self::Info, Self::Warn, Self::Error, Self::Fatal, Self::None];

    /// The level's name in Istio's flags and log lines.
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
    fn every_level_is_found_by_its_name() {
        assert_eq!(Level::ALL.map(|level| Level::named(level.as_str())), Level::ALL.map(Some));
        assert_eq!(Level::named("loud"), None);
    }
}
