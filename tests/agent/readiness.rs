//! Tests of the probes, of `install-cni uninstall`, and of the startup taint.

use std::process::{Command, Output};

use serde_json::json;

use test_servers::port;
use test_support::api::{Api, Fault};
use test_support::daemon::{Daemon, Node, cluster, directories, free_ports, own_pod, until};
use test_support::program::under_test;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readyz_names_missing_parts_and_the_installer_waits_for_none() {
    let api = cluster().await;
    api.fault(Fault::on("GET", "/pods").status(503));
    let node = Node::new();
    std::fs::remove_file(node.path("net/10-net.conflist")).unwrap();
    let daemon = Daemon::start(&node, &api.url());
    daemon.readyz(503, &format!("install: {} has no network configuration yet\n", node.path("net").display()));
    daemon.readyz(503, "agent: this node's pods have not been listed yet");
    assert_eq!(daemon.get("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(daemon.get("/else").0, 404);
    node.remove_entry();
    node.until_installed();
    until("one part to be missing", || match daemon.get("/readyz") {
        (503, text) if text == "agent: this node's pods have not been listed yet\n" => Ok(()),
        (status, text) => Err(format!("{status} {text}")),
    });
    api.heal();
    daemon.ready();
}

/// The agent must report the reason itself, because the kubelet's Event about a failed probe has only the HTTP status, and the image has no
/// shell to request `/readyz`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_is_not_ready_reports_why_in_its_log_and_in_one_event_on_its_pod() {
    let api = cluster().await;
    api.put(own_pod());
    let node = Node::new();
    std::fs::remove_file(node.path("net/10-net.conflist")).unwrap();
    let daemon = Daemon::start(&node, &api.url());
    let missing = format!("install: {} has no network configuration yet", node.path("net").display());
    assert_eq!(daemon.line("the agent is not ready")["reason"], missing);
    let event = api.until("the Event", |api| api.list("events").into_iter().next()).await;
    assert_eq!(
        (&event["reason"], &event["involvedObject"]["uid"]),
        (&json!("AgentNotReady"), &json!("own")),
        "{event}"
    );
    assert_eq!(event["message"], format!("the agent is not ready: {missing}"));
    // A new reason must be logged at once, without another Event.
    std::fs::write(node.path("net/10-net.conflist"), "{").unwrap();
    let log = until("a line with the new reason", || {
        let log = daemon.log_text();
        let mut reasons = log.lines().filter(|line| line.contains("the agent is not ready"));
        reasons.nth(1).map(str::to_owned).ok_or(log.clone())
    });
    assert!(log.contains("10-net.conflist"), "{log}");
    node.remove_entry();
    daemon.ready();
    daemon.line("the agent is ready");
    assert_eq!(api.list("events").len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_port_in_use_is_reported_until_it_is_free() {
    let api = cluster().await;
    let node = Node::new();
    let taken = std::net::TcpListener::bind(("::", port::free())).unwrap();
    let port = taken.local_addr().unwrap().port();
    let daemon = Daemon::with_ports([free_ports()[0], port], &node, &api.url(), &[]);
    daemon.readyz(503, &format!("metrics: cannot listen on port {port}"));
    drop(taken);
    daemon.ready();
    assert_eq!(daemon.get("/metrics").0, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_startup_taint_is_removed_once_pods_can_start() {
    let api = cluster().await;
    let ours = json!({ "key": "cni.istio.io/not-ready", "effect": "NoSchedule" });
    let other = json!({ "key": "gpu", "effect": "NoSchedule" });
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" }, "spec": { "taints": [ours, other] } }));
    let node = Node::new();
    std::fs::remove_file(node.path("net/10-net.conflist")).unwrap();
    let daemon = Daemon::with_variables(&node, &api.url(), &[("STARTUP_TAINT", "cni.istio.io/not-ready")]);
    until("all but the installation", || match daemon.get("/readyz") {
        (503, text) if text.starts_with("install: ") && text.lines().count() == 1 => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // The agent holds the lookup of an unknown pod for a second. It must not change the Node object in this time.
    assert_eq!(node.request("none", "").0, 404);
    assert_eq!(api.requests_to("PATCH", "/nodes/n1").len(), 0);
    let taints = |api: &Api| api.get("nodes", "", "n1").unwrap()["spec"]["taints"].clone();
    assert_eq!(taints(&api), json!([ours, other]));
    // The first patch fails with 409, as if another client had changed the taints after the agent read them. The agent sends a second
    // patch, which keeps the other taint.
    api.fault(Fault::on("PATCH", "/nodes/n1").status(409).times(1));
    node.remove_entry();
    api.until("the taint's end", |api| (taints(api) == json!([other])).then_some(())).await;
    let requests = api.requests_to("PATCH", "/nodes/n1");
    assert!(requests.iter().all(|seen| seen.content_type == "application/json-patch+json"), "{requests:?}");
    assert_eq!(requests.len(), 2, "{requests:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_removal_of_the_taint_is_retried_with_a_growing_backoff() {
    let api = cluster().await;
    let ours = json!({ "key": "cni.istio.io/not-ready", "effect": "NoSchedule" });
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" }, "spec": { "taints": [ours] } }));
    api.fault(Fault::on("PATCH", "/nodes/n1").status(403));
    let node = Node::new();
    let _daemon = Daemon::with_variables(&node, &api.url(), &[("STARTUP_TAINT", "cni.istio.io/not-ready")]);
    let attempts = |api: &Api| api.requests_to("PATCH", "/nodes/n1");
    let four = api.until("four attempts", |api| Some(attempts(api)).filter(|seen| seen.len() >= 4)).await;
    let pauses: Vec<_> = four.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
    assert!(pauses[1].as_secs() >= 2 && pauses[2].as_secs() >= 4, "{pauses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hanging_installer_fails_healthz_and_does_not_prevent_shutdown() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    // Opening a named pipe blocks until another process opens it for writing, as a read blocks on an unavailable file
    // server.
    nix::unistd::mkfifo(&node.path("account/next"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    std::fs::rename(node.path("account/next"), node.path("account/token")).unwrap();
    until("a failure of /healthz", || match daemon.get("/healthz") {
        (200, text) => Err(text),
        _ => Ok(()),
    });
    let (status, log) = daemon.get("/healthz");
    assert!(status == 503 && log.starts_with("installer: late by "), "{status} {log}");
    assert_eq!(node.request("none", "").0, 404, "lookups are served meanwhile");
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("has not ended within"), "{log}");
}

/// Other processes of root may have used up all inotify instances. The agent must then check the installation each second and retry
/// inotify.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_inotify_the_installation_is_checked_each_second_and_inotify_is_retried() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::with_inotify(&node, &api.url(), 0);
    daemon.ready();
    let watched = |value: u8| {
        until("the gauge", || match daemon.get("/metrics").1 {
            page if page.lines().any(|line| line == format!("istio_cni_install_watched {value}")) => Ok(()),
            page => Err(page),
        });
    };
    watched(0);
    daemon.line("no directory can be watched: ");
    // A daemon that waits for an event makes its next pass after half a minute. Five passes would then take at least two minutes, because
    // only the first one may already be due.
    let begin = std::time::Instant::now();
    for _ in 0..5 {
        node.remove_entry();
        until("the entry", || match node.installed() {
            all if all.len() == 5 => Ok(()),
            some => Err(format!("{some:?}")),
        });
    }
    assert!(begin.elapsed() < std::time::Duration::from_secs(100), "{:?}", begin.elapsed());
    daemon.allow_inotify(10);
    watched(1);
    daemon.line("all directories are watched");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_cannot_read_the_daemon_set_is_reported_at_the_start() {
    let api = cluster().await;
    api.fault(Fault::on("GET", "/daemonsets/").status(403));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    let line = daemon.line("if this daemon ended now, the plugin would be kept");
    assert!(line["msg"].as_str().unwrap().contains("may not be read (status 403)"), "{line}");
    assert_eq!((line["level"].as_str(), line["scope"].as_str()), (Some("warn"), Some("cni-agent")));
    daemon.ready();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_api_servers_name_is_resolved_for_the_plugin() {
    let api = cluster().await;
    let node = Node::new();
    let named = Daemon::with_variables(&node, &api.url(), &[("KUBERNETES_SERVICE_HOST", "localhost")]);
    named.ready();
    let text = std::fs::read_to_string(node.path("run/istio-cni-kubeconfig")).unwrap();
    let server = text.lines().find_map(|line| line.trim().strip_prefix("server: https://")).unwrap();
    let server: std::net::SocketAddr = server.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(server.ip().is_loopback() && text.contains("    tls-server-name: localhost\n"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_api_servers_address_the_agent_is_not_ready() {
    let api = cluster().await;
    let node = Node::new();
    let lost = Daemon::with_variables(&node, &api.url(), &[("KUBERNETES_SERVICE_HOST", "unknown.invalid")]);
    lost.readyz(503, "name unknown.invalid (KUBERNETES_SERVICE_HOST) cannot be resolved");
    lost.line("the API server's name unknown.invalid (KUBERNETES_SERVICE_HOST) cannot be resolved");
    assert_eq!(node.installed(), ["agent.sock", "log.sock"], "the next pass does not assume an earlier installation");
    let conf = std::fs::read_to_string(node.path("net/10-net.conflist")).unwrap();
    assert_eq!(conf.trim(), test_support::daemon::LIST.trim(), "no chain names a plugin that has no kubeconfig");
}

/// After a reboot the run directory is empty while the node's pods start, so the chain entry must not wait for the kubeconfig.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_entry_is_restored_while_the_kubeconfig_is_awaited() {
    let api = cluster().await;
    let node = Node::new();
    std::fs::copy(node.path("image/istio-cni"), node.path("bin/istio-cni")).unwrap();
    let rebooted = Daemon::with_variables(&node, &api.url(), &[("KUBERNETES_SERVICE_HOST", "unknown.invalid")]);
    until("the entry", || match node.installed() {
        some if some == ["chain entry", "plugin", "agent.sock", "log.sock"] => Ok(()),
        some => Err(format!("{some:?} {}", rebooted.log_text())),
    });
    rebooted.readyz(503, "name unknown.invalid (KUBERNETES_SERVICE_HOST)");
}

fn uninstall(node: &Node) -> Output {
    let mut command = Command::new(under_test("install-cni"));
    command.env_clear().arg("uninstall").args(directories(node)).output().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uninstall_is_refused_while_an_agent_runs() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let refused = uninstall(&node);
    let log = String::from_utf8_lossy(&refused.stdout);
    assert_eq!(refused.status.code(), Some(1), "{log}");
    assert!(log.contains("would restore the installation"), "{log}");
    assert_eq!(node.installed().len(), 5);
    // Kills the agent, which therefore removes no files.
    drop(daemon);
    let removed = uninstall(&node);
    assert_eq!(removed.status.code(), Some(0), "{}", String::from_utf8_lossy(&removed.stdout));
    assert_eq!(node.installed(), Vec::<&str>::new());
    assert_eq!(
        std::fs::read_to_string(node.path("net/10-net.conflist")).unwrap().trim(),
        test_support::daemon::LIST.trim()
    );
}

#[test]
fn invalid_flags_end_the_daemon_with_the_reason() {
    for (variables, reason) in [
        (vec![], "KUBERNETES_SERVICE_HOST is not set"),
        (
            vec![("KUBERNETES_SERVICE_HOST", "::1"), ("KUBERNETES_SERVICE_PORT", "443")],
            "set NODE_NAME from spec.nodeName",
        ),
    ] {
        let mut command = Command::new(under_test("install-cni"));
        let output = command.env_clear().envs(variables).output().unwrap();
        let log = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(1), "{log}");
        assert!(log.contains(reason), "{log}");
    }
}
