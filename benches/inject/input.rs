//! Reviews: those of pods that were never seen, and those of replicas of one workload.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Where the input is: a review, and the configuration by which it is answered.
pub(crate) fn directory() -> PathBuf {
    std::env::var_os("BENCH_INPUT").map_or_else(|| PathBuf::from("../shared/perf/inject"), PathBuf::from)
}

/// Stands for a number in the text of a review.
const MARK: &str = "@@";

/// Whose pods are reviewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pods {
    /// Names, labels and annotations differ from review to review.
    Unseen,
    /// Only what the API server makes differs.
    Replicas,
}

/// Which sidecar they are reviewed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mesh {
    Istio,
    Dapr,
}

impl Mesh {
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Istio => "/inject",
            Self::Dapr => "/mutate",
        }
    }
}

/// As many reviews as are asked for, no two alike.
#[derive(Debug, Clone)]
pub(crate) struct Reviews {
    pub(crate) mesh: Mesh,
    pub(crate) pods: Pods,
    text: String,
}

impl Reviews {
    /// Both meshes' in turn, of the review in `dir`: pods that were never seen, and replicas.
    pub(crate) fn all(dir: &Path) -> Result<[Self; 4]> {
        let read = |mesh, pods| Self::read(dir, mesh, pods);
        Ok([
            read(Mesh::Istio, Pods::Unseen)?,
            read(Mesh::Istio, Pods::Replicas)?,
            read(Mesh::Dapr, Pods::Unseen)?,
            read(Mesh::Dapr, Pods::Replicas)?,
        ])
    }

    fn read(dir: &Path, mesh: Mesh, pods: Pods) -> Result<Self> {
        let path = dir.join("review.json");
        let text = std::fs::read_to_string(&path).with_context(|| format!("{} is needed", path.display()))?;
        let mut review: Value = serde_json::from_str(&text)?;
        review["request"]["uid"] = format!("705ab4f5-{MARK}").into();
        let metadata = &mut review["request"]["object"]["metadata"];
        if mesh == Mesh::Dapr {
            metadata["annotations"]["dapr.io/enabled"] = "true".into();
            metadata["annotations"]["dapr.io/app-id"] = "reviews".into();
            metadata["annotations"]["dapr.io/app-port"] = "9080".into();
        }
        if pods == Pods::Unseen {
            let hash = format!("reviews-v{MARK}-7d6c5b4f9c");
            metadata["ownerReferences"][0]["name"] = hash.clone().into();
            metadata["generateName"] = format!("{hash}-").into();
            metadata["labels"]["app"] = format!("reviews-v{MARK}").into();
            metadata["annotations"]["prometheus.io/path"] = format!("/metrics/{MARK}").into();
            if mesh == Mesh::Dapr {
                metadata["annotations"]["dapr.io/app-id"] = format!("reviews-v{MARK}").into();
            }
        }
        // The API server mounts a token by a name of its own in each pod.
        let text = serde_json::to_string(&review)?.replace("kube-api-access-x7k2p", &format!("kube-api-access-{MARK}"));
        Ok(Self { mesh, pods, text })
    }

    pub(crate) fn text(&self, number: usize) -> String {
        self.text.replace(MARK, &number.to_string())
    }

    /// So many, from this number on.
    pub(crate) fn texts(&self, first: usize, count: usize) -> Vec<String> {
        (first..first + count).map(|number| self.text(number)).collect()
    }

    pub(crate) fn name(&self) -> String {
        let pods = match self.pods {
            Pods::Unseen => "pods that were never seen",
            Pods::Replicas => "replicas of one workload",
        };
        format!("{:?}, {pods}", self.mesh)
    }
}
