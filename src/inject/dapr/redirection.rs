//! Keeps the sidecar's ports out of Istio's redirection, for pods of both meshes that ask for it.
//!
//! Sidecars of Dapr speak mTLS among each other; Envoy between them sees opaque TCP and can break what it does not expect.
//! The annotations that say which ports are left alone are Istio's, so that both its plugin and its templates obey, whichever
//! webhook came first.

use super::annotations::Options;
use super::args::{HTTP_PORT, PUBLIC_PORT};
use super::edits::add;
use super::pod::Pod;
use crate::contract::annotation;
use crate::inject::patch::Operation;

/// The operations that add the ports to what is left alone already; none where the pod does not ask, or all are there.
pub(super) fn operations(pod: &Pod<'_>, options: &Options<'_>) -> Vec<Operation> {
    if !options.exclude_ports {
        return Vec::new();
    }
    let ports = options.ports;
    let listening = [HTTP_PORT, ports.grpc, ports.internal, ports.metrics, PUBLIC_PORT];
    let inbound: Vec<i32> = listening.into_iter().chain(ports.debug).collect();
    let wanted =
        [(annotation::EXCLUDE_INBOUND_PORTS, inbound), (annotation::EXCLUDE_OUTBOUND_PORTS, vec![ports.internal])];
    let operation = |(key, ports): (&str, Vec<i32>)| {
        let present = pod.metadata.annotations.get(key).copied().flatten().unwrap_or_default();
        let list = extended(present, &ports)?;
        Some(add(&format!("/metadata/annotations/{}", key.replace('/', "~1")), list.into()))
    };
    wanted.into_iter().filter_map(operation).collect()
}

/// The list with the ports that it lacks; none where it has them all. What is no port is none that anybody listens on.
fn extended(present: &str, ports: &[i32]) -> Option<String> {
    let mut list: Vec<String> =
        present.split(',').map(str::trim).filter(|one| !one.is_empty()).map(str::to_owned).collect();
    let before = list.len();
    for port in ports.iter().filter_map(|port| u16::try_from(*port).ok()).filter(|port| *port > 0) {
        let port = port.to_string();
        if !list.contains(&port) {
            list.push(port);
        }
    }
    (list.len() > before).then(|| list.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_join_a_list_once() {
        for (present, ports, expected) in [
            ("", &[3500, 9090][..], Some("3500,9090")),
            ("15020", &[3500], Some("15020,3500")),
            (" 3500 ,8080,", &[3500, 9090], Some("3500,8080,9090")),
            ("3500", &[3500], None),
            ("", &[7, 7], Some("7")),
            ("", &[-1, 0, 65536], None),
        ] {
            assert_eq!(extended(present, ports).as_deref(), expected, "{present:?}");
        }
    }
}
