//! The program that the container `istio-proxy` of a pod runs, and the ports on which it listens.

use contract::{annotation, container, port, proxy_env};
use gocompat::parse_bool;
use serde_json::Value;

use crate::pod::{self, INIT_CONTAINERS};

/// The environment variables with the proxy's readiness port and with its Prometheus port.
const READINESS: &str = "ENVOY_STATUS_PORT";
const PROMETHEUS: &str = "ENVOY_PROMETHEUS_PORT";
/// The variables that set a port of the proxy, each with the default port.
pub(super) const VARIABLES: [(&str, u16); 2] = [(READINESS, port::READINESS), (PROMETHEUS, port::PROMETHEUS)];

/// A port on which the proxy or its agent listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listener {
    pub(super) port: u16,
    /// The name of the port.
    pub(super) what: &'static str,
    /// The annotation, the field or the variable that sets the port.
    pub(super) source: &'static str,
    /// The default port.
    pub(super) default: u16,
    /// The purpose of the port, as a relative clause.
    pub(super) purpose: &'static str,
}

/// The program of a pod's sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program<'a> {
    /// Istio's agent with a proxy in this role: `sidecar`, `router` or `waypoint`.
    Proxy(&'a str),
    /// Istio's agent without a proxy.
    NoProxy,
    /// A program whose arguments are not the agent's.
    Unknown,
}

impl<'a> Program<'a> {
    pub(super) fn of(sidecar: &'a Value) -> Self {
        if is_on(sidecar, proxy_env::DISABLE_ENVOY, false) {
            return Self::NoProxy;
        }
        match pod::list(sidecar, "args") {
            [first, role, ..] if first == "proxy" => role.as_str().map_or(Self::Unknown, Self::Proxy),
            _ => Self::Unknown,
        }
    }
}

/// Whether the pod's traffic is to be redirected to its sidecar, by the node or by `istio-init`.
pub(super) fn is_redirected(pod: &Value) -> bool {
    pod::annotation(pod, annotation::INTERCEPTION_MODE) != Some("NONE") && has_sidecar(pod)
}

/// Whether the pod has a sidecar to which its traffic is redirected unless the interception mode is `NONE`.
pub(super) fn has_sidecar(pod: &Value) -> bool {
    let Some(program) = pod::sidecar(pod).map(Program::of) else { return false };
    has_init(pod) || matches!(program, Program::Proxy("sidecar") | Program::Unknown)
}

/// Whether the node is to redirect the pod's traffic. With `istio-init`, the pod programs the rules itself, even in a sandboxed runtime.
pub(super) fn is_redirected_by_node(pod: &Value) -> bool {
    !has_init(pod) && is_redirected(pod)
}

fn has_init(pod: &Value) -> bool {
    pod::find(pod::containers(pod, INIT_CONTAINERS), container::INIT).is_some()
}

/// Returns the port in a variable, or the default.
fn variable_port(sidecar: &Value, name: &str, default: u16) -> u16 {
    value(sidecar, name).and_then(|port| port.parse().ok()).unwrap_or(default)
}

fn is_on(sidecar: &Value, name: &str, default: bool) -> bool {
    value(sidecar, name).and_then(parse_bool).unwrap_or(default)
}

/// Returns the value of a variable; the last one of its name applies.
pub(super) fn value<'a>(sidecar: &'a Value, name: &str) -> Option<&'a str> {
    let variable = pod::list(sidecar, "env").iter().rfind(|variable| pod::name(variable) == name)?;
    variable.get("value")?.as_str()
}

/// Returns the port on which the agent serves DNS, if it does.
fn dns_port(sidecar: &Value, role: &str) -> Option<u16> {
    let is_captured = role == "sidecar" && is_on(sidecar, proxy_env::DNS_CAPTURE, false);
    if !is_captured && !is_on(sidecar, "ISTIO_META_ENABLE_DNS_SERVER", false) {
        return None;
    }
    match value(sidecar, "DNS_PROXY_ADDR") {
        Some(address) => address.rsplit_once(':')?.1.parse().ok(),
        None => Some(port::DNS),
    }
}

/// Returns the port on which the proxy of this sidecar serves its readiness.
pub(super) fn readiness_port(sidecar: &Value) -> u16 {
    variable_port(sidecar, READINESS, port::READINESS)
}

/// Returns the ports on which the proxy of this sidecar answers the kubelet and Prometheus. None of them is redirected.
pub(super) fn answered(sidecar: &Value) -> Vec<u16> {
    let Program::Proxy(_) = Program::of(sidecar) else { return Vec::new() };
    vec![readiness_port(sidecar), variable_port(sidecar, PROMETHEUS, port::PROMETHEUS)]
}

/// Whether the proxy accepts redirected traffic. The interception mode in the pod's annotation takes precedence over that in the proxy
/// configuration.
fn accepts_redirected(pod: &Value, proxy_config: &Value) -> bool {
    let mode = pod::annotation(pod, annotation::INTERCEPTION_MODE);
    has_sidecar(pod) && mode.unwrap_or_else(|| pod::text(proxy_config, "interceptionMode")) != "NONE"
}

/// Returns the ports on which the proxy and its agent listen, other than the agent's status port; none if the pod's sidecar is not Istio's
/// agent with a proxy. `mesh` and `proxy_config`: the configurations of the mesh and of the pod's proxy.
pub(super) fn ports(pod: &Value, (mesh, proxy_config): (&Value, &Value)) -> Vec<Listener> {
    let Some(sidecar) = pod::sidecar(pod) else { return Vec::new() };
    let Program::Proxy(role) = Program::of(sidecar) else { return Vec::new() };
    let mut ports = always_open(sidecar, proxy_config);
    ports.extend(dns_port(sidecar, role).map(|port| Listener {
        port,
        what: "DNS port of the agent",
        source: "DNS_PROXY_ADDR",
        default: port::DNS,
        purpose: "on which the agent serves DNS",
    }));
    if role == "sidecar" && is_on(sidecar, "ISTIO_META_ENABLE_HBONE", false) {
        ports.push(Listener {
            port: port::TUNNEL,
            what: "port for HBONE",
            source: "ISTIO_META_ENABLE_HBONE",
            default: port::TUNNEL,
            purpose: "on which the proxy accepts HBONE",
        });
    }
    if accepts_redirected(pod, proxy_config) {
        ports.extend(of_redirected(mesh));
    }
    ports
}

/// Returns the ports on which every proxy listens, whatever its role.
fn always_open(sidecar: &Value, proxy_config: &Value) -> Vec<Listener> {
    vec![
        Listener {
            port: number(proxy_config, "proxyAdminPort", port::ADMIN),
            what: "administration port of the proxy",
            source: "proxyAdminPort of the proxy configuration",
            default: port::ADMIN,
            purpose: "on which the proxy serves its administration",
        },
        Listener {
            port: variable_port(sidecar, PROMETHEUS, port::PROMETHEUS),
            what: "metrics port of the proxy",
            source: PROMETHEUS,
            default: port::PROMETHEUS,
            purpose: "on which the proxy serves Prometheus",
        },
        Listener {
            port: readiness_port(sidecar),
            what: "readiness port of the proxy",
            source: READINESS,
            default: port::READINESS,
            purpose: "on which the proxy serves its readiness",
        },
    ]
}

/// Returns the ports to which traffic is redirected.
fn of_redirected(mesh: &Value) -> [Listener; 2] {
    [
        Listener {
            port: number(mesh, "proxyListenPort", port::OUTBOUND),
            what: "outbound port of the proxy",
            source: "proxyListenPort of the mesh",
            default: port::OUTBOUND,
            purpose: "to which outbound traffic is redirected",
        },
        Listener {
            port: number(mesh, "proxyInboundListenPort", port::INBOUND),
            what: "inbound port of the proxy",
            source: "proxyInboundListenPort of the mesh",
            default: port::INBOUND,
            purpose: "to which inbound traffic is redirected",
        },
    ]
}

/// Returns the port in a field of a configuration, or its default.
pub(super) fn number(config: &Value, field: &str, default: u16) -> u16 {
    config.get(field).and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_program_follows_from_arguments_and_environment() {
        for (sidecar, program, is_redirected) in [
            (json!({"args": ["proxy", "sidecar", "--domain"]}), Program::Proxy("sidecar"), true),
            (json!({"args": ["proxy", "router"]}), Program::Proxy("router"), false),
            (json!({"args": ["serve"]}), Program::Unknown, true),
            (json!({}), Program::Unknown, true),
            (
                json!({"args": ["proxy", "sidecar"], "env": [{"name": "DISABLE_ENVOY", "value": "TRUE"}]}),
                Program::NoProxy,
                false,
            ),
        ] {
            let mut named = sidecar.clone();
            named["name"] = "istio-proxy".into();
            let mut pod = json!({"metadata": {"annotations": {}}, "spec": {"containers": [named]}});
            assert_eq!((Program::of(&sidecar), super::is_redirected(&pod)), (program, is_redirected), "{sidecar}");
            pod["metadata"]["annotations"][annotation::INTERCEPTION_MODE] = "NONE".into();
            assert!(!super::is_redirected(&pod), "{sidecar}");
        }
    }

    #[test]
    fn ports_follow_the_variables_that_move_them() {
        let of = |env: Value, args: Value| {
            let sidecar = json!({"name": "istio-proxy", "args": args, "env": env});
            let found = ports(&json!({"spec": {"containers": [sidecar]}}), (&json!({}), &json!({})));
            let mut found: Vec<u16> = found.into_iter().map(|listener| listener.port).collect();
            found.sort_unstable();
            found
        };
        let (sidecar, router) = (json!(["proxy", "sidecar"]), json!(["proxy", "router"]));
        assert_eq!(of(json!([]), sidecar.clone()), [15000, 15001, 15006, 15021, 15090]);
        assert_eq!(of(json!([]), router.clone()), [15000, 15021, 15090]);
        let set = |pairs: &[(&str, &str)]| {
            Value::from(pairs.iter().map(|(name, value)| json!({"name": name, "value": value})).collect::<Vec<_>>())
        };
        let moved = set(&[("ENVOY_PROMETHEUS_PORT", "16090"), ("ENVOY_STATUS_PORT", "16021")]);
        assert_eq!(of(moved, router.clone()), [15000, 16021, 16090]);
        let captured = [("ISTIO_META_DNS_CAPTURE", "true"), ("ISTIO_META_ENABLE_HBONE", "true")];
        assert_eq!(of(set(&captured), sidecar.clone()), [15000, 15001, 15006, 15008, 15021, 15053, 15090]);
        assert_eq!(of(set(&captured), router.clone()), [15000, 15021, 15090], "a gateway captures no DNS");
        let elsewhere = set(&[("ISTIO_META_DNS_CAPTURE", "true"), ("DNS_PROXY_ADDR", "localhost:16053")]);
        assert_eq!(of(elsewhere, sidecar), [15000, 15001, 15006, 15021, 15090, 16053]);
        assert_eq!(of(set(&[("ISTIO_META_ENABLE_DNS_SERVER", "true")]), router), [15000, 15021, 15053, 15090]);
    }
}
