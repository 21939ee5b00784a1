//! The mesh configuration, and the proxy configuration of a pod. The latter is composed of Istio's defaults, the mesh's
//! default, the `ProxyConfig` resources for the mesh and the namespace, the pod's annotation, and the `ProxyConfig`
//! resources that select the pod. Later ones take precedence.
//!
//! Both are JSON as protobuf writes it, and checked against their protobuf definition.

use contract::{annotation, port};
use gotemplate::Budget;
use serde_json::{Map, Value, json};

use super::functions::PROXY_DEFAULTS;
use super::{Error, proto, proxy_config};
use crate::{pod, yaml};

/// The mesh configuration, with Istio's defaults.
#[derive(Debug, Clone)]
pub struct Mesh {
    pub(super) json: Value,
    /// Whether the agent also serves the application's metrics.
    pub(super) prometheus_merge: bool,
    /// The paths of fields that Istio's definition lacks, and that are ignored.
    pub(super) unknown: Vec<String>,
    /// Whether the parsed YAML sets istiod's address.
    has_discovery: bool,
}

impl Default for Mesh {
    fn default() -> Self {
        Self { json: defaults(), prometheus_merge: true, unknown: Vec::new(), has_discovery: false }
    }
}

impl Mesh {
    /// Parses the mesh configuration in YAML; an empty string gives Istio's defaults.
    ///
    /// # Errors
    /// The YAML is invalid or not a map, a field has the wrong type, or the status port is not a port.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mesh = yaml::value(text).map_err(|error| Error::Configuration { what: "mesh", error })?;
        let unknown = mesh.as_object().map(|mesh| proto::unknown(proto::MESH_CONFIG, mesh)).unwrap_or_default();
        let mut mesh = match mesh {
            Value::Null => Map::new(),
            Value::Object(mesh) => proto::decode(proto::MESH_CONFIG, mesh).map_err(Error::Mesh)?,
            _ => return Err(Error::NoMap("mesh")),
        };
        let mut json = defaults();
        let proxy = match mesh.shift_remove("defaultConfig") {
            Some(Value::Object(proxy)) => proxy,
            _ => Map::new(),
        };
        let has_discovery = proxy.get("discoveryAddress").is_some_and(|address| !address.is_null());
        overlay(&mut json["defaultConfig"], proxy);
        pod::object(&mut json).extend(mesh);
        Self::read(json, unknown, has_discovery)
    }

    /// Returns the configuration with this address of istiod, unless its YAML sets one.
    #[must_use]
    pub(super) fn with_discovery(mut self, address: &str) -> Self {
        if !self.has_discovery {
            self.json["defaultConfig"]["discoveryAddress"] = address.into();
        }
        self
    }

    fn read(json: Value, unknown: Vec<String>, has_discovery: bool) -> Result<Self, Error> {
        let port = &json["defaultConfig"]["statusPort"];
        let merge = json.get("enablePrometheusMerge").and_then(Value::as_bool).unwrap_or(true);
        if port.as_u64().is_none_or(|port| port > u16::MAX.into()) {
            return Err(Error::StatusPort(port.to_string()));
        }
        Ok(Self { json, prometheus_merge: merge, unknown, has_discovery })
    }

    /// Returns the namespace whose `ProxyConfig` resources apply to the whole mesh.
    pub fn root_namespace(&self) -> &str {
        pod::text(&self.json, "rootNamespace")
    }

    /// Returns the mesh's default proxy configuration.
    pub(super) fn proxy(&self) -> &Value {
        &self.json["defaultConfig"]
    }

    /// Returns the templates' `.InboundTrafficPolicyMode`.
    pub(super) fn inbound_policy(&self) -> &'static str {
        match self.json.pointer("/inboundTrafficPolicy/mode").and_then(Value::as_str) {
            Some("LOCALHOST") => "localhost",
            _ => "passthrough",
        }
    }

    /// Returns the proxy configuration of a pod. `resources`: the `ProxyConfig` objects of the root and the pod's
    /// namespace.
    ///
    /// # Errors
    /// The pod's annotation is not readable or makes the configuration invalid, or reading it exceeds the budget.
    pub(super) fn proxy_of(
        &self,
        subject: &Value,
        namespace: &str,
        resources: &[Value],
        budget: &mut Budget,
    ) -> Result<Value, Error> {
        let mut config = self.proxy().clone();
        let labels = pod::map(pod::metadata(subject), "labels");
        let root = self.root_namespace();
        let of = |namespace, selecting| ResourcesOf { resources, namespace, selecting, labels };
        of(root, false).overlay(&mut config);
        if namespace != root {
            of(namespace, false).overlay(&mut config);
        }
        if let Some(text) = pod::annotation(subject, annotation::PROXY_CONFIG) {
            match yaml::value_within(text, budget) {
                Err(yaml::Error::Exceeded(exceeded)) => return Err(exceeded.into()),
                Err(error) => return Err(Error::Yaml { what: annotation::PROXY_CONFIG, error }),
                Ok(Value::Object(annotated)) => {
                    overlay(&mut config, proto::decode(proto::PROXY_CONFIG, annotated).map_err(Error::ProxyConfig)?);
                    proxy_config::check(&config)?;
                }
                Ok(Value::Null) => {}
                Ok(_) => return Err(Error::annotation(annotation::PROXY_CONFIG, text, "a map in YAML")),
            }
        }
        of(namespace, true).overlay(&mut config);
        Ok(config)
    }
}

/// Returns Istio's defaults.
fn defaults() -> Value {
    let of_proxy = PROXY_DEFAULTS.iter().map(|(field, value)| {
        let value = value.parse::<u64>().map_or_else(|_| Value::from(*value), Value::from);
        ((*field).to_owned(), value)
    });
    json!({
        "proxyListenPort": port::OUTBOUND,
        "proxyInboundListenPort": port::INBOUND,
        "connectTimeout": "10s",
        "trustDomain": "cluster.local",
        "rootNamespace": "istio-system",
        "ingressClass": "istio",
        "ingressService": "istio-ingressgateway",
        "enableTracing": true,
        "defaultConfig": of_proxy.collect::<Map<_, _>>(),
    })
}

/// Sets `fields` in the proxy configuration `config`. The maps `proxyMetadata` and `proxyHeaders` are merged; other
/// fields are replaced. `serviceCluster` and `tracingServiceName` exclude each other: setting one removes the other.
fn overlay(config: &mut Value, fields: Map<String, Value>) {
    for (key, value) in fields {
        match value {
            Value::Null => {}
            Value::Object(members) if matches!(key.as_str(), "proxyMetadata" | "proxyHeaders") => {
                pod::map_mut(config, &key).extend(members);
            }
            value => {
                let names = ["serviceCluster", "tracingServiceName"];
                let config = pod::object(config);
                if names.contains(&key.as_str()) {
                    config.retain(|name, _| !names.contains(&name.as_str()));
                }
                config.insert(key, value);
            }
        }
    }
}

/// The `ProxyConfig` resources of a namespace that may apply to a pod: those for all pods or, if `selecting` is set,
/// those that select the pod by its labels. Of several, the oldest applies; of equally old ones, the first by name.
struct ResourcesOf<'a> {
    resources: &'a [Value],
    namespace: &'a str,
    selecting: bool,
    labels: &'a Map<String, Value>,
}

impl ResourcesOf<'_> {
    fn overlay(&self, config: &mut Value) {
        let age = |resource: &&Value| {
            let metadata = pod::metadata(resource);
            ["creationTimestamp", "name"].map(|key| pod::text(metadata, key).to_owned())
        };
        if let Some(resource) = self.resources.iter().filter(|resource| self.applies_to_pod(resource)).min_by_key(age) {
            overlay(config, from_resource(resource));
        }
    }

    /// Whether a resource applies. One without a selector is for all pods, one with an empty selector for none.
    fn applies_to_pod(&self, resource: &Value) -> bool {
        let selector = pod::spec(resource).get("selector").filter(|selector| !selector.is_null());
        let wanted = selector.map(|selector| pod::map(selector, "matchLabels"));
        let selects = |wanted: &Map<String, Value>| {
            !wanted.is_empty() && wanted.iter().all(|(key, value)| self.labels.get(key) == Some(value))
        };
        pod::text(pod::metadata(resource), "namespace") == self.namespace
            && self.selecting == wanted.is_some()
            && wanted.is_none_or(selects)
    }
}

/// Converts the fields of a `ProxyConfig` resource to those of a proxy configuration.
fn from_resource(resource: &Value) -> Map<String, Value> {
    let spec = pod::spec(resource);
    let names = [("concurrency", "concurrency"), ("image", "image"), ("environmentVariables", "proxyMetadata")];
    names.into_iter().filter_map(|(from, to)| Some((to.to_owned(), spec.get(from)?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_specific_configuration_wins_and_variables_are_merged() {
        let mesh =
            Mesh::parse("defaultConfig: {concurrency: 1, proxy_metadata: {A: m, B: m}, statusPort: 15020}").unwrap();
        let resource = |namespace: &str, selector: Value, spec: Value| {
            let mut resource = json!({"metadata": {"namespace": namespace}, "spec": spec});
            resource["spec"]["selector"] = selector;
            resource
        };
        let resources = [
            resource("istio-system", Value::Null, json!({"concurrency": 2, "environmentVariables": {"B": "root"}})),
            resource("shop", Value::Null, json!({"image": {"imageType": "debug"}})),
            resource("shop", json!({"matchLabels": {"app": "web"}}), json!({"concurrency": 4})),
            resource("other", Value::Null, json!({"concurrency": 9})),
        ];
        let pod = json!({"metadata": {"labels": {"app": "web"},
            "annotations": {annotation::PROXY_CONFIG: "concurrency: 3\nproxyMetadata: {C: pod}"}}});
        let config = mesh.proxy_of(&pod, "shop", &resources, &mut Budget::default()).unwrap();
        assert_eq!(config["concurrency"], 4);
        assert_eq!(config["image"]["imageType"], "debug");
        assert_eq!(config["proxyMetadata"], json!({"A": "m", "B": "root", "C": "pod"}));
        assert_eq!(config["discoveryAddress"], "istiod.istio-system.svc:15012");
    }

    #[test]
    fn of_several_resources_of_a_rank_the_oldest_applies_alone() {
        let resource = |name: &str, created: &str, selector: Value, spec: Value| {
            let metadata = json!({"namespace": "shop", "name": name, "creationTimestamp": created});
            let mut resource = json!({"metadata": metadata, "spec": spec});
            resource["spec"]["selector"] = selector;
            resource
        };
        let (older, newer) = ("2024-05-01T00:00:00Z", "2024-05-02T00:00:00Z");
        let web = || json!({"matchLabels": {"app": "web"}});
        let resources = [
            resource("a", newer, Value::Null, json!({"concurrency": 1, "environmentVariables": {"A": "new"}})),
            resource("c", older, Value::Null, json!({"image": {"imageType": "c"}})),
            resource("b", older, Value::Null, json!({"concurrency": 2})),
            resource("0", "", json!({}), json!({"concurrency": 9, "image": {"imageType": "none"}})),
            resource("1", "", json!({"matchLabels": {}}), json!({"concurrency": 8})),
            resource("x", newer, web(), json!({"concurrency": 3, "environmentVariables": {"X": "new"}})),
            resource("y", older, web(), json!({"environmentVariables": {"Y": "old"}})),
        ];
        let of = |app: &str| {
            let pod = json!({"metadata": {"labels": {"app": app}}});
            Mesh::default().proxy_of(&pod, "shop", &resources, &mut Budget::default()).unwrap()
        };
        assert_eq!((&of("web")["concurrency"], &of("web")["proxyMetadata"]), (&json!(2), &json!({"Y": "old"})));
        let other = of("other");
        assert_eq!((&other["concurrency"], other.get("image"), other.get("proxyMetadata")), (&json!(2), None, None));
    }

    fn annotated(text: &str) -> Result<Value, String> {
        let pod = json!({"metadata": {"annotations": {annotation::PROXY_CONFIG: text}}});
        Mesh::default().proxy_of(&pod, "shop", &[], &mut Budget::default()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_annotation_is_read_by_type() {
        let config = annotated("private_key_provider: {cryptomb: {poll_delay: 10ms}}\nconcurrency: 0").unwrap();
        assert_eq!(config["privateKeyProvider"]["cryptomb"]["pollDelay"], "0.010s");
        assert_eq!(config["concurrency"], 0);
        assert_eq!(annotated("").unwrap(), *Mesh::default().proxy());
        let error = annotated("concurrency: two").unwrap_err();
        assert!(
            error.starts_with("invalid value for annotation \"proxy.istio.io/config\": concurrency is \"two\""),
            "{error}"
        );
    }

    #[test]
    fn an_annotation_that_is_not_a_map_is_refused() {
        for text in ["- a", "x"] {
            let refused =
                format!("invalid value {text:?} for annotation \"proxy.istio.io/config\": must be a map in YAML");
            assert_eq!(annotated(text).unwrap_err(), refused);
        }
        for (text, fault) in
            [("a: [1", "unclosed bracket"), ("a: 1\n...\nb: 1", "line 3 is after the end of the document")]
        {
            let refused = annotated(text).unwrap_err();
            assert!(refused.starts_with("annotation \"proxy.istio.io/config\" is not YAML: "), "{refused}");
            assert!(refused.contains(fault), "{refused}");
        }
    }

    #[test]
    fn a_proxy_has_one_field_for_its_name() {
        let config = annotated("tracingServiceName: CANONICAL_NAME_ONLY").unwrap();
        assert_eq!(
            (&config["tracingServiceName"], config.get("serviceCluster")),
            (&json!("CANONICAL_NAME_ONLY"), None)
        );
    }

    #[test]
    fn the_mesh_is_read_by_type_and_keeps_fields_of_other_releases() {
        let mesh = Mesh::parse("{sdsUdsPath: /x, default_config: {drain_duration: 1m}, enablePrometheusMerge: false}")
            .unwrap();
        assert_eq!(
            (&mesh.json["sdsUdsPath"], &mesh.json["defaultConfig"]["drainDuration"]),
            (&json!("/x"), &json!("60s"))
        );
        assert!(!mesh.prometheus_merge);
        let error = Mesh::parse("enablePrometheusMerge: sometimes").unwrap_err().to_string();
        assert_eq!(
            error,
            "the mesh configuration is invalid: enablePrometheusMerge is \"sometimes\", and must be true or false"
        );
    }

    #[test]
    fn an_invalid_port_is_refused() {
        let error = Mesh::parse("defaultConfig: {statusPort: 70000}").unwrap_err();
        assert_eq!(error.to_string(), "statusPort of the mesh's defaultConfig is 70000, not a port from 0 to 65535");
    }
}
