//! Loads the settings of Dapr's injection from flags, most of which set environment variables of Dapr's injector.
//!
//! Sends no requests to a cluster: the state that Dapr's injector reads from the cluster is taken from flags and the
//! input documents, or assumed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use dapr::{Component, Era, Facts, Settings, Trust};
use serde_json::Value;

use super::{Error, text};

#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Dapr")]
#[group(skip)]
pub(super) struct DaprFlags {
    /// Image of daprd
    #[arg(long = "daprImage", env = "SIDECAR_IMAGE", value_name = "IMAGE")]
    dapr_image: Option<String>,
    /// Namespace of Dapr's control plane
    #[arg(long = "daprNamespace", default_value = "dapr-system", value_name = "NAMESPACE")]
    dapr_namespace: String,
    /// File of the mesh's trust anchors, such as ca.crt of the ConfigMap dapr-trust-bundle
    #[arg(long = "daprTrustAnchors", env = "DAPR_TRUST_ANCHORS_FILE", value_name = "FILE")]
    dapr_trust_anchors: Option<PathBuf>,
    /// Sidecars speak mTLS
    #[arg(long = "daprMtls", default_value_t = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = clap::ArgAction::Set)]
    dapr_mtls: bool,
    /// A variable of the injector, such as NATIVE_SIDECAR_ENABLED=true; as often as you like
    #[arg(long = "daprSet", value_name = "NAME=VALUE", value_parser = variable)]
    dapr_set: Vec<(String, String)>,
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| format!("{text:?}: write NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Dapr's injection settings, and the state of the cluster that the injection assumes.
pub(super) struct Loaded {
    pub(super) settings: Settings,
    trust: Trust,
    accounts: BTreeSet<String>,
    components: Vec<Component>,
}

impl DaprFlags {
    /// Loads the settings for an injection. Dapr's Components among the `documents` can add containers to the pods.
    pub(super) fn load(&self, documents: &[Value]) -> Result<Loaded, Error> {
        let path = self.dapr_trust_anchors.as_deref().ok_or(Error::NoTrustAnchors)?;
        self.load_with(self.dapr_image.clone(), text::read(path)?, documents)
    }

    /// Like [`load`](Self::load), with placeholders for a missing image and missing trust anchors.
    pub(super) fn load_to_explain(&self, documents: &[Value]) -> Result<Loaded, Error> {
        self.load_with(self.dapr_image.clone().or(Some("daprd".to_owned())), String::new(), documents)
    }

    fn load_with(&self, image: Option<String>, anchors: String, documents: &[Value]) -> Result<Loaded, Error> {
        let named = [("NAMESPACE", Some(self.dapr_namespace.clone())), ("SIDECAR_IMAGE", image)];
        let given = named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
        let env: BTreeMap<String, String> = given.chain(self.dapr_set.iter().cloned()).collect();
        let settings = Settings::from_env(&env, "", Era::Current).map_err(Error::DaprSettings)?;
        let is_component = |document: &&Value| {
            let version = document["apiVersion"].as_str().unwrap_or_default();
            document["kind"] == "Component" && version.starts_with("dapr.io/")
        };
        let components = documents.iter().filter(is_component).filter_map(Component::read).collect();
        let trust = Trust { anchors: Some(anchors), issuer: None, mtls: self.dapr_mtls };
        Ok(Loaded { settings, trust, accounts: BTreeSet::new(), components })
    }
}

impl Loaded {
    pub(super) fn facts(&self) -> Facts<'_> {
        Facts { accounts: &self.accounts, trust: &self.trust, components: Some(&self.components) }
    }
}
