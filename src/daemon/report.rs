//! Builds the report of the node's state and latest activity, the document of `/status.json`.
//!
//! `page` renders it as HTML, `istio-cnictl status` requests it. Building a report changes nothing and queries no other program.

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::annotation;
use jiff::{SignedDuration, Timestamp};
use podfacts::Verdict;
use podfacts::{PodFacts, PodName};
use report::node::{Counts, Heal, Heals, Pod, PodState, Repair, RepairAction, Report};
use serve::health::Readiness;
use serve::log::Log;
use serve::page::Latest;
use tokio::sync::watch;

use crate::agent::{Added, Cache, Problem, Verdicts};
use crate::install;

/// The maximum number of pods in a report. A kubelet runs fewer.
const MAX_PODS: usize = 1024;
/// The size limit of a parameter's value, in bytes.
const MAX_VALUE: usize = 200;
/// The age above which a failed ADD is ignored and the pod's state is reported as unknown. The kubelet retries ADD
/// within half of this time, so an older failure says nothing about the pod's present state.
pub(super) const STALE_FAILURE: SignedDuration = SignedDuration::from_mins(10);

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
            Ok(Verdict::Redirect { .. }) => (PodState::Unknown, "not_observed"),
            Ok(Verdict::Skip(reason)) => (PodState::Skipped, reason.as_str()),
            Err(_) => (PodState::Unknown, "annotation"),
        };
        return Pod { name, verdict, reason: reason.to_owned(), parameters, ..Pod::default() };
    };
    let verdict = match (sample.verdict.as_str(), &problem) {
        ("redirected", Some(_)) => PodState::Drifted,
        ("redirected", None) => PodState::Redirected,
        ("skipped", _) => PodState::Skipped,
        ("failed", _) if now.duration_since(time) <= STALE_FAILURE => PodState::Failed,
        _ => PodState::Unknown,
    };
    let problem = problem.map(|(Problem::Failed(text) | Problem::Differs(text))| text);
    let (added, seconds) = (Some(time.to_string()), Some(sample.seconds));
    Pod { name, verdict, reason: sample.reason, parameters, added, seconds, backend, problem }
}

/// Returns the annotations and variables of a pod that determine its rules, with truncated values.
fn parameters(facts: &PodFacts) -> BTreeMap<String, String> {
    let environment = facts.proxy.iter().flat_map(|proxy| &proxy.env);
    let annotations = facts.annotations.iter().filter(|(key, _)| *key != annotation::STATUS);
    let short = |value: &str| value[..value.floor_char_boundary(MAX_VALUE)].to_owned();
    annotations.chain(environment).map(|(key, value)| (key.clone(), short(value))).collect()
}

fn counts(pods: &[Pod]) -> Counts {
    pods.iter().fold(Counts::default(), |mut counts, pod| {
        match pod.verdict {
            PodState::Redirected => counts.redirected += 1,
            PodState::Skipped => *counts.skipped.entry(pod.reason.clone()).or_default() += 1,
            PodState::Failed => counts.failed += 1,
            PodState::Drifted => counts.drifted += 1,
            PodState::Unknown => counts.unknown += 1,
        }
        counts
    })
}

#[cfg(test)]
mod tests;
