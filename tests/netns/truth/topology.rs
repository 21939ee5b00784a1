//! A pod, a network with two links to it, and programs that connect and respond.

use std::fs;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ruleset::Family;

use super::table::{Place, Row};
use test_support::DEADLINE;
use test_support::netns::{TestNetns, families};
use test_support::program::{as_user, built};

/// The namespaces of a pod and of the network outside. `eth0` leads everywhere except to
/// [`super::table::Place::Beyond`], which is behind `eth1`.
pub(crate) struct Topology {
    pub(crate) pod: TestNetns,
    pub(crate) world: TestNetns,
}

/// A running program, which ends when the value is dropped.
pub(crate) struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Topology {
    pub(crate) fn new() -> Self {
        let (pod, world) = (TestNetns::new(), TestNetns::new());
        let world_path = world.path();
        let wire = |name: &str| format!("link add {name} type veth peer name {name} netns {}\n", world_path.display());
        let batch = wire("eth0")
            + &wire("eth1")
            + "address add 10.0.0.2/24 dev eth0
               address add fd00::2/64 dev eth0 nodad
               address add 10.0.1.2/24 dev eth1
               address add fd01::2/64 dev eth1 nodad
               link set eth0 up
               link set eth1 up\n";
        configure(&pod, &batch);
        configure(
            &world,
            "address add 10.0.0.1/24 dev eth0
             address add fd00::1/64 dev eth0 nodad
             address add 10.0.1.1/24 dev eth1
             address add fd01::1/64 dev eth1 nodad
             address add 198.51.100.7/32 dev lo
             address add 198.51.100.8/32 dev lo
             address add 203.0.113.9/32 dev lo
             address add 2001:db8::7/128 dev lo nodad
             address add 2001:db8::8/128 dev lo nodad
             address add 2001:db8:1::9/128 dev lo nodad
             link set eth0 up
             link set eth1 up\n",
        );
        // A request about a link makes newer kernels update its state at once instead of within a second.
        for netns in [&world, &pod] {
            netns.feed("ip", &["-batch", "-"], "link show dev eth0\nlink show dev eth1\n");
        }
        configure(
            &pod,
            "route add default via 10.0.0.1
             route add 203.0.113.0/24 via 10.0.1.1
             route add default via fd00::1
             route add 2001:db8:1::/64 via fd01::1\n",
        );
        for netns in [&pod, &world] {
            netns.inside(|| fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")).unwrap();
        }
        let topology = Self { pod, world };
        topology.wait_for_wires();
        topology
    }

    /// Waits until both links work: until a connection to a port without a listener is refused. IPv6 works only some
    /// time after a link is up.
    fn wait_for_wires(&self) {
        let deadline = Instant::now() + DEADLINE;
        let places = [Place::Remote, Place::Beyond];
        for (place, family) in
            places.into_iter().flat_map(|place| families().iter().map(move |&family| (place, family)))
        {
            let to = SocketAddr::new(place.ip(family).unwrap(), 1);
            let timeout = Duration::from_millis(50);
            self.pod.inside(|| {
                loop {
                    let seen = TcpStream::connect_timeout(&to, timeout).map(|_| ());
                    if seen.as_ref().is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused) {
                        return;
                    }
                    assert!(Instant::now() < deadline, "the wire to {to} does not work: {seen:?}");
                }
            });
        }
    }

    /// Starts the proxy and an application in the pod, and a remote service outside of it.
    pub(crate) fn serve(&self, proxy: u32) -> [Server; 3] {
        let envoy =
            ["tcp/15001", "transparent/15006", "tcp/15008", "tcp/15053", "udp/127.0.0.1:15053", "udp/[::1]:15053"];
        [self.start_proxy("proxy", &proxy.to_string(), &envoy), self.start_app(), self.start_remote()]
    }

    /// Starts a proxy in the pod; `id` is the argument of `respond`.
    pub(crate) fn start_proxy(&self, name: &str, id: &str, ports: &[&str]) -> Server {
        let ports = ports.iter().filter(|port| !port.contains('[') || families().contains(&Family::V6));
        start(&self.pod, name, id, &ports.map(|&port| port.to_owned()).collect::<Vec<_>>())
    }

    /// Starts an application in the pod.
    pub(crate) fn start_app(&self) -> Server {
        let app = ["tcp/8080", "udp/8080", "tcp/9000", "tcp/53", "udp/53", "tcp/15020", "tcp/15021", "tcp/15090"];
        start(&self.pod, "app", "1000", &app.map(str::to_owned))
    }

    /// Starts a remote service outside of the pod.
    pub(crate) fn start_remote(&self) -> Server {
        // The UDP sockets are bound to addresses: otherwise the source of a response may differ from the address to
        // which the datagram was sent.
        let mut remote: Vec<String> = ["tcp/80", "tcp/9000", "tcp/15020", "tcp/53"].map(str::to_owned).to_vec();
        for place in [Place::Remote, Place::Other] {
            for &family in families() {
                let ip = place.ip(family).unwrap();
                remote.extend([53, 80].map(|port| format!("udp/{}", SocketAddr::new(ip, port))));
            }
        }
        start(&self.world, "remote", "1000", &remote)
    }

    /// Connects as a row describes and returns the response.
    pub(crate) fn connect(&self, row: &Row, family: Family) -> String {
        let netns = if row.client.in_pod { &self.pod } else { &self.world };
        Self::connect_as(netns, &row.arguments(family), row.client.uid, row.client.gid)
    }

    /// Runs `connect` as a user and returns the response.
    pub(crate) fn connect_as(netns: &TestNetns, arguments: &[String], uid: u32, gid: u32) -> String {
        let output = netns.inside(|| as_user(&built("connect"), uid, gid).args(arguments).output().unwrap());
        let stdout = String::from_utf8_lossy(&output.stdout).trim_end().to_owned();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if output.status.success() { stdout } else { format!("{stdout} {stderr}") }
    }
}

/// Runs lines in `ip -batch`, except lines for a family that the kernel lacks.
pub(crate) fn configure(netns: &TestNetns, lines: &str) {
    // A line with two colons has an IPv6 address: no other word of these lines has a colon.
    let is_possible = |line: &&str| families().contains(&Family::V6) || line.matches(':').count() < 2;
    let batch: String = lines.lines().filter(is_possible).flat_map(|line| [line, "\n"]).collect();
    netns.feed("ip", &["-batch", "-"], &batch);
}

/// Starts the test program `respond` in a netns, and returns when it listens.
fn start(netns: &TestNetns, name: &str, id: &str, ports: &[String]) -> Server {
    let child = netns.inside(|| {
        let mut command = Command::new(built("respond"));
        command.args([name, id]).args(ports).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    });
    let mut server = Server(child.unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{name} does not listen on {ports:?}; its standard error says why");
    server
}
