//! The metrics of the webhook, with Istio's names where Istio has the metric, and the state that the status page shows.

#![expect(clippy::disallowed_methods, reason = "records when a review was decided")]

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::activity::{Activity, Refused, Reload, Reviewed};
use super::identity::Identity;
use super::review::{AdmissionOutcome, Verdict};

/// The buckets of the duration of a review, in seconds: Istio's buckets, and smaller ones for the usual durations.
const SECONDS: [f64; 14] = [0.0002, 0.0005, 0.001, 0.002, 0.005, 0.02, 0.1, 1.0, 3.0, 5.0, 10.0, 20.0, 30.0, 60.0];

/// The metrics of a server; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Counter,
    success: Counter,
    failure: Counter,
    skip: Counter,
    time: Histogram,
    decisions: Family<Decided, Counter>,
    reloads: Family<Reloaded, Counter>,
    presented: Gauge,
    not_after: Gauge,
    attempts: Family<Patched, Counter>,
    retries: Family<Patched, Counter>,
    failures: Family<Patched, Counter>,
    activity: Activity,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Decided {
    decision: &'static str,
    reason: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Reloaded {
    what: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Patched {
    name: String,
    reason: String,
}

impl Metrics {
    /// Creates and registers the metrics.
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Counter::default(),
            success: Counter::default(),
            failure: Counter::default(),
            skip: Counter::default(),
            time: Histogram::new(SECONDS),
            decisions: Family::default(),
            reloads: Family::default(),
            presented: Gauge::default(),
            not_after: Gauge::default(),
            attempts: Family::default(),
            retries: Family::default(),
            failures: Family::default(),
            activity: Activity::default(),
        };
        let injection = registry.sub_registry_with_prefix("sidecar_injection");
        injection.register("requests", "Requests for injection", metrics.requests.clone());
        injection.register("success", "Pods that were injected", metrics.success.clone());
        injection.register("failure", "Requests that failed", metrics.failure.clone());
        injection.register("skip", "Pods that were left alone", metrics.skip.clone());
        injection.register_with_unit("time", "Time of an injection", Unit::Seconds, metrics.time.clone());
        injection.register("decisions", "Decisions, by the rule that made them", metrics.decisions.clone());
        injection.register("reloads", "Configuration and certificates that were read again", metrics.reloads.clone());
        let webhook = registry.sub_registry_with_prefix("webhook");
        webhook.register("certificate_presented", "1 once there is a certificate to show", metrics.presented.clone());
        webhook.register_with_unit(
            "certificate_expiration_timestamp",
            "When the presented certificate expires, in Unix time; 0 before one is presented",
            Unit::Seconds,
            metrics.not_after.clone(),
        );
        webhook.register("patch_attempts", "Patches of webhook configurations", metrics.attempts.clone());
        webhook.register("patch_retries", "Patches that are tried again", metrics.retries.clone());
        webhook.register("patch_failures", "Patches that failed", metrics.failures.clone());
        metrics
    }

    /// Returns the state that the status page shows.
    pub(super) fn activity(&self) -> &Activity {
        &self.activity
    }

    pub(super) fn requested(&self) {
        self.requests.inc();
    }

    /// Counts a request that ended without a decision.
    pub(super) fn failed(&self) {
        self.failure.inc();
    }

    /// Counts a request that is refused by this rule before its object is read.
    pub(super) fn refused(&self, rule: &'static str) {
        self.failure.inc();
        self.count(Verdict::Refuse.as_str(), rule);
    }

    /// Records the outcome of a review of this pod.
    pub(super) fn decided(&self, pod: &str, outcome: &AdmissionOutcome, took: Duration) {
        match outcome.verdict {
            Verdict::Patch(_) => &self.success,
            Verdict::Skip => &self.skip,
            Verdict::Refuse => &self.failure,
        }
        .inc();
        self.time.observe(took.as_secs_f64());
        let (time, decision, rule) = (Timestamp::now(), outcome.verdict.as_str(), outcome.rule);
        self.count(decision, rule);
        self.activity.timed(Reviewed { time, pod: pod.to_owned(), took, decision, rule });
        if outcome.verdict == Verdict::Refuse {
            let reason = outcome.reason.clone();
            self.activity.refused(Refused { time, pod: pod.to_owned(), rule, reason });
        }
    }

    fn count(&self, decision: &'static str, rule: &'static str) {
        self.decisions.get_or_create(&Decided { decision, reason: rule }).inc();
        self.activity.counted(decision, rule);
    }

    /// Records a reload, and the reason if it failed.
    pub(super) fn reloaded(&self, what: Reload, fault: Option<&str>) {
        let result = if fault.is_none() { "success" } else { "failure" };
        self.reloads.get_or_create(&Reloaded { what: what.as_str(), result }).inc();
        self.activity.reloaded(what, Timestamp::now(), fault);
    }

    pub(super) fn presents(&self, identity: &Identity) {
        self.presented.set(1);
        self.not_after.set(identity.not_after().unwrap_or_default());
        self.activity.presents(Timestamp::now(), identity.clone());
    }

    pub(super) fn patching(&self, name: &str, again: bool) {
        let labels = Patched { name: name.to_owned(), reason: String::new() };
        self.attempts.get_or_create(&labels).inc();
        if again {
            self.retries.get_or_create(&labels).inc();
        }
    }

    pub(super) fn patch_failed(&self, name: &str, reason: &str) {
        self.failures.get_or_create(&Patched { name: name.to_owned(), reason: reason.to_owned() }).inc();
    }

    /// Creates one series of each metric family: the encoded registry names the labels of a family only in its series.
    pub fn create_series(&self) {
        drop(self.decisions.get_or_create(&Default::default()));
        drop(self.reloads.get_or_create(&Default::default()));
        drop(self.attempts.get_or_create(&Default::default()));
        drop(self.retries.get_or_create(&Default::default()));
        drop(self.failures.get_or_create(&Default::default()));
    }
}
