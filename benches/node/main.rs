//! Measures the node agent and repair: the shipped `install-cni` as a process, with an API server that has many pods.
//! Prints medians with their targets; a missed target is not a failure.

#![expect(clippy::disallowed_methods, reason = "starts processes, reads files, holds the clock")]
#![expect(clippy::unwrap_used, reason = "what a bench does not expect ends it")]
#![expect(clippy::print_stdout, reason = "its report")]

use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::Value;

use test_node::repair::{Controller, broken};
use test_support::api::Api;
use test_support::daemon::{Daemon, Node, cluster, exchange, pod, until};

const RUNS: usize = 21;
const ON_THE_NODE: usize = 250;
/// The size of the file that is installed in place of the plugin, in bytes: approximately that of the plugin.
const PLUGIN: usize = 3_000_000;
const IN_THE_CLUSTER: usize = 10_000;
/// The number of broken pods that are repaired one after the other.
const MENDED: usize = 200;
/// The number of pods that break at once.
const STORM: usize = 500;

#[tokio::main]
async fn main() {
    let (empty, full) = (cluster().await, cluster().await);
    for number in 0..IN_THE_CLUSTER {
        let mut pod = heavy(number);
        if number >= ON_THE_NODE {
            pod["spec"]["nodeName"] = format!("n{number}").into();
        }
        full.put(pod);
    }
    println!("install-cni, medians of {RUNS}; {IN_THE_CLUSTER} pods in the cluster where the node has {ON_THE_NODE}");
    tokio::task::block_in_place(|| starting(&empty, &full));
    tokio::task::block_in_place(|| living(&full));
    repairing().await;
    storm().await;
}

/// Returns a pod of the size of real pods.
fn heavy(number: usize) -> Value {
    weighed(pod(&format!("web-{number}"), &format!("uid-{number}")))
}

fn weighed(mut pod: Value) -> Value {
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "x".repeat(3_000).into();
    pod
}

/// Starts a daemon, waits until it is ready, and returns it with the time until then in milliseconds.
fn start(api: &Api) -> ((Node, Daemon), f64) {
    let node = Node::new();
    fs::write(node.path("image/istio-cni"), vec![0x7f; PLUGIN]).unwrap();
    let begin = Instant::now();
    let daemon = Daemon::start(&node, &api.url());
    while daemon.get("/readyz").0 != 200 {
        assert!(begin.elapsed() < Duration::from_secs(20), "{}", daemon.log_text());
        std::thread::sleep(Duration::from_millis(1));
    }
    let took = ms(begin);
    ((node, daemon), took)
}

/// Measures the time until a daemon is ready. Also measures two parts of this time: the daemon's processor time, and
/// the API server's time to list the pods. The bench starts a daemon on a node without pods and on a node with many
/// pods in turn, because the load of the machine changes with time.
fn starting(empty: &Api, full: &Api) {
    let mut nodes = [(0, empty, Vec::new(), Vec::new()), (ON_THE_NODE, full, Vec::new(), Vec::new())];
    let mut listed = Vec::new();
    for _ in 0..RUNS {
        for (_, api, took, worked) in &mut nodes {
            let ((_node, daemon), ready) = start(api);
            took.push(ready);
            worked.push(worked_for(&daemon));
        }
        listed.push(list(full));
    }
    for (pods, _, took, worked) in &mut nodes {
        row(&format!("ready after start, {pods} pods on the node"), median(took), "ms", 40.0);
        println!("  {:<48} {:>8.1} ms", "  of processor time in the daemon", median(worked));
    }
    println!("  {:<48} {:>8.1} ms", "  the API server's part: to list these pods", median(&mut listed));
}

/// Returns the processor time of the daemon so far, in milliseconds.
fn worked_for(daemon: &Daemon) -> f64 {
    let threads = fs::read_dir(daemon.process().join("task")).unwrap();
    let nanoseconds = threads.map(|thread| -> f64 {
        let times = fs::read_to_string(thread.unwrap().path().join("schedstat")).unwrap();
        times.split(' ').next().unwrap().parse().unwrap()
    });
    nanoseconds.sum::<f64>() / 1e6
}

/// Measures the time until the API server has sent the list of the node's pods. The daemon requests this list twice:
/// for lookups and for repair.
fn list(api: &Api) -> f64 {
    let begin = Instant::now();
    let stream = TcpStream::connect(api.address()).unwrap();
    let (status, body) = exchange(stream, "GET /api/v1/pods?fieldSelector=spec.nodeName%3Dn1&resourceVersion=0", "");
    assert!(status == 200 && body.len() > ON_THE_NODE * 3_000, "{status}, {} bytes", body.len());
    ms(begin)
}

/// Measures a running daemon: the time until it restores a chain entry, and its memory.
fn living(api: &Api) {
    let ((node, daemon), _) = start(api);
    let mut once = Vec::new();
    let mut twice = Vec::new();
    for number in 0..RUNS {
        once.push(heal(&node));
        // The daemon restores the entry at once after the first change, and delays only after repeated changes. The
        // restoration after the second change is therefore measured separately.
        twice.push(heal(&node));
        until(&format!("ready after {number}"), || {
            (daemon.get("/readyz").0 == 200).then_some(()).ok_or_else(|| daemon.log_text())
        });
        std::thread::sleep(Duration::from_secs(1));
    }
    row("entry back after it was overwritten", median(&mut once), "ms", 20.0);
    row("the same at once again", median(&mut twice), "ms", 40.0);
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    row("resident memory", daemon.memory("VmRSS:") as f64 / 1024.0, "MiB", 15.0);
    daemon.end();
}

fn heal(node: &Node) -> f64 {
    node.remove_entry();
    let begin = Instant::now();
    while !fs::read_to_string(node.path("net/10-net.conflist")).unwrap().contains("istio-cni") {
        assert!(begin.elapsed() < Duration::from_secs(20), "the entry does not come back");
        std::thread::yield_now();
    }
    ms(begin)
}

/// Measures the time from a pod's exit code 126 in the API server to the request to evict the pod.
async fn repairing() {
    let api = Api::start().await;
    let controller = Controller::start(&api, "--repair-budget 100000");
    api.until("a watch", |api| (api.watches("pods") == 1).then_some(())).await;
    let mut delays = Vec::new();
    for number in 0..MENDED {
        let name = format!("web-{number}");
        let shown = Instant::now();
        api.put(broken(&name, 0));
        let path = format!("/pods/{name}/eviction");
        let requested = api.until(&path, |api| api.requests_to("POST", &path).first().map(|seen| seen.at)).await;
        delays.push(requested.duration_since(shown).as_secs_f64() * 1e3);
    }
    delays.sort_by(f64::total_cmp);
    println!("repair, {MENDED} pods one after the other, from 126 shown to request of the eviction");
    row("median", delays[delays.len() / 2], "ms", 20.0);
    row("99th percentile", delays[delays.len() * 99 / 100], "ms", 20.0);
    controller.end().await;
}

/// Measures many broken pods at once: the delay of the last, the requests to the API server, and the processor time on
/// the node.
async fn storm() {
    let (api, node) = (cluster().await, Node::new());
    let daemon = Daemon::with_variables(&node, &api.url(), &[("REPAIR_BUDGET", "100000")]);
    api.until("the watch", |api| (api.watches("pods") == 1).then_some(())).await;
    tokio::task::block_in_place(|| daemon.ready());
    let (before, calm, begin) = (api.requests().len(), daemon.memory("VmHWM:"), Instant::now());
    for number in 0..STORM {
        api.put(weighed(broken(&format!("web-{number}"), 0)));
    }
    let evictions = |api: &Api| {
        api.requests_to("POST", "/eviction").last().filter(|_| api.list("pods").is_empty()).map(|seen| seen.at)
    };
    let last = api.until("all are evicted", evictions).await;
    let requests = api.requests().len() - before;
    println!("repair, {STORM} pods at once, without a budget; install-cni as a process");
    println!("  {:<48} {:>8.1} ms", "the request of the last eviction", last.duration_since(begin).as_secs_f64() * 1e3);
    println!("  {:<48} {requests:>8} for {STORM} pods", "requests");
    let memory = [calm, daemon.memory("VmHWM:"), daemon.memory("VmRSS:")];
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let [calm, peak, after] = memory.map(|kib| kib as f64 / 1024.0);
    println!("  {:<48} {calm:>8.1} MiB before, {peak:.1} at most, {after:.1} after", "resident memory");
    tokio::task::block_in_place(|| daemon.end());
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn row(what: &str, value: f64, unit: &str, reach: f64) {
    let met = if value <= reach { "reached" } else { "missed" };
    println!("  {what:<48} {value:>8.1} {unit}  (aim {reach:.0} {unit}: {met})");
}
