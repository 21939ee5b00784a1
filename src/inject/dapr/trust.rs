//! What sidecars are given to prove and check identities: plain values, which a watch keeps current.

use serde_json::Value;

/// Of release 1.4.2: the issuer's certificate and key, which each sidecar holds.
#[derive(Clone, PartialEq, Eq)]
pub struct Issuer {
    /// PEM.
    pub chain: String,
    /// PEM; a secret.
    pub key: String,
}

impl std::fmt::Debug for Issuer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Issuer").field("chain", &self.chain).finish_non_exhaustive()
    }
}

/// Trust of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trust {
    /// PEM; absent until they were read, and then no pod is injected.
    pub anchors: Option<String>,
    /// Of release 1.4.2 alone.
    pub issuer: Option<Issuer>,
    /// Whether sidecars speak mTLS, [`mtls_enabled`].
    pub mtls: bool,
}

/// Whether the Configuration `daprsystem` of the control plane's namespace asks for mTLS; it does where nothing else is said.
pub fn mtls_enabled(configuration: Option<&Value>) -> bool {
    configuration.and_then(|object| object.pointer("/spec/mtls/enabled")?.as_bool()).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn mtls_is_on_unless_it_is_switched_off() {
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
    fn the_issuers_key_is_in_no_log() {
        let issuer = Issuer { chain: "CHAIN".into(), key: "SECRET".into() };
        assert!(!format!("{issuer:?}").contains("SECRET"));
    }
}
