//! Removes the startup taint from this node once the plugin is installed, for clusters whose control plane does not
//! remove it.
//!
//! The patch applies only if the taints have not changed since they were read, so that it reverts no other change.

use std::time::Duration;

use hyper::{Request, header};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// The time limit of an attempt.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause after the first attempt; each further pause is twice as long, up to [`MAX_BACKOFF`].
const MIN_BACKOFF: Duration = Duration::from_secs(1);
/// The longest pause between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

/// Returns the pauses between attempts. They grow, so that the agents of many nodes do not overload a control plane that refuses
/// their requests.
fn backoff() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(MIN_BACKOFF), |pause| Some((*pause * 2).min(MAX_BACKOFF)))
}

/// Returns the patch that removes the taint; `None` if the node has no taint with this key.
fn patch(node: &Node, key: &str) -> Option<Value> {
    let found = node.spec.as_ref()?.taints.as_ref()?;
    let others: Vec<&Taint> = found.iter().filter(|taint| taint.key != key).collect();
    (others.len() < found.len()).then(|| {
        json!([
            { "op": "test", "path": "/spec/taints", "value": found },
            { "op": "replace", "path": "/spec/taints", "value": others },
        ])
    })
}

/// Removes the taint; retries until it succeeds.
pub(super) async fn remove(client: &Client, node: &str, key: &str) {
    for pause in backoff() {
        match timeout(REQUEST_TIMEOUT, try_to_remove(client, node, key)).await {
            Ok(Ok(true)) => return tracing::info!(node, taint = key, "the startup taint is removed"),
            Ok(Ok(false)) => return tracing::debug!(node, taint = key, "the node has no startup taint"),
            Ok(Err(error)) => tracing::warn!(%error, node, taint = key, "the startup taint cannot be removed yet"),
            Err(_) => tracing::warn!(
                node,
                taint = key,
                "the startup taint cannot be removed yet: no response within {REQUEST_TIMEOUT:?}"
            ),
        }
        sleep(pause).await;
    }
}

async fn try_to_remove(client: &Client, node: &str, key: &str) -> Result<bool, kube::Error> {
    let node_object = Api::<Node>::all(client.clone()).get(node).await?;
    let Some(patch) = patch(&node_object, key) else { return Ok(false) };
    let request = Request::patch(format!("/api/v1/nodes/{node}"))
        .header(header::CONTENT_TYPE, "application/json-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request::<Node>(request).await.map(|_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(taints: &Value) -> Option<Value> {
        patch(&serde_json::from_value(json!({"metadata": {}, "spec": {"taints": taints}})).unwrap(), "cni/not-ready")
    }

    #[test]
    fn the_backoff_grows_to_a_minute() {
        let seconds: Vec<u64> = backoff().take(9).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn only_taints_of_the_key_are_removed_with_any_effect() {
        let ours = json!({"key": "cni/not-ready", "effect": "NoExecute", "value": "x"});
        let other = json!({"key": "gpu", "effect": "NoSchedule"});
        let patch = of(&json!([ours, other])).unwrap();
        assert_eq!(patch[0], json!({"op": "test", "path": "/spec/taints", "value": [ours, other]}));
        assert_eq!(patch[1], json!({"op": "replace", "path": "/spec/taints", "value": [other]}));
        assert_eq!(of(&json!([other])), None);
        assert_eq!(of(&json!(null)), None);
    }
}
