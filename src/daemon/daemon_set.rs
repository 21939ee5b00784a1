//! Queries the API server for the daemon's DaemonSet, within the grace period of a terminating pod.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use kube::{Api, Client};
use podfacts::PodName;
use tokio::time::{sleep, timeout};

use super::decide::{Action, DaemonSetState, KeepReason, Successor, decide};
use crate::agent::Cache;
use serve::scheduling::selects;

/// The time limit of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between two attempts. A refusal may be temporary: an API server that is starting refuses accounts that
/// it has not loaded yet.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The number of attempts before a refusal or a failure is final.
const ATTEMPTS: usize = 3;
/// The time limit of all attempts, including the creation of a client: a third of a pod's grace period.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The subject of a query: the daemon's pod, its node and its DaemonSet.
#[derive(Debug, Clone)]
pub(super) struct Query {
    /// The namespace of pod and DaemonSet; if empty, the namespace of the daemon's service account.
    pub(super) namespace: String,
    /// The pod's name; empty if it is unknown.
    pub(super) pod: String,
    /// The node's name.
    pub(super) node: String,
    /// The watched pods of the node.
    pub(super) pods: Cache,
}

/// Returns the state of the DaemonSet, as far as it can be queried.
pub(super) async fn query(client: impl Future<Output = Client>, mut query: Query) -> DaemonSetState {
    let state = async {
        let client = client.await;
        if query.namespace.is_empty() {
            client.default_namespace().clone_into(&mut query.namespace);
        }
        query_with_retries(&client, &query).await
    };
    timeout(TIMEOUT, state).await.unwrap_or_else(|_| DaemonSetState::Unknown(format!("no response within {TIMEOUT:?}")))
}

/// Warns at the start if a shutdown would remove the plugin, or could not read the DaemonSet.
pub(super) async fn warn_of_removal(client: impl Future<Output = Client>, subject: Query) {
    let action = decide(Successor::None, &query(client, subject).await);
    if matches!(action, Action::RemoveAll(_) | Action::Keep(KeepReason::Forbidden(_))) {
        let check = "POD_NAMESPACE, and the role's `get` of `daemonsets`";
        tracing::warn!(check, "if this daemon ended now, the plugin would be {action}");
    }
}

/// Queries the DaemonSet, and retries refusals and failures. When all manifests are deleted, one role disappears after the other,
/// so only the last response is final.
async fn query_with_retries(client: &Client, query: &Query) -> DaemonSetState {
    let mut state = query_once(client, query).await;
    for _ in 1..ATTEMPTS {
        if matches!(state, DaemonSetState::Found { .. } | DaemonSetState::NotFound) {
            break;
        }
        sleep(RETRY_INTERVAL).await;
        state = query_once(client, query).await;
    }
    state
}

async fn query_once(client: &Client, query: &Query) -> DaemonSetState {
    let Query { namespace, node, .. } = query;
    let daemon_sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    let found = match timeout(REQUEST_TIMEOUT, daemon_sets.get(contract::DAEMON_SET)).await {
        Err(_) => return DaemonSetState::Unknown(format!("no response within {REQUEST_TIMEOUT:?}")),
        Ok(Err(error)) => match from_error(&error) {
            DaemonSetState::AccessWithdrawn(code) => return classify_refusal(client, query, code).await,
            state => return state,
        },
        Ok(Ok(found)) => found,
    };
    let deleting = found.metadata.deletion_timestamp.is_some();
    let pod = found.spec.and_then(|spec| spec.template.spec);
    let unmounted = match &pod {
        Some(pod) if !deleting => unmounted_by(client, query, pod).await,
        _ => Vec::new(),
    };
    let node = timeout(REQUEST_TIMEOUT, Api::<Node>::all(client.clone()).get(node)).await;
    let selects_node = match (&pod, &node) {
        (Some(pod), Ok(Ok(node))) => selects(pod, node),
        // A node that cannot be read is treated as selected, so that the plugin is not removed.
        _ => true,
    };
    DaemonSetState::Found { deleting, selects_node, unmounted }
}

/// Returns the node's directories for plugin and configuration that this pod mounts and the template's pods do not; none if this
/// pod cannot be read.
async fn unmounted_by(client: &Client, Query { namespace, pod, .. }: &Query, template: &PodSpec) -> Vec<PathBuf> {
    if pod.is_empty() {
        return Vec::new();
    }
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    match timeout(REQUEST_TIMEOUT, pods.get(pod)).await {
        Ok(Ok(Pod { spec: Some(own), .. })) => unmounted(&own, template),
        _ => Vec::new(),
    }
}

fn unmounted(own: &PodSpec, template: &PodSpec) -> Vec<PathBuf> {
    // The next agent mounts all directories of the node.
    if host_path(template, contract::ROOT_VOLUME).is_some() {
        return Vec::new();
    }
    let volumes = [contract::NET_DIR_VOLUME, contract::BIN_DIR_VOLUME];
    let each = volumes.map(|volume| (host_path(own, volume), host_path(template, volume)));
    each.into_iter().filter(|(own, template)| own != template).filter_map(|(own, _)| own).collect()
}

/// Returns the path of a `hostPath` volume. Paths are compared by their components.
fn host_path(pod: &PodSpec, volume: &str) -> Option<PathBuf> {
    let volume = pod.volumes.iter().flatten().find(|found| found.name == volume)?;
    volume.host_path.as_ref().map(|found| PathBuf::from(&found.path))
}

/// Distinguishes a missing right to read the DaemonSet from the loss of all rights, by a request for the daemon's own pod. If the
/// pod's name is unknown, all rights are treated as lost.
async fn classify_refusal(client: &Client, query: &Query, code: u16) -> DaemonSetState {
    let pod = PodName { namespace: query.namespace.clone(), name: query.pod.clone() };
    if pod.name.is_empty() {
        return DaemonSetState::AccessWithdrawn(code);
    }
    // A token is bound to its pod and becomes invalid when the pod is deleted by force. Status 401 then says nothing
    // about the DaemonSet.
    if code == 401 && query.pods.read(|pods| pods.has_synced() && !pods.has(&pod)) {
        return DaemonSetState::Unknown(format!("pod {pod} was deleted by force, and its token with it"));
    }
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace);
    match timeout(REQUEST_TIMEOUT, pods.get_metadata(&pod.name)).await {
        Err(_) => DaemonSetState::Unknown(format!("no response within {REQUEST_TIMEOUT:?}")),
        Ok(Ok(_)) => DaemonSetState::Forbidden(code),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => DaemonSetState::Forbidden(code),
        Ok(Err(error)) => from_error(&error),
    }
}

fn from_error(error: &kube::Error) -> DaemonSetState {
    match error {
        // A 404 for a path that the API server does not serve says nothing about the DaemonSet.
        kube::Error::Api(status)
            if status.code == 404 && status.details.as_ref().is_some_and(|of| of.name == contract::DAEMON_SET) =>
        {
            DaemonSetState::NotFound
        }
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => DaemonSetState::AccessWithdrawn(status.code),
        error => DaemonSetState::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(net: &str, bin: &str) -> PodSpec {
        let volume = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path } });
        let volumes = [volume("cni-net-dir", net), volume("cni-bin-dir", bin), volume("cni-socket-dir", "/run/x")];
        serde_json::from_value(json!({ "containers": [], "volumes": volumes })).unwrap()
    }

    #[test]
    fn directories_that_the_template_mounts_elsewhere_are_unmounted() {
        let own = pod("/etc/cni/net.d", "/opt/cni/bin");
        for (net, bin, expected) in [
            ("/etc/cni/net.d/", "/opt//cni/bin", &[][..]),
            ("/etc/other", "/opt/cni/bin", &["/etc/cni/net.d"]),
            ("/etc/cni/net.d", "/opt/other", &["/opt/cni/bin"]),
            ("/etc/other", "/opt/other", &["/etc/cni/net.d", "/opt/cni/bin"]),
        ] {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(unmounted(&own, &pod(net, bin)), expected, "{net} {bin}");
        }
        let none = serde_json::from_value(json!({ "containers": [] })).unwrap();
        assert_eq!(unmounted(&own, &none).len(), 2);
        assert!(unmounted(&none, &own).is_empty());
        let root = json!({ "containers": [], "volumes": [{ "name": "host-root", "hostPath": { "path": "/" } }] });
        assert!(unmounted(&own, &serde_json::from_value(root).unwrap()).is_empty());
    }
}
