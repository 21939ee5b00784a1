//! The ports of a pod whose inbound traffic is redirected to the proxy.

use std::collections::{BTreeMap, HashSet};

use contract::container;
use redirect::annotations::{Interception, from_pod};
use redirect::{PodSettings, PortSelector, Redirect};
use ruleset::Port;
use serde_json::Value;

use crate::istio::sandbox::redirected_sandbox;
use crate::istio::{arguments, proxy};
use crate::pod::{self, INIT_CONTAINERS};

/// The interface of a pod on which the kubelet's requests arrive; container runtimes give it this name.
const KUBELETS: &str = "eth0";

/// The ports whose inbound traffic is redirected.
#[derive(Debug)]
pub(super) enum Captured {
    Nothing,
    By(Ports),
    /// The redirected ports are not known.
    Unknown,
}

#[derive(Debug)]
pub(super) struct Ports {
    listed: HashSet<u16>,
    /// Whether all ports except the listed ones are redirected, instead of the listed ones.
    are_others: bool,
    /// The port for HBONE, which is never redirected.
    tunnel: u16,
    /// Whether this applies to every interface, because none is excluded.
    is_certain: bool,
}

impl Captured {
    /// Reads the arguments of `istio-init` or, without it, the annotations as the plugin does; for the plugin, templates write Helm's
    /// values into the annotations. `sandbox`: whether the pod's runtime class is a sandboxed runtime, which the node's rules do not reach.
    pub(super) fn of(pod: &Value, sandbox: Option<bool>) -> Self {
        if !proxy::is_redirected(pod) || redirected_sandbox(pod, sandbox).is_some() {
            return Self::Nothing;
        }
        match pod::find(pod::containers(pod, INIT_CONTAINERS), container::INIT) {
            Some(init) => match arguments::settings(init) {
                Ok(Some(settings)) => Self::by(&settings.redirect),
                Ok(None) | Err(_) => Self::Unknown,
            },
            None => Self::of_annotations(pod),
        }
    }

    fn of_annotations(pod: &Value) -> Self {
        let all = pod::map(pod::metadata(pod), "annotations").iter();
        let all: BTreeMap<String, String> =
            all.filter_map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned()))).collect();
        match from_pod(PodSettings { annotations: &all, env: None, run_as_user: None, run_as_group: None }) {
            Ok(Interception::None) => Self::Nothing,
            Ok(Interception::Redirect { redirect, .. }) => Self::by(&redirect),
            Err(_) => Self::Unknown,
        }
    }

    fn by(redirect: &Redirect) -> Self {
        let set = |ports: &[Port]| ports.iter().map(|port| port.0).collect();
        let interfaces = &redirect.exclude_interfaces;
        let (listed, are_others) = match &redirect.inbound_ports {
            _ if interfaces.iter().any(|interface| interface.as_str() == KUBELETS) => return Self::Nothing,
            PortSelector::None => return Self::Nothing,
            PortSelector::List(ports) => (set(ports), false),
            PortSelector::All => (set(&redirect.inbound_ports_exclude), true),
        };
        let tunnel = redirect.inbound_tunnel_port.0;
        Self::By(Ports { listed, are_others, tunnel, is_certain: interfaces.is_empty() })
    }

    /// Whether the kubelet's requests to this port are redirected; `None` if that is not known.
    pub(super) fn has(&self, port: u64) -> Option<bool> {
        let ports = match self {
            Self::Nothing => return Some(false),
            Self::By(ports) => ports,
            Self::Unknown => return None,
        };
        let port = u16::try_from(port).ok()?;
        let is_included = port != ports.tunnel && ports.listed.contains(&port) != ports.are_others;
        (!is_included || ports.is_certain).then_some(is_included)
    }
}

#[cfg(test)]
mod tests {
    use contract::annotation;
    use serde_json::json;

    use super::*;

    fn has(annotations: &Value, inits: &Value, ports: [u64; 4]) -> [Option<bool>; 4] {
        let sidecar = json!({"name": "istio-proxy", "args": ["proxy", "sidecar"]});
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"initContainers": inits, "containers": [sidecar]}});
        let captured = Captured::of(&pod, None);
        ports.map(|port| captured.has(port))
    }

    #[test]
    fn the_plugin_reads_annotations_and_never_redirects_some_ports() {
        let (yes, no) = (Some(true), Some(false));
        for (annotations, expected) in [
            (json!({}), [yes, no, no, no]),
            (json!({annotation::EXCLUDE_INBOUND_PORTS: "80"}), [no; 4]),
            (json!({annotation::INCLUDE_INBOUND_PORTS: "15020"}), [no, yes, no, no]),
            (json!({annotation::INCLUDE_INBOUND_PORTS: ""}), [no; 4]),
            (json!({annotation::INTERCEPTION_MODE: "NONE"}), [no; 4]),
            (json!({annotation::EXCLUDE_INTERFACES: "net1"}), [None, no, no, no]),
            (json!({annotation::EXCLUDE_INTERFACES: "net1,eth0"}), [no; 4]),
            (json!({annotation::EXCLUDE_INBOUND_PORTS: "x"}), [None; 4]),
        ] {
            assert_eq!(has(&annotations, &json!([]), [80, 15020, 15021, 15008]), expected, "{annotations}");
        }
    }

    #[test]
    fn the_arguments_of_istio_init_decide_where_there_is_one() {
        let (yes, no) = (Some(true), Some(false));
        let excluded = json!({annotation::EXCLUDE_INBOUND_PORTS: "80"});
        for (args, expected) in [
            (json!(["istio-iptables", "-b", "*", "-d", "81"]), [yes, no, yes, no]),
            (json!(["istio-iptables", "-b", ""]), [no; 4]),
            (json!(["istio-iptables", "-b", "*", "-c", "net1"]), [None, None, None, no]),
            (json!(["istio-iptables", "-b", "$(PORTS)"]), [None; 4]),
            (json!(["istio-iptables", "--of-a-later-release"]), [None; 4]),
            (json!([]), [None; 4]),
        ] {
            let inits = json!([{"name": "istio-init", "args": args}]);
            assert_eq!(has(&excluded, &inits, [80, 81, 82, 15008]), expected, "{args}");
        }
    }
}
