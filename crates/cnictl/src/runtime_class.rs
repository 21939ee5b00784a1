//! Reads the RuntimeClass of a pod: its handler decides whether the pod runs in a sandbox.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, Client};
use podfacts::is_sandbox;
use serde_json::Value;

use super::configuration::await_response;

/// Whether the handler of the pod's RuntimeClass is that of a sandbox; `None` if the pod has no class, or if the class
/// cannot be read. Its name decides then.
pub(super) async fn sandbox_of(client: Option<&Client>, pod: &Value) -> Option<bool> {
    let class = pod["spec"]["runtimeClassName"].as_str().filter(|class| !class.is_empty())?;
    let class = await_response(Api::<RuntimeClass>::all(client?.clone()).get(class)).await.ok()?;
    Some(is_sandbox(&class.handler))
}
