//! Parses `scope:level,…` and filters lines by it. Pure.

use std::collections::BTreeMap;
use std::str::FromStr;

use contract::diagnostics::Level;

/// Returns the level of an event's log line.
pub(super) fn level_of(event: &tracing::Metadata<'_>) -> Level {
    match *event.level() {
        tracing::Level::TRACE | tracing::Level::DEBUG => Level::Debug,
        tracing::Level::INFO => Level::Info,
        tracing::Level::WARN => Level::Warn,
        tracing::Level::ERROR => Level::Error,
    }
}

/// The minimum level of each scope; `info` by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Levels {
    /// Takes precedence over the scopes' own levels.
    all: Option<Level>,
    scopes: BTreeMap<String, Level>,
}

impl Levels {
    /// Returns the minimum level of a scope.
    pub fn of(&self, scope: &str) -> Level {
        self.all.or_else(|| self.scopes.get(scope).copied()).unwrap_or_default()
    }

    /// Whether a line is logged.
    pub fn allow(&self, scope: &str, level: Level) -> bool {
        level >= self.of(scope)
    }

    /// Gives `scope` the level of the scope `other`.
    pub(super) fn alike(mut self, scope: &str, other: &str) -> Self {
        self.scopes.insert(scope.to_owned(), self.of(other));
        self
    }
}

impl FromStr for Levels {
    type Err = String;

    /// A level without a scope applies to scope `default`; `all:` applies to every scope.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut levels = Self::default();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            let (scope, name) = part.split_once(':').unwrap_or(("default", part));
            let level = Level::named(name)
                .ok_or_else(|| format!("{name:?} is none of debug, info, warn, error, fatal and none"))?;
            if scope == "all" {
                levels.all = Some(level);
            } else {
                levels.scopes.insert(scope.to_owned(), level);
            }
        }
        Ok(levels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(text: &str) -> Levels {
        text.parse().unwrap()
    }

    #[test]
    fn scopes_have_own_levels_and_all_takes_precedence() {
        assert_eq!(levels("").of("install"), Level::Info);
        assert_eq!(levels("warn").of("default"), Level::Warn);
        assert_eq!(levels("warn").of("install"), Level::Info);
        assert_eq!(levels("default:info, install:debug").of("install"), Level::Debug);
        assert_eq!(levels("install:error,all:debug").of("install"), Level::Debug);
    }

    #[test]
    fn level_none_disables_all_lines() {
        for level in [Level::Debug, Level::Info, Level::Warn, Level::Error] {
            assert!(!levels("grpc:none").allow("grpc", level), "{level:?}");
            assert!(!levels("grpc:fatal").allow("grpc", level), "{level:?}");
        }
    }

    #[test]
    fn an_unknown_level_is_reported() {
        let error = "install:loud".parse::<Levels>().unwrap_err();
        assert!(error.contains("\"loud\""), "{error}");
    }

    #[test]
    fn a_scope_can_have_the_level_of_another_one() {
        assert_eq!(levels("cni-plugin:debug").alike("cni-plugin", "cni-agent").of("cni-plugin"), Level::Info);
    }
}
