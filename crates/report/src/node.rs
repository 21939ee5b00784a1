//! The state of a node, as its agent serves it on the monitoring port. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serve::log::Line;
use serve::page;

/// The URL path of the [`Report`] on the monitoring port.
pub const PATH: &str = page::DOCUMENT;
/// The query string that requests a [`Report`] without pods and lines.
pub const SUMMARY: &str = "summary";

/// The state of a node, as its agent sends it. Fields that the agent's version does not have are empty.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// The node's name.
    pub node: String,
    /// The version of the agent.
    pub version: String,
    /// The time of the report in RFC 3339, which is the format of all times.
    pub time: String,
    /// The time at which the agent started.
    pub started: String,
    /// Whether this agent serves the node; during an upgrade, another agent may serve it.
    pub active: bool,
    /// The parts of the agent that are not ready, each with its reason.
    pub not_ready: Vec<String>,
    /// Problems of the installation that do not prevent readiness, such as directories that the runtime's configuration does not name.
    pub warnings: Vec<String>,
    /// The CNI configuration file whose plugin chain contains our plugin.
    pub chain: Option<String>,
    /// The backend that programmed the rules of the latest redirected pod.
    pub backend: Option<String>,
    pub counts: Counts,
    /// The node's pods by name; empty in a summary.
    pub pods: Vec<Pod>,
    pub heals: Heals,
    pub repair: Repair,
    /// The latest errors that agent and plugin logged, newest first.
    pub errors: Vec<Line>,
    /// The plugin's latest log lines, newest first; empty in a summary.
    pub lines: Vec<Line>,
}

/// The numbers of pods by verdict.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Counts {
    pub redirected: u64,
    /// The number of skipped pods by reason.
    pub skipped: BTreeMap<String, u64>,
    pub failed: u64,
    /// Pods whose rules differed from the intended ones at the runtime's latest CHECK.
    pub drifted: u64,
    /// Pods whose state the agent has not observed.
    pub unknown: u64,
}

/// A pod on the node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// `namespace/name`
    pub name: String,
    pub verdict: PodState,
    /// Why the plugin skipped the pod or failed, or the change that ADD made to a redirected pod's rules.
    pub reason: String,
    /// The pod's annotations and environment variables that determine its rules.
    pub parameters: BTreeMap<String, String>,
    /// The time of the latest ADD; `None` if the agent observed no ADD. The verdict is then derived from the pod's fields.
    pub added: Option<String>,
    /// The duration of the latest ADD.
    pub seconds: Option<f64>,
    pub backend: Option<String>,
    /// The error of a failed ADD, or the differences that a CHECK found.
    pub problem: Option<String>,
}

/// The state of a pod's redirection, as far as the agent has observed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PodState {
    Redirected,
    Skipped,
    /// ADD failed, so the pod does not start.
    Failed,
    /// Redirected, but CHECK found differences.
    Drifted,
    /// No ADD was observed for a pod that the plugin would not skip, or the latest ADD failed long ago.
    #[default]
    #[serde(other)]
    Unknown,
}

/// Corrections of the installation after the node was ready.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Heals {
    /// The number of corrections since the agent's start.
    pub total: u64,
    /// The latest corrections, the latest one first.
    pub latest: Vec<Heal>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Heal {
    pub time: String,
    pub reason: String,
    pub change: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Repair {
    /// The number of pods that are known to be broken now.
    pub broken: u64,
    /// The number of actions since the agent's start.
    pub total: u64,
    /// The latest actions, the latest one first.
    pub latest: Vec<RepairAction>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RepairAction {
    pub time: String,
    pub pod: String,
    pub action: String,
    pub result: String,
}

impl PodState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Redirected => "redirected",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Drifted => "drifted",
            Self::Unknown => "unknown",
        }
    }
}

impl Report {
    /// Returns the report without its pods and lines, for overviews of many nodes.
    pub fn summary(mut self) -> Self {
        self.pods.clear();
        self.lines.clear();
        self
    }

    /// Returns the current problems of the node; past errors are not included.
    pub fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.not_ready.iter().map(|part| format!("not ready: {part}")).collect();
        for (number, what) in [
            (self.counts.failed, "cannot be redirected and do not start"),
            (self.counts.drifted, "are not redirected as intended"),
            (self.repair.broken, "started without redirection and wait for repair"),
        ] {
            if number > 0 {
                problems.push(format!("pods that {what}: {number}"));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_other_versions_are_read() {
        let text = r#"{"node":"n1","later":{"x":1},"pods":[{"name":"a/b","verdict":"levitated"}]}"#;
        let report: Report = serde_json::from_str(text).unwrap();
        assert_eq!((report.node.as_str(), report.pods[0].verdict), ("n1", PodState::Unknown));
    }
}
