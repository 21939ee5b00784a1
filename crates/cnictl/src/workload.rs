//! Workloads and pods in the cluster, and the pods that workloads create.

use inject::workload::claims;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::Error;
use super::configuration::in_time;

/// A workload in the cluster, by kind and name.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Workload<'a> {
    resource: ApiResource,
    name: &'a str,
}

impl<'a> Workload<'a> {
    /// Parses `KIND/NAME`, with kubectl's names of kinds; `None` for any other string.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (kind, name) = text.split_once('/').filter(|(_, name)| !name.is_empty() && !name.contains('/'))?;
        let resource = match kind.to_ascii_lowercase().as_str() {
            "deployment" | "deployments" | "deploy" => ApiResource::erase::<Deployment>(&()),
            "statefulset" | "statefulsets" | "sts" => ApiResource::erase::<StatefulSet>(&()),
            "daemonset" | "daemonsets" | "ds" => ApiResource::erase::<DaemonSet>(&()),
            "replicaset" | "replicasets" | "rs" => ApiResource::erase::<ReplicaSet>(&()),
            "job" | "jobs" => ApiResource::erase::<Job>(&()),
            "cronjob" | "cronjobs" | "cj" => ApiResource::erase::<CronJob>(&()),
            _ => return None,
        };
        Some(Self { resource, name })
    }

    /// Reads the workload from the API server.
    pub(super) async fn read(&self, client: Client, namespace: &str) -> Result<Value, Error> {
        let objects = Api::<DynamicObject>::namespaced_with(client, namespace, &self.resource);
        let title = || format!("{} {namespace}/{}", self.resource.kind.to_lowercase(), self.name);
        serde_json::to_value(in_time(title, objects.get(self.name)).await?).map_err(Error::Json)
    }
}

/// Reads a pod from the API server.
pub(super) async fn read_pod(client: Client, namespace: &str, name: &str) -> Result<Value, Error> {
    let pods = Api::<Pod>::namespaced(client, namespace);
    let pod = in_time(|| format!("pod {namespace}/{name}"), pods.get(name)).await?;
    serde_json::to_value(pod).map_err(Error::Json)
}

/// Returns the pods of a document: the document itself if it is a pod, the pods of a list's items, or the pod of a
/// workload's template.
pub(super) fn pods_of(document: Value) -> Vec<Value> {
    if let Some(items) = document.get("items").and_then(Value::as_array) {
        return items.iter().cloned().flat_map(pods_of).collect();
    }
    let templates = ["/spec/jobTemplate/spec/template", "/spec/template"];
    match templates.iter().find_map(|pointer| document.pointer(pointer)) {
        Some(template) => {
            let mut pod = template.clone();
            // A template has no name, so the workload's name identifies it.
            let (name, namespace) = (&document["metadata"]["name"], &document["metadata"]["namespace"]);
            if let Some(metadata) = pod.as_object_mut().map(|pod| pod.entry("metadata").or_insert_with(|| json!({})))
                && let Some(metadata) = metadata.as_object_mut()
            {
                metadata.insert("name".to_owned(), name.clone());
                // As in `kube-inject`, the template's namespace applies only if the workload has none.
                if namespace.as_str().is_some_and(|namespace| !namespace.is_empty()) {
                    metadata.insert("namespace".to_owned(), namespace.clone());
                }
                metadata.retain(|_, value| !value.is_null());
            }
            add_claims(&mut pod, &document);
            vec![pod]
        }
        None if document.pointer("/spec/containers").is_some() => vec![document],
        None => Vec::new(),
    }
}

/// Adds the volumes that the StatefulSet controller gives to a pod, one for each claim template. Each replaces the template's volume of the
/// same name.
fn add_claims(pod: &mut Value, document: &Value) {
    let claims = claims(document);
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut).filter(|_| !claims.is_empty()) else { return };
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if volumes.is_null() {
        *volumes = json!([]);
    }
    let Some(volumes) = volumes.as_array_mut() else { return };
    volumes.retain(|volume| !claims.iter().any(|name| volume["name"] == **name));
    let set = document["metadata"]["name"].as_str().unwrap_or_default();
    let claim =
        |name: &String| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-{set}-0")}});
    volumes.extend(claims.iter().map(claim));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_of_a_stateful_set_has_the_volumes_of_its_claims() {
        let volumes = json!([{"name": "data", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]);
        let template = json!({"spec": {"containers": [], "volumes": volumes}});
        let claims = json!([{"metadata": {"name": "data"}}, {"metadata": {"name": "log"}}]);
        let spec = json!({"template": template, "volumeClaimTemplates": claims});
        let pods = pods_of(json!({"kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}));
        let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": format!("{name}-db-0")}});
        let expected = json!([{"name": "tmp", "emptyDir": {}}, claim("data"), claim("log")]);
        assert_eq!(pods[0]["spec"]["volumes"], expected);
        for volumes in [Value::Null, json!([])] {
            let template = json!({"spec": {"containers": [], "volumes": volumes}});
            let spec = json!({"template": template, "volumeClaimTemplates": [{"metadata": {"name": "log"}}]});
            let pods = pods_of(json!({"kind": "StatefulSet", "metadata": {"name": "db"}, "spec": spec}));
            assert_eq!(pods[0]["spec"]["volumes"], json!([claim("log")]));
        }
    }

    #[test]
    fn kinds_have_kubectls_names_and_other_texts_are_none() {
        for (text, kind) in [
            ("deployment/web", Some("Deployment")),
            ("deploy/web", Some("Deployment")),
            ("Deployment/web", Some("Deployment")),
            ("sts/web", Some("StatefulSet")),
            ("ds/web", Some("DaemonSet")),
            ("rs/web", Some("ReplicaSet")),
            ("jobs/web", Some("Job")),
            ("cj/web", Some("CronJob")),
            ("deployment/", None),
            ("deploy/dir/web", None),
            ("./web", None),
            ("web", None),
            ("service/web", None),
        ] {
            let found = Workload::parse(text).map(|workload| workload.resource.kind);
            assert_eq!(found.as_deref(), kind, "{text}");
        }
    }
}
