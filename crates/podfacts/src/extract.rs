//! Extracts [`PodFacts`] from a Pod in the API server's JSON.
//!
//! For the API fallback and the agent's cache. Pure; fields that do not matter are not decoded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use contract::{annotation, container, proxy_env};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::{PodFacts, PodName, ProxyContainer};

/// Annotation that the kubelet sets on the mirror pod of a static pod. Its value is the static pod's UID on the node,
/// which differs from the UID of the mirror pod.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// Annotation by which containerd gives a pod without a runtime class the handler `untrusted`.
const UNTRUSTED: &str = "io.kubernetes.cri.untrusted-workload";

/// The annotations that [`PodFacts`] contains.
pub const ANNOTATIONS: [&str; 12] = [
    annotation::STATUS,
    annotation::INJECT,
    annotation::INTERCEPTION_MODE,
    annotation::INCLUDE_OUTBOUND_CIDRS,
    annotation::EXCLUDE_OUTBOUND_CIDRS,
    annotation::INCLUDE_INBOUND_PORTS,
    annotation::EXCLUDE_INBOUND_PORTS,
    annotation::INCLUDE_OUTBOUND_PORTS,
    annotation::EXCLUDE_OUTBOUND_PORTS,
    annotation::EXCLUDE_INTERFACES,
    annotation::REROUTE_VIRTUAL_INTERFACES,
    annotation::KUBEVIRT_INTERFACES,
];

const ENVIRONMENT: [&str; 7] = [
    proxy_env::DNS_CAPTURE,
    proxy_env::DUAL_STACK,
    proxy_env::INVALID_DROP,
    proxy_env::DISABLE_ENVOY,
    proxy_env::OWNER_GROUPS,
    proxy_env::OWNER_GROUPS_EXCLUDE,
    proxy_env::LOOPBACK_CIDR,
];

/// Why no [`PodFacts`] can be extracted from a Pod.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the object is not a valid Pod: {0}")]
    Json(serde_json::Error),
    /// The value is outside Linux's range of ids.
    #[error("container istio-proxy: securityContext.{field}={value} is not an id: expected 0 to 4294967295")]
    Id {
        /// `runAsUser` or `runAsGroup`.
        field: &'static str,
        value: i64,
    },
}

impl PodFacts {
    /// Extracts [`PodFacts`] from a Pod's JSON.
    pub fn from_pod_json(json: &[u8]) -> Result<Self, Error> {
        serde_json::from_slice::<ApiPod>(json).map_err(Error::Json)?.into_facts()
    }
}

/// The fields of a Pod that the lookup and the agent's watch need.
#[derive(Deserialize)]
pub struct ApiPod {
    metadata: Metadata,
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default)]
    phase: String,
}

impl ApiPod {
    pub fn name(&self) -> PodName {
        let Metadata { namespace, name, .. } = &self.metadata;
        PodName { namespace: namespace.clone().unwrap_or_default(), name: name.clone().unwrap_or_default() }
    }

    /// `metadata.resourceVersion`
    pub fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref()
    }

    /// Whether the pod has failed or succeeded: it gets no new sandbox.
    pub fn has_ended(&self) -> bool {
        matches!(self.status.phase.as_str(), "Failed" | "Succeeded")
    }

    /// Converts the Pod to [`PodFacts`]. Of all containers named `istio-proxy`, init containers first, the last is used, so
    /// that later code need not distinguish native from ordinary sidecars.
    pub fn into_facts(self) -> Result<PodFacts, Error> {
        let Self { metadata, spec, .. } = self;
        let mut given = metadata.annotations;
        let untrusted = given.remove(UNTRUSTED).is_some_and(|value| value == "true");
        let containers = || spec.init_containers.iter().flatten().chain(spec.containers.iter().flatten());
        let proxy = containers().rfind(|c| c.name == container::PROXY);
        Ok(PodFacts {
            uid: given.remove(MIRROR).or(metadata.uid).unwrap_or_default(),
            annotations: given,
            inject_label: metadata.labels.into_values().next(),
            has_init: containers().any(|c| c.name == container::INIT),
            runtime_class: spec.runtime_class_name.clone().filter(|class| !class.is_empty()),
            untrusted,
            handler: None,
            unknown_handler: None,
            proxy: proxy.map(Container::facts).transpose()?,
        })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    namespace: Option<String>,
    name: Option<String>,
    resource_version: Option<String>,
    uid: Option<String>,
    #[serde(default, deserialize_with = "annotations")]
    annotations: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "inject_label")]
    labels: BTreeMap<String, String>,
}

fn annotations<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_any(Entries(|key| [MIRROR, UNTRUSTED].contains(&key) || ANNOTATIONS.contains(&key)))
}

fn inject_label<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    from.deserialize_any(Entries(|key| key == annotation::INJECT))
}

/// Decodes a map of strings and keeps only the entries for whose keys the function returns true: other values may be
/// large and are not copied.
struct Entries(fn(&str) -> bool);

/// A key, borrowed if it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for Entries {
    type Value = BTreeMap<String, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of texts")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(BTreeMap::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut kept = BTreeMap::new();
        while let Some(Key(key)) = map.next_key()? {
            if self.0(&key) {
                kept.insert(key.into_owned(), map.next_value()?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(kept)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    runtime_class_name: Option<String>,
    init_containers: Option<Vec<Container>>,
    containers: Option<Vec<Container>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    name: String,
    args: Option<Vec<String>>,
    env: Option<Vec<Variable>>,
    security_context: Option<SecurityContext>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Variable {
    name: String,
    value: Option<String>,
    value_from: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecurityContext {
    run_as_user: Option<i64>,
    run_as_group: Option<i64>,
}

impl Container {
    fn facts(&self) -> Result<ProxyContainer, Error> {
        let security = self.security_context.as_ref();
        Ok(ProxyContainer {
            env: self.environment(),
            proxy_type: match self.args.as_deref() {
                Some([program, kind, ..]) if program == "proxy" => Some(kind.clone()),
                _ => None,
            },
            run_as_user: id("runAsUser", security.and_then(|s| s.run_as_user))?,
            run_as_group: id("runAsGroup", security.and_then(|s| s.run_as_group))?,
        })
    }

    /// Returns the environment variables by name. Of equal names the last is used; a variable with a `valueFrom` has no
    /// known value.
    fn environment(&self) -> BTreeMap<String, String> {
        let mut known = BTreeMap::new();
        for variable in self.env.iter().flatten().filter(|v| ENVIRONMENT.contains(&v.name.as_str())) {
            match variable.value_from {
                Some(_) => known.remove(&variable.name),
                None => known.insert(variable.name.clone(), variable.value.clone().unwrap_or_default()),
            };
        }
        known
    }
}

fn id(field: &'static str, value: Option<i64>) -> Result<Option<u32>, Error> {
    value.map(|value| u32::try_from(value).map_err(|_| Error::Id { field, value })).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn facts(pod: &Value) -> PodFacts {
        PodFacts::from_pod_json(pod.to_string().as_bytes()).unwrap()
    }

    fn with_proxy(proxy: &Value) -> ProxyContainer {
        facts(&json!({"metadata": {}, "spec": {"containers": [proxy]}})).proxy.unwrap()
    }

    #[test]
    fn only_facts_that_matter_are_kept() {
        let facts = facts(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "uid": "u1", "creationTimestamp": null,
                "annotations": {annotation::STATUS: "{}", annotation::EXCLUDE_INBOUND_PORTS: "", "other/key": "x"},
                "labels": {"app": "web", "sidecar.istio.io/inject": "true"},
            },
            "spec": {"nodeName": "n", "runtimeClassName": "kata", "containers": [
                {"name": "web", "env": [{"name": "DISABLE_ENVOY", "value": "true"}]},
                {"name": "istio-proxy", "args": ["proxy", "sidecar", "--domain"],
                 "env": [{"name": "ISTIO_META_DNS_CAPTURE", "value": "true"}, {"name": "FOO", "value": "x"}],
                 "securityContext": {"runAsUser": 1_000_670_000, "runAsGroup": 0}},
            ]},
        }));
        let expected = PodFacts {
            uid: "u1".into(),
            annotations: BTreeMap::from([
                (annotation::STATUS.into(), "{}".into()),
                (annotation::EXCLUDE_INBOUND_PORTS.into(), String::new()),
            ]),
            inject_label: Some("true".into()),
            has_init: false,
            runtime_class: Some("kata".into()),
            handler: None,
            unknown_handler: None,
            untrusted: false,
            proxy: Some(ProxyContainer {
                env: BTreeMap::from([(proxy_env::DNS_CAPTURE.into(), "true".into())]),
                proxy_type: Some("sidecar".into()),
                run_as_user: Some(1_000_670_000),
                run_as_group: Some(0),
            }),
        };
        assert_eq!(facts, expected);
    }

    #[test]
    fn every_listed_annotation_and_variable_is_kept() {
        let annotations: BTreeMap<_, _> = ANNOTATIONS.iter().map(|key| (*key, "v")).collect();
        let env: Vec<_> = ENVIRONMENT.iter().map(|name| json!({"name": name, "value": "v"})).collect();
        let pod = json!({"metadata": {"annotations": annotations},
                         "spec": {"containers": [{"name": "istio-proxy", "env": env}]}});
        let facts = facts(&pod);
        assert_eq!(facts.annotations.len(), ANNOTATIONS.len());
        assert_eq!(facts.proxy.unwrap().env.len(), ENVIRONMENT.len());
    }

    #[test]
    fn a_native_sidecar_is_a_sidecar() {
        let pod = json!({"metadata": {}, "spec": {
            "initContainers": [{"name": "istio-proxy", "restartPolicy": "Always", "args": ["proxy", "sidecar"]}],
            "containers": [{"name": "web"}]}});
        assert_eq!(facts(&pod).proxy.unwrap().proxy_type.as_deref(), Some("sidecar"));
    }

    #[test]
    fn the_later_proxy_container_counts() {
        let pod = json!({"metadata": {}, "spec": {
            "containers": [{"name": "istio-proxy", "args": ["proxy", "router"]}],
            "initContainers": [{"name": "istio-proxy", "args": ["proxy", "sidecar"]}]}});
        assert_eq!(facts(&pod).proxy.unwrap().proxy_type.as_deref(), Some("router"));
    }

    #[test]
    fn istio_init_is_seen_among_all_containers() {
        for list in ["initContainers", "containers"] {
            assert!(facts(&json!({"metadata": {}, "spec": {list: [{"name": "istio-init"}]}})).has_init, "{list}");
        }
    }

    #[test]
    fn a_variable_with_value_from_has_no_value_and_hides_an_earlier_one() {
        let name = proxy_env::DNS_CAPTURE;
        let from = json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": "x"}}});
        let literal = json!({"name": name, "value": "true"});
        assert!(with_proxy(&json!({"name": "istio-proxy", "env": [literal, from]})).env.is_empty());
        assert_eq!(with_proxy(&json!({"name": "istio-proxy", "env": [from, literal]})).env[name], "true");
        assert_eq!(with_proxy(&json!({"name": "istio-proxy", "env": [{"name": name}]})).env[name], "");
    }

    #[test]
    fn the_proxy_type_follows_the_word_proxy() {
        for (args, expected) in [
            (json!(["proxy", "waypoint"]), Some("waypoint")),
            (json!(["proxy"]), None),
            (json!(["istio-iptables", "sidecar"]), None),
            (json!(null), None),
        ] {
            assert_eq!(with_proxy(&json!({"name": "istio-proxy", "args": args})).proxy_type.as_deref(), expected);
        }
    }

    #[test]
    fn only_the_containers_own_ids_count() {
        let pod = json!({"metadata": {}, "spec": {"securityContext": {"runAsUser": 5},
                         "containers": [{"name": "istio-proxy"}]}});
        assert_eq!(facts(&pod).proxy, Some(ProxyContainer::default()));
    }

    #[test]
    fn an_id_out_of_range_is_reported() {
        for (field, value) in [("runAsUser", -1), ("runAsGroup", 4_294_967_296_i64)] {
            let proxy = json!({"name": "istio-proxy", "securityContext": {field: value}});
            let pod = json!({"metadata": {}, "spec": {"containers": [proxy]}});
            let error = PodFacts::from_pod_json(pod.to_string().as_bytes()).unwrap_err().to_string();
            assert!(error.contains(&format!("{field}={value}")), "{error}");
        }
    }

    #[test]
    fn a_static_pod_has_the_nodes_uid() {
        let pod = json!({"metadata": {"uid": "api", "annotations": {MIRROR: "node"}}, "spec": {}});
        assert_eq!(facts(&pod), PodFacts { uid: "node".into(), ..PodFacts::default() });
    }

    #[test]
    fn null_lists_are_empty_lists() {
        let pod = json!({"metadata": {"annotations": null, "labels": null},
                         "spec": {"initContainers": null, "containers": [{"name": "istio-proxy", "env": null}]}});
        assert_eq!(facts(&pod).proxy, Some(ProxyContainer::default()));
    }

    #[test]
    fn other_json_is_not_a_pod() {
        for json in [&b"{}"[..], b"[]", b"", b"{\"metadata\":{},\"spec\":{\"containers\":[{}]}}"] {
            assert!(matches!(PodFacts::from_pod_json(json), Err(Error::Json(_))));
        }
    }
}
