//! The handlers of containers that start before the agent, and for which other containers wait: nobody answers those that are rewritten
//! to the agent, or whose port is redirected to the proxy.
//!
//! Pure; for each injection, and for `explain` of a pod that has its sidecar.

use std::collections::HashSet;
use std::ops::Range;

use redirect::{PortSelector, parse_ports};
use ruleset::Port;
use serde_json::Value;

use super::proxy;
use crate::contract::{annotation, container};
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// The handlers after which the kubelet starts the next init container.
const OF_INIT: [&str; 2] = ["/startupProbe", "/lifecycle/postStart"];
/// The handlers after which the kubelet starts the next container.
const OF_CONTAINER: [&str; 1] = ["/lifecycle/postStart"];
/// The beginnings of the paths that stand for the originals of rewritten handlers.
const REWRITTEN: [&str; 2] = ["/app-health/", "/app-lifecycle/"];

/// A handler that nobody answers, so that the pod does not start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    #[error(
        "init container {container} starts before the proxy, and its {handler} asks port {port}, whose traffic is redirected to the proxy: \
         set sidecar.istio.io/nativeSidecar to \"true\", or name the port in traffic.sidecar.istio.io/excludeInboundPorts"
    )]
    Captured { container: String, handler: &'static str, port: u64 },
    #[error(
        "init container {container} starts before the proxy, and its {handler} asks the agent on port {port}, which starts with the proxy: \
         inject the pod again, or set sidecar.istio.io/nativeSidecar to \"true\""
    )]
    Agent { container: String, handler: &'static str, port: u64 },
    #[error(
        "container {container} starts before the proxy, its {handler} asks port {port}, which only the proxy or its agent answers, and with \
         restartPolicy Never it is not started again: set holdApplicationUntilProxyStarts in proxy.istio.io/config, or \
         sidecar.istio.io/nativeSidecar to \"true\""
    )]
    Once { container: String, handler: &'static str, port: u64 },
}

/// The containers of one list that start before the agent.
#[derive(Debug)]
pub(super) struct Early {
    which: &'static str,
    places: Range<usize>,
    captured: Captured,
}

impl Early {
    pub(super) fn of(pod: &Value, which: &'static str) -> Self {
        Self { which, places: before_agent(pod, which), captured: Captured::of(pod) }
    }

    /// Whether the container at this place keeps a handler as its author wrote it.
    pub(super) fn keeps(&self, at: usize, container: &Value, pointer: &str) -> bool {
        if !handlers(self.which).contains(&pointer) || !self.places.contains(&at) {
            return false;
        }
        let is_answered = || asked(container, pointer).is_some_and(|asked| !self.captured.has(asked.port));
        // Istio rewrites the hooks of applications, also where the agent answers none; its recorded outputs have them.
        self.which == INIT_CONTAINERS || is_answered()
    }
}

/// Checks that a pod does not wait for a handler that nobody answers.
///
/// # Errors
/// It does, and never starts.
pub(super) fn check(pod: &Value) -> Result<(), Unanswered> {
    let captured = Captured::of(pod);
    let by_node = proxy::is_redirected_by_node(pod);
    for (container, handler, asked) in all(pod, INIT_CONTAINERS) {
        let (container, port) = (container.to_owned(), asked.port);
        if asked.is_rewritten {
            return Err(Unanswered::Agent { container, handler, port });
        }
        if by_node && captured.has(port) {
            return Err(Unanswered::Captured { container, handler, port });
        }
    }
    let is_once = pod::text(pod::spec(pod), "restartPolicy") == "Never";
    match unanswered(pod).next().filter(|_| is_once) {
        Some((container, handler, Asked { port, .. })) => {
            Err(Unanswered::Once { container: container.to_owned(), handler, port })
        }
        None => Ok(()),
    }
}

/// Returns a warning for each hook of an application that is asked in vain, once: the proxy is there when the container is started again.
pub(super) fn warnings(pod: &Value) -> Vec<String> {
    let warning = |(container, handler, asked): (&str, &str, Asked)| {
        format!(
            "{handler} of container {container:?} asks port {} in vain: the proxy and its agent start after the container, which the \
             kubelet therefore ends and starts again; set holdApplicationUntilProxyStarts in proxy.istio.io/config, or \
             sidecar.istio.io/nativeSidecar to \"true\"",
            asked.port
        )
    };
    unanswered(pod).map(warning).collect()
}

/// Returns the hooks of applications that neither the agent nor the application answers.
fn unanswered(pod: &Value) -> impl Iterator<Item = (&str, &'static str, Asked)> {
    let captured = Captured::of(pod);
    all(pod, CONTAINERS).filter(move |(.., asked)| asked.is_rewritten || captured.has(asked.port))
}

/// A port that a handler asks.
#[derive(Debug, Clone, Copy)]
struct Asked {
    port: u64,
    /// Whether the handler is rewritten to the agent.
    is_rewritten: bool,
}

/// Returns the handlers of one list that are asked before the agent starts, each with its container's name and its own.
fn all<'p>(pod: &'p Value, which: &'static str) -> impl Iterator<Item = (&'p str, &'static str, Asked)> {
    let before = before_agent(pod, which);
    let containers = pod::containers(pod, which).iter().take(before.end);
    // Other init containers have no handlers.
    let lasts = move |item: &&Value| which == CONTAINERS || pod::text(item, "restartPolicy") == "Always";
    containers.filter(lasts).flat_map(move |item| {
        handlers(which).iter().filter_map(move |pointer| {
            let handler = pointer.rsplit('/').next().unwrap_or(pointer);
            Some((pod::name(item), handler, asked(item, pointer)?))
        })
    })
}

fn handlers(which: &str) -> &'static [&'static str] {
    if which == INIT_CONTAINERS { &OF_INIT } else { &OF_CONTAINER }
}

/// Returns the places of the containers of one list that start before the agent; none if the pod has no sidecar.
fn before_agent(pod: &Value, which: &str) -> Range<usize> {
    let place = |which| pod::containers(pod, which).iter().position(|item| pod::name(item) == container::PROXY);
    match (place(INIT_CONTAINERS), place(CONTAINERS)) {
        (Some(native), _) if which == INIT_CONTAINERS => 0..native,
        (None, Some(_)) if which == INIT_CONTAINERS => 0..pod::containers(pod, which).len(),
        (None, Some(sidecar)) => 0..sidecar,
        _ => 0..0,
    }
}

/// Returns the port that a handler asks the pod for; `None` for a command, and for a port of another host.
fn asked(container: &Value, pointer: &str) -> Option<Asked> {
    let handler = container.pointer(pointer)?;
    let action =
        ["httpGet", "tcpSocket", "grpc"].into_iter().find_map(|kind| handler.get(kind).filter(|a| a.is_object()))?;
    if !pod::text(action, "host").is_empty() {
        return None;
    }
    let is_rewritten = REWRITTEN.iter().any(|start| pod::text(action, "path").starts_with(start));
    Some(Asked { port: pod::numeric_port(container, action.get("port")?)?, is_rewritten })
}

/// The ports whose inbound traffic is redirected to the proxy, as far as annotations tell. Those of a pod for the plugin have the values of
/// Helm.
#[derive(Debug)]
enum Captured {
    AllBut(HashSet<u64>),
    Only(HashSet<u64>),
}

impl Captured {
    fn of(pod: &Value) -> Self {
        let set = |ports: Vec<Port>| ports.into_iter().map(|port| port.0.into()).collect();
        let text = |name| pod::annotation(pod, name);
        // Traffic of an excluded interface may be the kubelet's.
        let is_excluded = text(annotation::EXCLUDE_INTERFACES).is_some_and(|interfaces| !interfaces.trim().is_empty());
        if !proxy::is_redirected(pod) || is_excluded {
            return Self::Only(HashSet::new());
        }
        let included = text(annotation::INCLUDE_INBOUND_PORTS).unwrap_or("*");
        match PortSelector::parse(annotation::INCLUDE_INBOUND_PORTS, included) {
            Ok(PortSelector::None) => Self::Only(HashSet::new()),
            Ok(PortSelector::List(ports)) => Self::Only(set(ports)),
            Ok(PortSelector::All) | Err(_) => {
                let excluded = text(annotation::EXCLUDE_INBOUND_PORTS).unwrap_or_default();
                Self::AllBut(set(parse_ports(annotation::EXCLUDE_INBOUND_PORTS, excluded).unwrap_or_default()))
            }
        }
    }

    fn has(&self, port: u64) -> bool {
        match self {
            Self::AllBut(ports) => !ports.contains(&port),
            Self::Only(ports) => ports.contains(&port),
        }
    }
}
