//! Excludes the sidecar's ports from Istio's redirection, for pods of both meshes that request it.
//!
//! Dapr's sidecars use mTLS between each other; an Envoy between them gets opaque TCP and may break the connection. The
//! ports are added to Istio's annotations for excluded ports, which Istio's CNI plugin and templates read, in either
//! order of the webhooks.

use contract::annotation;

use super::annotations::Options;
use super::args::{HTTP_PORT, PUBLIC_PORT};
use super::edits::add;
use super::pod::Pod;
use inject::Operation;

/// Returns the operations that add the sidecar's ports to the annotations; none if the pod does not request this, or if
/// the annotations contain all ports already.
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

/// Returns the list `present` with those `ports` appended that it lacks, or `None` if it lacks none. Numbers that are
/// not valid ports are not added, because nothing listens on them.
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
    fn each_port_is_added_once() {
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
