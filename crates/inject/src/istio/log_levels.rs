//! Checks of the log levels of the proxy and its agent, which exit at once if a level is invalid.
//!
//! `annotations` applies these checks to the annotations before templates use them, and afterwards to the sidecar's
//! arguments, which also contain Helm's values. Pure.

use contract::container;
use contract::diagnostics::Level;
use serde_json::Value;

use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// The levels of Envoy.
const ENVOY: [&str; 8] = ["trace", "debug", "info", "warning", "warn", "error", "critical", "off"];

type Check = fn(&str) -> Result<(), &'static str>;

/// The flags of Istio's agent whose values are levels.
const ARGUMENTS: [(&str, Check); 3] =
    [("--proxyLogLevel", proxy), ("--proxyComponentLogLevel", components), ("--log_output_level", agent)];

/// Checks the proxy's level, and the levels of components in the same list. The agent passes the latter to Envoy unchanged
/// (`splitComponentLog` in Istio's `pkg/envoy/proxy.go`), and Envoy exits if it does not have a component.
pub(super) fn proxy(text: &str) -> Result<(), &'static str> {
    let allowed =
        "trace, debug, info, warning, error, critical or off, perhaps with levels of components: info,upstream:debug";
    let is_valid = |element: &str| match element.rsplit_once(':') {
        Some((name, level)) => is_component(name) && ENVOY.contains(&level),
        None => ENVOY.contains(&element),
    };
    elements(text, is_valid, allowed)
}

/// Checks the levels of the proxy's components.
pub(super) fn components(text: &str) -> Result<(), &'static str> {
    let is_level = |element: &str| {
        element.split_once(':').is_some_and(|(name, level)| is_component(name) && ENVOY.contains(&level))
    };
    elements(
        text,
        is_level,
        "a comma-separated list of components with levels of Envoy, such as misc:error,upstream:debug",
    )
}

/// Whether Envoy may have a component of this name. `default` and `all` are scopes of Istio's own programs.
fn is_component(name: &str) -> bool {
    !matches!(name, "" | "default" | "all")
}

/// Checks the levels of the agent's scopes. The agent ignores a scope that it does not have, and uses its default for an empty string
/// (`updateScopes` and `processLevels` in Istio's `pkg/log/config.go`).
pub(super) fn agent(text: &str) -> Result<(), &'static str> {
    let is_level = |element: &str| Level::named(element.split_once(':').map_or(element, |(_, level)| level)).is_some();
    elements(
        text,
        is_level,
        "a comma-separated list of levels, perhaps with a scope: default:info,ads:debug; levels are debug, info, warn, error, fatal and none",
    )
}

fn elements(text: &str, is_valid: impl Fn(&str) -> bool, allowed: &'static str) -> Result<(), &'static str> {
    // For an empty string, the program uses its default.
    (text.is_empty() || text.split(',').all(is_valid)).then_some(()).ok_or(allowed)
}

/// Checks the levels in the arguments of the sidecar.
///
/// # Errors
/// A level is invalid. The message names the argument and the valid levels.
pub(super) fn check(pod: &Value) -> Result<(), String> {
    let sidecars = [CONTAINERS, INIT_CONTAINERS].into_iter().flat_map(|which| pod::containers(pod, which));
    for sidecar in sidecars.filter(|item| pod::name(item) == container::PROXY) {
        let args: Vec<&str> = pod::list(sidecar, "args").iter().filter_map(Value::as_str).collect();
        for (at, arg) in args.iter().enumerate() {
            let (flag, value) = arg.split_once('=').unwrap_or((arg, args.get(at + 1).unwrap_or(&"")));
            let Some((_, check)) = ARGUMENTS.iter().find(|(known, _)| *known == flag) else { continue };
            if !value.contains("$(") {
                check(value)
                    .map_err(|allowed| format!("container {}: {flag} {value:?} must be {allowed}", container::PROXY))?;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_level_that_the_program_does_not_have_is_refused() {
        for (check, valid, invalid) in [
            (
                proxy as Check,
                &["", "debug", "warn", "info,misc:error", "upstream:debug"][..],
                &["loud", "none", "INFO", "info,", "info,misc:loud", "debug ", ":info", "default:info", "all:info"][..],
            ),
            (
                components,
                &["", "misc:error", "misc:error,upstream:off"],
                &["error", "misc", ":error", "misc:loud", "misc:error,", "default:info"],
            ),
            (
                agent,
                &["", "info", "default:none", "all:debug,ads:warn", ":info", "upstream:debug"],
                &["default:loud", "warning", "a:b:info", "info,"],
            ),
        ] {
            for text in valid {
                assert_eq!(check(text), Ok(()), "{text}");
            }
            for text in invalid {
                check(text).unwrap_err();
            }
        }
    }

    #[test]
    fn the_levels_of_helms_values_are_checked_in_the_arguments_of_the_sidecar() {
        let refused =
            |args: &[&str]| check(&json!({"spec": {"containers": [{"name": "istio-proxy", "args": args}]}})).err();
        assert_eq!(
            refused(&["proxy", "--proxyLogLevel=info", "--log_output_level", "default:info", "--other=loud"]),
            None
        );
        assert_eq!(refused(&["--proxyLogLevel=$(LEVEL)"]), None);
        for args in [&["--proxyLogLevel=loud"][..], &["--proxyLogLevel", "loud"]] {
            let reason = refused(args).unwrap();
            assert!(
                reason.starts_with("container istio-proxy: --proxyLogLevel \"loud\" must be trace, debug,"),
                "{reason}"
            );
        }
    }
}
