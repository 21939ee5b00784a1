//! Takes everything away again: best effort, each failure told.
//!
//! `daemon` calls it when the DaemonSet has been deleted, and for `install-cni uninstall`. While a chain names the
//! plugin, the plugin stays: a chain that names what is not there starts no pod.
#![expect(clippy::disallowed_methods, reason = "waits for pods that are being started")]

use std::time::Duration;

use super::Error;
use super::files::Files;
use super::plan::{self, Plan, Step};
use super::settings::Settings;
use super::snapshot::Snapshot;

/// Removes entry, kubeconfig and program; what could not be done and why. What a chain has named stays for `in_flight`
/// longer: a runtime that read the chain before still executes it, for pods that it is about to start.
pub fn remove(settings: &Settings, in_flight: Duration) -> Vec<Error> {
    let plan = plan::removal(settings, &Snapshot::take(settings));
    carry_out(&plan, settings, in_flight, &Files::new())
}

/// Carries a removal out as far as it goes.
fn carry_out(plan: &Plan, settings: &Settings, in_flight: Duration, files: &Files<'_>) -> Vec<Error> {
    let mut errors: Vec<Error> = plan.obstacles.iter().cloned().map(Error::from).collect();
    let in_chains = |step: &&Step| step.operation.path().parent() == Some(&settings.net_dir);
    for step in plan.steps.iter().filter(in_chains) {
        perform(files, step, &mut errors);
    }
    if plan.steps.iter().any(|step| in_chains(&step)) {
        std::thread::sleep(in_flight);
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
