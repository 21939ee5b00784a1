//! Tests of pods with sandboxed runtimes, which rules in the node's kernel do not affect: the handler in the agent's responses, and the
//! pod's Event.

use serde_json::{Value, json};

use test_support::api::{Api, Fault};
use test_support::daemon::{Daemon, Node, cluster, pod, until};

/// Returns a containerd configuration whose handler `h` has this `runtime_type`.
fn containerd(program: &str) -> String {
    format!("version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.h]\nruntime_type = '{program}'\n")
}

/// Writes a containerd configuration below a directory that stands for the node's root, and returns the flag that names this directory.
fn root(node: &Node, text: &str) -> String {
    let file = node.path("root/etc/containerd/config.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, text).unwrap();
    format!("--host-root={}", node.path("root").display())
}

fn class(name: &str, handler: &str) -> Value {
    json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name }, "handler": handler })
}

async fn cluster_with(classes: &[(&str, &str)]) -> Api {
    let api = cluster().await;
    for (name, _) in classes {
        let mut object = pod(name, "u1");
        object["spec"]["runtimeClassName"] = json!(name);
        api.put(object);
    }
    classes
        .iter()
        .filter(|(_, handler)| !handler.is_empty())
        .for_each(|(name, handler)| drop(api.put(class(name, handler))));
    api
}

/// Waits until the response about a pod has this handler.
fn has_handler(node: &Node, pod: &str, handler: &Value) {
    until("the handler", || {
        let (status, facts) = node.request(pod, "u1");
        let facts: Value = serde_json::from_str(&facts).map_err(|error| error.to_string())?;
        if status == 200 && facts["handler"] == *handler { Ok(()) } else { Err(format!("{status} {facts}")) }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_has_the_handler_as_far_as_the_agent_knows_it() {
    let api = cluster_with(&[("tenant", "h"), ("kata", "runc"), ("h", ""), ("unknown", "")]).await;
    let node = Node::new();
    let flags = [root(&node, &containerd("io.containerd.kata.v2"))];
    let daemon = Daemon::with_flags(&node, &api.url(), &flags);
    daemon.ready();
    let sandbox = json!({ "name": "h", "isSandbox": true, "program": "io.containerd.kata.v2" });
    has_handler(&node, "tenant", &sandbox);
    has_handler(&node, "h", &sandbox);
    has_handler(&node, "kata", &json!({ "name": "runc", "isSandbox": false }));
    has_handler(&node, "unknown", &Value::Null);
    root(&node, &containerd("io.containerd.runc.v2"));
    has_handler(&node, "tenant", &json!({ "name": "h", "isSandbox": false }));
    api.put(class("tenant", "gvisor"));
    has_handler(&node, "tenant", &json!({ "name": "gvisor", "isSandbox": true }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_right_to_runtime_classes_the_agent_serves_and_warns_once() {
    let api = cluster_with(&[("tenant", "kata")]).await;
    api.fault(Fault::on("GET", "/runtimeclasses").status(403));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    has_handler(&node, "tenant", &Value::Null);
    daemon.line("RuntimeClasses cannot be watched");
    api.heal();
    has_handler(&node, "tenant", &json!({ "name": "kata", "isSandbox": true }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_of_the_plugin_about_a_sandbox_becomes_one_event_of_the_pod() {
    let api = cluster_with(&[("web", "h")]).await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let line = |pod: &str, uid: &str, sandbox: &str| json!({ "level": "warn", "msg": "m", "cmd": "ADD", "pod": pod, "uid": uid, "reason": "sandbox", "sandbox": sandbox });
    let lines =
        [line("shop/web", "u2", "another pod"), line("shop/far", "u1", "no pod"), line("shop/web", "u1", "h (kata)")];
    for lines in [&lines[..], &lines[2..]] {
        assert_eq!(node.log(lines), 200);
        let posts = || api.requests_to("POST", "/namespaces/shop/events").len();
        let expected = if lines.len() == 1 { 2 } else { 1 };
        api.until("the request", |_| (posts() == expected).then_some(())).await;
    }
    let [event] = &api.list("events")[..] else { panic!("{:?}", api.list("events")) };
    assert_eq!(event["reason"], "SandboxNotRedirected");
    assert_eq!(event["involvedObject"]["uid"], "u1");
    assert!(event["message"].as_str().unwrap().ends_with("its sandbox (h (kata))"), "{event}");
}
