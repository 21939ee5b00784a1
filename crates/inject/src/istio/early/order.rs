//! Which containers of a pod start before the agent, which start after it, and whether the latter wait until it listens.

use std::ops::Range;

use contract::container;
use serde_json::Value;

use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// The containers of one list, divided by the start of the agent.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// The positions of the containers that start before the agent.
    pub(super) before: Range<usize>,
    /// The positions of the containers that start after the agent.
    pub(super) behind: Range<usize>,
    /// Whether the containers after the agent wait until it listens.
    pub(super) is_waited: bool,
}

impl Order {
    /// Returns the order of the containers in the list `which`; both ranges are empty if the pod has no sidecar.
    pub(super) fn of(pod: &Value, which: &str) -> Self {
        let place = |which| pod::containers(pod, which).iter().position(|item| pod::name(item) == container::PROXY);
        let len = pod::containers(pod, which).len();
        let (before, behind) = match (place(INIT_CONTAINERS), place(CONTAINERS)) {
            (Some(native), _) if which == INIT_CONTAINERS => (native, native + 1),
            (Some(_), _) => (0, 0),
            (None, Some(_)) if which == INIT_CONTAINERS => (len, len),
            (None, Some(sidecar)) => (sidecar, sidecar + 1),
            (None, None) => return Self::default(),
        };
        Self { before: 0..before, behind: behind..len, is_waited: is_waited(pod) }
    }
}

/// Whether the kubelet starts the next container only when the proxy is ready: after the startup probe of a native sidecar, or after the
/// `postStart` hook that waits for the proxy.
fn is_waited(pod: &Value) -> bool {
    let native = pod::find(pod::containers(pod, INIT_CONTAINERS), container::PROXY);
    let has_probe = native.and_then(|native| native.get("startupProbe")).is_some_and(Value::is_object);
    has_probe || pod::sidecar(pod).and_then(hook).is_some_and(waits)
}

/// Returns the `postStart` hook, which must end before the kubelet starts the next container.
fn hook(sidecar: &Value) -> Option<&Value> {
    sidecar.pointer("/lifecycle/postStart").filter(|hook| hook.is_object())
}

fn waits(hook: &Value) -> bool {
    let command = hook.get("exec").map_or(&[][..], |exec| pod::list(exec, "command"));
    let words: Vec<&str> = command.iter().filter_map(Value::as_str).collect();
    words.join(" ").contains("pilot-agent wait")
}

/// Whether a sidecar has a `postStart` hook other than the one that waits for the proxy.
pub(super) fn has_other_hook(sidecar: &Value) -> bool {
    hook(sidecar).is_some_and(|hook| !waits(hook))
}
