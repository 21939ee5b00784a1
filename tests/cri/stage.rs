//! The node that all trials share: started by the first trial, checked after each, stopped after the last.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Result, ensure};
use libtest_mimic::{Completion, Failed, Trial};

use test_support::runtime::node::Node;
use test_support::runtime::programs::Programs;
use test_support::tier;

/// A trial: its name and its body, which gets a node without pods.
pub(crate) type Case = (&'static str, fn(&Node) -> Result<()>);

/// The node of all trials, which the first trial starts.
#[derive(Default)]
pub(crate) struct Stage {
    node: Arc<Mutex<Option<Node>>>,
}

impl Stage {
    /// Returns the trial of a case, which is ignored with the reason if a prerequisite is missing, unless
    /// `REQUIRE_TIERS` names `cri`.
    pub(crate) fn trial(&self, (name, body): Case) -> Trial {
        let node = self.node.clone();
        Trial::ignorable_test(name, move || {
            let programs = match Programs::find(Some(env!("CARGO_BIN_EXE_istio-cni"))) {
                Ok(programs) => programs,
                Err(missing) if tier::required("cri") => {
                    return Err(format!("REQUIRE_TIERS names cri, but {missing}").into());
                }
                Err(missing) => return Ok(Completion::ignored_with(missing)),
            };
            let mut slot = node.lock().unwrap_or_else(PoisonError::into_inner);
            let Err(e) = started(&mut slot, &programs).and_then(|node| perform(node, body)) else {
                return Ok(Completion::Completed);
            };
            if let (Some(missing), false) = (e.downcast_ref::<Missing>(), tier::required("cri")) {
                return Ok(Completion::ignored_with(missing.to_string()));
            }
            let log = slot.as_ref().map(|node| plugin_log(node.dir())).unwrap_or_default();
            // Leftovers of a failed trial must not affect the next.
            *slot = None;
            Err(Failed::from(format!("{e:#}\nThe plugin's log:\n{log}")))
        })
    }
}

/// The error of a trial that is ignored because a program that only it needs is missing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Missing(pub(crate) String);

fn started<'n>(slot: &'n mut Option<Node>, programs: &Programs) -> Result<&'n Node> {
    match slot {
        Some(node) => Ok(node),
        empty => Ok(empty.insert(Node::start(programs)?)),
    }
}

fn perform(node: &Node, body: fn(&Node) -> Result<()>) -> Result<()> {
    // Unwinding removes the trial's pods before the check for leftovers.
    let panicked = |cause: Box<dyn std::any::Any + Send>| {
        let text = cause.downcast_ref::<String>().cloned();
        anyhow::anyhow!(text.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string)).unwrap_or_default())
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| body(node)))
        .unwrap_or_else(|cause| Err(panicked(cause)))?;
    let left = node.leftovers()?;
    ensure!(left.is_empty(), "left behind: {left:#?}");
    Ok(())
}

/// The plugin's log in the latest run directory.
fn plugin_log(node: &Path) -> String {
    let mut runs: Vec<_> = fs::read_dir(node)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("run-"))
        .filter_map(|entry| Some((entry.metadata().ok()?.created().ok()?, entry.path())))
        .collect();
    runs.sort();
    let last = runs.pop().map(|(_, dir)| dir.join(istio_cni::contract::LOG_FILE));
    last.and_then(|path| fs::read_to_string(path).ok()).unwrap_or_else(|| "(none)".to_owned())
}
