//! `istio-cni-repair` as a process: its variables, its memory in a storm, its end.

use std::fs::File;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::api::{Api, kubeconfig};
use crate::stage::broken;

/// A running program; it ends with the value.
struct Program {
    child: Child,
    /// Its kubeconfig and its log.
    dir: TempDir,
}

impl Program {
    fn start(url: &str, variables: &[(&str, &str)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config");
        kubeconfig(&path, url);
        let mut command = Command::new(env!("CARGO_BIN_EXE_istio-cni-repair"));
        command.env_clear().env("KUBECONFIG", &path).envs(variables.iter().copied());
        let child = command.stderr(File::create(dir.path().join("log")).unwrap()).spawn().unwrap();
        Self { child, dir }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap()
    }

    /// The most memory that it has had, in KiB.
    fn peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Exit code and what it has said.
    fn end(mut self) -> (Option<i32>, String) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGTERM);
        (self.child.wait().unwrap().code(), self.log())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_storm_of_heavy_pods_leaves_it_small_and_its_end_is_orderly() {
    const PODS: usize = 500;
    const WEIGHT: usize = 100_000;
    let api = Api::start().await;
    let program = Program::start(&api.url(), &[("REPAIR_NODE_NAME", "n1"), ("REPAIR_BUDGET", "10")]);
    api.until("a watch", |api| (api.watches("pods") == 1).then_some(())).await;
    let calm = program.peak();
    for n in 0..PODS {
        let mut pod = broken(&format!("web-{n}"), 1);
        pod["metadata"]["annotations"]["heavy"] = "x".repeat(WEIGHT).into();
        api.put(pod);
    }
    api.until("the budget", |api| (api.requests_to("POST", "/eviction").len() == 10).then_some(())).await;
    api.put(broken("last", 1));
    api.until("the last pod", |_| program.log().contains("shop/last").then_some(())).await;
    let grown = program.peak() - calm;
    let sent = (PODS * WEIGHT / 1024) as u64;
    assert!(grown < sent / 4, "{grown} KiB more than before, of {sent} KiB that were sent");
    let (code, said) = program.end();
    assert_eq!(code, Some(0), "{said}");
}

#[tokio::test]
async fn what_cannot_be_followed_ends_it_with_the_reason() {
    for (variables, reason) in [
        (vec![("REPAIR_MODE", "mend")], "--repair-mode mend: allowed are evict"),
        (vec![("REPAIR_REPAIR_PODS", "true")], "mode repair needs the node"),
    ] {
        let mut program = Program::start("http://127.0.0.1:1", &variables);
        assert_eq!(program.child.wait().unwrap().code(), Some(1));
        let (_, said) = program.end();
        assert!(said.contains(reason), "{said}");
    }
}
