//! The built-in configuration: templates that read Istio's values, and the values for clusters that have none, where no
//! ConfigMap is needed. Pods get a proxy, and a container that validates the redirection.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::config::{Config, Platform};
use super::settings::SIDECAR;
use super::unused::Reads;
use super::{Error, Mesh, Settings, Values};
use crate::contract::{annotation, port};
use crate::inject::pod;

/// The address of the default revision's istiod.
const DISCOVERY: &str = "istiod.istio-system.svc:15012";

/// The files of each template's text. Defines precede the template that uses them.
const TEMPLATES: [(&str, &[&str]); 4] = [
    ("sidecar", &[SHARED, include_str!("builtin/redirection.yaml"), include_str!("builtin/sidecar.yaml")]),
    ("gateway", &[SHARED, include_str!("builtin/gateway.yaml")]),
    ("grpc-agent", &[SHARED, include_str!("builtin/grpc-agent.yaml")]),
    ("grpc-simple", &[SHARED, include_str!("builtin/grpc-simple.yaml")]),
];

/// The values that no value of Istio's stands for.
const COMPILED_IN: &str = "compiledIn";

const SHARED: &str = include_str!("builtin/shared.yaml");

/// The annotations that the sidecar's template uses only in a mesh.
const OF_MESH: [&str; 4] = [
    annotation::BOOTSTRAP_OVERRIDE,
    annotation::READINESS_DELAY,
    annotation::READINESS_PERIOD,
    annotation::READINESS_FAILURES,
];

/// The settings of the built-in configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    /// The proxy's image.
    pub proxy_image: String,
    /// The proxy's arguments; empty: those of Istio's agent, with the log levels of annotations.
    pub proxy_args: Vec<String>,
    /// The image for `istio-iptables --run-validation`.
    pub validation_image: String,
    /// The proxy's port for outbound traffic.
    pub outbound_port: u16,
    /// The proxy's port for inbound traffic.
    pub inbound_port: u16,
    /// The address `host:port` of istiod, for discovery and as CA; empty: no mesh.
    pub discovery: String,
    /// The platform of the cluster.
    pub platform: Platform,
}

impl Default for BuiltIn {
    fn default() -> Self {
        let image = "docker.io/istio/proxyv2:1.30.0";
        Self {
            proxy_image: image.to_owned(),
            proxy_args: Vec::new(),
            validation_image: image.to_owned(),
            outbound_port: port::OUTBOUND,
            inbound_port: port::INBOUND,
            discovery: DISCOVERY.to_owned(),
            platform: Platform::default(),
        }
    }
}

impl BuiltIn {
    /// Returns the templates by name. They read Istio's values and mesh configuration, as Istio's own templates do.
    pub fn templates() -> BTreeMap<&'static str, String> {
        TEMPLATES.into_iter().map(|(name, files)| (name, files.concat())).collect()
    }

    /// Returns the settings with the built-in templates.
    ///
    /// # Errors
    /// A built-in template is invalid.
    pub fn settings() -> Result<Settings, Error> {
        let settings = json!({"policy": "enabled", "defaultTemplates": [SIDECAR], "templates": Self::templates()});
        Settings::parse(&settings.to_string(), None)
    }

    /// Returns the configuration. Metrics are merged and probes rewritten in a mesh, where the image is that of Istio's agent, and else
    /// not, because the image may be any proxy.
    ///
    /// # Errors
    /// The built-in texts are invalid, which no setting causes.
    pub fn config(&self) -> Result<Config, Error> {
        let mut settings = Self::settings()?;
        if let Some(reads) = settings.reads.get_mut(SIDECAR) {
            self.ignore(reads);
        }
        Ok(Config {
            settings,
            values: Values::parse(&self.values().to_string())?,
            mesh: Mesh::parse(&self.mesh().to_string())?,
            revision: String::new(),
            platform: self.platform,
            compliance_policy: String::new(),
        })
    }

    /// Lays values of a file over the built-in ones. Istio's whole values say whether the plugin redirects, and which seccomp profile
    /// containers have: where a file says so, the built-in values do not.
    #[must_use]
    pub fn with_values(mut built_in: Values, values: Values) -> Values {
        if values.raw.pointer("/global/proxy/seccompProfile").is_some() {
            pod::object(&mut built_in.raw).shift_remove(COMPILED_IN);
            let proxy = built_in.raw.pointer_mut("/global/proxy").map(pod::object);
            proxy.and_then(|proxy| proxy.shift_remove("seccompProfile"));
        }
        if values.raw.get("istio_cni").is_some() {
            pod::object(&mut built_in.raw).shift_remove("pilot");
        }
        values.over(built_in)
    }

    /// Leaves out of what the sidecar's template reads the annotations that it names and does not use.
    fn ignore(&self, reads: &mut Reads) {
        if !self.proxy_args.is_empty() {
            reads.ignore(&[annotation::LOG_LEVEL, annotation::COMPONENT_LOG_LEVEL]);
        }
        if self.discovery.is_empty() {
            reads.ignore(&OF_MESH);
            reads.ignore_volume();
        }
    }

    /// The values in place of Istio's: the plugin redirects, on OpenShift called by Multus.
    fn values(&self) -> Value {
        let provider = if self.platform == Platform::OpenShift { "multus" } else { "default" };
        let alone = self.discovery.is_empty();
        let (hub, tag, image) = self.image_parts();
        // One image follows the hub and the tag of other values.
        let validation = if self.validation_image == self.proxy_image { image } else { &self.validation_image };
        json!({
            COMPILED_IN: {"args": self.proxy_args, "alone": alone, "restricted": true},
            "sidecarInjectorWebhook": {"rewriteAppHTTPProbe": !alone},
            "pilot": {"cni": {"enabled": true, "provider": provider}},
            "global": {
                "hub": hub,
                "tag": tag,
                "caAddress": self.discovery,
                "pilotCertProvider": "istiod",
                "logging": {"level": "default:info"},
                "proxy": {
                    "image": image,
                    "logLevel": "warning",
                    "componentLogLevel": "misc:error",
                    "includeIPRanges": "*",
                    "excludeIPRanges": "",
                    "includeInboundPorts": "*",
                    "excludeInboundPorts": "",
                    "statusPort": port::STATUS,
                    "startupProbe": {"enabled": true},
                    // Without this profile the level `restricted` refuses the pod.
                    "seccompProfile": {"type": "RuntimeDefault"},
                    "resources": {
                        "limits": {"cpu": "2", "memory": "1Gi"},
                        "requests": {"cpu": "100m", "memory": "128Mi"},
                    },
                },
                "proxy_init": {"image": validation},
            },
        })
    }

    /// Returns hub, tag and name of the proxy's image, of which annotations may change the tag's variant. An image with
    /// a digest, or without a tag, has no variants and stays whole.
    fn image_parts(&self) -> (&str, &str, &str) {
        let image = &*self.proxy_image;
        let parts = image.rsplit_once('/').and_then(|(hub, rest)| {
            let (name, tag) = rest.split_once(':')?;
            (!hub.is_empty() && !name.contains('@')).then_some((hub, tag, name))
        });
        parts.unwrap_or(("", "", image))
    }

    fn mesh(&self) -> Value {
        let mut mesh = json!({
            "proxyListenPort": self.outbound_port,
            "proxyInboundListenPort": self.inbound_port,
            "enablePrometheusMerge": !self.discovery.is_empty(),
            "trustDomain": "cluster.local",
        });
        if !self.discovery.is_empty() {
            mesh["defaultConfig"] = json!({"discoveryAddress": self.discovery});
        }
        mesh
    }
}

#[cfg(test)]
mod tests;
