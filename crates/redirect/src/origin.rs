//! Determines the source of each of a pod's parameters: an annotation, an environment variable of the proxy, or a field.
//!
//! Pure; for `explain`. Reads the same keys as `annotations`, with the same precedence.

use contract::{annotation, proxy_env};

use super::PodSettings;

/// The source of a parameter's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    Annotation(&'static str),
    /// An environment variable of `istio-proxy`.
    Variable(&'static str),
    /// A field of the security context of `istio-proxy`.
    SecurityContext(&'static str),
    Default,
}

/// Returns the source of a parameter's value. `parameter` is the name of the flag of `istio-iptables` that sets it;
/// `ignored` lists the keys whose values were ignored.
pub fn origin(parameter: &str, pod: PodSettings<'_>, ignored: &[&str]) -> Origin {
    let annotated = |keys: &[&'static str]| {
        let found = keys.iter().find(|key| pod.annotations.contains_key(**key));
        found.map_or(Origin::Default, |key| Origin::Annotation(key))
    };
    let env = |key: &str| pod.env.and_then(|env| env.get(key)).filter(|_| !ignored.contains(&key));
    let variable = |key: &'static str| env(key).map_or(Origin::Default, |_| Origin::Variable(key));
    let id = |field: &'static str, given: Option<u32>| match given {
        Some(id) if id != 0 => Origin::SecurityContext(field),
        _ => Origin::Default,
    };
    match parameter {
        "interception-mode" => annotated(&[annotation::INTERCEPTION_MODE]),
        "proxy-uid" => id("runAsUser", pod.run_as_user),
        "proxy-gid" => id("runAsGroup", pod.run_as_group),
        "inbound-ports" => annotated(&[annotation::INCLUDE_INBOUND_PORTS]),
        "inbound-ports-exclude" => annotated(&[annotation::EXCLUDE_INBOUND_PORTS]),
        "outbound-ports" => annotated(&[annotation::INCLUDE_OUTBOUND_PORTS]),
        "outbound-ports-exclude" => annotated(&[annotation::EXCLUDE_OUTBOUND_PORTS]),
        "outbound-ranges" => annotated(&[annotation::INCLUDE_OUTBOUND_CIDRS]),
        "outbound-ranges-exclude" => annotated(&[annotation::EXCLUDE_OUTBOUND_CIDRS]),
        "exclude-interfaces" => annotated(&[annotation::EXCLUDE_INTERFACES]),
        "virtual-interfaces" => annotated(&[annotation::REROUTE_VIRTUAL_INTERFACES, annotation::KUBEVIRT_INTERFACES]),
        "outbound-owner-groups" => match env(proxy_env::OWNER_GROUPS) {
            Some(groups) if groups.trim() != "*" => Origin::Variable(proxy_env::OWNER_GROUPS),
            _ => variable(proxy_env::OWNER_GROUPS_EXCLUDE),
        },
        "capture-dns" => variable(proxy_env::DNS_CAPTURE),
        "dual-stack" => variable(proxy_env::DUAL_STACK),
        "drop-invalid" => variable(proxy_env::INVALID_DROP),
        "loopback-range" => variable(proxy_env::LOOPBACK_CIDR),
        _ => Origin::Default,
    }
}
