//! The report of a node's state and latest activity: the document of `/status.json`, and the state from which it is
//! built.
//!
//! `page` renders it as HTML, `istio-cnictl status` requests it. Building a report changes nothing and queries no other program.

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::annotation;
use jiff::{SignedDuration, Timestamp};
use podfacts::Verdict as Decision;
use podfacts::{PodFacts, PodName};
use serde::{Deserialize, Serialize};
use serve::health::Readiness;
use serve::log::{Line, Log};
use serve::page::{self, Latest};
use tokio::sync::watch;

use crate::agent::{Added, Cache, Problem, Verdicts};
use crate::install;

/// The path of the document on the monitoring port.
pub const PATH: &str = page::DOCUMENT;
/// The query for a report without pods and lines.
pub const SUMMARY: &str = "summary";

/// The maximum number of pods in a report. A kubelet runs fewer.
const MAX_PODS: usize = 1024;
/// The size limit of a parameter's value, in bytes.
const MAX_VALUE: usize = 200;
/// The age above which a failed ADD is ignored and the pod's state is reported as unknown. The kubelet retries ADD
/// within half of this time, so an older failure says nothing about the pod's present state.
pub(super) const STALE_FAILURE: SignedDuration = SignedDuration::from_mins(10);

/// The state of a node. Fields that the sender's version does not have are empty.
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
    /// Whether this agent serves the node; another one does so during an upgrade.
    pub active: bool,
    /// The parts of the agent that are not ready, each with its reason.
    pub not_ready: Vec<String>,
    /// Problems of the installation that do not prevent readiness, such as directories that the runtime's configuration does not name.
    pub warnings: Vec<String>,
    /// The file that contains the chain entry.
    pub chain: Option<String>,
    /// The backend of the latest redirection.
    pub backend: Option<String>,
    pub counts: Counts,
    /// The node's pods by name; empty in a summary.
    pub pods: Vec<Pod>,
    pub heals: Heals,
    pub repair: Repair,
    /// The latest errors of agent and plugin, the latest one first.
    pub errors: Vec<Line>,
    /// The latest log lines of the plugin, the latest one first; empty in a summary.
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
    /// Pods whose rules differed from the intended ones at the latest CHECK.
    pub drifted: u64,
    /// Pods whose state the agent has not observed.
    pub unknown: u64,
}

/// A pod of the node.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Pod {
    /// `namespace/name`
    pub name: String,
    pub verdict: Verdict,
    /// The reason for which the plugin skipped the pod or failed, or the change that ADD made to the rules of a
    /// redirected pod.
    pub reason: String,
    /// The annotations and variables of the pod that determine its rules.
    pub parameters: BTreeMap<String, String>,
    /// The time of the latest ADD; `None` if the agent has not observed it. The verdict is then derived from the pod's
    /// fields.
    pub added: Option<String>,
    /// The duration of the latest ADD.
    pub seconds: Option<f64>,
    pub backend: Option<String>,
    /// The error of a failed ADD, or the differences that a CHECK found.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    Redirected,
    Skipped,
    /// ADD failed, so the pod does not start.
    Failed,
    /// Redirected, but CHECK found differences.
    Drifted,
    /// No ADD was observed for a pod that the plugin would redirect, or the latest one failed long ago.
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

impl Verdict {
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
    /// The report without its pods and lines, for overviews of many nodes.
    pub fn summary(mut self) -> Self {
        self.pods.clear();
        self.lines.clear();
        self
    }

    /// The current problems of the node. Past errors are not among them.
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

/// Builds reports from the state of the other modules, and reuses recent ones.
pub(super) struct Reporter {
    pub(super) node: String,
    pub(super) started: Timestamp,
    pub(super) readiness: Readiness,
    pub(super) is_active: watch::Receiver<bool>,
    pub(super) cache: Cache,
    pub(super) verdicts: Verdicts,
    pub(super) install: install::Metrics,
    pub(super) repair: repair::Metrics,
    pub(super) log: Log,
    pub(super) latest: Latest<Report>,
}

impl Reporter {
    /// Returns a report that is at most a second old.
    pub(super) fn report(&self) -> Arc<Report> {
        self.latest.report(|now| self.build(now))
    }

    fn build(&self, now: Timestamp) -> Report {
        let pods = self.pods(now);
        let heal = |heal: install::Heal| Heal {
            time: heal.time.to_string(),
            reason: heal.reason.to_owned(),
            change: heal.change,
        };
        let action = |action: repair::RepairAction| RepairAction {
            time: action.time.to_string(),
            pod: action.pod.to_string(),
            action: action.action.to_owned(),
            result: action.result.to_owned(),
        };
        let (heals, actions) = (self.install.heals(), self.repair.actions());
        Report {
            node: self.node.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: now.to_string(),
            started: self.started.to_string(),
            active: *self.is_active.borrow(),
            not_ready: self
                .readiness
                .report()
                .map(|lines| lines.lines().map(str::to_owned).collect())
                .unwrap_or_default(),
            warnings: self.install.warnings(),
            chain: self.install.chain().map(|path| path.display().to_string()),
            backend: self.verdicts.backend(),
            counts: counts(&pods),
            pods,
            heals: Heals { total: heals.total(), latest: heals.latest_first().into_iter().map(heal).collect() },
            repair: Repair {
                broken: self.repair.broken(),
                total: actions.total(),
                latest: actions.latest_first().into_iter().map(action).collect(),
            },
            errors: self.log.errors(),
            lines: self.verdicts.lines(),
        }
    }

    fn pods(&self, now: Timestamp) -> Vec<Pod> {
        let pod = |(name, facts): (&PodName, &PodFacts)| {
            let name = name.to_string();
            let added = self.verdicts.of(&name, &facts.uid);
            pod(name, facts, added, now)
        };
        let mut pods: Vec<Pod> = self.cache.read(|store| store.iter().take(MAX_PODS).map(pod).collect());
        pods.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        pods
    }
}

/// Reports a pod by the outcome of its latest ADD. Without an observed ADD, a pod that the plugin would skip is
/// reported as skipped, and any other pod as unknown.
fn pod(name: String, facts: &PodFacts, added: Option<Added>, now: Timestamp) -> Pod {
    let parameters = parameters(facts);
    let Some(Added { time, sample, backend, problem, .. }) = added else {
        let (verdict, reason) = match podfacts::of_pod(facts) {
            Ok(Decision::Redirect { .. }) => (Verdict::Unknown, "not_observed"),
            Ok(Decision::Skip(reason)) => (Verdict::Skipped, reason.as_str()),
            Err(_) => (Verdict::Unknown, "annotation"),
        };
        return Pod { name, verdict, reason: reason.to_owned(), parameters, ..Pod::default() };
    };
    let verdict = match (sample.verdict.as_str(), &problem) {
        ("redirected", Some(_)) => Verdict::Drifted,
        ("redirected", None) => Verdict::Redirected,
        ("skipped", _) => Verdict::Skipped,
        ("failed", _) if now.duration_since(time) <= STALE_FAILURE => Verdict::Failed,
        _ => Verdict::Unknown,
    };
    let problem = problem.map(|(Problem::Failed(text) | Problem::Differs(text))| text);
    let (added, seconds) = (Some(time.to_string()), Some(sample.seconds));
    Pod { name, verdict, reason: sample.reason, parameters, added, seconds, backend, problem }
}

/// The annotations and variables of a pod that determine its rules, with shortened values.
fn parameters(facts: &PodFacts) -> BTreeMap<String, String> {
    let environment = facts.proxy.iter().flat_map(|proxy| &proxy.env);
    let annotations = facts.annotations.iter().filter(|(key, _)| *key != annotation::STATUS);
    let short = |value: &str| value[..value.floor_char_boundary(MAX_VALUE)].to_owned();
    annotations.chain(environment).map(|(key, value)| (key.clone(), short(value))).collect()
}

fn counts(pods: &[Pod]) -> Counts {
    pods.iter().fold(Counts::default(), |mut counts, pod| {
        match pod.verdict {
            Verdict::Redirected => counts.redirected += 1,
            Verdict::Skipped => *counts.skipped.entry(pod.reason.clone()).or_default() += 1,
            Verdict::Failed => counts.failed += 1,
            Verdict::Drifted => counts.drifted += 1,
            Verdict::Unknown => counts.unknown += 1,
        }
        counts
    })
}

#[cfg(test)]
mod tests;
