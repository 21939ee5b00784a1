//! The agent's metrics, with Istio's names if Istio has the same metrics.

use contract::diagnostics::Level;
use hyper::StatusCode;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::cache::{Cache, Lookup};
use super::relay::Sample;

/// Histogram buckets in seconds, from the duration of an undisturbed ADD to the plugin's time limit for the API server.
const SECONDS: [f64; 15] = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0];

/// The metrics of one agent; clones share the counters.
#[derive(Debug, Clone)]
pub struct Metrics {
    requests: Family<Responded, Counter>,
    lookups: Family<LookedUp, Counter>,
    adds: Family<Added, Histogram, fn() -> Histogram>,
    lines: Family<Logged, Counter>,
    pods: Gauge,
    filled: Gauge,
    backend: Gauge,
    watch_errors: Counter,
    token_errors: Family<TokenFailed, Counter>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Responded {
    response_code: u16,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookedUp {
    result: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Added {
    verdict: String,
    reason: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Logged {
    level: &'static str,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenFailed {
    reason: &'static str,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            requests: Family::default(),
            lookups: Family::default(),
            adds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            lines: Family::default(),
            pods: Gauge::default(),
            filled: Gauge::default(),
            backend: Gauge::default(),
            watch_errors: Counter::default(),
            token_errors: Family::default(),
        };
        let plugin = registry.sub_registry_with_prefix("istio_cni_plugin");
        plugin.register("requests", "Requests of the plugin to the agent", metrics.requests.clone());
        let help = "Duration of ADD, by verdict and reason";
        plugin.register_with_unit("add_duration", help, Unit::Seconds, metrics.adds.clone());
        plugin.register("log_lines", "Log lines of the plugin", metrics.lines.clone());
        let agent = registry.sub_registry_with_prefix("istio_cni_agent");
        agent.register("lookups", "Lookups of pods by the plugin, by result", metrics.lookups.clone());
        agent.register("pods", "Pods of this node in the cache", metrics.pods.clone());
        agent.register("cache_filled", "1 once this node's pods have been listed", metrics.filled.clone());
        let help = "1 unless rules cannot be programmed: a setting or the node lacks a backend";
        agent.register("backend_available", help, metrics.backend.clone());
        agent.register("watch_errors", "Errors of the watch of this node's pods", metrics.watch_errors.clone());
        let help = "Requests of a token for the plugin's kubeconfig that were not granted, by reason";
        agent.register("token_errors", help, metrics.token_errors.clone());
        metrics
    }

    /// Records whether rules can be programmed.
    pub fn backend_available(&self, is_available: bool) {
        self.backend.set(is_available.into());
    }

    pub(super) fn responded(&self, status: StatusCode) {
        self.requests.get_or_create(&Responded { response_code: status.as_u16() }).inc();
    }

    pub(super) fn looked_up(&self, lookup: &Lookup) {
        self.lookups.get_or_create(&LookedUp { result: lookup.as_str() }).inc();
    }

    pub(super) fn added(&self, sample: Sample) {
        let Sample { verdict, reason, seconds } = sample;
        self.adds.get_or_create(&Added { verdict, reason }).observe(seconds);
    }

    pub(super) fn logged(&self, level: Level) {
        self.lines.get_or_create(&Logged { level: level.as_str() }).inc();
    }

    pub(super) fn set_cache(&self, cache: &Cache) {
        let (pods, filled) = cache.read(|store| (store.len(), store.has_synced()));
        self.pods.set(i64::try_from(pods).unwrap_or(i64::MAX));
        self.filled.set(i64::from(filled));
    }

    pub(super) fn watch_failed(&self) {
        self.watch_errors.inc();
    }

    pub(super) fn token_failed(&self, reason: &'static str) {
        self.token_errors.get_or_create(&TokenFailed { reason }).inc();
    }

    /// Creates one series of each metric family: the encoded registry names the labels of a family only in its series.
    pub fn create_series(&self) {
        drop(self.requests.get_or_create(&Default::default()));
        drop(self.lookups.get_or_create(&Default::default()));
        drop(self.adds.get_or_create(&Default::default()));
        drop(self.lines.get_or_create(&Default::default()));
        drop(self.token_errors.get_or_create(&Default::default()));
    }
}
