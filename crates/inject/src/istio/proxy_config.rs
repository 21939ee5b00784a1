//! Validation of a proxy configuration.
//!
//! `mesh` checks a configuration that a pod's annotation changes, so that the pod's author gets an error instead of a
//! proxy that never becomes ready.

use contract::annotation;
use serde_json::Value;

use super::Error;
use crate::pod;

type Check = fn(&Value) -> bool;

const PORT: &str = "a configuration whose ports are from 1 to 65535";
const DRAIN: &str = "a configuration whose drainDuration is at least 1s, and whole seconds";

/// JSON pointer, check and description of the valid values of each field.
const CHECKS: [(&str, Check, &str); 8] = [
    ("/statusPort", is_port, PORT),
    ("/proxyAdminPort", is_port, PORT),
    (
        "/concurrency",
        |value| value.as_i64().is_some_and(|number| number >= 0),
        "a configuration whose concurrency is not negative",
    ),
    ("/configPath", is_nonempty, "a configuration whose configPath is not empty"),
    ("/binaryPath", is_nonempty, "a configuration whose binaryPath is not empty"),
    ("/drainDuration", |value| whole_seconds(value).is_some_and(|seconds| seconds > 0), DRAIN),
    ("/discoveryAddress", is_address, "a configuration whose discoveryAddress is host:port"),
    (
        "/tracing/sampling",
        |value| value.as_f64().is_some_and(|share| (0.0..=100.0).contains(&share)),
        "a configuration whose tracing.sampling is from 0 to 100",
    ),
];

/// Checks a configuration in protobuf's JSON.
///
/// # Errors
/// A field is invalid.
pub(super) fn check(config: &Value) -> Result<(), Error> {
    let wrong = |value: &Value, allowed| Err(Error::annotation(annotation::PROXY_CONFIG, &value.to_string(), allowed));
    for (pointer, is_valid, allowed) in CHECKS {
        if let Some(value) = config.pointer(pointer).filter(|value| !is_valid(value)) {
            return wrong(value, allowed);
        }
    }
    for provider in ["cryptomb", "qat"] {
        let Some(provider) = config.pointer(&format!("/privateKeyProvider/{provider}")) else { continue };
        let delay = pod::text(provider, "pollDelay");
        if delay.is_empty() || delay == "0s" {
            return wrong(provider, "a configuration whose privateKeyProvider has a pollDelay above zero");
        }
    }
    Ok(())
}

fn is_port(value: &Value) -> bool {
    value.as_u64().is_some_and(|port| (1..=65535).contains(&port))
}

fn is_nonempty(value: &Value) -> bool {
    value.as_str().is_some_and(|text| !text.is_empty())
}

fn whole_seconds(value: &Value) -> Option<u64> {
    value.as_str()?.strip_suffix('s')?.parse().ok()
}

fn is_address(value: &Value) -> bool {
    let parts = value.as_str().and_then(|address| address.rsplit_once(':'));
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_invalid_configuration_is_refused() {
        for config in [
            json!({"statusPort": 0}),
            json!({"proxyAdminPort": 70000}),
            json!({"concurrency": -1}),
            json!({"configPath": ""}),
            json!({"drainDuration": "0s"}),
            json!({"drainDuration": "0.500s"}),
            json!({"discoveryAddress": "istiod"}),
            json!({"tracing": {"sampling": 101}}),
            json!({"privateKeyProvider": {"cryptomb": {}}}),
            json!({"privateKeyProvider": {"qat": {"pollDelay": "0s"}}}),
        ] {
            let error = check(&config).unwrap_err().to_string();
            assert!(
                error.contains("for annotation \"proxy.istio.io/config\": must be a configuration whose"),
                "{error}"
            );
        }
        check(&json!({"discoveryAddress": "istiod.istio-system.svc:15012", "privateKeyProvider": {"cryptomb": {"pollDelay": "0.010s"}}})).unwrap();
    }
}
