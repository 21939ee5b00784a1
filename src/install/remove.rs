//! Removes an installation as far as possible and returns all failures.
//!
//! `daemon` calls it when the DaemonSet has been deleted, and for `install-cni uninstall`. The plugin stays while a chain names
//! it, because a chain that names a missing plugin starts no pods. The chains of running pods that a runtime has cached (CRI-O) are
//! edited, too; where they cannot be, the plugin stays as a stub.
#![expect(clippy::disallowed_methods, reason = "waits for pods that are starting")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::files::{self, Files};
use super::plan::{self, Obstacle, Plan, Step};
use super::record;
use super::scope::Scope;
use super::settings::Settings;
use super::snapshot::Snapshot;
use crate::libcni::{self, Edited};

/// A file that stays on the node.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A change failed.
    #[error(transparent)]
    Files(#[from] files::Error),
    /// A required file or directory cannot be read.
    #[error(transparent)]
    Obstacle(#[from] Obstacle),
    /// A program stays because a chain still names it.
    #[error("{} stays because a network configuration still names it; remove the entry, then run `install-cni uninstall`", .0.display())]
    StillNamed(PathBuf),
}

/// Removes entry, kubeconfig and program from the directories of `scope`, and returns the failures. Waits for `in_flight`
/// between entry and program: a runtime that read the chain before still executes the plugin for pods that are starting. Then
/// plans again, because another writer may have restored the entry meanwhile.
pub fn remove(settings: &Settings, scope: Scope, in_flight: Duration) -> Vec<Error> {
    files::sync_directories(settings);
    let (files, first) = (Files::new(), plan::removal(settings, &Snapshot::take(settings), scope, None));
    let mut chained = first.steps.iter().filter(in_chains(settings)).peekable();
    if chained.peek().is_some() {
        // The second plan below repeats a failed step, and reports its failure.
        chained.for_each(|step| apply(&files, step, settings, &mut Vec::new()));
        std::thread::sleep(in_flight);
    }
    // Beside an agent with other directories a stub could shadow the plugin of that agent.
    let needed = if scope == Scope::ALL { edit_cached(&settings.cache_dir).err() } else { None };
    let errors =
        apply_plan(&plan::removal(settings, &Snapshot::take(settings), scope, needed.as_deref()), settings, &files);
    if scope == Scope::ALL && needed.is_none() {
        // An ADD that began before the removal of the entry may have been cached since.
        edit_cached(&settings.cache_dir).unwrap_or_else(|why| tracing::warn!("the plugin is removed, but {why}"));
    }
    errors
}

/// Takes the plugin out of the runtime's cached chains; returns the reason if some may still name it.
fn edit_cached(cache: &Path) -> Result<(), String> {
    let cached = libcni::edit(cache, Edited::All).map_err(|error| format!("the runtime's cache {error}"))?;
    if cached.edited > 0 {
        tracing::info!(path = %cache.display(), attachments = cached.edited, "the plugin is taken out of cached chains");
    }
    match cached.naming {
        0 => Ok(()),
        naming => Err(format!("{naming} cached chains in {} name it and cannot be edited", cache.display())),
    }
}

fn in_chains(settings: &Settings) -> impl Fn(&&Step) -> bool {
    let record = settings.net_dir.join(record::FILE);
    move |step| step.operation.path().parent() == Some(&settings.net_dir) && step.operation.path() != record
}

/// Applies a removal plan and returns the failures. If a chain may still name the plugin, all files but the network
/// configurations stay.
fn apply_plan(plan: &Plan, settings: &Settings, files: &Files<'_>) -> Vec<Error> {
    for warning in &plan.warnings {
        tracing::warn!("{}", settings.given.on_node(warning));
    }
    let mut errors: Vec<Error> = plan.obstacles.iter().cloned().map(Error::from).collect();
    let in_chains = in_chains(settings);
    for step in plan.steps.iter().filter(&in_chains) {
        apply(files, step, settings, &mut errors);
    }
    let is_named = !errors.is_empty();
    for step in plan.steps.iter().filter(|step| !in_chains(step)) {
        if is_named {
            errors.push(Error::StillNamed(step.operation.path().to_owned()));
        } else {
            apply(files, step, settings, &mut errors);
        }
    }
    errors
}

fn apply(files: &Files<'_>, step: &Step, settings: &Settings, errors: &mut Vec<Error>) {
    let path = settings.given.path_on_node(step.operation.path());
    tracing::info!(reason = step.reason.as_str(), path = %path.display(), "{}", step.operation.verb());
    if let Err(error) = files.apply(&step.operation) {
        errors.push(error.into());
    }
}
