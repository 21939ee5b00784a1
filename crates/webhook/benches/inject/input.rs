//! Generates the AdmissionReviews that the injection benches send: for pods that no earlier review resembles, and for
//! replicas of one workload.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Returns the directory with a recorded review and the injection's configuration: `BENCH_INPUT`, by default
/// `../shared/perf/inject`. A relative path is relative to the repository; benches run in the directory of their package.
pub(crate) fn directory() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    repository.join(std::env::var_os("BENCH_INPUT").unwrap_or_else(|| "../shared/perf/inject".into()))
}

/// The placeholder for a number in a serialized review.
const MARK: &str = "@@";

/// The kind of reviewed pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pods {
    /// Names, labels and annotations differ between reviews.
    Unseen,
    /// Only generated names and UIDs differ.
    Replicas,
}

/// The mesh whose injection reviews the pods.
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

/// An endless source of reviews, all different.
#[derive(Debug, Clone)]
pub(crate) struct Reviews {
    pub(crate) mesh: Mesh,
    pub(crate) pods: Pods,
    text: String,
}

impl Reviews {
    /// Returns four sources, all based on the review in `dir`: for Istio and for Dapr, each with unseen pods and with
    /// replicas.
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
        // The API server gives the volume of the service account token another name in each pod.
        let text = serde_json::to_string(&review)?.replace("kube-api-access-x7k2p", &format!("kube-api-access-{MARK}"));
        Ok(Self { mesh, pods, text })
    }

    pub(crate) fn text(&self, number: usize) -> String {
        self.text.replace(MARK, &number.to_string())
    }

    /// Returns `count` reviews, numbered from `first`.
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
