//! Tests of failing tasks: a program with debug assertions panics in the task that `PANIC_TASK` names.

use std::collections::BTreeSet;
use std::path::Path;

use crate::token;
use test_support::api::Api;
use test_support::daemon::{Daemon, Node, cluster, until};

/// The tasks of the agent, with all features that have one.
const TASKS: [&str; 16] = [
    "backend",
    "first list",
    "health port",
    "installer",
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

/// The panic is logged as one line, the failure with the task's name, and both probes fail, so that the kubelet restarts the agent. At
/// its end, it keeps the plugin as it would without the panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_any_task_fails_the_probes_and_is_logged_and_counted() {
    let api = api().await;
    for task in TASKS {
        let node = Node::new();
        let daemon = start(&node, &api, task);
        let failed = format!("tasks: the task \"{task}\" has panicked (see the log)");
        for (path, port) in [("/healthz", "health port"), ("/readyz", "health port")] {
            until(&format!("{task}: failure of {path}"), || match daemon.get(path) {
                (503, text) if text.contains(&failed) => Ok(()),
                // Nobody serves the probe, which the kubelet takes for a failure, too.
                (0, _) if task == port => Ok(()),
                (status, text) => Err(format!("{status} {text}\n{}", daemon.log_text())),
            });
        }
        let panic = daemon.line("panic: PANIC_TASK names this task");
        assert_eq!(panic["level"], "error", "{panic}");
        assert!(panic["place"].as_str().unwrap().contains("tasks.rs:"), "{panic}");
        assert_eq!(daemon.line("the process must be restarted")["task"], task);
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
