//! The workload of a pod, inferred from its owner reference as Istio does.

use serde_json::Value;

use crate::pod;

/// The owner of a pod: the templates' `.TypeMeta` and `.DeploymentMeta`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// Such as `apps/v1`.
    pub api_version: String,
    /// Such as `Deployment`.
    pub kind: String,
    pub name: String,
    /// The namespace of the pod; may be empty on the command line.
    pub namespace: String,
}

impl Owner {
    /// Infers the owner of a pod that is being created.
    pub(super) fn of_pod(pod: &Value, namespace: &str) -> Self {
        let metadata = pod::metadata(pod);
        let own = Self {
            api_version: "v1".to_owned(),
            kind: "Pod".to_owned(),
            name: pod::name(metadata).to_owned(),
            namespace: namespace.to_owned(),
        };
        if pod::text(metadata, "generateName").is_empty() {
            return own;
        }
        let controls = |reference: &&Value| reference.get("controller") == Some(&Value::Bool(true));
        match pod::list(metadata, "ownerReferences").iter().find(controls) {
            Some(reference) => Self::of_controller(pod, reference, &own),
            None => own,
        }
    }

    /// Infers the owner as releases up to 1.8 do, where a CronJob has the API version `batch/v1beta1`.
    pub(super) fn of_legacy_pod(pod: &Value, namespace: &str) -> Self {
        let mut owner = Self::of_pod(pod, namespace);
        if (&*owner.api_version, &*owner.kind) == ("batch/v1", "CronJob") {
            owner.api_version = "batch/v1beta1".to_owned();
        }
        owner
    }

    fn of_controller(pod: &Value, reference: &Value, own: &Self) -> Self {
        let (kind, name) = (pod::text(reference, "kind"), pod::name(reference));
        let owner = |api_version: &str, kind: &str, name: &str| Self {
            api_version: api_version.to_owned(),
            kind: kind.to_owned(),
            name: if name.is_empty() { own.name.clone() } else { name.to_owned() },
            namespace: own.namespace.clone(),
        };
        let version = pod::text(reference, "apiVersion");
        let without_hash = |label: &str| {
            let hash = pod::label(pod, label).filter(|hash| !hash.is_empty())?;
            name.strip_suffix(hash)?.strip_suffix('-')
        };
        match kind {
            "ReplicaSet" => match (without_hash("rollouts-pod-template-hash"), without_hash("pod-template-hash")) {
                (Some(rollout), _) => owner("v1alpha1", "Rollout", rollout),
                (None, Some(deployment)) => owner(version, "Deployment", deployment),
                (None, None) => owner(version, kind, name),
            },
            "ReplicationController" => match pod::label(pod, "deploymentconfig").filter(|name| !name.is_empty()) {
                Some(config) => owner("apps.openshift.io/v1", "DeploymentConfig", config),
                None => owner(version, kind, name),
            },
            "Job" => match scheduled(name) {
                Some(job) => owner("batch/v1", "CronJob", job),
                None => owner(version, kind, name),
            },
            _ => owner(version, kind, name),
        }
    }
}

/// Returns the name of the cron job that made a job, if the job's name ends with a time.
fn scheduled(job: &str) -> Option<&str> {
    let (name, time) = job.rsplit_once('-')?;
    let digits = (8..=10).contains(&time.len()) && time.bytes().all(|b| b.is_ascii_digit());
    (digits && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owner(kind: &str, name: &str, labels: &Value) -> (String, String, String) {
        let pod = json!({"metadata": {"generateName": "x-", "labels": labels, "ownerReferences": [
            {"apiVersion": "any/v1", "kind": "Other", "name": "no"},
            {"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}]}});
        let owner = Owner::of_pod(&pod, "shop");
        (owner.api_version, owner.kind, owner.name)
    }

    #[test]
    fn the_owner_is_inferred_from_the_controller() {
        let is = |api: &str, kind: &str, name: &str| (api.to_owned(), kind.to_owned(), name.to_owned());
        assert_eq!(
            owner("ReplicaSet", "web-5d", &json!({"pod-template-hash": "5d"})),
            is("apps/v1", "Deployment", "web")
        );
        assert_eq!(owner("ReplicaSet", "web-5d", &json!({})), is("apps/v1", "ReplicaSet", "web-5d"));
        let rollout = json!({"rollouts-pod-template-hash": "5d"});
        assert_eq!(owner("ReplicaSet", "web-5d", &rollout), is("v1alpha1", "Rollout", "web"));
        let config = json!({"deploymentconfig": "web"});
        assert_eq!(
            owner("ReplicationController", "web-1", &config),
            is("apps.openshift.io/v1", "DeploymentConfig", "web")
        );
        assert_eq!(owner("Job", "sweep-27512345", &json!({})), is("batch/v1", "CronJob", "sweep"));
        assert_eq!(owner("Job", "sweep-123", &json!({})), is("apps/v1", "Job", "sweep-123"));
    }

    #[test]
    fn cron_jobs_of_legacy_releases_are_v1beta1() {
        let pod = json!({"metadata": {"generateName": "x-", "ownerReferences": [
            {"apiVersion": "batch/v1", "kind": "Job", "name": "sweep-27512345", "controller": true}]}});
        let owner = Owner::of_legacy_pod(&pod, "shop");
        assert_eq!((&*owner.api_version, &*owner.kind, &*owner.name), ("batch/v1beta1", "CronJob", "sweep"));
    }

    #[test]
    fn a_pod_without_a_generated_name_is_its_own_owner() {
        let owner = Owner::of_pod(&json!({"metadata": {"name": "one"}}), "shop");
        assert_eq!((owner.kind.as_str(), owner.name.as_str(), owner.namespace.as_str()), ("Pod", "one", "shop"));
    }
}
