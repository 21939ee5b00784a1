//! Simulates how a row's first packet traverses the rules that the kernel holds.

use std::net::{IpAddr, SocketAddr};

use podnet::converge;
use redirect::istio;
use redirect::trace::{Connection, Direction, Ruleset, Verdict, trace};
use ruleset::{Family, Proto};

use super::table::{Place, Row};
use super::topology::Topology;

/// Returns the rules of a family as the kernel holds them.
pub(super) fn rulesets(topology: &Topology, family: Family) -> Vec<Ruleset> {
    let saved = topology.pod.inside(|| converge::saved(family, &istio::OWNED)).unwrap();
    let parse = |(backend, text): &(_, String)| {
        Ruleset::parse(text).unwrap_or_else(|error| panic!("{backend:?}: {error}\n{text}"))
    };
    saved.iter().map(parse).collect()
}

/// Returns the port that accepts the row's connection, or the verdict if there is none.
pub(super) fn port(rules: &[Ruleset], row: &Row, family: Family) -> Result<u16, String> {
    let [rules] = rules else { return Err(format!("{} backends hold rules", rules.len())) };
    let connection = connection(row, family);
    let traced = trace(rules, &connection);
    match traced.verdict {
        Verdict::Direct => Ok(connection.destination.port()),
        Verdict::Redirected { port } | Verdict::Transparent { port } => Ok(port),
        other => Err(format!("{other:?} after {:?}", traced.hops.last())),
    }
}

fn connection(row: &Row, family: Family) -> Connection {
    let ip = |place: Place| place.ip(family).unwrap();
    let local = [Place::Pod, Place::Pod1, Place::Loopback, Place::FarLoopback, Place::Passthrough];
    let (interface, usual_source): (_, IpAddr) = match (row.client.in_pod, row.to) {
        (false, Place::Pod1) => ("eth1", neighbour(1, family)),
        (false, _) => ("eth0", neighbour(0, family)),
        (true, Place::FarLoopback | Place::Passthrough) => ("lo", ip(Place::Loopback)),
        (true, place) if local.contains(&place) => ("lo", ip(place)),
        (true, Place::Beyond) => ("eth1", ip(Place::Pod1)),
        (true, _) => ("eth0", ip(Place::Pod)),
    };
    let interface = interface.to_owned();
    let direction = match row.client.in_pod {
        true => Direction::Outbound { interface, uid: row.client.uid, gid: row.client.gid },
        false => Direction::Inbound { interface },
    };
    let protocol = if row.proto == "udp" { Proto::Udp } else { Proto::Tcp };
    let source = row.source.map_or(usual_source, ip);
    Connection {
        direction,
        protocol,
        source: SocketAddr::new(source, 40000),
        destination: SocketAddr::new(ip(row.to), row.port),
    }
}

/// Returns the address of the network outside on a link to the pod.
fn neighbour(link: u8, family: Family) -> IpAddr {
    match family {
        Family::V4 => [10, 0, link, 1].into(),
        Family::V6 => [0xfd00 + u16::from(link), 0, 0, 0, 0, 0, 0, 1].into(),
    }
}
