//! Tests of an agent whose directories are bind mounts, as hostPath volumes are, and are moved or removed on the node.

use std::fs;
use std::path::{Path, PathBuf};

use contract::REMOVED_MARKER;
use test_support::daemon::{Daemon, Node, cluster, until};

/// Waits until both probes fail and the installer's only reason is this directory.
#[track_caller]
fn until_replaced(daemon: &Daemon, mounted: &Path, change: &str) {
    let start = format!("{} is the mount of a directory that the node no longer has at its place: ", mounted.display());
    let is_reason = |line: &str| line.starts_with(&start) && line.contains(change) && line.matches("; ").count() == 1;
    until(&format!("{change} of {}", mounted.display()), || match (daemon.get("/healthz"), daemon.get("/readyz")) {
        ((503, live), (503, ready))
            if live.strip_prefix("mounts: ").is_some_and(is_reason)
                && ready.lines().next().and_then(|line| line.strip_prefix("install: ")).is_some_and(is_reason)
                // Readiness may also report that the sockets cannot be bound again in a removed run directory.
                && ready.lines().skip(1).all(|line| line.starts_with("sockets: ")) =>
        {
            Ok(())
        }
        other => Err(format!("{other:?}; log: {}", daemon.log_text())),
    });
}

fn names(dir: &Path) -> Vec<PathBuf> {
    let mut names: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    names
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "mounts directories, which requires root"]
async fn a_moved_directory_fails_both_probes_until_it_is_moved_back() {
    let api = cluster().await;
    for dir in ["net", "bin", "run"] {
        let node = Node::new();
        let daemon = Daemon::with_mounts(&node, &api.url());
        daemon.ready();
        let (place, old, mounted) = (node.path(dir), node.path("old"), node.path(&format!("mounted/{dir}")));
        fs::rename(&place, &old).unwrap();
        until_replaced(&daemon, &mounted, "was moved to ");
        // In a directory that is in place, the installer would restore these files at once.
        for name in ["10-net.conflist", "istio-cni", "istio-cni-kubeconfig"] {
            let _ = fs::remove_file(old.join(name));
        }
        let before = names(&old);
        fs::create_dir(&place).unwrap();
        fs::write(node.path("account/token"), "token-2").unwrap();
        until_replaced(&daemon, &mounted, "was moved to ");
        assert_eq!((names(&old), names(&place)), (before, Vec::new()), "{dir}");
        fs::remove_dir(&place).unwrap();
        fs::rename(&old, &place).unwrap();
        if dir == "net" {
            node.remove_entry();
        }
        daemon.ready();
        assert_eq!(daemon.get("/healthz"), (200, "ok\n".to_owned()), "{dir}");
        node.until_installed();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "mounts directories, which requires root"]
async fn a_removed_directory_fails_both_probes_and_a_removal_reports_it() {
    for dir in ["net", "bin", "run"] {
        let (api, node) = (cluster().await, Node::new());
        let daemon = Daemon::with_mounts(&node, &api.url());
        daemon.ready();
        // The agent restores files during the removal, which then fails because the directory is not empty.
        until("the removal", || fs::remove_dir_all(node.path(dir)).map_err(|error| error.to_string()));
        fs::create_dir(node.path(dir)).unwrap();
        until_replaced(&daemon, &node.path(&format!("mounted/{dir}")), "was removed");
        assert_eq!(names(&node.path(dir)), Vec::<PathBuf>::new(), "{dir}");
        api.remove("daemonsets", "istio-system", "istio-cni-node");
        let (code, log) = daemon.end();
        assert!(code == Some(1) && log.contains("not removed") && log.contains("was removed;"), "{code:?} {log}");
    }
}

/// If the cache, `/var/lib/cni`, is replaced, the agent cannot edit the chains of running pods. It must fail liveness, stay ready, and
/// leave a stub of the plugin on removal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "mounts directories, which requires root"]
async fn a_replaced_cache_fails_liveness_alone_and_a_removal_leaves_a_stub() {
    for change in ["was removed", "was moved to "] {
        let (api, node) = (cluster().await, Node::new());
        let daemon = Daemon::with_mounts(&node, &api.url());
        daemon.ready();
        let cache = node.path("cache");
        match change {
            "was removed" => fs::remove_dir_all(&cache).unwrap(),
            _ => fs::rename(&cache, node.path("old")).unwrap(),
        }
        fs::create_dir(&cache).unwrap();
        until("liveness", || match daemon.get("/healthz") {
            (503, live) if live.starts_with("cache: ") && live.contains(change) => Ok(()),
            other => Err(format!("{other:?}")),
        });
        node.remove_entry();
        daemon.ready();
        node.until_installed();
        api.remove("daemonsets", "istio-system", "istio-cni-node");
        let (code, log) = daemon.end();
        assert!(code == Some(0) && log.contains("stays as a stub") && log.contains(change), "{code:?} {log}");
        assert!(["istio-cni", REMOVED_MARKER].iter().all(|name| node.path("bin").join(name).exists()));
    }
}
