//! Probes and lifecycle hooks (handlers) of containers that start before the agent, or without waiting for it. Until the agent and the
//! proxy run, nothing answers a handler that was rewritten to the agent, or whose port is redirected to the proxy. Other containers may
//! wait for it.
//!
//! The functions are pure. They run for each injection, and for `explain` of an injected pod.

mod captured;
mod order;
mod restart;

use std::ops::Range;

use contract::{container, port};
use serde_json::Value;

use super::handler::{self, action, has_host, is_of_other_host};
use super::proxy::{self, Program};
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};
use captured::Captured;
use order::Order;
use restart::Restart;

const STARTUP: &str = "/startupProbe";
const LIVENESS: &str = "/livenessProbe";
const POST_START: &str = "/lifecycle/postStart";
/// The handlers for which the kubelet waits before it starts the next init container.
const OF_INIT: &[&str] = &[STARTUP, POST_START];
/// The handlers for which the kubelet waits before it starts the next container.
const OF_CONTAINER: &[&str] = &[POST_START];

/// A handler that nothing answers, so that the pod or a container does not start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    #[error(
        "init container {container} starts before the proxy, and its {handler} asks port {port}, whose traffic is redirected to the proxy: \
         set sidecar.istio.io/nativeSidecar to \"true\", or name the port in traffic.sidecar.istio.io/excludeInboundPorts"
    )]
    Captured { container: String, handler: &'static str, port: u64 },
    #[error(
        "init container {container} starts before the proxy, and its {handler} asks port {port}, which only the proxy or its agent answers: \
         inject the pod again, or set sidecar.istio.io/nativeSidecar to \"true\""
    )]
    Agent { container: String, handler: &'static str, port: u64 },
    #[error(
        "init container {container} never starts, because its {handler} is a tcpSocket, which the kubelet does not run as a hook: make it a \
         command (exec) or an httpGet"
    )]
    Hook { container: String, handler: &'static str },
    #[error(
        "container {container} starts before the proxy, its {handler} asks port {port}, which only the proxy or its agent answers, and with \
         restartPolicy Never it is not started again: {advice}"
    )]
    Once { container: String, handler: &'static str, port: u64, advice: &'static str },
}

/// The settings outside a pod that decide about its handlers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    /// The status port of the pod's proxy configuration.
    pub(super) status_port: u16,
    /// Whether the pod's runtime class is a sandboxed runtime; `None`: the name of the class decides.
    pub(super) sandbox: Option<bool>,
}

impl Context {
    /// Returns the context of a pod. `proxy_config`: the pod's proxy configuration, if it is known.
    pub(super) fn of(proxy_config: Option<&Value>, sandbox: Option<bool>) -> Self {
        let status_port = proxy_config.map_or(port::STATUS, |config| proxy::number(config, "statusPort", port::STATUS));
        Self { status_port, sandbox }
    }
}

/// The containers of one list, and what answers the kubelet's requests to them before the agent starts.
#[derive(Debug)]
pub(super) struct Early {
    which: &'static str,
    order: Order,
    captured: Captured,
    /// Whether the rules are in place when the containers before the agent start.
    has_rules: bool,
    /// The status port of the agent, if it listens on one.
    agent: Option<u16>,
    /// The ports on which the proxy answers, none of which is redirected.
    proxys: Vec<u16>,
    /// The `restartPolicy` of the pod.
    policy: String,
}

impl Early {
    pub(super) fn of(pod: &Value, which: &'static str, context: Context) -> Self {
        let pointers = if which == INIT_CONTAINERS { &[STARTUP, POST_START, LIVENESS][..] } else { OF_CONTAINER };
        let has_any = |item: &Value| pointers.iter().any(|pointer| action(item, pointer).is_some());
        let is_asked =
            pod::containers(pod, which).iter().any(|item| pod::name(item) != container::PROXY && has_any(item));
        Self {
            which,
            order: Order::of(pod, which),
            captured: if is_asked { Captured::of(pod, context.sandbox) } else { Captured::Nothing },
            // `istio-init` runs after the init containers of the pod's author.
            has_rules: which == CONTAINERS || proxy::is_redirected_by_node(pod),
            agent: handler::target(pod, context.status_port),
            proxys: pod::sidecar(pod).map(proxy::answered).unwrap_or_default(),
            policy: pod::text(pod::spec(pod), "restartPolicy").to_owned(),
        }
    }

    /// Whether the container at this position keeps a handler as its author wrote it. Istio itself rewrites all handlers.
    pub(super) fn keeps(&self, at: usize, container: &Value, pointer: &str) -> bool {
        if is_of_other_host(container, pointer) {
            return true;
        }
        if !self.order.before.contains(&at) {
            return false;
        }
        let captured = || Some(self.captured.has(self.asked(container, pointer).filter(|asked| asked.is_run)?.port));
        match (self.which, pointer) {
            (INIT_CONTAINERS, STARTUP | POST_START) => true,
            (INIT_CONTAINERS, LIVENESS) => has_host(container, pointer) || captured() == Some(Some(false)),
            // A container that the kubelet restarts finds the agent running.
            (_, POST_START) => match captured() {
                Some(None) => self.restart(container) == Restart::Never,
                captured => captured == Some(Some(false)),
            },
            _ => false,
        }
    }

    fn restart(&self, container: &Value) -> Restart {
        Restart::of(&self.policy, self.which, container)
    }

    /// Returns a handler's request to its pod; `None` for a command, for another host, and for a port that does not exist.
    fn asked(&self, container: &Value, pointer: &str) -> Option<Asked> {
        let (kind, action) = action(container, pointer)?;
        let port = pod::numeric_port(container, action.get("port")?)?;
        let is_run = kind != "tcpSocket" || !pointer.starts_with("/lifecycle/");
        if is_run && has_host(container, pointer) || !(1..=65535).contains(&port) {
            return None;
        }
        let is_rewritten =
            handler::path(pointer, pod::name(container)).is_some_and(|own| own == pod::text(action, "path"));
        let is_agents = is_rewritten && self.agent.map(u64::from) == Some(port);
        Some(Asked { port, is_agents, is_run })
    }

    /// Returns the requests of these handlers of the containers at these positions.
    fn requests<'p>(&self, pod: &'p Value, places: &Range<usize>, pointers: &[&'static str]) -> Vec<Request<'p>> {
        let containers = pod::containers(pod, self.which).iter().enumerate().filter(|(at, _)| places.contains(at));
        // Only native sidecars among the init containers have handlers.
        let lasts = |item: &Value| self.which == CONTAINERS || pod::text(item, "restartPolicy") == "Always";
        let of = |(at, item): (usize, &'p Value)| {
            let request = move |pointer: &&'static str| {
                let asked = self.asked(item, pointer)?;
                let handler = pointer.rsplit('/').next().unwrap_or(pointer);
                Some(Request { at, item, handler, port: asked.port, answer: self.answer(asked) })
            };
            pointers.iter().filter_map(request).collect::<Vec<_>>()
        };
        containers.filter(|(_, item)| lasts(item)).flat_map(of).collect()
    }

    /// Returns what answers a request before the agent starts.
    fn answer(&self, asked: Asked) -> Answer {
        let captured = if self.has_rules { self.captured.has(asked.port) } else { Some(false) };
        match captured {
            _ if !asked.is_run => Answer::NotAsked,
            _ if asked.is_agents => Answer::Agent,
            Some(true) => Answer::Proxy,
            _ if self.agent.iter().chain(&self.proxys).any(|own| u64::from(*own) == asked.port) => Answer::Listener,
            Some(false) => Answer::Container,
            None => Answer::Unknown,
        }
    }
}

/// A handler's request to its pod.
#[derive(Debug, Clone, Copy)]
struct Asked {
    port: u64,
    /// Whether the handler was rewritten to the agent, which answers for the container.
    is_agents: bool,
    /// Whether the kubelet runs such a handler; it does not run a `tcpSocket` as a hook.
    is_run: bool,
}

/// A handler of a container, and what answers it.
#[derive(Debug)]
struct Request<'p> {
    /// The position of the container in its list.
    at: usize,
    item: &'p Value,
    handler: &'static str,
    port: u64,
    answer: Answer,
}

/// What answers a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Container,
    /// The agent, to which the handler was rewritten.
    Agent,
    /// The agent or the proxy, on a port of its own, which is never redirected.
    Listener,
    /// The proxy, to which the port is redirected.
    Proxy,
    /// The container or, if the port is redirected, the proxy; whether it is redirected is not known.
    Unknown,
    /// The kubelet does not run the handler.
    NotAsked,
}

impl Answer {
    /// Whether nothing answers before the agent and the proxy run.
    fn is_vain(self) -> bool {
        matches!(self, Self::Agent | Self::Listener | Self::Proxy)
    }
}

/// Checks that no handler prevents the start of a pod or container because nothing answers it.
///
/// # Errors
/// A handler gets no answer, and the pod or a container would never start.
pub(super) fn check(pod: &Value, context: Context) -> Result<(), Unanswered> {
    let early = Early::of(pod, INIT_CONTAINERS, context);
    for Request { item, handler, port, answer, .. } in early.requests(pod, &early.order.before, OF_INIT) {
        let container = pod::name(item).to_owned();
        match answer {
            Answer::NotAsked => return Err(Unanswered::Hook { container, handler }),
            Answer::Agent | Answer::Listener => return Err(Unanswered::Agent { container, handler, port }),
            Answer::Proxy => return Err(Unanswered::Captured { container, handler, port }),
            Answer::Container | Answer::Unknown => {}
        }
    }
    let early = Early::of(pod, CONTAINERS, context);
    for Request { item, handler, port, answer, .. } in early.requests(pod, &early.order.before, OF_CONTAINER) {
        if answer.is_vain() && early.restart(item) == Restart::Never {
            let (container, advice) = (pod::name(item).to_owned(), advice(pod, &early));
            return Err(Unanswered::Once { container, handler, port, advice });
        }
    }
    Ok(())
}

/// Returns a warning for each handler that gets, or may get, no answer, but with which the pod can start.
pub(super) fn warnings(pod: &Value, context: Context) -> Vec<String> {
    let of_inits = Early::of(pod, INIT_CONTAINERS, context);
    let of_containers = Early::of(pod, CONTAINERS, context);
    let inits =
        of_inits.requests(pod, &of_inits.order.before, OF_INIT).into_iter().filter_map(|request| waited(&request));
    let lively = of_inits.requests(pod, &of_inits.order.before, &[LIVENESS]).into_iter();
    let lively = lively.filter_map(|request| ended(pod, &request));
    let hooks = of_containers.requests(pod, &of_containers.order.before, OF_CONTAINER).into_iter();
    let hooks = hooks.filter_map(|request| in_vain(pod, &of_containers, &request));
    let beside = [&of_inits, &of_containers].into_iter().flat_map(|early| {
        let requests = early.requests(pod, &early.order.behind, &[POST_START]).into_iter();
        requests.filter_map(move |request| beside(pod, early, &request))
    });
    inits.chain(lively).chain(hooks).chain(beside).collect()
}

/// Returns the warning about a handler of an init container that may get no answer, so that the next init container never starts.
fn waited(request: &Request<'_>) -> Option<String> {
    let Request { item, handler, port, answer, .. } = request;
    (*answer == Answer::Unknown).then(|| {
        format!(
            "{handler} of init container {:?} asks port {port}, whose traffic may be redirected to the proxy, which starts later: then the \
             pod never starts; name the port in traffic.sidecar.istio.io/excludeInboundPorts",
            pod::name(item)
        )
    })
}

/// Returns the warning about a probe because of which the kubelet may restart an init container while later ones of the pod's author run.
fn ended(pod: &Value, request: &Request<'_>) -> Option<String> {
    let Request { at, item, handler, port, answer } = request;
    let vain = match answer {
        Answer::Agent | Answer::Listener | Answer::Proxy => "in vain",
        Answer::Unknown => "possibly in vain",
        Answer::Container | Answer::NotAsked => return None,
    };
    let is_injected = |name: &str| name == container::CORE_DUMP || container::INJECTED.contains(&name);
    // After a native sidecar without these handlers, the kubelet starts the next init container at once.
    let is_awaited = |item: &Value| {
        pod::text(item, "restartPolicy") != "Always" || OF_INIT.iter().any(|pointer| item.pointer(pointer).is_some())
    };
    let is_followed = pod::containers(pod, INIT_CONTAINERS)
        .iter()
        .skip(at + 1)
        .any(|item| !is_injected(pod::name(item)) && is_awaited(item));
    let or_exclude = match answer {
        Answer::Listener => "",
        _ => ", or name the container's port in traffic.sidecar.istio.io/excludeInboundPorts",
    };
    is_followed.then(|| {
        format!(
            "{handler} of init container {:?} asks port {port} {vain} until the proxy starts: the kubelet may end and start the container \
             again while the next init containers run; set sidecar.istio.io/nativeSidecar to \"true\"{or_exclude}",
            pod::name(item)
        )
    })
}

/// Returns the warning about a hook of an application that starts before the agent.
fn in_vain(pod: &Value, early: &Early, request: &Request<'_>) -> Option<String> {
    let Request { item, handler, port, answer, .. } = request;
    let (name, restart) = (pod::name(item), early.restart(item).words());
    match answer {
        Answer::Container => None,
        Answer::NotAsked => Some(not_run(handler, name)),
        Answer::Agent | Answer::Listener | Answer::Proxy => Some(format!(
            "{handler} of container {name:?} asks port {port} in vain: the proxy and its agent start after the container, so that the \
             kubelet {restart}; {}",
            advice(pod, early)
        )),
        Answer::Unknown => Some(format!(
            "{handler} of container {name:?} asks port {port}, whose traffic may be redirected to the proxy, which starts after the \
             container: the kubelet then {restart}; {}",
            advice(pod, early)
        )),
    }
}

/// Returns the warning about a hook of a container that starts after the agent.
fn beside(pod: &Value, early: &Early, request: &Request<'_>) -> Option<String> {
    let Request { item, handler, port, answer, .. } = request;
    let name = pod::name(item);
    match answer {
        Answer::NotAsked => Some(not_run(handler, name)),
        answer if answer.is_vain() && !early.order.is_waited => Some(format!(
            "{handler} of container {name:?} may ask port {port} before the proxy or its agent answers, {}: the kubelet then {}; {}",
            match pod::sidecar(pod).is_some_and(order::has_other_hook) {
                true => "unless the postStart of the proxy waits for them",
                false => "because the container does not wait for them",
            },
            early.restart(item).words(),
            advice(pod, early)
        )),
        _ => None,
    }
}

fn not_run(handler: &str, container: &str) -> String {
    format!(
        "{handler} of container {container:?} is a tcpSocket, which the kubelet does not run as a hook: it ends the container after each \
         start; make it a command (exec) or an httpGet"
    )
}

/// Returns the advice by which an application's hook gets an answer.
fn advice(pod: &Value, early: &Early) -> &'static str {
    let is_native = pod::find(pod::containers(pod, INIT_CONTAINERS), container::PROXY).is_some();
    let sidecar = pod::sidecar(pod).filter(|_| !is_native && early.agent.is_some());
    match sidecar.map(|sidecar| (Program::of(sidecar), order::has_other_hook(sidecar))) {
        Some((Program::Proxy("sidecar") | Program::Unknown, false)) => {
            "set holdApplicationUntilProxyStarts in proxy.istio.io/config, or sidecar.istio.io/nativeSidecar to \"true\""
        }
        Some((Program::Proxy("sidecar") | Program::Unknown, true)) => "set sidecar.istio.io/nativeSidecar to \"true\"",
        _ => "make it a command (exec)",
    }
}
