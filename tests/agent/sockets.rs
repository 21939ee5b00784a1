//! Tests of the agent's sockets: responses, permissions and limits.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};

use test_support::DEADLINE;
use test_support::api::Fault;
use test_support::daemon::{Daemon, Node, cluster, exchange_on, pod, read_response, until};
use test_support::plugin;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_is_answered_by_200_404_or_before_the_list_503() {
    let api = cluster().await;
    api.put(pod("web", "u1"));
    let mut elsewhere = pod("far", "u2");
    elsewhere["spec"]["nodeName"] = "n2".into();
    api.put(elsewhere);
    api.fault(Fault::on("GET", "/pods").status(503));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.readyz(503, "agent: ");
    assert_eq!(node.request("web", "u1"), (503, "the node's pods have not been listed yet\n".to_owned()));
    api.heal();
    daemon.ready();
    let (status, facts) = node.request("web", "u1");
    let facts: Value = serde_json::from_str(&facts).unwrap();
    assert_eq!((status, &facts["uid"], &facts["proxy"]["proxyType"]), (200, &json!("u1"), &json!("sidecar")));
    for unknown in ["db", "far"] {
        assert_eq!(node.request(unknown, ""), (404, "no such pod on this node\n".to_owned()), "{unknown}");
    }
    // The response has the UID of the pod in the agent's cache. By this UID the plugin detects that the cached pod is another pod with the
    // same name.
    let (status, namesake) = node.request("web", "u9");
    assert!(status == 200 && namesake.contains("\"uid\":\"u1\""), "{status} {namesake}");
    let socket = node.path("run/agent.sock");
    for (request, status) in [("GET /pod?name=web", 400), ("POST /pod?namespace=a&name=b", 405), ("GET /pods", 404)] {
        assert_eq!(exchange_on(&socket, request, "").0, status, "{request}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_waits_for_a_pod_that_the_watch_delivers_late() {
    let api = cluster().await;
    api.put(pod("web", "u1"));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    // The agent holds the lookup of an unknown pod for a second. If the machine stalls for as long, the test repeats
    // with another pod.
    let mut late = (0..30).map(|number| format!("late-{number}"));
    until("the late pod", || {
        let name = late.next().ok_or("no further name")?;
        let mut client = UnixStream::connect(node.path("run/agent.sock")).unwrap();
        let request =
            format!("GET /pod?namespace=shop&name={name}&uid=u1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        // The agent accepts connections in order. Once it has answered these lookups, it has also accepted the first
        // connection, whose lookup waits.
        for _ in 0..3 {
            assert_eq!(node.request("web", "u1").0, 200);
        }
        api.put(pod(&name, "u1"));
        match read_response(&mut client) {
            (200, facts) if facts.contains("\"uid\":\"u1\"") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let page = daemon.get("/metrics").1;
    assert!(page.contains("istio_cni_agent_lookups_total{result=\"waited\"} 1"), "{page}");
    let begin = Instant::now();
    assert_eq!(node.request("never", "").0, 404);
    assert!(begin.elapsed() > Duration::from_millis(900), "{:?}", begin.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_are_accessible_to_root_only() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    for (path, mode) in [("run/agent.sock", 0o600), ("run/log.sock", 0o600), ("run", 0o750)] {
        let found = std::fs::metadata(node.path(path)).unwrap().permissions().mode() & 0o7777;
        assert_eq!(found, mode, "{path}: {found:o}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn removed_sockets_are_restored() {
    let api = cluster().await;
    api.put(pod("web", "u1"));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let responds = || match (node.request("web", "u1"), node.installed()) {
        ((200, _), all) if all.len() == 5 => Ok(()),
        other => Err(format!("{other:?}")),
    };
    std::fs::remove_file(node.path("run/log.sock")).unwrap();
    until("one socket", responds);
    std::fs::rename(node.path("run"), node.path("gone")).unwrap();
    until("sockets and kubeconfig", responds);
    let mode = |path: &str| std::fs::metadata(node.path(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("run"), mode("run/agent.sock")), (0o750, 0o600));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_skip_of_the_real_plugin_is_logged_with_pod_and_reason() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let without_sidecar = json!({ "runtimeConfig": { "io.kubernetes.cri.pod-annotations": { "a": "b" } } });
    let conf = plugin::conf("1.0.0", &node.path("run"), &without_sidecar);
    let response = plugin::Call::new("ADD", "/var/run/netns/none", conf).run();
    assert_eq!(response.code, 0, "{response:?}");
    let line = daemon.line("no_sidecar_status");
    let fields = ["scope", "cmd", "pod", "verdict", "reason"].map(|key| line[key].as_str().unwrap_or_default());
    assert_eq!(fields, ["cni-plugin", "ADD", "shop/web-0", "skipped", "no_sidecar_status"], "{line}");
    let counted = "istio_cni_plugin_add_duration_seconds_count{verdict=\"skipped\",reason=\"no_sidecar_status\"} 1";
    let page = daemon.get("/metrics").1;
    assert!(page.contains(counted), "{page}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_large_and_too_slow_requests_do_not_affect_others() {
    let api = cluster().await;
    api.put(pod("web", "u1"));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let (agent, log) = (node.path("run/agent.sock"), node.path("run/log.sock"));
    // One peer never ends the head of its request, the other never sends the announced body.
    let mut slow = [(); 2].map(|()| UnixStream::connect(&agent).unwrap());
    slow[0].write_all(b"GET /pod?namespace=shop").unwrap();
    slow[1].write_all(b"GET /pod?namespace=shop&name=web HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n").unwrap();
    assert_eq!(exchange_on(&agent, &format!("GET /{}", "x".repeat(20_000)), "").0, 431);
    assert_eq!(exchange_on(&agent, "GET /pod?namespace=shop&name=web", &"x".repeat(2_000)).0, 413);
    assert_eq!(exchange_on(&log, "POST /log", &"x".repeat(2_000_000)).0, 413);
    assert_eq!(node.request("web", "u1").0, 200);
    let statuses = slow.map(|mut stream| {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        read_response(&mut stream).0
    });
    assert!(matches!(statuses, [0 | 408, 408]), "{statuses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_plugins_lines_are_logged_and_its_adds_are_measured() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let line = json!({
        "level": "info", "time": "2025-05-05T05:05:05.500000Z", "scope": "cni-plugin", "msg": "pod is passed through",
        "cmd": "ADD", "pod": "shop/web-0", "verdict": "skipped", "reason": "no_sidecar_status", "elapsed_us": 1500,
    });
    let forged = json!({ "level": "info", "msg": "forged\n{\"level\":\"error\",\"msg\":\"fake\"}" });
    assert_eq!(node.log(&[line, forged]), 200);
    let relayed = daemon.line("pod is passed through");
    let expected = json!({
        "level": "info", "time": "2025-05-05T05:05:05.500000Z", "scope": "cni-plugin", "msg": "pod is passed through",
        "cmd": "ADD", "pod": "shop/web-0", "verdict": "skipped", "reason": "no_sidecar_status", "elapsed_us": 1500,
    });
    assert_eq!(relayed, expected);
    assert_eq!(daemon.line("forged")["msg"], "forged\n{\"level\":\"error\",\"msg\":\"fake\"}");
    until("the measurement", || {
        let page = daemon.get("/metrics").1;
        let labels = "verdict=\"skipped\",reason=\"no_sidecar_status\"";
        let wanted = [
            format!("istio_cni_plugin_add_duration_seconds_bucket{{le=\"0.001\",{labels}}} 0"),
            format!("istio_cni_plugin_add_duration_seconds_bucket{{le=\"0.002\",{labels}}} 1"),
            format!("istio_cni_plugin_add_duration_seconds_count{{{labels}}} 1"),
        ];
        if wanted.iter().all(|line| page.lines().any(|found| found == line)) { Ok(()) } else { Err(page) }
    });
    let socket = node.path("run/log.sock");
    assert_eq!(exchange_on(&socket, "POST /log", "{}").0, 400);
    assert_eq!(exchange_on(&socket, "GET /log", "").0, 404);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn if_log_sock_cannot_be_bound_agent_sock_is_not_replaced() {
    let api = cluster().await;
    api.put(pod("web", "u1"));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let log = node.path("run/log.sock");
    // Puts another program's directory in place of the socket. Several attempts may be needed, because the agent may
    // restore its socket between the removal and the rename.
    std::fs::create_dir(node.path("run/other")).unwrap();
    until("the directory in place of the socket", || {
        let _ = std::fs::remove_file(&log);
        std::fs::rename(node.path("run/other"), &log).map_err(|error| error.to_string())
    });
    daemon.line("the plugin cannot reach the agent; trying again");
    assert_eq!(node.request("web", "u1").0, 200, "{}", daemon.log_text());
    std::fs::remove_dir(&log).unwrap();
    until("the log's socket", || match node.log(&[json!({ "level": "info", "msg": "again" })]) {
        200 => Ok(()),
        other => Err(other.to_string()),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_sockets_are_closed() {
    let api = cluster().await;
    api.put(pod("web", "u1"));
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    let listeners = || {
        let table = std::fs::read_to_string(daemon.process().join("net/unix")).unwrap();
        let inodes: Vec<String> = std::fs::read_dir(daemon.process().join("fd"))
            .unwrap()
            .filter_map(|file| std::fs::read_link(file.unwrap().path()).ok()?.to_str().map(str::to_owned))
            .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
            .collect();
        // The table's columns are number, references, protocol, flags (listening: 00010000), type, state, inode and
        // path.
        let rows = table.lines().map(|row| row.split_whitespace().collect::<Vec<_>>());
        rows.filter(|row| row[3] == "00010000" && inodes.iter().any(|inode| inode == row[6])).count()
    };
    assert_eq!(listeners(), 2);
    for _ in 0..3 {
        std::fs::remove_file(node.path("run/agent.sock")).unwrap();
        until("the agent's socket", || match node.request("web", "u1") {
            (200, _) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    until("two listeners", || match listeners() {
        2 => Ok(()),
        more => Err(more.to_string()),
    });
}

/// After a reboot, other programs may have used up the inodes of the new file system at the run directory. The agent must restore the entry
/// nevertheless.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "mounts a file system, which requires root"]
async fn an_agent_that_cannot_bind_its_sockets_restores_the_entry() {
    let api = cluster().await;
    let node = Node::new();
    Daemon::start(&node, &api.url()).ready();
    let run = RunDir::without_inodes(&node);
    node.remove_entry();
    let begin = Instant::now();
    let daemon = Daemon::start(&node, &api.url());
    daemon.readyz(503, "sockets: cannot listen on ");
    until("the entry", || match node.installed() {
        some if some == ["chain entry", "plugin"] => Ok(()),
        other => Err(format!("{other:?} {}", daemon.log_text())),
    });
    // Each attempt to bind the sockets changes the directory. This change must not cause the next attempt.
    let tried = || daemon.log_text().matches("the plugin cannot reach the agent").count() as u64;
    until("further attempts", || if tried() > 2 { Ok(()) } else { Err(format!("{} attempts", tried())) });
    let (tried, most) = (tried(), begin.elapsed().as_secs() + 2);
    assert!(tried <= most, "{tried} attempts where one a second makes {most}");
    run.free_inodes();
    daemon.ready();
    node.until_installed();
}

/// A run directory without free inodes.
struct RunDir(PathBuf);

impl RunDir {
    fn without_inodes(node: &Node) -> Self {
        let path = node.path("run");
        mount(Some("tmpfs"), &path, Some("tmpfs"), MsFlags::empty(), Some("nr_inodes=1"))
            .unwrap_or_else(|error| panic!("cannot mount {}: {error}", path.display()));
        Self(path)
    }

    fn free_inodes(&self) {
        mount(None::<&str>, &self.0, None::<&str>, MsFlags::MS_REMOUNT, Some("nr_inodes=100")).unwrap();
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let _ = umount2(&self.0, MntFlags::MNT_DETACH);
    }
}
