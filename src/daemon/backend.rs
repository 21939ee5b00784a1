//! Reports to probes whether rules can be programmed: the agent is not ready if the node has no backend, or lacks the one that the
//! settings require.
//!
//! The plugin's STATUS never fails for this reason, because a node whose network is not ready cannot start a corrected agent
//! either. What is missing is reported by the plugin, which sees the node, and by this process. An agent in a pod sees the programs
//! in its image, not the node's, and usually may not program the kernel; it then relies on the plugin.

#![expect(clippy::disallowed_methods, reason = "owns the clock of the warnings")]

use std::sync::Arc;
use std::time::Duration;

use contract::IptablesBinary;
use jiff::Timestamp;
use netfilter::Backend;
use podnet::converge::{self, OnDifference, Options};
use redirect::istio;
use tokio::time::timeout;

use super::AgentSettings;
use super::report::{Reporter, STALE_FAILURE};
use crate::agent::{self, NoBackend};

/// The [`Readiness`](serve::health::Readiness) part that is not ready while no backend is available.
const BACKEND: &str = "backend";

/// The interval between two checks of the kernel and the programs.
const INTERVAL: Duration = Duration::from_secs(10);

/// Returns a future that reports to probes, metrics and log whether a backend is available. It never ends.
pub(super) fn report(
    settings: &AgentSettings,
    reporter: &Arc<Reporter>,
    metrics: agent::Metrics,
) -> impl Future<Output = ()> + Send + use<> {
    let entry = &settings.install.entry;
    let options = Options {
        native_nftables: entry.native_nftables,
        forced: entry.iptables_binary.as_deref().and_then(IptablesBinary::named),
        on_difference: OnDifference::Refuse,
        owned: &istio::OWNED,
    };
    let is_in_pod = !entry.pod_namespace.is_empty();
    let (readiness, mut reported) = (reporter.readiness.clone(), reporter.verdicts.no_backend());
    async move {
        let mut last = None;
        metrics.backend_available(true);
        loop {
            // A panic is logged by the panic hook, and shows nothing about the backend.
            let own = tokio::task::spawn_blocking(move || converge::available(options)).await.ok();
            let found = missing(own.as_ref(), is_in_pod, reported.borrow_and_update().as_ref(), Timestamp::now());
            if found != last {
                match &found {
                    Some(why) => {
                        tracing::error!("no pod can be redirected: {why}");
                        readiness.missing(BACKEND, why.clone());
                    }
                    None => {
                        tracing::info!("pods can be redirected");
                        readiness.ready(BACKEND);
                    }
                }
                metrics.backend_available(found.is_none());
                last = found;
            }
            // The sender lives as long as the reporter; the next check follows the interval at the latest.
            let _ = timeout(INTERVAL, reported.changed()).await;
        }
    }
}

/// Decides which backend is missing, from this process's own check and the plugin's latest report; `None` if neither reports a
/// missing backend.
fn missing(
    own: Option<&Result<Backend, converge::Error>>,
    is_in_pod: bool,
    reported: Option<&NoBackend>,
    now: Timestamp,
) -> Option<String> {
    match own {
        Some(Err(converge::Error::NoBackend(lack))) if !(is_in_pod && lack.is_missing_program()) => {
            Some(lack.to_string())
        }
        _ => {
            let recent = reported.filter(|report| now.duration_since(report.time) <= STALE_FAILURE);
            recent.map(|report| report.lack.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use netfilter::Unavailable;

    use super::*;

    #[test]
    fn an_agent_in_a_pod_judges_the_kernel_and_leaves_the_nodes_programs_to_the_plugin() {
        let now = Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(1);
        for (lack, in_pod, is_missing) in [
            (Unavailable::NfTables, true, true),
            (Unavailable::Compat, true, true),
            (Unavailable::LegacyPrograms, true, false),
            (Unavailable::All, true, false),
            (Unavailable::LegacyPrograms, false, true),
            (Unavailable::All, false, true),
        ] {
            let own = Err(lack.into());
            assert_eq!(
                missing(Some(&own), in_pod, None, now),
                is_missing.then(|| lack.to_string()),
                "{lack:?} {in_pod}"
            );
        }
        assert_eq!(missing(Some(&Ok(Backend::IptablesNft)), false, None, now), None);
    }

    #[test]
    fn the_plugins_report_counts_until_it_is_stale() {
        let time = Timestamp::UNIX_EPOCH;
        let report = NoBackend { time, lack: "no program".to_owned() };
        let found = |age| missing(Some(&Ok(Backend::IptablesNft)), true, Some(&report), time + age);
        assert_eq!(found(STALE_FAILURE).as_deref(), Some("no program"));
        assert_eq!(found(STALE_FAILURE + jiff::SignedDuration::from_secs(1)), None);
    }
}
