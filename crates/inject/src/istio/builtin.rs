//! The built-in configuration, which needs no ConfigMap: templates that read Istio's Helm values, and default values
//! for clusters without them. Pods get a proxy, and a container that validates the redirection.

mod over;

use std::collections::BTreeMap;

use contract::{annotation, port};
use serde_json::{Value, json};

use super::config::{Config, Platform};
use super::settings::SIDECAR;
use super::unused::Reads;
use super::{Error, Mesh, Settings, Values};

/// The default namespace of istiod.
const NAMESPACE: &str = "istio-system";

/// The files of which each template is composed. Files with `define`s precede the file that uses them.
const TEMPLATES: [(&str, &[&str]); 4] = [
    ("sidecar", &[SHARED, include_str!("builtin/redirection.yaml"), include_str!("builtin/sidecar.yaml")]),
    ("gateway", &[SHARED, include_str!("builtin/gateway.yaml")]),
    ("grpc-agent", &[SHARED, include_str!("builtin/grpc-agent.yaml")]),
    ("grpc-simple", &[SHARED, include_str!("builtin/grpc-simple.yaml")]),
];

/// The key of the built-in values that Istio's Helm values do not have.
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
    /// The proxy's arguments. Empty: the arguments of Istio's agent, with the log levels in the pod's annotations.
    pub proxy_args: Vec<String>,
    /// The image for `istio-iptables --run-validation`.
    pub validation_image: String,
    /// The proxy's port for outbound traffic.
    pub outbound_port: u16,
    /// The proxy's port for inbound traffic.
    pub inbound_port: u16,
    /// The revision of istiod; empty: the default revision.
    pub revision: String,
    /// The namespace of istiod.
    pub namespace: String,
    /// The address `host:port` of istiod, for discovery and as CA. `None`: istiod of `revision` in `namespace`; empty: no mesh, and so no
    /// istiod.
    pub discovery: Option<String>,
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
            revision: String::new(),
            namespace: NAMESPACE.to_owned(),
            discovery: None,
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

    /// Returns the configuration. In a mesh, where the proxy's image contains Istio's agent, metrics are merged and probes rewritten.
    /// Without a mesh, neither is done, because the image may be any proxy.
    ///
    /// # Errors
    /// The built-in templates, values or mesh configuration are invalid, which no setting causes.
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

    /// Returns the configuration with Helm values merged over the built-in ones, and with `mesh`, if there is one, in place of the built-in
    /// mesh configuration. The values name istiod's revision and namespace and, if `platform` is `None`, the platform.
    ///
    /// # Errors
    /// The built-in templates, values or mesh configuration are invalid, which no setting causes.
    pub fn config_with(values: Values, mesh: Option<Mesh>, platform: Option<Platform>) -> Result<Config, Error> {
        let values = over::with_names(values);
        let text = |pointer: &str| values.raw.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let namespace = Some(text("/global/istioNamespace")).filter(|namespace| !namespace.is_empty());
        let built_in = Self {
            revision: text("/revision"),
            namespace: namespace.unwrap_or_else(|| NAMESPACE.to_owned()),
            platform: platform.unwrap_or_else(|| Platform::of(&values)),
            ..Self::default()
        };
        let config = built_in.config()?;
        let mesh = match mesh {
            Some(mesh) => mesh.with_discovery(&built_in.address()),
            None => config.mesh,
        };
        Ok(Config { values: over::over(values, config.values), mesh, revision: built_in.revision, ..config })
    }

    /// Returns the address of istiod; empty if there is no mesh.
    pub fn address(&self) -> String {
        let revision = if self.revision.is_empty() { String::new() } else { format!("-{}", self.revision) };
        self.discovery.clone().unwrap_or_else(|| format!("istiod{revision}.{}.svc:15012", self.namespace))
    }

    /// Whether there is no mesh.
    fn is_alone(&self) -> bool {
        self.discovery.as_deref() == Some("")
    }

    /// Removes from `reads`, the names that the sidecar's template reads, the annotations that it does not use with these settings.
    fn ignore(&self, reads: &mut Reads) {
        if !self.proxy_args.is_empty() {
            reads.ignore(&[annotation::LOG_LEVEL, annotation::COMPONENT_LOG_LEVEL]);
        }
        if self.is_alone() {
            reads.ignore(&OF_MESH);
            reads.ignore_volume();
        }
    }

    /// Returns the default values. The plugin redirects traffic; on OpenShift, Multus calls the plugin.
    fn values(&self) -> Value {
        let provider = if self.platform == Platform::OpenShift { "multus" } else { "default" };
        let alone = self.is_alone();
        let (hub, tag, image) = self.image_parts();
        // If both images are the same, a hub and a tag in the user's values apply to both.
        let validation = if self.validation_image == self.proxy_image { image } else { &self.validation_image };
        json!({
            COMPILED_IN: {"args": self.proxy_args, "alone": alone, "restricted": true},
            "sidecarInjectorWebhook": {"rewriteAppHTTPProbe": !alone},
            "pilot": {"cni": {"enabled": true, "provider": provider}},
            "revision": self.revision,
            "global": {
                "istioNamespace": self.namespace,
                "hub": hub,
                "tag": tag,
                "caAddress": self.discovery.as_deref().unwrap_or_default(),
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
                    // The Pod Security Standard `restricted` requires this profile.
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

    /// Returns hub, tag and name of the proxy's image, so that an annotation can select another variant of the tag. An
    /// image with a digest, or without a tag, has no variants: it is returned whole as the name.
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
            "enablePrometheusMerge": !self.is_alone(),
            "trustDomain": "cluster.local",
        });
        if !self.is_alone() {
            mesh["defaultConfig"] = json!({"discoveryAddress": self.address()});
        }
        mesh
    }
}

#[cfg(test)]
mod tests;
