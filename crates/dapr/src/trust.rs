//! The trust material that sidecars get. The webhook watches it.

use serde_json::Value;

/// The issuer's certificate and key, which each sidecar of release 1.4.2 holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Issuer {
    /// PEM
    pub chain: String,
    /// PEM, secret
    pub key: String,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// The mesh's trust material.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// PEM; `None` until loaded, and until then no pod is injected.
    pub anchors: Option<String>,
    /// Only for release 1.4.2.
    pub issuer: Option<Issuer>,
    /// Whether sidecars use mTLS; see [`mtls_enabled`].
    pub mtls: bool,
}

/// Whether the Configuration `daprsystem` in the control plane's namespace enables mTLS, which is the default.
pub fn mtls_enabled(configuration: Option<&Value>) -> bool {
    configuration.and_then(|object| object.pointer("/spec/mtls/enabled")?.as_bool()).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mtls_is_enabled_unless_disabled() {
        for (configuration, expected) in [
            (None, true),
            (Some(json!({"spec": {"mtls": {"enabled": false}}})), false),
            (Some(json!({"spec": {"mtls": {"enabled": true}}})), true),
            (Some(json!({"spec": {"mtls": {"enabled": null}}})), true),
            (Some(json!({"spec": {}})), true),
        ] {
            assert_eq!(mtls_enabled(configuration.as_ref()), expected, "{configuration:?}");
        }
    }

    #[test]
    fn debug_output_omits_the_issuers_key() {
        let issuer = Issuer { chain: "CHAIN".into(), key: "SECRET".into() };
        assert!(!format!("{issuer:?}").contains("SECRET"));
    }
}
