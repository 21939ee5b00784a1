//! Takes the startup taint off this node once the plugin is in place, for clusters whose control plane does not.
//!
//! The patch holds only while the taints are those that were seen: nobody else's change is undone.

use std::time::Duration;

use hyper::{Request, header};
use k8s_openapi::api::core::v1::{Node, Taint};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::sleep;

/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

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
    loop {
        match try_to_remove(client, node, key).await {
            Ok(true) => return tracing::info!(node, taint = key, "the startup taint is removed"),
            Ok(false) => return tracing::debug!(node, taint = key, "the node has no startup taint"),
            Err(error) => tracing::warn!(%error, node, taint = key, "the startup taint cannot be removed yet"),
        }
        sleep(PAUSE).await;
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
