//! The arguments of `istio-init` and `istio-validation`.

use std::collections::BTreeMap;

use clap::error::ErrorKind;
use contract::container;
use redirect::iptables::{Etc, Flags, Settings};
use serde_json::Value;

use crate::pod;

/// Parses the arguments of `istio-init` or `istio-validation`; `None` for any other container, and for arguments of another program, with
/// an unknown flag such as one of another release, or with a variable that the kubelet expands.
///
/// # Errors
/// An argument is invalid; the message names the container.
pub(super) fn settings(container: &Value) -> Result<Option<Settings>, String> {
    if !matches!(pod::name(container), container::INIT | container::VALIDATION) {
        return Ok(None);
    }
    let args: Vec<&str> = pod::list(container, "args").iter().filter_map(Value::as_str).collect();
    if args.first() != Some(&"istio-iptables") || args.iter().any(|arg| arg.contains("$(")) {
        return Ok(None);
    }
    let invalid = |error: &str| format!("container {}: {error}", pod::name(container));
    let flags = match Flags::parse_argv(args.into_iter().map(Into::into).collect()) {
        Ok(flags) => flags,
        Err(error) if error.kind() == ErrorKind::UnknownArgument => return Ok(None),
        Err(error) => return Err(invalid(error.to_string().lines().next().unwrap_or_default())),
    };
    let settings = Settings::parse(&flags, &BTreeMap::new(), &Etc::none());
    settings.map(Some).map_err(|error| invalid(&error.to_string()))
}
