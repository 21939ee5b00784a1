//! The built-in configuration, which needs no ConfigMap: it injects a proxy and a container that validates the
//! redirection.

use serde_json::json;

use super::config::{Config, Platform};
use super::{Error, Mesh, Settings, Values};
use crate::contract::port;

/// The address of the default revision's istiod.
const DISCOVERY: &str = "istiod.istio-system.svc:15012";

const SETTINGS: &str = include_str!("builtin/config.yaml");

/// The settings of the built-in configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuiltIn {
    /// The proxy's image.
    pub proxy_image: String,
    /// The proxy's arguments.
    pub proxy_args: Vec<String>,
    /// The image for `istio-iptables --run-validation`.
    pub validation_image: String,
    /// The proxy's port for outbound traffic.
    pub outbound_port: u16,
    /// The proxy's port for inbound traffic.
    pub inbound_port: u16,
    /// The address `host:port` of istiod, for discovery and as CA; empty: no mesh.
    pub discovery: String,
}

impl Default for BuiltIn {
    fn default() -> Self {
        let image = "docker.io/istio/proxyv2:1.30.0";
        Self {
            proxy_image: image.to_owned(),
            proxy_args: ["proxy", "sidecar"].map(str::to_owned).to_vec(),
            validation_image: image.to_owned(),
            outbound_port: port::OUTBOUND,
            inbound_port: port::INBOUND,
            discovery: DISCOVERY.to_owned(),
        }
    }
}

impl BuiltIn {
    /// Returns the configuration. Metrics are not merged and probes not rewritten, because the image may be any proxy.
    ///
    /// # Errors
    /// The built-in texts are invalid, which no setting causes.
    pub fn config(&self) -> Result<Config, Error> {
        let resources = json!({
            "limits": {"cpu": "2", "memory": "1Gi"},
            "requests": {"cpu": "100m", "memory": "128Mi"},
        });
        let values = json!({"global": {
            "caAddress": self.discovery,
            "proxy": {"image": self.proxy_image, "args": self.proxy_args, "resources": resources},
            "proxy_init": {"image": self.validation_image},
        }});
        let mut mesh = json!({
            "proxyListenPort": self.outbound_port,
            "proxyInboundListenPort": self.inbound_port,
            "enablePrometheusMerge": false,
            "trustDomain": "cluster.local",
        });
        if !self.discovery.is_empty() {
            mesh["defaultConfig"] = json!({"discoveryAddress": self.discovery});
        }
        Ok(Config {
            settings: Settings::parse(SETTINGS, None)?,
            values: Values::parse(&values.to_string())?,
            mesh: Mesh::parse(&mesh.to_string())?,
            revision: String::new(),
            platform: Platform::default(),
            compliance_policy: String::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::inject::istio::{InjectionOutcome, Injector, Request};

    fn injected(built_in: &BuiltIn, native_sidecars: bool, pod: &Value) -> Value {
        let injector = Injector::new(built_in.config().unwrap());
        let request = Request { native_sidecars, ..Request::new(pod, "shop") };
        match injector.review(&request).unwrap() {
            InjectionOutcome::Injected { injected, .. } => injected.pod,
            InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
        }
    }

    fn pod() -> Value {
        json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app", "image": "i"}]}})
    }

    #[test]
    fn a_pod_gets_a_proxy_and_its_validation() {
        let built_in = BuiltIn {
            proxy_image: "r/proxy:1".to_owned(),
            proxy_args: vec!["--flag".to_owned(), "a \"quoted\" one".to_owned()],
            validation_image: "r/tools:2".to_owned(),
            outbound_port: 25001,
            inbound_port: 25006,
            discovery: String::new(),
        };
        let pod = injected(&built_in, false, &pod());
        let validation = &pod["spec"]["initContainers"][0];
        assert_eq!((&validation["name"], &validation["image"]), (&json!("istio-validation"), &json!("r/tools:2")));
        assert_eq!(validation["args"][2], "25001");
        assert_eq!(validation["args"][4], "25006");
        let proxy = &pod["spec"]["containers"][1];
        assert_eq!((&proxy["name"], &proxy["image"]), (&json!("istio-proxy"), &json!("r/proxy:1")));
        assert_eq!(proxy["args"], json!(["--flag", "a \"quoted\" one"]));
        assert_eq!(proxy["resources"]["limits"]["cpu"], "2");
        assert_eq!(pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"], "app");
        assert!(pod["metadata"]["annotations"].get("prometheus.io/port").is_none());
    }

    /// Returns the item with this name.
    fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
        list.as_array().unwrap().iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("no {name}: {list}"))
    }

    #[test]
    fn a_proxy_joins_the_mesh_of_istiod() {
        let built_in = BuiltIn { discovery: "istiod-canary.istio-system.svc:15012".to_owned(), ..BuiltIn::default() };
        let pod = injected(&built_in, false, &pod());
        let proxy = &pod["spec"]["containers"][1];
        let value = |name: &str| named(&proxy["env"], name)["value"].as_str().unwrap().to_owned();
        assert_eq!(value("CA_ADDR"), built_in.discovery);
        let config: Value = serde_json::from_str(&value("PROXY_CONFIG")).unwrap();
        assert_eq!(config["discoveryAddress"], *built_in.discovery);
        assert_eq!((&*value("PILOT_CERT_PROVIDER"), &*value("TRUST_DOMAIN")), ("istiod", "cluster.local"));
        assert_eq!(proxy["readinessProbe"]["httpGet"], json!({"path": "/healthz/ready", "port": 15021}));
        assert_eq!(named(&proxy["volumeMounts"], "istio-token")["mountPath"], "/var/run/secrets/tokens");
        assert_eq!(named(&proxy["volumeMounts"], "istiod-ca-cert")["mountPath"], "/var/run/secrets/istio");
        let token = &named(&pod["spec"]["volumes"], "istio-token")["projected"]["sources"][0]["serviceAccountToken"];
        assert_eq!(token, &json!({"path": "istio-token", "audience": "istio-ca", "expirationSeconds": 43200}));
        let root = &named(&pod["spec"]["volumes"], "istiod-ca-cert")["configMap"];
        assert_eq!(root, &json!({"name": "istio-ca-root-cert"}));
        assert_eq!(pod["metadata"]["labels"]["security.istio.io/tlsMode"], "istio");
    }

    #[test]
    fn a_proxy_without_a_mesh_does_not_wait_for_istiod() {
        let alone = injected(&BuiltIn { discovery: String::new(), ..BuiltIn::default() }, true, &pod());
        let proxy = &alone["spec"]["initContainers"][1];
        assert_eq!((proxy.get("readinessProbe"), proxy.get("startupProbe")), (None, None));
        let volumes: Vec<_> = alone["spec"]["volumes"].as_array().unwrap().iter().map(|v| &v["name"]).collect();
        assert_eq!(volumes, ["istio-envoy", "istio-data"]);
    }

    #[test]
    fn a_native_sidecar_follows_its_validation() {
        let pod = injected(&BuiltIn::default(), true, &pod());
        let names: Vec<_> = pod["spec"]["initContainers"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
        assert_eq!(names, ["istio-validation", "istio-proxy"]);
        assert_eq!(pod["spec"]["initContainers"][1]["restartPolicy"], "Always");
        assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
        assert_eq!(injected(&BuiltIn::default(), true, &pod), pod);
    }

    #[test]
    fn tproxy_requires_a_privileged_proxy_and_none_omits_validation() {
        let mode = |mode: &str| {
            let mut pod = pod();
            pod["metadata"]["annotations"] = json!({"sidecar.istio.io/interceptionMode": mode});
            injected(&BuiltIn::default(), false, &pod)
        };
        let tproxy = mode("TPROXY");
        let context = &tproxy["spec"]["containers"][1]["securityContext"];
        assert_eq!((&context["runAsUser"], &context["capabilities"]["add"]), (&json!(0), &json!(["NET_ADMIN"])));
        assert_eq!(tproxy["spec"]["initContainers"][0]["securityContext"]["runAsUser"], 1337);
        assert!(mode("NONE")["spec"].get("initContainers").is_none());
        let mut own = pod();
        own["metadata"]["annotations"] = json!({"sidecar.istio.io/interceptionMode": "NONE"});
        own["spec"]["initContainers"] = json!([{"name": "own"}]);
        let own = injected(&BuiltIn::default(), false, &own);
        assert_eq!(own["spec"]["initContainers"], json!([{"name": "own"}]));
    }
}
