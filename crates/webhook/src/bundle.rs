//! The caBundles of MutatingWebhookConfigurations: checks whether they verify the server's certificate, and creates
//! patches for those that do not.
//!
//! `present` calls this module, watches the configurations and sends the patches. This module does no I/O.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, MutatingWebhookConfiguration};
use rustls::pki_types::UnixTime;
use serde_json::{Value, json};

use super::identity::{self, Identity};

/// Selects the webhook configurations, and the webhooks in them, that refer to this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The configuration's name. If it is empty, `labels` selects the configurations.
    pub name: String,
    /// A label selector, such as `istio.io/rev=default`, which applies if `name` is empty.
    pub labels: String,
    /// The suffix of the webhooks' names.
    pub webhook: String,
}

/// A webhook that refers to this server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hook {
    /// The configuration's name.
    configuration: String,
    /// The configuration's resourceVersion, which a patch tests.
    version: String,
    /// The webhook's index in the configuration.
    index: usize,
    /// The webhook's name.
    name: String,
    /// The host to which the API server connects, for which the certificate must be valid.
    server: String,
    /// The caBundle in PEM.
    bundle: Vec<u8>,
}

/// A patch of one configuration.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BundlePatch {
    pub(super) configuration: String,
    /// The JSON patch, which fails if the configuration has changed since it was read.
    pub(super) patch: Value,
}

impl Selection {
    /// Whether a name or a label selector is set.
    pub(super) fn is_some(&self) -> bool {
        !(self.name.is_empty() && self.labels.is_empty())
    }

    /// Returns the webhooks of these configurations that refer to this server.
    pub(super) fn hooks<'a>(&self, all: impl IntoIterator<Item = &'a MutatingWebhookConfiguration>) -> Vec<Hook> {
        let of = |configuration: &'a MutatingWebhookConfiguration| {
            let webhooks = configuration.webhooks.iter().flatten().enumerate();
            let ours = webhooks.filter(|(_, webhook)| webhook.name.ends_with(&self.webhook));
            ours.map(move |(index, webhook)| hook(configuration, index, webhook))
        };
        all.into_iter().flat_map(of).collect()
    }

    /// Returns the message that no webhook matches the selection.
    pub(super) fn describe_absence(&self) -> String {
        format!("there is no MutatingWebhookConfiguration {self} with a webhook whose name ends with {}", self.webhook)
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.name.is_empty() { write!(f, "labelled {}", self.labels) } else { write!(f, "named {}", self.name) }
    }
}

fn hook(configuration: &MutatingWebhookConfiguration, index: usize, webhook: &MutatingWebhook) -> Hook {
    let (metadata, client) = (&configuration.metadata, &webhook.client_config);
    let by_service = client.service.as_ref().map(|service| format!("{}.{}.svc", service.name, service.namespace));
    let by_url = || client.url.as_deref().and_then(host).unwrap_or_default().to_owned();
    Hook {
        configuration: metadata.name.clone().unwrap_or_default(),
        version: metadata.resource_version.clone().unwrap_or_default(),
        index,
        name: webhook.name.clone(),
        server: by_service.unwrap_or_else(by_url),
        bundle: client.ca_bundle.as_ref().map(|bundle| bundle.0.clone()).unwrap_or_default(),
    }
}

/// Returns the host of an `https` URL.
fn host(url: &str) -> Option<&str> {
    let authority = url.strip_prefix("https://")?.split('/').next()?;
    match authority.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next(),
        None => authority.split(':').next(),
    }
}

/// Checks that the API server would trust `identity` at each of these webhooks.
pub(super) fn verify(identity: &Identity, hooks: &[Hook], now: UnixTime) -> Result<(), String> {
    let wrong = |hook: &Hook, error: identity::Error| format!("{} of {}: {error}", hook.name, hook.configuration);
    hooks.iter().try_for_each(|hook| identity.trusted(&hook.bundle, &hook.server, now).map_err(|e| wrong(hook, e)))
}

/// Whether the API server would trust `identity` at any of these webhooks.
pub(super) fn is_trusted(identity: &Identity, hooks: &[Hook], now: UnixTime) -> bool {
    hooks.iter().any(|hook| identity.trusted(&hook.bundle, &hook.server, now).is_ok())
}

/// Returns patches that write the authorities of `identity` into all caBundles that do not verify it. If `fresh` is
/// set, also replaces caBundles that verify `identity` but differ from its authorities; the caller sets it for new
/// authorities that were read from files. Without `fresh`, such a caBundle stays, because it may contain the
/// authorities of a newer certificate of another replica.
pub(super) fn patches(identity: &Identity, hooks: &[Hook], fresh: bool, now: UnixTime) -> Vec<BundlePatch> {
    let authorities = identity.authorities().as_bytes();
    let wrong = |hook: &&Hook| {
        let differs = hook.bundle != authorities;
        differs && (fresh || identity.trusted(&hook.bundle, &hook.server, now).is_err())
    };
    let mut by_configuration = BTreeMap::<&str, Vec<&Hook>>::new();
    for hook in hooks.iter().filter(wrong) {
        by_configuration.entry(&hook.configuration).or_default().push(hook);
    }
    by_configuration
        .into_iter()
        .map(|(name, hooks)| BundlePatch { configuration: name.to_owned(), patch: patch(&hooks, authorities) })
        .collect()
}

fn patch(hooks: &[&Hook], authorities: &[u8]) -> Value {
    let version = hooks.first().map(|hook| &hook.version);
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })];
    for hook in hooks {
        let at = format!("/webhooks/{}", hook.index);
        operations.push(json!({ "op": "test", "path": format!("{at}/name"), "value": hook.name }));
        let (path, value) = (format!("{at}/clientConfig/caBundle"), STANDARD.encode(authorities));
        operations.push(json!({ "op": "add", "path": path, "value": value }));
    }
    Value::Array(operations)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::issue::{Issued, Lifetime};
    use super::*;

    fn selection() -> Selection {
        Selection { name: "i".into(), labels: String::new(), webhook: "sidecar-injector.istio.io".into() }
    }

    fn issued(former: Option<&Issued>) -> Issued {
        let names = ["injector.istio-system.svc".to_owned()];
        Issued::new(&names, Lifetime(Duration::from_secs(3600)), UnixTime::now(), former).unwrap()
    }

    fn hooks(bundle: &str) -> Vec<Hook> {
        let client = json!({ "service": { "name": "injector", "namespace": "istio-system" }, "caBundle": STANDARD.encode(bundle) });
        let configuration = json!({ "metadata": { "name": "i", "resourceVersion": "7" }, "webhooks": [
            { "name": "other.example.com", "clientConfig": { "url": "https://x" } },
            { "name": "namespace.sidecar-injector.istio.io", "clientConfig": client },
        ]});
        let mut configuration: Value = configuration;
        for webhook in configuration["webhooks"].as_array_mut().unwrap() {
            webhook["sideEffects"] = "None".into();
            webhook["admissionReviewVersions"] = json!(["v1"]);
        }
        selection().hooks(&[serde_json::from_value(configuration).unwrap()])
    }

    #[test]
    fn only_an_empty_or_foreign_bundle_is_patched() {
        let (own, foreign) = (issued(None), issued(None));
        let identity = own.identity().unwrap();
        for bundle in ["", "no certificate", &foreign.authorities] {
            let patches = patches(&identity, &hooks(bundle), false, UnixTime::now());
            assert_eq!(patches.len(), 1, "{bundle}");
            let patch = &patches[0].patch;
            assert_eq!(patch[0], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" }));
            assert_eq!(patch[1]["path"], "/webhooks/1/name");
            assert_eq!(patch[2]["value"], STANDARD.encode(&own.authorities));
            assert!(verify(&identity, &hooks(bundle), UnixTime::now()).is_err());
        }
        assert_eq!(patches(&identity, &hooks(&own.authorities), true, UnixTime::now()), []);
    }

    #[test]
    fn an_older_replica_leaves_the_bundle_of_a_newer_one() {
        let old = issued(None);
        let new = issued(Some(&old));
        let (older, newer) = (old.identity().unwrap(), new.identity().unwrap());
        assert_eq!(patches(&older, &hooks(&new.authorities), false, UnixTime::now()), []);
        assert_eq!(patches(&newer, &hooks(&old.authorities), false, UnixTime::now()).len(), 1);
        // With `fresh`, a new authority is written even if the bundle still verifies the certificate.
        assert_eq!(patches(&older, &hooks(&new.authorities), true, UnixTime::now()).len(), 1);
    }

    #[test]
    fn hosts_of_urls() {
        for (url, expected) in [
            ("https://injector.example.com:443/inject", Some("injector.example.com")),
            ("https://[::1]:443/inject", Some("::1")),
            ("http://x", None),
        ] {
            assert_eq!(host(url), expected);
        }
    }
}
