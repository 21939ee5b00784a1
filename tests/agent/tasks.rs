//! Tests of failing tasks: a program with debug assertions panics in the task that `PANIC_TASK` names.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::json;

use crate::token;
use test_support::api::Api;
use test_support::daemon::{Daemon, Node, cluster, pod, until};

/// The tasks of the agent, with all features that have one.
const TASKS: [&str; 16] = [
    "backend",
    "first list",
    "health port",
    "installation",
    "monitoring port",
    "node readiness",
    "pods",
    "readiness",
    "removal warning",
    "repair",
    "resolver",
    "sandboxes",
    "sockets",
    "startup taint",
    "token",
    "unready report",
];

/// Tasks whose failure fails no probe.
const AUXILIARY: [&str; 4] = ["removal warning", "repair", "sandboxes", "unready report"];

/// The program of the dev profile, which has debug assertions.
const PROGRAM: &str = env!("CARGO_BIN_EXE_install-cni");

async fn api() -> Api {
    let api = cluster().await;
    api.put(token::account(3600));
    api
}

fn start(node: &Node, api: &Api, panicking: &str) -> Daemon {
    let features =
        [("STARTUP_TAINT", "cni.istio.io/not-ready"), ("KUBERNETES_SERVICE_HOST", "localhost"), token::VARIABLES[0]];
    let variables: Vec<_> = features.into_iter().chain([("PANIC_TASK", panicking)]).collect();
    Daemon::of_program(Path::new(PROGRAM), node, &api.url(), &variables)
}

fn sample(task: &str, failures: u32) -> String {
    format!("istio_cni_task_failures_total{{task=\"{task}\"}} {failures}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_task_is_supervised() {
    let (api, node) = (api().await, Node::new());
    let daemon = start(&node, &api, "");
    daemon.ready();
    let page = daemon.get("/metrics").1;
    let tasks = page.lines().filter_map(|line| line.strip_prefix("istio_cni_task_failures_total{task=\""));
    let tasks: BTreeSet<&str> = tasks.map(|line| line.split('"').next().unwrap()).collect();
    assert_eq!(tasks, BTreeSet::from(TASKS));
    for task in TASKS {
        assert!(page.contains(&sample(task, 0)), "{task}: {page}");
    }
}

/// The panic is logged as one line, the failure with the task's name. Both probes fail, so that the kubelet restarts the agent, unless the
/// task is an auxiliary one. At its end, the agent keeps the plugin as it would without the panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_any_task_fails_the_probes_and_is_logged_and_counted() {
    let api = api().await;
    for task in TASKS {
        let node = Node::new();
        let daemon = start(&node, &api, task);
        let failed = format!("tasks: the task \"{task}\" has panicked (see the log)");
        if AUXILIARY.contains(&task) {
            daemon.ready();
        }
        for (path, port) in [("/healthz", "health port"), ("/readyz", "health port")] {
            until(&format!("{task}: failure of {path}"), || match daemon.get(path) {
                (503, text) if text.contains(&failed) => Ok(()),
                (200, _) if AUXILIARY.contains(&task) => Ok(()),
                // Nobody serves the probe, which the kubelet takes for a failure, too.
                (0, _) if task == port => Ok(()),
                (status, text) => Err(format!("{status} {text}\n{}", daemon.log_text())),
            });
        }
        let panic = daemon.line("panic: PANIC_TASK names this task");
        assert_eq!(panic["level"], "error", "{panic}");
        assert!(panic["place"].as_str().unwrap().contains("tasks.rs:"), "{panic}");
        assert_eq!(daemon.line("a task has failed")["task"], task);
        if task != "monitoring port" {
            until(&format!("{task}: count"), || match daemon.get("/metrics").1 {
                page if page.contains(&sample(task, 1)) => Ok(()),
                page => Err(page),
            });
        }
        let (code, log) = daemon.end();
        assert_eq!(code, Some(0), "{task}: {log}");
        assert!(log.contains("kept: the DaemonSet selects this node"), "{task}: {log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_the_installers_thread_is_counted_and_the_thread_starts_again() {
    let (api, node) = (api().await, Node::new());
    let daemon = start(&node, &api, "installer");
    daemon.readyz(503, "the installer has failed; see the log");
    let failures = || {
        let page = daemon.get("/metrics").1;
        let sample = page.lines().find_map(|line| {
            line.strip_prefix("istio_cni_installs_total{result=\"INSTALLER_PANIC\"} ")?.parse::<u32>().ok()
        });
        sample.ok_or(page)
    };
    until("a second panic", || match failures()? {
        2.. => Ok(()),
        count => Err(format!("{count} panics")),
    });
}

/// The pod is not lost: another attempt follows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_of_repair_that_panics_is_repeated() {
    let (api, node) = (api().await, Node::new());
    let mut broken = pod("web", "u1");
    broken["status"]["initContainerStatuses"] =
        json!([{ "name": "istio-validation", "restartCount": 1, "state": { "terminated": { "exitCode": 126 } } }]);
    api.put(broken);
    let daemon = start(&node, &api, "repair action");
    until("a second attempt", || match daemon.get("/metrics").1 {
        page if page.contains("istio_cni_repair_pods_repaired_total{type=\"evict\",result=\"fail\"} 2\n") => Ok(()),
        page => Err(page),
    });
}
