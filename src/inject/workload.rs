//! Kinds of workloads and where their pods stand.
//!
//! Kinds are known by group and name: a custom resource that happens to be called `Job` is left alone.

use serde_json::Value;

use super::pod;

/// A workload that has a pod, or a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The document is the pod.
    Pod,
    /// The pod is `spec.template`.
    Template,
    /// The pod's spec is `spec.jobTemplate.spec.template.spec`.
    CronJob,
    /// `items` are documents of their own.
    List,
}

impl Kind {
    /// The kind of a document; none where injection has nothing to do with it.
    pub(super) fn of(document: &Value) -> Option<Self> {
        let version = pod::text(document, "apiVersion");
        let group = version.split_once('/').map_or("", |(group, _)| group);
        match (group, pod::text(document, "kind")) {
            ("", "Pod") => Some(Self::Pod),
            ("", "List") => Some(Self::List),
            ("", "ReplicationController" | "DeploymentConfig")
            | ("apps" | "extensions", "Deployment" | "DaemonSet" | "ReplicaSet")
            | ("apps", "StatefulSet")
            | ("batch", "Job")
            | ("apps.openshift.io", "DeploymentConfig") => Some(Self::Template),
            ("batch", "CronJob") => Some(Self::CronJob),
            _ => None,
        }
    }

    /// Pointers to the metadata and the spec that injection reads and writes. A cron job's labels and annotations go
    /// where Istio puts them, on the job.
    pub(super) fn pointers(self) -> (&'static str, &'static str) {
        match self {
            Self::Pod | Self::List => ("/metadata", "/spec"),
            Self::Template => ("/spec/template/metadata", "/spec/template/spec"),
            Self::CronJob => ("/spec/jobTemplate/metadata", "/spec/jobTemplate/spec/template/spec"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kinds_are_known_by_group_and_name() {
        let kind = |version: &str, kind: &str| Kind::of(&json!({"apiVersion": version, "kind": kind}));
        assert_eq!(kind("v1", "Pod"), Some(Kind::Pod));
        assert_eq!(kind("extensions/v1beta1", "Deployment"), Some(Kind::Template));
        assert_eq!(kind("batch/v1beta1", "CronJob"), Some(Kind::CronJob));
        assert_eq!(kind("batch.volcano.sh/v1alpha1", "Job"), None);
        assert_eq!(kind("v1", "Service"), None);
    }
}
