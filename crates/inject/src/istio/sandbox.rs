//! Pods with a sandboxed runtime, such as gVisor or Kata Containers, which the rules of the node's kernel do not reach.

use podfacts::is_sandbox;
use serde_json::Value;

use super::proxy;
use crate::pod;

/// Returns the pod's `runtimeClassName` if it is a sandboxed runtime. `is_sandboxed`: whether the handler of the RuntimeClass is one;
/// `None`: the name of the class decides.
pub(super) fn sandbox(pod: &Value, is_sandboxed: Option<bool>) -> Option<&str> {
    let class = Some(pod::text(pod::spec(pod), "runtimeClassName")).filter(|class| !class.is_empty());
    class.filter(|class| is_sandboxed.unwrap_or_else(|| is_sandbox(class)))
}

/// Returns the pod's `runtimeClassName` if it is a sandboxed runtime and the node is to redirect the pod's traffic.
pub(super) fn redirected_sandbox(pod: &Value, is_sandboxed: Option<bool>) -> Option<&str> {
    sandbox(pod, is_sandboxed).filter(|_| proxy::is_redirected_by_node(pod))
}
