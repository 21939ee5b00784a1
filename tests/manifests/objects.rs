//! Parses and selects the Kubernetes objects of a manifest.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, ResourceQuota, Service, ServiceAccount};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::helm::{AGENT, INJECTOR};

/// Parses the objects of a manifest, except empty documents.
pub(crate) fn parse(text: &str) -> Vec<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    documents.into_iter().filter(|document| !document.is_null()).collect()
}

/// Returns the objects of this kind.
pub(crate) fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Vec<&'a Value> {
    objects.iter().filter(|object| object["kind"] == kind).collect()
}

/// Returns the only object of this kind.
pub(crate) fn only<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    let found = of_kind(objects, kind);
    assert_eq!(found.len(), 1, "objects of kind {kind}: {found:#?}");
    found[0]
}

/// All fields of the manifests' objects must exist in the API server's types, so that none is misspelt or misplaced.
pub(crate) fn fields_are_known() {
    [AGENT, INJECTOR].iter().flat_map(|chart| parse(&chart.manifest())).for_each(|object| is_known(&object));
}

/// Fails if Kubernetes' types do not represent the whole object.
pub(crate) fn is_known(object: &Value) {
    let known = match object["kind"].as_str().unwrap() {
        "ClusterRole" => through::<ClusterRole>(object),
        "ClusterRoleBinding" => through::<ClusterRoleBinding>(object),
        "ConfigMap" => through::<ConfigMap>(object),
        "DaemonSet" => through::<DaemonSet>(object),
        "Deployment" => through::<Deployment>(object),
        "MutatingWebhookConfiguration" => through::<MutatingWebhookConfiguration>(object),
        "NetworkPolicy" => through::<NetworkPolicy>(object),
        "PodDisruptionBudget" => through::<PodDisruptionBudget>(object),
        "ResourceQuota" => through::<ResourceQuota>(object),
        "Role" => through::<Role>(object),
        "RoleBinding" => through::<RoleBinding>(object),
        "Service" => through::<Service>(object),
        "ServiceAccount" => through::<ServiceAccount>(object),
        "ValidatingAdmissionPolicy" => through::<ValidatingAdmissionPolicy>(object),
        "ValidatingAdmissionPolicyBinding" => through::<ValidatingAdmissionPolicyBinding>(object),
        // Kinds of Multus, OpenShift and the Prometheus operator, whose types are not available.
        "NetworkAttachmentDefinition" | "SecurityContextConstraints" => return,
        "PodMonitor" | "PrometheusRule" | "ServiceMonitor" => return,
        kind => panic!("kind {kind} has no type in this test"),
    };
    assert_eq!(&known, object);
}

fn through<T: Serialize + DeserializeOwned>(object: &Value) -> Value {
    let typed: T = serde_json::from_value(object.clone()).unwrap_or_else(|e| panic!("{e}: {object:#}"));
    serde_json::to_value(typed).unwrap()
}

/// Returns the strings in a list; an absent list is empty.
pub(crate) fn strings(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|text| text.as_str().unwrap().to_owned()).collect()
}
