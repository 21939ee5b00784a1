//! Probes and lifecycle hooks (handlers), and the ports and hosts to which they connect.

use contract::annotation;
use serde_json::Value;

use crate::pod;

/// The handlers: JSON pointer in a container, parts of the path on the agent's port, and whether it is a probe. The
/// three probes come first, because the patch of a legacy template rewrites only those.
pub(super) const HANDLERS: [Handler; 5] = [
    Handler { pointer: "/readinessProbe", path: ("app-health", "readyz"), probe: true },
    Handler { pointer: "/livenessProbe", path: ("app-health", "livez"), probe: true },
    Handler { pointer: "/startupProbe", path: ("app-health", "startupz"), probe: true },
    Handler { pointer: "/lifecycle/preStop", path: ("app-lifecycle", "prestopz"), probe: false },
    Handler { pointer: "/lifecycle/postStart", path: ("app-lifecycle", "poststartz"), probe: false },
];

pub(super) struct Handler {
    pub(super) pointer: &'static str,
    pub(super) path: (&'static str, &'static str),
    pub(super) probe: bool,
}

impl Handler {
    pub(super) fn path(&self, container: &str) -> String {
        format!("/{}/{container}/{}", self.path.0, self.path.1)
    }

    /// Returns the kinds of action that the agent supports.
    pub(super) fn actions(&self) -> &'static [&'static str] {
        if self.probe { &["httpGet", "tcpSocket", "grpc"] } else { &["httpGet", "tcpSocket"] }
    }
}

/// Returns the path of a container's handler on the agent's port, if the agent supports the handler.
pub(super) fn path(pointer: &str, container: &str) -> Option<String> {
    Some(HANDLERS.iter().find(|handler| handler.pointer == pointer)?.path(container))
}

/// Returns the agent's status port: the port in the pod's annotation, or else `status_port`, the port of the proxy configuration. `None` if
/// it is 0: the agent then listens on no port, and the API server refuses a probe of port 0. A privileged port is accepted, because a
/// container runtime may allow any program to listen on it.
pub(super) fn target(pod: &Value, status_port: u16) -> Option<u16> {
    let own = pod::annotation(pod, annotation::STATUS_PORT).and_then(|port| port.parse().ok());
    Some(own.unwrap_or(status_port)).filter(|port| *port != 0)
}

/// Returns the kind and the fields of a handler's action; `None` if the handler connects to no port.
pub(super) fn action<'c>(container: &'c Value, pointer: &str) -> Option<(&'static str, &'c Value)> {
    let handler = container.pointer(pointer)?;
    let kinds = ["httpGet", "tcpSocket", "grpc"].into_iter();
    kinds.filter_map(|kind| Some((kind, handler.get(kind)?))).find(|(_, action)| action.is_object())
}

/// Whether a handler has a host, to which the kubelet connects instead of the pod.
pub(super) fn has_host(container: &Value, pointer: &str) -> bool {
    action(container, pointer).is_some_and(|(_, action)| !pod::text(action, "host").is_empty())
}

/// Whether a handler is an HTTP request to a host other than the pod, which neither the agent nor redirection affects. For a `tcpSocket`
/// with a host, the agent connects to the pod instead, as Istio's agent does.
pub(super) fn is_of_other_host(container: &Value, pointer: &str) -> bool {
    action(container, pointer).is_some_and(|(kind, action)| kind == "httpGet" && !pod::text(action, "host").is_empty())
}
