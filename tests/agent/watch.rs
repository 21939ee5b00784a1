//! Tests of the agent's watch of its node's pods: interruptions, expiry, outages, and memory per pod.

use test_support::api::Fault;
use test_support::daemon::{Daemon, Node, cluster, pod, until};

/// Waits until a lookup of the pod has this status.
#[track_caller]
fn until_status(node: &Node, pod: &str, status: u16) {
    until(&format!("{status} for {pod}"), || match node.request(pod, "") {
        (found, _) if found == status => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_watch_survives_interruptions_expiry_and_an_outage() {
    let api = cluster().await;
    api.put(pod("a", "u1"));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    api.break_watches();
    api.put(pod("b", "u2"));
    until_status(&node, "b", 200);
    api.bookmark();
    api.expire_watches();
    api.remove("pods", "shop", "a");
    api.put(pod("c", "u3"));
    until_status(&node, "c", 200);
    until_status(&node, "a", 404);
    // During the outage the agent serves the pods that were in its cache before.
    api.fault(Fault::on("GET", "/pods").cut());
    api.break_watches();
    api.remove("pods", "shop", "b");
    api.put(pod("d", "u4"));
    daemon.line("the watch of this node's pods");
    assert_eq!((node.request("b", "u2").0, node.request("c", "u3").0), (200, 200));
    assert_eq!(daemon.get("/readyz").0, 200);
    api.heal();
    until_status(&node, "d", 200);
    until_status(&node, "b", 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_this_nodes_pods_are_requested() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let pods: Vec<_> = api.requests().into_iter().filter(|seen| seen.path.ends_with("/pods")).collect();
    assert!(!pods.is_empty());
    for seen in pods {
        assert!(seen.query.contains("spec.nodeName%3Dn1"), "{} asks for {}", seen.line(), seen.query);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_without_streaming_lists_is_supported() {
    let api = cluster().await;
    api.put(pod("a", "u1"));
    api.fault(Fault::on("GET", "sendInitialEvents").status(422));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    assert_eq!(node.request("a", "u1").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn little_of_a_large_pod_is_stored() {
    const PODS: usize = 300;
    const WEIGHT: usize = 100_000;
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let calm = daemon.peak();
    for n in 0..PODS {
        let mut pod = pod(&format!("web-{n}"), &format!("u{n}"));
        pod["metadata"]["annotations"]["heavy"] = "x".repeat(WEIGHT).into();
        pod["metadata"]["managedFields"] = serde_json::json!([{ "manager": "y".repeat(WEIGHT) }]);
        api.put(pod);
    }
    api.put(pod("last", "u"));
    until_status(&node, "last", 200);
    until_status(&node, "web-0", 200);
    let (grown, sent) = (daemon.peak() - calm, (PODS * WEIGHT * 2 / 1024) as u64);
    assert!(grown < sent / 8, "{grown} KiB more than before, of {sent} KiB that were sent");
}
