//! Supervises the tasks of a daemon. A task that panics, or that ends although it must run until shutdown, is logged with its name and
//! counted. An essential task also makes the process neither ready nor live, so that the kubelet restarts it. An auxiliary task does not,
//! because an object in the cluster that makes it panic would take the essential tasks of all replicas down with it.
//!
//! The panic hook of [`Log::start`](super::log::Log::start) writes the panic itself to the log.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::health::{Liveness, Readiness};
use super::shutdown::Shutdown;

/// The part of [`Readiness`] and of [`Liveness`] that names the failed tasks.
const PART: &str = "tasks";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Task {
    task: &'static str,
}

/// What happens when a task ends before shutdown is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// It is done.
    Expected,
    /// It has failed.
    Failure,
}

/// Watches tasks; clones share the counter and the health of the process.
#[derive(Debug, Clone)]
pub struct Supervisor {
    readiness: Readiness,
    liveness: Liveness,
    failures: Family<Task, Counter>,
    /// The failures in their order: the first one can be the cause of the others.
    failed: Arc<Mutex<Vec<String>>>,
    is_essential: bool,
}

impl Supervisor {
    /// Registers the counter `task_failures`.
    pub fn new(registry: &mut Registry, readiness: Readiness, liveness: Liveness) -> Self {
        let failures = Family::default();
        registry.register("task_failures", "Tasks of the process that panicked or ended early", failures.clone());
        Self { readiness, liveness, failures, failed: Arc::default(), is_essential: true }
    }

    /// Creates one series: the encoded registry names the labels of a family only in its series.
    pub fn create_series(&self) {
        drop(self.failures.get_or_create(&Task { task: "" }));
    }

    pub fn readiness(&self) -> &Readiness {
        &self.readiness
    }

    pub fn liveness(&self) -> &Liveness {
        &self.liveness
    }

    /// Returns a supervisor of auxiliary tasks.
    pub fn auxiliary(&self) -> Self {
        Self { is_essential: false, ..self.clone() }
    }

    /// Runs a task that never ends, and drops it once shutdown is requested.
    pub fn run<T>(&self, name: &'static str, shutdown: &Shutdown, task: T) -> impl Future<Output = ()> + use<T>
    where
        T: Future<Output = ()>,
    {
        self.supervise(name, shutdown, End::Failure, until(shutdown.clone(), task))
    }

    /// Runs a task that may end, and drops it once shutdown is requested.
    pub fn run_once<T>(&self, name: &'static str, shutdown: &Shutdown, task: T) -> impl Future<Output = ()> + use<T>
    where
        T: Future<Output = ()>,
    {
        self.supervise(name, shutdown, End::Expected, until(shutdown.clone(), task))
    }

    /// Runs a task that ends by itself once shutdown is requested.
    pub fn run_to_end<T>(&self, name: &'static str, shutdown: &Shutdown, task: T) -> impl Future<Output = ()> + use<T>
    where
        T: Future<Output = ()>,
    {
        self.supervise(name, shutdown, End::Failure, task)
    }

    fn supervise<T>(
        &self,
        name: &'static str,
        shutdown: &Shutdown,
        end: End,
        task: T,
    ) -> impl Future<Output = ()> + use<T>
    where
        T: Future<Output = ()>,
    {
        let (supervisor, shutdown) = (self.clone(), shutdown.clone());
        // A rate needs a first sample, so the counter exists from the start.
        drop(self.failures.get_or_create(&Task { task: name }));
        async move {
            // State that the task left inconsistent is its own, or is not used for long, because the process restarts.
            let ended = AssertUnwindSafe(async {
                panic_if_requested(name);
                task.await;
            });
            match ended.catch_unwind().await {
                Err(_) => supervisor.failed(name, "has panicked (see the log)"),
                Ok(()) if end == End::Failure && !shutdown.is_requested() => supervisor.failed(name, "has ended"),
                Ok(()) => {}
            }
        }
    }

    fn failed(&self, name: &'static str, how: &str) {
        self.failures.get_or_create(&Task { task: name }).inc();
        if !self.is_essential {
            return tracing::error!(
                task = name,
                how,
                "a task has failed: it is missing until the process is restarted"
            );
        }
        tracing::error!(task = name, how, "a task has failed: the process must be restarted");
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.push(format!("the task {name:?} {how}"));
        self.readiness.missing(PART, failed.join(", "));
        self.liveness.failed(PART, failed.join(", "));
    }
}

async fn until(shutdown: Shutdown, task: impl Future<Output = ()>) {
    tokio::select! {
        () = shutdown.requested() => {}
        () = task => {}
    }
}

/// Panics if `PANIC_TASK` names the task, in a program with debug assertions. Shipped programs have no such code.
#[cfg(debug_assertions)]
#[expect(clippy::disallowed_methods, reason = "the variable reaches tasks that no test can reach otherwise")]
pub fn panic_if_requested(task: &str) {
    assert!(std::env::var("PANIC_TASK").as_deref() != Ok(task), "PANIC_TASK names this task");
}

#[cfg(not(debug_assertions))]
pub fn panic_if_requested(_: &str) {}

#[cfg(test)]
mod tests {
    use super::*;

    struct Process {
        supervisor: Supervisor,
        registry: Registry,
    }

    fn process() -> Process {
        let mut registry = Registry::default();
        let supervisor = Supervisor::new(&mut registry, Readiness::default(), Liveness::default());
        Process { supervisor, registry }
    }

    impl Process {
        /// Asserts that the task `x` has failed as often, and that the health says so.
        fn assert_failures(&self, failures: u32, why: Option<&str>) {
            let mut text = String::new();
            prometheus_client::encoding::text::encode(&mut text, &self.registry).unwrap();
            assert!(text.contains(&format!("task_failures_total{{task=\"x\"}} {failures}\n")), "{text}");
            let why = why.map(|why| format!("tasks: the task \"x\" {why}\n"));
            assert_eq!((self.supervisor.readiness.report(), self.supervisor.liveness.report()), (why.clone(), why));
        }
    }

    #[tokio::test]
    async fn a_panic_is_counted_and_ends_readiness_and_liveness() {
        let process = process();
        let (_trigger, shutdown) = Shutdown::new();
        process.supervisor.run_once("x", &shutdown, async { panic!("on purpose") }).await;
        process.assert_failures(1, Some("has panicked (see the log)"));
    }

    #[tokio::test]
    async fn an_auxiliary_task_that_fails_is_counted_only() {
        let process = process();
        let (_trigger, shutdown) = Shutdown::new();
        process.supervisor.auxiliary().run("x", &shutdown, async { panic!("on purpose") }).await;
        process.assert_failures(1, None);
    }

    #[tokio::test]
    async fn an_early_end_is_a_failure_unless_the_task_may_end() {
        let process = process();
        let (_trigger, shutdown) = Shutdown::new();
        process.supervisor.run_once("x", &shutdown, async {}).await;
        process.assert_failures(0, None);
        process.supervisor.run("x", &shutdown, async {}).await;
        process.supervisor.run_to_end("x", &shutdown, async {}).await;
        process.assert_failures(2, Some("has ended, the task \"x\" has ended"));
    }

    #[tokio::test]
    async fn a_task_that_ends_at_shutdown_has_not_failed() {
        let process = process();
        let (trigger, shutdown) = Shutdown::new();
        let endless = process.supervisor.run("x", &shutdown, std::future::pending());
        let graceful = process.supervisor.run_to_end("x", &shutdown, {
            let shutdown = shutdown.clone();
            async move { shutdown.requested().await }
        });
        trigger.trigger();
        tokio::join!(endless, graceful);
        process.assert_failures(0, None);
    }

    #[tokio::test]
    async fn a_panic_during_shutdown_is_a_failure() {
        let process = process();
        let (trigger, shutdown) = Shutdown::new();
        trigger.trigger();
        process.supervisor.run_to_end("x", &shutdown, async { panic!("on purpose") }).await;
        process.assert_failures(1, Some("has panicked (see the log)"));
    }
}
