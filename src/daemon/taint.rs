//! Takes the startup taint off this node once the plugin is in place, for clusters whose control plane does not.
//!
//! The patch holds only while the taints are those that were seen: nobody else's change is undone.

use std::time::Duration;

use hyper::{Request, header};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

/// One attempt: a server that never answers is asked again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between the first two attempts; each further pause is twice as long,
const SHORTEST: Duration = Duration::from_secs(1);
/// up to this one.
const LONGEST: Duration = Duration::from_secs(60);

/// The pauses between attempts. A control plane that refuses is not asked each second by each of its nodes.
fn pauses() -> impl Iterator<Item = Duration> {
    std::iter::successors(Some(SHORTEST), |pause| Some((*pause * 2).min(LONGEST)))
}

/// What removes the taint from the node; `None` where it has none of this key.
fn patch(node: &Node, key: &str) -> Option<Value> {
    let seen = node.spec.as_ref()?.taints.as_ref()?;
    let left: Vec<&Taint> = seen.iter().filter(|taint| taint.key != key).collect();
    (left.len() < seen.len()).then(|| {
        json!([
            { "op": "test", "path": "/spec/taints", "value": seen },
            { "op": "replace", "path": "/spec/taints", "value": left },
        ])
    })
}

/// Removes the taint, however often that takes.
pub(super) async fn remove(client: &Client, node: &str, key: &str) {
    for pause in pauses() {
        match timeout(PATIENCE, try_to_remove(client, node, key)).await {
            Ok(Ok(true)) => return tracing::info!(node, taint = key, "the startup taint is removed"),
            Ok(Ok(false)) => return tracing::debug!(node, taint = key, "the node has no startup taint"),
            Ok(Err(error)) => tracing::warn!(%error, node, taint = key, "the startup taint cannot be removed yet"),
            Err(_) => tracing::warn!(
                node,
                taint = key,
                "the startup taint cannot be removed yet: no answer within {PATIENCE:?}"
            ),
        }
        sleep(pause).await;
    }
}

async fn try_to_remove(client: &Client, node: &str, key: &str) -> Result<bool, kube::Error> {
    let found = Api::<Node>::all(client.clone()).get(node).await?;
    let Some(patch) = patch(&found, key) else { return Ok(false) };
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
    fn pauses_grow_to_a_minute_and_go_on_for_ever() {
        let seconds: Vec<u64> = pauses().take(9).map(|pause| pause.as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    }

    #[test]
    fn only_the_taint_of_that_key_goes_whatever_its_effect() {
        let ours = json!({"key": "cni/not-ready", "effect": "NoExecute", "value": "x"});
        let other = json!({"key": "gpu", "effect": "NoSchedule"});
        let patch = of(&json!([ours, other])).unwrap();
        assert_eq!(patch[0], json!({"op": "test", "path": "/spec/taints", "value": [ours, other]}));
        assert_eq!(patch[1], json!({"op": "replace", "path": "/spec/taints", "value": [other]}));
        assert_eq!(of(&json!([other])), None);
        assert_eq!(of(&json!(null)), None);
    }
}
