//! Tests of packets in conntrack state INVALID, which belong to a connection whose start conntrack did not see. The
//! truth table cannot express this.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use redirect::Redirect;
use ruleset::Family;

use super::Backend;
use super::table::Place;
use super::topology::Topology;
use test_support::DEADLINE;
use test_support::netns::families;

/// Packets in state INVALID must arrive at the pod, unless `drop_invalid` is set.
pub(crate) fn are_dropped_when_asked(backend: Backend) {
    for drop_invalid in [false, true] {
        let topology = Topology::new();
        let mut connections: Vec<_> = families().iter().map(|&family| connection(&topology, family)).collect();
        (backend.load)(&topology.pod, &Redirect { drop_invalid, dual_stack: true, ..Redirect::default() }, true);
        let strict = || fs::write("/proc/sys/net/netfilter/nf_conntrack_tcp_loose", "0");
        topology.pod.inside(strict).unwrap();
        for (client, server) in &mut connections {
            client.write_all(b"x").unwrap();
            // TCP retransmits lost data after 200 ms. If no data has arrived after 300 ms, the retransmitted data was
            // dropped, too.
            let timeout = if drop_invalid { Duration::from_millis(300) } else { DEADLINE };
            server.set_read_timeout(Some(timeout)).unwrap();
            let arrived = read(server);
            let wanted = if drop_invalid { Err(ErrorKind::WouldBlock) } else { Ok(1) };
            assert_eq!(arrived, wanted, "{}, drop_invalid={drop_invalid}, {server:?}", backend.name);
        }
    }
}

/// Reads one byte, or returns the error; repeats after a signal.
fn read(server: &mut TcpStream) -> Result<usize, ErrorKind> {
    loop {
        match server.read(&mut [0]).map_err(|error| error.kind()) {
            Err(ErrorKind::Interrupted) => {}
            arrived => return arrived,
        }
    }
}

/// Connects from outside the pod to the pod; returns both ends of the connection.
fn connection(topology: &Topology, family: Family) -> (TcpStream, TcpStream) {
    let to = SocketAddr::new(Place::Pod.ip(family).unwrap(), 7000);
    let listener = topology.pod.inside(|| TcpListener::bind(to)).unwrap();
    let client = topology.world.inside(|| TcpStream::connect(to)).unwrap();
    (client, listener.accept().unwrap().0)
}
