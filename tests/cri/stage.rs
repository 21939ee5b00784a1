//! The node that the trials on a runtime share: started by the first of them, checked after each, stopped after the last.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use libtest_mimic::{Completion, Failed, Trial};

use test_support::outcome;
use test_support::runtime::engine::Engine;
use test_support::runtime::node::Node;
use test_support::runtime::programs::Programs;

/// A trial: its name and its body, which gets a node without pods.
pub(crate) type Case = (&'static str, fn(&Node) -> Result<()>);

/// A container runtime of the suite.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Runtime {
    Containerd,
    Containerd2,
    Crio,
}

impl Runtime {
    fn engine(self) -> Result<Engine, String> {
        match self {
            Self::Containerd => Ok(Engine::Containerd),
            Self::Containerd2 => Programs::containerd2().map(Engine::Containerd2),
            Self::Crio => Programs::crio(),
        }
    }

    /// Returns the name of a case's trial on this runtime.
    fn trial(self, case: &str) -> String {
        match self {
            Self::Containerd | Self::Containerd2 => case.to_owned(),
            Self::Crio => format!("crio_{case}"),
        }
    }
}

/// The running node.
#[derive(Default)]
pub(crate) struct Stage {
    node: Arc<Mutex<Option<Node>>>,
}

impl Stage {
    /// Returns the trial of a case on a runtime, which is ignored with the reason if a prerequisite is missing, unless
    /// `REQUIRE_TIERS` names `cri`.
    pub(crate) fn trial(&self, runtime: Runtime, (case, body): Case) -> Trial {
        let (node, name) = (self.node.clone(), runtime.trial(case));
        Trial::ignorable_test(name.clone(), move || {
            let programs = Programs::find(Some(env!("CARGO_BIN_EXE_install-cni")));
            let (programs, engine) = match programs.and_then(|programs| Ok((programs, runtime.engine()?))) {
                Ok(found) => found,
                Err(missing) if tier::required("cri") => {
                    return Err(format!("REQUIRE_TIERS names cri, but {missing}").into());
                }
                Err(missing) => return Ok(Completion::ignored_with(missing)),
            };
            let mut slot = node.lock().unwrap_or_else(PoisonError::into_inner);
            let Err(e) = started(&mut slot, &programs, engine).and_then(|node| perform(node, body)) else {
                return Ok(Completion::Completed);
            };
            if let (Some(missing), false) = (e.downcast_ref::<Missing>(), tier::required("cri")) {
                return Ok(Completion::ignored_with(missing.to_string()));
            }
            // Leftovers of a failed trial must not affect the next.
            Err(Failed::from(format!("{e:#}{}", slot.take().map(|node| ended(node, &name)).unwrap_or_default())))
        })
    }
}

/// Saves the logs of a failed trial and ends its node. Returns lines with their directory, with what the node left behind, and with the
/// plugin's log.
fn ended(node: Node, trial: &str) -> String {
    let dir = Path::new(LOGS).join(trial);
    let logs = match node.save_logs(&dir) {
        Ok(()) => dir.display().to_string(),
        Err(error) => format!("not saved: {error:#}"),
    };
    let plugin = plugin_log(node.dir());
    let left = node.end();
    let left = if left.is_empty() { String::new() } else { format!("\nThe node has left behind: {left:?}") };
    format!("{left}\nThe logs: {logs}\nThe plugin's log:\n{plugin}")
}

/// The directory of the logs of failed trials, one directory for each.
const LOGS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cri");

/// The error of a trial that is ignored because a program that only it needs is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Missing(pub(crate) String);

/// Returns the running node if it has this runtime. Otherwise stops it and starts another one.
fn started<'n>(slot: &'n mut Option<Node>, programs: &Programs, engine: Engine) -> Result<&'n Node> {
    if let Some(former) = slot.take_if(|node| *node.engine() != engine) {
        let left = former.end();
        ensure!(left.is_empty(), "left behind: {left:?}");
    }
    match slot {
        Some(node) => Ok(node),
        empty => Ok(empty.insert(Node::start(programs, engine)?)),
    }
}

/// Runs a trial's body. Unwinding removes the trial's pods before the check for leftovers.
fn perform(node: &Node, body: fn(&Node) -> Result<()>) -> Result<()> {
    let outcome = outcome::caught(|| body(node));
    let left = node.leftovers().and_then(|left| {
        ensure!(left.is_empty(), "left behind: {left:#?}");
        Ok(())
    });
    outcome::after_cleanup(outcome, left)
}

/// Returns the plugin's log from the latest run directory.
fn plugin_log(node: &Path) -> String {
    let mut runs: Vec<_> = fs::read_dir(node)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("run-"))
        .filter_map(|entry| Some((entry.metadata().ok()?.created().ok()?, entry.path())))
        .collect();
    runs.sort();
    let last = runs.pop().map(|(_, dir)| dir.join(contract::LOG_FILE));
    last.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_else(|| "(none)".to_owned())
}
