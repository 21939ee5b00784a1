//! `istio-cnictl status` as a process, against an API server with healthy, failing and hostile agents, and with a
//! thousand.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use test_support::api::{Api, Fault};
use test_support::daemon::until;
use test_support::program::under_test;

use crate::cnictl::{cnictl, kubeconfig, text};

/// The number of agents in the test with a large cluster.
const FLEET: usize = 1000;
/// A number of agents that `status` must read concurrently.
const AT_ONCE: usize = 8;

fn pod_of(node: &str) -> String {
    format!("istio-cni-node-{node}")
}

fn path_of(node: &str) -> String {
    format!("/api/v1/namespaces/istio-system/pods/{}:15014/proxy/status.json", pod_of(node))
}

fn put_agent(api: &Api, node: &str) {
    api.put(json!({ "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "istio-system", "name": pod_of(node), "labels": { "k8s-app": "istio-cni-node" } },
        "spec": { "nodeName": node, "containers": [{ "name": "install-cni" }] } }));
}

fn report(node: &str) -> Value {
    json!({ "node": node, "version": "0.1.0", "active": true, "chain": "/host/etc/cni/net.d/10-x.conflist",
            "backend": "iptables-nft", "counts": { "redirected": 7, "skipped": { "no_proxy": 3 } },
            "pods": [{ "name": "shop/web", "verdict": "redirected", "reason": "created", "seconds": 0.0015,
                       "parameters": { "traffic.sidecar.istio.io/excludeOutboundPorts": "3306" } }] })
}

/// Creates an agent on a node, with this status report.
fn put(api: &Api, node: &str, report: &Value) {
    put_agent(api, node);
    api.respond(&path_of(node), 200, report.to_string());
}

fn status(api: &Api, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let path = kubeconfig(dir.path(), &api.url());
    cnictl(&[&["status", "-A"], args].concat(), "", Some(&path))
}

/// Returns the cells of a node's line in the output.
fn line<'o>(output: &'o str, node: &str) -> Vec<&'o str> {
    let line = output.lines().find(|line| line.split_whitespace().next() == Some(node));
    line.unwrap_or_else(|| panic!("no line of {node} in\n{output}")).split_whitespace().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_healthy_agents_gives_success() {
    let api = Api::start().await;
    put(&api, "n2", &report("n2"));
    put(&api, "n1", &report("n1"));
    let done = status(&api, &[]);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out}{}", text(&done.stderr));
    assert_eq!(line(&out, "n1"), ["n1", "yes", "0.1.0", "iptables-nft", "10-x.conflist", "7", "3", "0", "-"]);
    assert!(out.find("n1 ") < out.find("n2 "), "{out}");
    assert!(out.ends_with("\n2 of 2 agents are well; pods redirected: 14, skipped: no_proxy=6\n"), "{out}");
    assert_eq!(text(&done.stderr), "", "no progress without a terminal");
    let requests = api.requests_to("GET", "/status.json");
    assert!(requests.iter().all(|seen| seen.query == "summary") && requests.len() == 2, "{requests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_problem_is_named_and_gives_an_error_code() {
    let api = Api::start().await;
    for (node, part, value) in [
        ("unready", "notReady", json!(["install: no network configuration"])),
        ("failed", "counts", json!({ "failed": 2 })),
        ("broken", "repair", json!({ "broken": 1 })),
    ] {
        let mut report = report(node);
        report[part] = value;
        put(&api, node, &report);
    }
    put_agent(&api, "disabled");
    api.respond(&path_of("disabled"), 404, "the path is /metrics\n");
    for node in ["forbidden", "silent", "cut"] {
        put_agent(&api, node);
    }
    api.fault(Fault::on("GET", &path_of("forbidden")).status(403));
    api.fault(Fault::on("GET", &path_of("silent")).silence());
    api.fault(Fault::on("GET", &path_of("cut")).cut());
    put(&api, "well", &report("well"));
    let done = status(&api, &["--timeout=10", "-o=json"]);
    assert_eq!(done.status.code(), Some(1));
    let expected = "Error: 7 of 8 agents have problems; `istio-cnictl status NODE` shows the details of one\n";
    assert_eq!(text(&done.stderr), expected);
    let agents: Vec<Value> = serde_json::from_slice(&done.stdout).unwrap();
    for (node, problem) in [
        ("unready", "not ready: install: no network configuration"),
        ("failed", "pods that cannot be redirected and do not start: 2"),
        ("broken", "pods that started without redirection and wait for repair: 1"),
        ("disabled", "set statusPage.enabled"),
        ("forbidden", "`get` of pods/proxy must be allowed"),
        ("silent", "no report within 10s"),
        ("cut", "the request to the API server failed: "),
    ] {
        let agent = agents.iter().find(|agent| agent["node"] == node).unwrap();
        let problems = agent["problems"].to_string();
        assert!(problems.contains(problem), "{node}: {problems}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_reports_are_refused_and_cannot_write_to_the_terminal() {
    let api = Api::start().await;
    let mut huge = report("huge");
    huge["lines"] = json!([{ "text": "x".repeat(8 << 20) }]);
    put(&api, "huge", &huge);
    put_agent(&api, "html");
    api.respond(&path_of("html"), 200, "<html>");
    put_agent(&api, "shape");
    api.respond(&path_of("shape"), 200, r#"{"node":[]}"#);
    let mut control = report("control");
    control["version"] = "\u{1b}[2J\r\n".into();
    control["notReady"] = json!(["\u{1b}]0;x\u{7}"]);
    put(&api, "control", &control);
    for args in [&[][..], &["-o=wide"], &["control"]] {
        let done = status(&api, args);
        let out = text(&done.stdout);
        assert_eq!(done.status.code(), Some(1), "{out}");
        assert!(!out.contains(['\u{1b}', '\r', '\u{7}']) && out.contains("\\u{1b}[2J\\r\\n"), "{out}");
    }
    let out = text(&status(&api, &["-o=wide"]).stdout);
    for (node, reason) in [
        ("huge", "the report cannot be read: length limit"),
        ("html", "not a report of this version's agent: expected"),
        ("shape", "not a report of this version's agent: invalid type"),
    ] {
        let line = out.lines().find(|line| line.starts_with(node)).unwrap();
        assert!(line.contains(reason), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selected_node_without_an_agent_has_a_line() {
    let api = Api::start().await;
    put(&api, "n1", &report("n1"));
    for (name, system) in [("n1", "linux"), ("bare", "linux"), ("other", "windows")] {
        api.put(
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": { "os": system } } }),
        );
    }
    let template = json!({ "spec": { "nodeSelector": { "os": "linux" }, "containers": [] } });
    api.put(json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "namespace": "istio-system", "name": "istio-cni-node" },
        "spec": { "selector": {}, "template": template } }));
    let done = status(&api, &["-o=wide"]);
    let out = text(&done.stdout);
    assert_eq!(done.status.code(), Some(1), "{out}");
    assert_eq!(line(&out, "bare")[1], "no", "{out}");
    assert!(
        out.contains("no agent runs on it; see `kubectl -n istio-system describe daemonset istio-cni-node`"),
        "{out}"
    );
    assert!(!out.contains("\nother ") && out.contains("\n1 of 2 agents are well"), "{out}");
    assert_eq!(status(&api, &["bare"]).status.code(), Some(1));
    // Without the right to list nodes, `status` shows only what its rights for pods allow: the nodes with agents.
    api.fault(Fault::on("GET", "/api/v1/nodes").status(403));
    let done = status(&api, &[]);
    assert!(done.status.success() && text(&done.stderr).contains("nodes without an agent are not known: "), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_node_is_shown_in_depth() {
    let api = Api::start().await;
    put(&api, "n1", &report("n1"));
    put(&api, "n2", &report("n2"));
    let done = status(&api, &["n1"]);
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out}{}", text(&done.stderr));
    let row =
        ["shop/web", "redirected", "created", "-", "-", "1.5", "traffic.sidecar.istio.io/excludeOutboundPorts=3306"];
    assert_eq!(line(&out, "shop/web"), row);
    assert!(out.starts_with("Node:       n1\nAgent:      istio-system/istio-cni-node-n1\nReady:      yes\n"), "{out}");
    assert!(api.requests_to("GET", &path_of("n2")).is_empty());
    let unknown = status(&api, &["n3"]);
    assert_eq!(text(&unknown.stderr), "Error: node n3 has no agent; nodes with one: 2\n");
    let yaml = text(&status(&api, &["n1", "-o=yaml"]).stdout);
    assert!(yaml.contains("node: n1") && yaml.contains("verdict: redirected"), "{yaml}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_without_agents_and_a_list_that_fails_are_errors() {
    let api = Api::start().await;
    let of = |args: &[&str]| {
        let dir = tempfile::tempdir().unwrap();
        text(&cnictl(args, "", Some(&kubeconfig(dir.path(), &api.url()))).stderr)
    };
    for (args, namespace) in [(&["status"][..], "kube-system"), (&["status", "-n=istio-system"], "istio-system")] {
        let none = of(args);
        let expected = format!("no pod has the label k8s-app=istio-cni-node in namespace {namespace}; ");
        assert!(none.contains(&expected) && none.contains("--all-namespaces"), "{none}");
    }
    api.fault(Fault::on("GET", "/api/v1/pods").status(403));
    let forbidden = text(&status(&api, &[]).stderr);
    assert!(forbidden.contains("the agents cannot be listed: ") && forbidden.contains("(--namespace)"), "{forbidden}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_repeats_until_it_is_interrupted_and_survives_an_outage() {
    let api = Api::start().await;
    put(&api, "n1", &report("n1"));
    let dir = tempfile::tempdir().unwrap();
    let path = kubeconfig(dir.path(), &api.url());
    // kubectl runs plugins by names of this form.
    let plugin = dir.path().join("kubectl-istiocni");
    symlink(Path::new(&under_test("istio-cnictl")).canonicalize().unwrap(), &plugin).unwrap();
    let mut command = Command::new(plugin);
    command.args(["status", "--all-namespaces", "--watch", "--interval=1"]).env_clear().env("KUBECONFIG", path);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut err = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(out.any(|line| line.starts_with("1 of 1 agents are well")));
    api.fault(Fault::on("GET", "/api/v1/pods").status(503));
    assert!(err.any(|line| line.contains("the agents cannot be listed")));
    api.heal();
    put(&api, "n2", &report("n2"));
    assert!(out.any(|line| line.starts_with("2 of 2 agents are well")));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_agents_are_read_concurrently() {
    let api = Api::start().await;
    for number in 0..FLEET {
        let node = format!("node-{number:04}");
        put(&api, &node, &report(&node));
    }
    api.fault(Fault::on("GET", "/status.json").held().times(AT_ONCE));
    let read = |api: &Api| api.requests().iter().filter(|seen| seen.path.ends_with("/status.json")).count();
    let done = std::thread::scope(|scope| {
        let status = scope.spawn(|| status(&api, &["--timeout=120"]));
        until("requests at once", || match read(&api) {
            AT_ONCE.. => Ok(()),
            fewer => Err(fewer.to_string()),
        });
        api.release();
        status.join().unwrap()
    });
    let out = text(&done.stdout);
    assert!(done.status.success(), "{out}{}", text(&done.stderr));
    assert!(out.contains(&format!("{FLEET} of {FLEET} agents are well")), "{out}");
}
