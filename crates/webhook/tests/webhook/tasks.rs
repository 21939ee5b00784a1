//! Tests of failing tasks: a program with debug assertions panics in the task that `PANIC_TASK` names.

use std::collections::BTreeSet;
use std::path::Path;

use crate::program::Program;
use crate::stage::get;
use test_support::DEADLINE;
use test_support::api::Api;

/// The tasks of a program with Istio's and Dapr's injection.
const TASKS: [&str; 8] =
    ["Dapr mesh", "Dapr watchdog", "caBundles", "callers", "certificates", "cluster state", "configuration", "events"];

/// Tasks whose failure fails no probe.
const AUXILIARY: [&str; 2] = ["Dapr watchdog", "events"];

/// The program of the dev profile, which has debug assertions.
const PROGRAM: &str = env!("CARGO_BIN_EXE_sidecar-injector");

/// Waits until the monitoring port's response has all of `wanted`.
async fn until(program: &Program, path: &str, wanted: &[&str]) {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let page = get(program.monitoring, path).await.unwrap_or_default();
        if wanted.iter().all(|wanted| page.contains(wanted)) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "no {wanted:?} at {path}: {page}\n{}", program.log());
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn start(api: &Api, anchors: &Path, panicking: &str) -> Program {
    Program::with_both_injections(Path::new(PROGRAM), api, anchors, &[("PANIC_TASK", panicking)])
}

fn sample(task: &str, failures: u32) -> String {
    format!("sidecar_injection_task_failures_total{{task=\"{task}\"}} {failures}\n")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_task_is_supervised() {
    let (api, anchors) = (Api::start().await, tempfile::NamedTempFile::new().unwrap());
    let mut program = start(&api, anchors.path(), "");
    program.until_ready().await;
    let page = get(program.monitoring, "/metrics").await.unwrap();
    let tasks = page.lines().filter_map(|line| line.strip_prefix("sidecar_injection_task_failures_total{task=\""));
    let tasks: BTreeSet<&str> = tasks.map(|line| line.split('"').next().unwrap()).collect();
    assert_eq!(tasks, BTreeSet::from(TASKS));
    for task in TASKS {
        assert!(page.contains(&sample(task, 0)), "{task}: {page}");
    }
}

/// The panic is logged as one line, the failure with the task's name. Both probes fail, so that reviews reach other replicas and the
/// kubelet restarts the program, unless the task is an auxiliary one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_of_any_task_fails_the_probes_and_is_logged_and_counted() {
    let (api, anchors) = (Api::start().await, tempfile::NamedTempFile::new().unwrap());
    for task in TASKS {
        let program = start(&api, anchors.path(), task);
        if AUXILIARY.contains(&task) {
            until(&program, "/metrics", &[&sample(task, 1)]).await;
            until(&program, "/healthz", &["200"]).await;
            until(&program, "/readyz", &["200"]).await;
        } else {
            let failed = format!("tasks: the task \"{task}\" has panicked (see the log)");
            until(&program, "/healthz", &["503", &failed]).await;
            until(&program, "/readyz", &["503", &failed]).await;
            until(&program, "/metrics", &[&sample(task, 1)]).await;
        }
        let (code, log) = program.end();
        assert_eq!(code, Some(0), "{task}: {log}");
        let panics = log.lines().filter(|line| line.contains("panic: PANIC_TASK names this task"));
        assert_eq!(panics.count(), 1, "{task}: {log}");
    }
}
