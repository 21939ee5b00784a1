//! Takes everything away again: best effort, each failure told.
//!
//! `daemon` calls it when the DaemonSet has been deleted, and for `install-cni uninstall`. While a chain names the
//! plugin, the plugin stays: a chain that names what is not there starts no pod.
#![expect(clippy::disallowed_methods, reason = "waits for pods that are being started")]

use std::path::PathBuf;
use std::time::Duration;

use super::files::{self, Files};
use super::plan::{self, Obstacle, Plan, Step};
use super::record;
use super::scope::Scope;
use super::settings::Settings;
use super::snapshot::Snapshot;

/// A file that stays on the node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A change failed.
    #[error(transparent)]
    Files(#[from] files::Error),
    /// A removal needs a file or directory that cannot be read.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// A program stays because a chain still names it.
    #[error("{} stays, for a network configuration still names it: take the entry out, then run `install-cni uninstall`", .0.display())]
    StillNamed(PathBuf),
}

/// Removes entry, kubeconfig and program from the directories of `scope`; what could not be done and why. What a chain has
/// named stays for `in_flight` longer: a runtime that read the chain before still executes it, for pods that it is about to start. Then chains are
/// looked at once more, for another writer may have put back what it had read.
pub fn remove(settings: &Settings, scope: Scope, in_flight: Duration) -> Vec<Error> {
    let (files, first) = (Files::new(), plan::removal(settings, &Snapshot::take(settings), scope));
    let mut chained = first.steps.iter().filter(in_chains(settings)).peekable();
    if chained.peek().is_some() {
        // What fails here fails again below, and is told there.
        chained.for_each(|step| perform(&files, step, &mut Vec::new()));
        std::thread::sleep(in_flight);
    }
    carry_out(&plan::removal(settings, &Snapshot::take(settings), scope), settings, &files)
}

fn in_chains(settings: &Settings) -> impl Fn(&&Step) -> bool {
    let record = settings.net_dir.join(record::FILE);
    move |step| step.operation.path().parent() == Some(&settings.net_dir) && step.operation.path() != record
}

/// Carries a removal out as far as it goes.
fn carry_out(plan: &Plan, settings: &Settings, files: &Files<'_>) -> Vec<Error> {
    for remark in &plan.remarks {
        tracing::warn!("{remark}");
    }
    let mut errors: Vec<Error> = plan.obstacles.iter().cloned().map(Error::from).collect();
    let in_chains = in_chains(settings);
    for step in plan.steps.iter().filter(&in_chains) {
        perform(files, step, &mut errors);
    }
    let named = !errors.is_empty();
    for step in plan.steps.iter().filter(|step| !in_chains(step)) {
        if named {
            errors.push(Error::StillNamed(step.operation.path().to_owned()));
        } else {
            perform(files, step, &mut errors);
        }
    }
    errors
}

fn perform(files: &Files<'_>, step: &Step, errors: &mut Vec<Error>) {
    tracing::info!(reason = step.reason.as_str(), path = %step.operation.path().display(), "{}", step.operation.verb());
    if let Err(error) = files.perform(&step.operation) {
        errors.push(error.into());
    }
}
