//! Tests of an agent that takes its directories from the container runtime's configuration, in a directory tree that stands for the node's
//! root, and of an agent whose given directories are compared with that configuration.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use report::node::Report;

use test_support::api::Api;
use test_support::daemon::{Daemon, LIST, Node, STANDBY, SUPERSEDED, cluster, until};

const CONTAINERD: &str = "etc/containerd/config.toml";
const CRIO: &str = "etc/crio/crio.conf.d/10-network.conf";

/// A node whose root is the directory `root`. There, a network directory has a network, and a plugin directory its plugin.
struct Host {
    node: Node,
}

impl Host {
    fn new(conf: &str, bin: &str) -> Self {
        let host = Self { node: Node::new() };
        host.network(conf, bin);
        host
    }

    fn network(&self, conf: &str, bin: &str) {
        self.write(&format!("{conf}/10-net.conflist"), LIST);
        self.write(&format!("{bin}/ptp"), "");
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.node.path("root").join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn link(&self, target: &str, link: &str) {
        let path = self.node.path("root").join(link);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        symlink(target, path).unwrap();
    }

    /// Writes a containerd configuration that names these directories.
    fn containerd(&self, conf: &str, bin: &str) {
        let text =
            format!("version = 2\n[plugins.'io.containerd.grpc.v1.cri'.cni]\nconf_dir = '{conf}'\nbin_dir = '{bin}'\n");
        self.write(CONTAINERD, &text);
    }

    fn root(&self) -> String {
        format!("--host-root={}", self.node.path("root").display())
    }

    /// Starts an agent that finds both directories.
    fn start(&self, api: &Api) -> Daemon {
        let auto = ["--mounted-cni-net-dir=auto", "--mounted-cni-bin-dir=auto", "--status-page"];
        Daemon::with_flags(&self.node, &api.url(), &[&auto.map(str::to_owned)[..], &[self.root()]].concat())
    }

    /// Returns whether the chain entry and the plugin are in these directories of the node.
    fn installed(&self, conf: &str, bin: &str) -> [bool; 2] {
        let root = self.node.path("root");
        let chain = fs::read_to_string(root.join(conf).join("10-net.conflist")).unwrap_or_default();
        [chain.contains("istio-cni"), root.join(bin).join("istio-cni").exists()]
    }
}

fn report(daemon: &Daemon) -> Report {
    let (status, body) = daemon.get("/status.json");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

/// Asserts that the agent's output names paths on the node, not paths below the mount of the node's root.
#[track_caller]
fn assert_paths_are_the_nodes(host: &Host, texts: &[String]) {
    let root = host.node.path("root").display().to_string();
    for text in texts {
        assert!(!text.contains(&root), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_directories_of_the_runtimes_configuration_are_used_and_named() {
    type Configure = fn(&Host);
    let cases: [(&str, &str, &str, Configure); 4] = [
        ("odd/net.d", "odd/bin", "/odd/net.d", |host| host.containerd("/odd/net.d", "/odd/bin")),
        ("crio/net.d", "crio/bin", "/crio/net.d", |host| {
            host.write("etc/crio/crio.conf", "[crio.network]\nnetwork_dir = '/x'\nplugin_dirs = ['/x']\n");
            host.write(
                CRIO,
                "[crio.network]\nnetwork_dir = '/crio/net.d'\nplugin_dirs = ['/crio/bin', '/opt/cni/bin']\n",
            );
        }),
        ("snap/7/net.d", "snap/7/bin", "/snap/7/net.d", |host| {
            host.link("7", "snap/current");
            host.link("/snap/current", "var/snap");
            host.containerd("/var/snap/net.d", "/var/snap/bin");
        }),
        ("etc/cni/net.d", "opt/cni/bin", "/etc/cni/net.d", |_| {}),
    ];
    for (conf, bin, named, configure) in cases {
        let (api, host) = (cluster().await, Host::new(conf, bin));
        configure(&host);
        let daemon = host.start(&api);
        daemon.ready();
        assert_eq!(host.installed(conf, bin), [true; 2], "{conf}");
        let status = report(&daemon);
        assert_eq!(status.chain, Some(format!("{named}/10-net.conflist")));
        assert_eq!(daemon.get("/healthz").0, 200);
        let log = daemon.log_text();
        assert!(log.contains("the container runtime's directory is used: /"), "{log}");
        assert_eq!(log.contains("no configuration of a runtime was found"), conf == "etc/cni/net.d", "{log}");
        api.remove("daemonsets", "istio-system", "istio-cni-node");
        let (code, log) = daemon.end();
        assert_eq!((code, host.installed(conf, bin)), (Some(0), [false; 2]), "{log}");
        assert_eq!(fs::read_to_string(host.node.path("root").join(conf).join("10-net.conflist")).unwrap(), LIST);
        assert_eq!(fs::read_dir(host.node.path("run")).unwrap().count(), 0, "{log}");
        assert_paths_are_the_nodes(&host, &[log, format!("{status:?}")]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_does_not_know_its_directories_is_not_ready_and_changes_nothing() {
    type Configure = fn(&Host);
    let cases: [(&str, Configure); 4] = [
        ("/a/net.d (containerd, /etc/containerd/config.toml); /b/net.d (CRI-O, ", |host| {
            host.containerd("/a/net.d", "/opt/cni/bin");
            host.write(CRIO, "[crio.network]\nnetwork_dir = '/b/net.d'\n");
        }),
        ("/etc/containerd/config.toml: invalid TOML", |host| host.write(CONTAINERD, "version = ")),
        ("cannot read /etc/containerd/config.toml: no regular file", |host| {
            host.write(&format!("{CONTAINERD}/directory"), "");
        }),
        ("cannot be reached: more than 40 links; set cniBinDir", |host| {
            host.link("loop", "loop");
            host.containerd("/etc/cni/net.d", "/loop/bin");
        }),
    ];
    for (reason, configure) in cases {
        let (api, host) = (cluster().await, Host::new("etc/cni/net.d", "opt/cni/bin"));
        configure(&host);
        let daemon = host.start(&api);
        daemon.readyz(503, reason);
        until("the reason alone", || match daemon.get("/readyz") {
            (503, text) if text.lines().count() == 1 && text.contains("set cni") => Ok(()),
            (status, text) => Err(format!("{status} {text}")),
        });
        assert_eq!(daemon.get("/healthz"), (200, "ok\n".to_owned()), "a restart would not help");
        assert_eq!(host.installed("etc/cni/net.d", "opt/cni/bin"), [false; 2], "{reason}");
        api.remove("daemonsets", "istio-system", "istio-cni-node");
        let (code, log) = daemon.end();
        assert!(code == Some(1) && log.contains("not removed") && log.contains(reason), "{code:?} {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_configuration_fails_both_probes_and_the_next_agent_works_in_its_directories() {
    let (api, host) = (cluster().await, Host::new("old/net.d", "old/bin"));
    host.containerd("/old/net.d", "/old/bin");
    host.network("new/net.d", "new/bin");
    let daemon = host.start(&api);
    daemon.ready();
    // An incomplete file, as during a write, does not fail liveness.
    host.write(CONTAINERD, "version = ");
    daemon.readyz(503, "/etc/containerd/config.toml: invalid TOML");
    assert_eq!(daemon.get("/healthz").0, 200);
    host.containerd("/new/net.d", "/new/bin");
    daemon.readyz(
        503,
        "the runtime's directories have changed: /new/net.d (containerd, /etc/containerd/config.toml), /new/bin (",
    );
    until("a failure of /healthz", || match daemon.get("/healthz") {
        (503, text) if text.starts_with("runtime: the runtime's directories have changed") => Ok(()),
        other => Err(format!("{other:?}")),
    });
    // The agent still restores the entry in the former directory, which the runtime may still read.
    host.write("old/net.d/10-net.conflist", LIST);
    until("the former chain's entry", || match host.installed("old/net.d", "old/bin") {
        [true, true] => Ok(()),
        some => Err(format!("{some:?}")),
    });
    assert_eq!(host.installed("new/net.d", "new/bin"), [false; 2]);
    let (code, log) = daemon.end();
    assert_eq!(code, Some(0), "{log}");
    let next = host.start(&api);
    next.ready();
    assert_eq!(host.installed("new/net.d", "new/bin"), [true; 2]);
    assert_eq!(host.installed("old/net.d", "old/bin"), [true; 2], "pods of a runtime that was not restarted need it");
    api.remove("daemonsets", "istio-system", "istio-cni-node");
    let (code, log) = next.end();
    assert_eq!((code, host.installed("new/net.d", "new/bin")), (Some(0), [false; 2]), "{log}");
    // The record of installations names the former directories.
    assert!(log.contains("an agent has chained the plugin in /old/bin into /old/net.d"), "{log}");
    assert!(host.node.path("run/istio-cni-kubeconfig").exists(), "{log}");
    assert_paths_are_the_nodes(&host, &[log]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_link_that_leads_elsewhere_fails_both_probes() {
    let (api, host) = (cluster().await, Host::new("snap/7/net.d", "snap/7/bin"));
    host.network("snap/8/net.d", "snap/8/bin");
    host.link("7", "snap/current");
    host.containerd("/snap/current/net.d", "/snap/current/bin");
    let daemon = host.start(&api);
    daemon.ready();
    host.link("8", "snap/current");
    daemon.readyz(503, "the runtime's directories have changed");
    assert_eq!(daemon.get("/healthz").0, 503);
    host.link("7", "snap/current");
    daemon.ready();
    assert_eq!(daemon.get("/healthz").0, 200);
}

/// In a rolling update from given directories to `auto`, a successor must not take over while it cannot read the runtime's configuration,
/// and must take over if it finds the same directories.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_successor_takes_over_once_it_knows_the_directories() {
    let (api, host) = (cluster().await, Host::new("odd/net.d", "odd/bin"));
    let given = |flag: &str, dir: &str| format!("--mounted-cni-{flag}-dir={}", host.node.path(dir).display());
    let old =
        Daemon::with_flags(&host.node, &api.url(), &[given("net", "root/odd/net.d"), given("bin", "root/odd/bin")]);
    old.ready();
    host.write(CONTAINERD, "version = ");
    let lost = host.start(&api);
    lost.readyz(503, "/etc/containerd/config.toml: invalid TOML");
    lost.readyz(503, "takeover: another agent serves this node");
    let (code, log) = lost.end();
    assert!(code == Some(0) && log.contains(SUPERSEDED), "{code:?} {log}");
    host.containerd("/odd/net.d", "/odd/bin");
    let new = host.start(&api);
    new.ready();
    old.line(STANDBY);
    old.end_superseded();
    assert_eq!(host.installed("odd/net.d", "odd/bin"), [true; 2]);
    new.ready();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn given_directories_that_the_runtime_does_not_read_are_named_once_and_used() {
    let (api, host) = (cluster().await, Host::new("unused", "unused"));
    let on_node = ["--host-cni-net-dir=/etc/cni/net.d", "--host-cni-bin-dir=/opt/cni/bin", "--status-page"];
    let flags = [&on_node.map(str::to_owned)[..], &[host.root()]].concat();
    host.containerd("/odd/net.d", "/opt/cni/bin");
    let daemon = Daemon::with_flags(&host.node, &api.url(), &flags);
    daemon.ready();
    host.node.until_installed();
    let expected = "containerd reads /odd/net.d (/etc/containerd/config.toml) and runs plugins of /opt/cni/bin \
                    (/etc/containerd/config.toml); given: /etc/cni/net.d and /opt/cni/bin: if that runtime starts the pods, they are \
                    not redirected; set cniConfDir to /odd/net.d";
    daemon.line(expected);
    // Each removal causes another pass, which must not log the warning again.
    for _ in 0..3 {
        host.node.remove_entry();
        host.node.until_installed();
    }
    assert_eq!(daemon.log_text().matches(expected).count(), 1, "{}", daemon.log_text());
    let warned = |daemon: &Daemon| report(daemon).warnings;
    assert_eq!(warned(&daemon), [expected]);
    assert!(daemon.get("/status").1.contains("set cniConfDir to /odd/net.d"));
    host.containerd("/etc/cni/net.d", "/opt/cni/bin");
    host.node.remove_entry();
    until("no warning", || match warned(&daemon) {
        none if none.is_empty() => Ok(()),
        some => Err(format!("{some:?}")),
    });
    daemon.ready();
    assert!(Path::new(&host.node.path("bin/istio-cni")).exists());
}
