//! Tests of the ZDS server over real sockets, with a double of ztunnel that follows the client's side of the protocol.

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use istio_cni::ambient::zds::message::{RESPONSE_SIZE, Uid, Workload};
use istio_cni::ambient::zds::{self, Enrolled, Error, Limits, Metrics, PodNetns, Ztunnels};
use podnet::netns::Netns;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serve::http::Listener as _;
use serve::listen::PrivateSocket;
use tempfile::TempDir;
use test_node::ztunnel::{Raw, Seen, Ztunnel, ack, hello};
use test_support::daemon::until;
use tokio::task::JoinHandle;

/// The message that ends a snapshot.
const SNAPSHOT_SENT: [u8; 2] = [0x1a, 0];
/// A time limit that no expected event reaches.
const LONG: Duration = Duration::from_secs(60);
/// Limits for tests in which none of them is reached.
const LIMITS: Limits = Limits { hello: LONG, send: LONG, response: LONG, ..Limits::ISTIO };

/// A ZDS server on a socket, which ends when the value is dropped.
struct Server {
    ztunnels: Ztunnels,
    registry: Registry,
    path: PathBuf,
    task: JoinHandle<()>,
    _directory: Option<TempDir>,
}

impl Server {
    fn start(limits: Limits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ztunnel.sock");
        Self::at(&path, limits, Some(directory))
    }

    fn at(path: &Path, limits: Limits, directory: Option<TempDir>) -> Self {
        let mut registry = Registry::default();
        let ztunnels = Ztunnels::new(limits, Metrics::new(&mut registry));
        let socket = PrivateSocket::bind_seqpacket(path).unwrap();
        let serving = ztunnels.clone();
        let task = tokio::spawn(async move { match zds::serve(&serving, || socket.accept()).await {} });
        Self { ztunnels, registry, path: path.to_owned(), task, _directory: directory }
    }

    fn filled(limits: Limits) -> Self {
        let server = Self::start(limits);
        server.ztunnels.fill();
        server
    }

    async fn add(&self, name: &str) -> Result<(), Error> {
        self.ztunnels.add(&uid(name), pod(name, "net"), LONG).await
    }

    fn page(&self) -> String {
        let mut page = String::new();
        encode(&mut page, &self.registry).unwrap();
        page
    }

    /// Waits until a metric's line is on the page.
    #[track_caller]
    fn until_counted(&self, line: &str) {
        until(line, || if self.page().contains(line) { Ok(()) } else { Err(self.page()) });
    }

    /// Waits until this number of ztunnels is connected.
    #[track_caller]
    fn until_connected(&self, count: usize) {
        until("connections", || match self.ztunnels.connected() {
            found if found == count => Ok(()),
            found => Err(found.to_string()),
        });
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn uid(text: &str) -> Uid {
    Uid::new(text).unwrap()
}

/// Creates a pod whose "netns" is this process's namespace of the given type, so that pods with different types have different namespaces.
fn pod(name: &str, namespace: &str) -> Enrolled<PodNetns> {
    let netns = Netns::open(Path::new(&format!("/proc/self/ns/{namespace}"))).unwrap();
    Enrolled { workload: Workload::new("shop", name, "web").unwrap(), netns: PodNetns::new(netns).unwrap() }
}

#[track_caller]
fn until_seen(ztunnel: &Ztunnel, what: &str, is_so: impl Fn(&Seen) -> bool) -> Seen {
    until(what, || match ztunnel.seen() {
        seen if is_so(&seen) => Ok(seen),
        seen => Err(format!("{seen:?}")),
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_of_250_pods_is_complete_before_it_begins() {
    let server = Server::start(LIMITS);
    let ztunnel = Ztunnel::start(&server.path);
    for number in 1..250 {
        let name = format!("pod-{number}");
        server.ztunnels.restore(&uid(&name), pod(&name, "net"));
    }
    server.ztunnels.ensure(&uid("pod-0"));
    // Until the server accepts connections, the double's connection waits in the kernel's queue.
    let seen = until_seen(&ztunnel, "a connection", |seen| seen.connections == 1);
    assert_eq!((seen.requests.len(), server.ztunnels.connected()), (0, 0));
    let begin = Instant::now();
    server.ztunnels.fill();
    let seen = until_seen(&ztunnel, "a ready ztunnel", Seen::is_ready);
    println!("a snapshot of 250 pods took {:?}, with up to 5 ms of polling", begin.elapsed());
    assert_eq!((seen.requests.len(), seen.count("keep pod-0")), (251, 1));
    assert_eq!((seen.proxies.len(), seen.requests.last().map(String::as_str)), (249, Some("snapshot_sent")));
    let proxy = &seen.proxies["pod-7"];
    let names = [&*proxy.workload.name, &proxy.workload.namespace, &proxy.workload.service_account];
    assert_eq!(names, ["pod-7", "shop", "web"]);
    let own = nix::sys::stat::stat("/proc/self/ns/net").unwrap();
    assert_eq!(proxy.netns, (own.st_dev, own.st_ino));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_newest_gets_additions_and_all_get_deletions() {
    let server = Server::filled(LIMITS);
    let old = Ztunnel::start(&server.path);
    server.until_connected(1);
    server.add("u1").await.unwrap();
    let new = Ztunnel::start(&server.path);
    server.until_connected(2);
    server.until_counted("ztunnel_connected 2");
    for name in ["u2", "u3"] {
        server.add(name).await.unwrap();
    }
    let additions = |ztunnel: &Ztunnel| ["u1", "u2", "u3"].map(|uid| ztunnel.seen().count(&format!("add {uid}")));
    assert_eq!((additions(&old), additions(&new)), ([1, 0, 0], [1, 1, 1]));
    assert!(server.ztunnels.delete(&uid("u3")).await.is_some());
    assert_eq!([&old, &new].map(|ztunnel| ztunnel.seen().count("del u3")), [1, 1]);
    // Once the newer connection is closed, the older one is the newest again. It receives the requests that it missed, and requests for new
    // pods.
    drop(new);
    server.until_connected(1);
    server.add("u4").await.unwrap();
    let seen = old.seen();
    assert_eq!(seen.proxies.keys().collect::<Vec<_>>(), ["u1", "u2", "u4"]);
    assert_eq!((seen.exit, seen.connections), (None, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_addition_waits_for_a_ztunnel_and_fails_if_none_responds() {
    let server = Server::filled(LIMITS);
    let limit = Duration::from_millis(300);
    let error = server.ztunnels.add(&uid("u1"), pod("u1", "net"), limit).await.unwrap_err();
    assert_eq!(error, Error::NoConnection { limit });
    assert!(error.to_string().starts_with("no ztunnel connection"), "{error}");
    let waiting = server.add("u1");
    let (done, ztunnel) = tokio::join!(waiting, async { Ztunnel::start(&server.path) });
    done.unwrap();
    assert_eq!(ztunnel.seen().proxies.len(), 1);
    ztunnel.hold(true);
    let error = server.ztunnels.add(&uid("u2"), pod("u2", "net"), limit).await.unwrap_err();
    assert_eq!(error, Error::NoResponse { limit });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_of_either_side_drains_no_enrolled_pod() {
    let server = Server::filled(LIMITS);
    let ztunnel = Ztunnel::start(&server.path);
    for name in ["u1", "u2", "u3"] {
        server.add(name).await.unwrap();
    }
    ztunnel.disconnect();
    until_seen(&ztunnel, "a second connection", |seen| seen.connections == 2 && seen.is_ready());
    // The agent's successor finds the netns of u1 only later; u3 was deleted in the meantime.
    let next = Server::at(&server.path, LIMITS, None);
    next.ztunnels.ensure(&uid("u1"));
    next.ztunnels.restore(&uid("u2"), pod("u2", "net"));
    server.task.abort();
    next.ztunnels.fill();
    let seen = until_seen(&ztunnel, "a third connection", |seen| seen.connections == 3 && seen.is_ready());
    assert_eq!((seen.drained, seen.proxies.len()), (vec!["u3".to_owned()], 2));
    next.add("u1").await.unwrap();
    let seen = ztunnel.seen();
    assert_eq!((seen.drained.len(), seen.exit), (1, None));
    // If a pod's netns changes, ztunnel replaces the pod's proxy.
    next.ztunnels.add(&uid("u1"), pod("u1", "ipc"), LONG).await.unwrap();
    assert_eq!(ztunnel.seen().drained, ["u3", "u1"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_response_acknowledges_no_other_request() {
    let server = Server::filled(Limits { response: Duration::from_secs(3), ..LIMITS });
    let ztunnel = Ztunnel::start(&server.path);
    server.add("u1").await.unwrap();
    ztunnel.hold(true);
    ztunnel.refuse("u3");
    let (late, ()) = tokio::join!(server.add("u2"), async {
        let deadline = Instant::now() + LONG;
        while !server.page().contains("istio_cni_zds_closed_total{reason=\"timeout\"} 1") {
            assert!(Instant::now() < deadline, "the connection stays; last: {}", server.page());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // Only now does the double send the acknowledgement of u2, on the connection that the server has closed.
        ztunnel.hold(false);
    });
    late.expect("the next connection has acknowledged the pod");
    let error = server.add("u3").await.unwrap_err();
    assert_eq!(error.to_string(), "got ack error: failure to start proxy : the address is in use");
    let seen = ztunnel.seen();
    assert!(seen.connections > 1 && seen.count("add u2") > 1, "{seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_before_any_request_ends_the_connection() {
    let server = Server::start(LIMITS);
    let raw = Raw::greet(&server.path);
    raw.send(&ack("")).unwrap();
    server.ztunnels.fill();
    assert_eq!(tokio::task::block_in_place(|| raw.until_closed()), 0);
    server.until_counted("istio_cni_zds_closed_total{reason=\"violation\"} 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_of_a_pod_keeps_the_connection_and_the_pod() {
    let server = Server::filled(LIMITS);
    let ztunnel = Ztunnel::start(&server.path);
    server.until_connected(1);
    ztunnel.refuse("u1");
    let error = server.add("u1").await.unwrap_err();
    assert!(matches!(&error, Error::Refused(why) if why.starts_with("failure to start proxy")), "{error}");
    server.add("u2").await.unwrap();
    server.until_counted("istio_cni_zds_refused_total{request=\"add\"} 1");
    let seen = ztunnel.seen();
    assert_eq!((seen.connections, seen.is_ready(), server.ztunnels.counts()), (1, false, (2, 0)));
    // ztunnel becomes ready when the pod whose proxy cannot be started is deleted.
    server.ztunnels.delete(&uid("u1")).await;
    assert!(ztunnel.seen().is_ready());
    assert_eq!(server.ztunnels.counts(), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_packets_end_only_their_connection() {
    let server = Server::filled(LIMITS);
    let ztunnel = Ztunnel::start(&server.path);
    server.add("u1").await.unwrap();
    let file = tempfile::tempfile().unwrap();
    let attack = |number: usize| {
        let raw = Raw::connect(&server.path).unwrap();
        match number {
            0 => raw.send(b"\x0a").unwrap(),
            1 => raw.send(&vec![0; RESPONSE_SIZE + 1]).unwrap(),
            2 => raw.send_with(&hello(), &[file.as_raw_fd()]).unwrap(),
            // Sends one response more than it has received requests.
            3 => {
                raw.send(&hello()).unwrap();
                while raw.receive().unwrap().bytes != SNAPSHOT_SENT {
                    raw.send(&ack("")).unwrap();
                }
                [(); 2].iter().for_each(|()| drop(raw.send(&ack(""))));
            }
            _ => {
                raw.send(&hello()).unwrap();
                assert!(!raw.receive().unwrap().bytes.is_empty());
                match number {
                    4 => raw.send(b"\x0a\x05").unwrap(),
                    5 => raw.send(b"\x12\x00").unwrap(),
                    6 => raw.send_with(&ack(""), &[file.as_raw_fd(); 20]).unwrap(),
                    _ => raw.send(&vec![7; RESPONSE_SIZE + 1]).unwrap(),
                }
            }
        }
        raw.until_closed();
    };
    for number in 0..8 {
        tokio::task::block_in_place(|| attack(number));
        server.until_counted(&format!("istio_cni_zds_closed_total{{reason=\"violation\"}} {}", number + 1));
        server.add(&format!("after-{number}")).await.unwrap();
    }
    let seen = ztunnel.seen();
    assert_eq!((seen.proxies.len(), seen.connections, seen.exit), (9, 1, None));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_sends_no_hello_receives_no_requests_and_is_disconnected() {
    // The limit is long enough for the hello of the ztunnel double on a busy machine.
    let server = Server::filled(Limits { hello: Duration::from_secs(5), ..LIMITS });
    let ztunnel = Ztunnel::start(&server.path);
    server.add("u1").await.unwrap();
    let silent = Raw::connect(&server.path).unwrap();
    server.add("u2").await.unwrap();
    assert_eq!(tokio::task::block_in_place(|| silent.until_closed()), 0);
    server.until_counted("istio_cni_zds_closed_total{reason=\"timeout\"} 1");
    assert_eq!(ztunnel.seen().proxies.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_with_a_full_queue_is_disconnected_and_the_others_go_on() {
    let server = Server::filled(Limits { queue: 4, ..LIMITS });
    let ztunnel = Ztunnel::start(&server.path);
    server.until_connected(1);
    server.add("u1").await.unwrap();
    // This connection is the newest and does not respond to any request.
    let slow = Raw::greet(&server.path);
    server.until_connected(2);
    let additions = async { tokio::join!(server.add("u2"), server.add("u3")) };
    let deletions = async {
        while server.ztunnels.counts() != (3, 0) {
            tokio::task::yield_now().await;
        }
        for uid in ["a", "b", "c"].map(uid) {
            // The slow connection does not respond. The queue of ztunnel's connection holds one request, so the next deletion waits until
            // ztunnel has received this one.
            drop(server.ztunnels.delete(&uid));
            until_seen(&ztunnel, "a deletion", |seen| seen.count(&format!("del {uid}")) == 1);
        }
    };
    let (done, ()) = tokio::join!(additions, deletions);
    assert_eq!(done, (Ok(()), Ok(())));
    assert_eq!((ztunnel.seen().proxies.len(), ztunnel.seen().connections), (3, 1));
    tokio::task::block_in_place(|| slow.until_closed());
    server.until_counted("istio_cni_zds_closed_total{reason=\"removed\"} 1");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn descriptors_are_closed_with_their_pods() {
    // Counts this process's descriptors of UTS namespaces, which no other test in this process opens.
    let open = || {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        let links = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        links.filter(|link| link.to_string_lossy().starts_with("uts:")).count()
    };
    let until_open = |count: usize| {
        until("descriptors", || match open() {
            found if found == count => Ok(()),
            found => Err(format!("{found}, expected {count}")),
        });
    };
    let server = Server::filled(LIMITS);
    let ztunnel = Ztunnel::start(&server.path);
    let names: Vec<String> = (0..20).map(|number| format!("u{number}")).collect();
    for name in names.iter().chain(&names) {
        server.ztunnels.add(&uid(name), pod(name, "uts"), LONG).await.unwrap();
    }
    // For each pod, the registry and the double have one descriptor each.
    until_open(2 * names.len());
    ztunnel.disconnect();
    until_seen(&ztunnel, "a second connection", |seen| seen.connections == 2 && seen.is_ready());
    until_open(2 * names.len());
    for name in &names[..10] {
        server.ztunnels.delete(&uid(name)).await;
    }
    until_open(names.len());
    // Descriptors that a hostile peer sends are closed.
    let descriptor = pod("x", "uts").netns;
    let raw = Raw::greet(&server.path);
    raw.send_with(&ack(""), &[std::os::fd::AsFd::as_fd(&descriptor).as_raw_fd(); 20]).unwrap();
    tokio::task::block_in_place(|| raw.until_closed());
    drop((raw, descriptor));
    until_open(names.len());
    drop(ztunnel);
    until_open(names.len() / 2);
    drop(server);
    until_open(0);
}
