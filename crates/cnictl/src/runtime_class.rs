//! Reads a pod's RuntimeClass, whose handler decides whether the pod has a sandboxed runtime, such as gVisor or Kata.

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::{Api, Client};
use podfacts::is_sandbox;
use serde_json::Value;

use super::configuration::await_response;

/// Whether the handler of the pod's RuntimeClass is a sandboxed runtime; `None` if the pod has no class, or if the
/// class cannot be read. The name of the class decides then.
pub(super) async fn sandbox_of(client: Option<&Client>, pod: &Value) -> Option<bool> {
    let class = pod["spec"]["runtimeClassName"].as_str().filter(|class| !class.is_empty())?;
    let class = await_response(Api::<RuntimeClass>::all(client?.clone()).get(class)).await.ok()?;
    Some(is_sandbox(&class.handler))
}
