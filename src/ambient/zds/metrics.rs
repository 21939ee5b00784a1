//! The metrics of ZDS, with Istio's names if Istio has the same metrics.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Histogram buckets in seconds, from the duration of an acknowledgement to ztunnel's time limit.
const SECONDS: [f64; 12] = [0.0001, 0.0005, 0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0];

/// The metrics of ZDS; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    connected: Gauge,
    responses: Family<Request, Histogram, fn() -> Histogram>,
    refused: Family<Request, Counter>,
    closed: Family<Closed, Counter>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    request: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Closed {
    reason: &'static str,
}

impl Metrics {
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            connected: Gauge::default(),
            responses: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            refused: Family::default(),
            closed: Family::default(),
        };
        registry.register("ztunnel_connected", "Connected ztunnels", metrics.connected.clone());
        let zds = registry.sub_registry_with_prefix("istio_cni_zds");
        let help = "Time from a request until the response of ztunnel, by request";
        zds.register_with_unit("answer_duration", help, Unit::Seconds, metrics.responses.clone());
        zds.register("refused", "Requests that ztunnel refused, by request", metrics.refused.clone());
        zds.register("closed", "Connections of ztunnel that ended, by reason", metrics.closed.clone());
        metrics
    }

    pub(super) fn set_connected(&self, connections: usize) {
        self.connected.set(i64::try_from(connections).unwrap_or(i64::MAX));
    }

    pub(super) fn responded(&self, request: &'static str, after: Duration, is_refused: bool) {
        self.responses.get_or_create(&Request { request }).observe(after.as_secs_f64());
        if is_refused {
            self.refused.get_or_create(&Request { request }).inc();
        }
    }

    pub(super) fn closed(&self, reason: &'static str) {
        self.closed.get_or_create(&Closed { reason }).inc();
    }
}
