//! Kinds of workloads and the paths of their pods.
//!
//! A kind is identified by group and name: a custom resource called `Job` stays unchanged.

use serde_json::{Value, json};

use super::pod;
use super::typed::{Mismatch, Struct};

/// A kind of document, classified by the path of its pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The document is the pod.
    Pod,
    /// The pod is `spec.template`.
    Template,
    /// The pod's spec is `spec.jobTemplate.spec.template.spec`.
    CronJob,
    /// The document is a list; its `items` are documents.
    List,
}

/// A kind of workload: its API groups, its name, the path of its pod, and the Go type of its newest version, whose form
/// documents have when they are read and written.
type Known = (&'static [&'static str], &'static str, Kind, &'static str);

const KNOWN: [Known; 11] = [
    (&[""], "List", Kind::List, "core.List"),
    (&[""], "Pod", Kind::Pod, "core.Pod"),
    (&[""], "ReplicationController", Kind::Template, "core.ReplicationController"),
    (&["apps", "extensions"], "DaemonSet", Kind::Template, "apps.DaemonSet"),
    (&["apps", "extensions"], "Deployment", Kind::Template, "apps.Deployment"),
    (&["apps", "extensions"], "ReplicaSet", Kind::Template, "apps.ReplicaSet"),
    (&["apps"], "StatefulSet", Kind::Template, "apps.StatefulSet"),
    (&["batch"], "CronJob", Kind::CronJob, "batch.CronJob"),
    (&["batch"], "Job", Kind::Template, "batch.Job"),
    (&["apps.openshift.io"], "DeploymentConfig", Kind::Template, "openshift.DeploymentConfig"),
    // Up to OpenShift 3.6, the kind has no API group.
    (&[""], "DeploymentConfig", Kind::Template, "openshift.DeploymentConfig"),
];

fn group_and_kind(document: &Value) -> (&str, &str) {
    let version = pod::text(document, "apiVersion");
    (version.split_once('/').map_or("", |(group, _)| group), pod::text(document, "kind"))
}

fn known(document: &Value) -> Option<&'static Known> {
    let (group, kind) = group_and_kind(document);
    KNOWN.iter().find(|(groups, name, ..)| groups.contains(&group) && *name == kind)
}

/// Returns the names of a StatefulSet's claim templates. Its pods get a volume of the same name for each.
pub fn claims(document: &Value) -> Vec<String> {
    if pod::text(document, "kind") != "StatefulSet" {
        return Vec::new();
    }
    let templates = pod::list(&document["spec"], "volumeClaimTemplates").iter();
    templates.map(|template| pod::name(pod::metadata(template)).to_owned()).collect()
}

/// Checks that a document, and each item of a `List`, can be searched for workloads. Null passes as an empty document.
///
/// # Errors
/// The document is not an object, or is a list such as a `PodList`, whose items need no kind.
pub(super) fn check(document: &Value) -> Result<(), NoObject> {
    let found = match document {
        Value::Null | Value::Object(_) => None,
        Value::Array(_) => Some("a list"),
        Value::String(_) => Some("a text"),
        Value::Number(_) => Some("a number"),
        Value::Bool(_) => Some("a boolean"),
    };
    if let Some(found) = found {
        return Err(NoObject::Type(found));
    }
    let (group, kind) = group_and_kind(document);
    let is_list = |(groups, name, ..): &&Known| groups.contains(&group) && kind.strip_suffix("List") == Some(name);
    if KNOWN.iter().any(|known| is_list(&known)) {
        return Err(NoObject::List(kind.to_owned()));
    }
    if Kind::of(document) == Some(Kind::List) {
        for (at, item) in pod::list(document, "items").iter().enumerate() {
            check(item).map_err(|cause| NoObject::Item { at, cause: Box::new(cause) })?;
        }
    }
    Ok(())
}

/// A document that cannot be searched for workloads.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoObject {
    /// It is a list or a scalar.
    #[error("is {0}: expected an object with apiVersion and kind")]
    Type(&'static str),
    /// It is a list of another kind than `List`.
    #[error("is a {0}: expected a List of objects, each with apiVersion and kind, as `kubectl get -o yaml` writes it")]
    List(String),
    /// An item of a `List` is no such document.
    #[error("has items[{at}], which {cause}")]
    Item { at: usize, cause: Box<NoObject> },
}

/// Converts a workload to the form of its Go type. Other documents stay unchanged, and so do workloads without a pod,
/// because the type would add an empty one.
///
/// # Errors
/// A field is not of its type.
pub(super) fn canonical(document: Value) -> Result<Value, Invalid> {
    let Some((.., kind, name)) = known(&document) else { return Ok(document) };
    let has_pod = || document.pointer(kind.template().1).is_some_and(|spec| !spec.is_null());
    let Some(of) = Struct::named(name).filter(|_| *kind == Kind::List || has_pod()) else { return Ok(document) };
    let (kind_name, name) = kind_and_name(&document);
    let mut document = of.canonical(document).map_err(|error| Invalid { kind: kind_name, name, error })?;
    if *kind == Kind::List {
        for item in document.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            *item = canonical(item.take())?;
        }
    }
    Ok(document)
}

/// A workload with a field that is not of its type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind} {name:?}: {error}")]
pub struct Invalid {
    kind: String,
    /// `namespace/name`, or the name alone; see [`kind_and_name`].
    name: String,
    error: Mismatch,
}

impl Kind {
    /// Returns the kind of a document, or `None` if it is neither a workload nor a `List`.
    pub fn of(document: &Value) -> Option<Self> {
        known(document).map(|(.., kind, _)| *kind)
    }

    /// Returns the JSON pointers to the metadata and the spec of the pod.
    pub fn template(self) -> (&'static str, &'static str) {
        match self {
            Self::Pod | Self::List => ("/metadata", "/spec"),
            Self::Template => ("/spec/template/metadata", "/spec/template/spec"),
            Self::CronJob => ("/spec/jobTemplate/spec/template/metadata", "/spec/jobTemplate/spec/template/spec"),
        }
    }

    /// Returns the JSON pointer to the metadata that Istio's `kube-inject` uses in place of the pod's metadata: the
    /// metadata of a CronJob's job template.
    pub(super) fn job_metadata(self) -> Option<&'static str> {
        match self {
            Self::CronJob => Some("/spec/jobTemplate/metadata"),
            Self::Pod | Self::Template | Self::List => None,
        }
    }
}

/// Calls `change` for the document, or for each of its items if it is a list. Returns whether the document is a
/// workload or a list.
///
/// # Errors
/// Returns the first error of `change`.
pub fn for_each<E>(
    document: &mut Value,
    change: &mut impl FnMut(&mut Value, Kind) -> Result<(), E>,
) -> Result<bool, E> {
    let Some(kind) = Kind::of(document) else { return Ok(false) };
    if kind != Kind::List {
        return change(document, kind).map(|()| true);
    }
    for item in document.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        for_each(item, change)?;
    }
    Ok(true)
}

/// Returns the pod at these pointers, or `None` if it has no spec.
pub fn pod(document: &Value, (metadata, spec): (&str, &str)) -> Option<Value> {
    let spec = document.pointer(spec).filter(|spec| spec.is_object())?;
    let metadata = document.pointer(metadata).filter(|metadata| metadata.is_object());
    Some(json!({"metadata": metadata.cloned().unwrap_or_else(|| json!({})), "spec": spec}))
}

/// Sets the value at a pointer from [`Kind::template`], whose last member may be absent.
pub fn put(document: &mut Value, pointer: &str, value: Value) {
    let Some((parent, key)) = pointer.rsplit_once('/') else { return };
    if let Some(parent) = document.pointer_mut(parent) {
        pod::object(parent).insert(key.to_owned(), value);
    }
}

/// Returns a workload's kind and its name, as `namespace/name` if it has a namespace. `generateName` replaces an absent
/// name.
pub fn kind_and_name(document: &Value) -> (String, String) {
    let metadata = pod::metadata(document);
    let names = ["name", "generateName"].map(|key| pod::text(metadata, key));
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    let name = match (pod::text(metadata, "namespace"), name) {
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    (pod::text(document, "kind").to_owned(), name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_identified_by_group_and_name() {
        let kind = |version: &str, kind: &str| Kind::of(&json!({"apiVersion": version, "kind": kind}));
        assert_eq!(kind("v1", "Pod"), Some(Kind::Pod));
        assert_eq!(kind("extensions/v1beta1", "Deployment"), Some(Kind::Template));
        assert_eq!(kind("batch/v1beta1", "CronJob"), Some(Kind::CronJob));
        assert_eq!(kind("batch.volcano.sh/v1alpha1", "Job"), None);
        assert_eq!(kind("v1", "Service"), None);
        assert_eq!(kind("v1", "List"), Some(Kind::List));
        assert!(KNOWN.iter().all(|(.., name)| Struct::named(name).is_some()), "each kind has its type in the table");
    }

    #[test]
    fn what_cannot_be_searched_for_workloads_is_refused() {
        let list =
            |version: &str, kind: &str, items: Value| json!({"apiVersion": version, "kind": kind, "items": items});
        let pods = list("v1", "PodList", json!([{"metadata": {"name": "a"}}]));
        let expected = "expected an object with apiVersion and kind";
        for (document, error) in [
            (json!([{"apiVersion": "v1", "kind": "Pod"}]), format!("is a list: {expected}")),
            (json!("kind"), format!("is a text: {expected}")),
            (json!(7), format!("is a number: {expected}")),
            (pods.clone(), "is a PodList: expected a List of objects, ".to_owned()),
            (
                list("apps/v1", "DeploymentList", json!([])),
                "is a DeploymentList: expected a List of objects, ".to_owned(),
            ),
            (list("v1", "List", json!([{}, true])), format!("has items[1], which is a boolean: {expected}")),
            (list("v1", "List", json!([pods])), "has items[0], which is a PodList: expected a List of ".to_owned()),
        ] {
            let found = check(&document).unwrap_err().to_string();
            assert!(found.starts_with(&error), "{document}: {found}");
        }
        for document in [
            json!(null),
            json!({}),
            list("v1", "List", json!([{"kind": "Service"}, null])),
            list("v1", "ServiceList", json!([])),
            list("batch.volcano.sh/v1alpha1", "JobList", json!([])),
        ] {
            assert_eq!(check(&document), Ok(()), "{document}");
        }
    }

    #[test]
    fn a_workload_without_a_name_has_its_generated_one() {
        let name = |metadata: Value| kind_and_name(&json!({"kind": "Pod", "metadata": metadata})).1;
        assert_eq!(name(json!({"generateName": "web-"})), "web-");
        assert_eq!(name(json!({"name": "", "generateName": "web-", "namespace": "shop"})), "shop/web-");
        assert_eq!(name(json!({"name": "a", "generateName": "web-"})), "a");
    }
}
