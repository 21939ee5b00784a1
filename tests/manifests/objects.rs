//! Kubernetes objects of a manifest.

use std::fs;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// What is applied to a cluster as it is.
pub(crate) const MANIFEST: &str = "manifests/istio-cni.yaml";

/// The manifest's text.
pub(crate) fn manifest() -> String {
    fs::read_to_string(MANIFEST).unwrap()
}

/// All objects of a manifest, empty documents aside.
pub(crate) fn parse(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// The objects of this kind.
pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// The only object of this kind.
pub(crate) fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(objects, kind);
    assert_eq!(found.len(), 1, "objects of kind {kind}: {found:#?}");
    found[0]
}

/// Each object as the API server's types know it: a field that is misspelt or in the wrong place would get lost.
pub(crate) fn fields_are_known() {
    parse(&manifest()).iter().for_each(is_known);
}

/// Fails with what Kubernetes would drop, or refuse.
pub(crate) fn is_known(object: &Value) {
    let known = match object["kind"].as_str().unwrap() {
        "ClusterRole" => through::<ClusterRole>(object),
        "ClusterRoleBinding" => through::<ClusterRoleBinding>(object),
        "ConfigMap" => through::<ConfigMap>(object),
        "DaemonSet" => through::<DaemonSet>(object),
        "NetworkPolicy" => through::<NetworkPolicy>(object),
        "ResourceQuota" => through::<ResourceQuota>(object),
        "Role" => through::<Role>(object),
        "RoleBinding" => through::<RoleBinding>(object),
        "ServiceAccount" => through::<ServiceAccount>(object),
        // Of Multus and OpenShift.
        "NetworkAttachmentDefinition" | "SecurityContextConstraints" => return,
        kind => panic!("nobody knows kind {kind}"),
    };
    assert_eq!(&known, object);
}

fn through<T: Serialize + DeserializeOwned>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{e}: {object:#}"));
    serde_json::to_value(typed).unwrap()
}
