//! Removes an installation as far as possible and returns all failures.
//!
//! `daemon` calls it when the DaemonSet has been deleted, and for `install-cni uninstall`. The plugin stays while a chain names it,
//! because no pod starts with a chain that names a missing plugin. The chains of running pods that a runtime has cached (CRI-O) are
//! edited, too; if they cannot be edited, the plugin stays as a stub.
#![expect(clippy::disallowed_methods, reason = "waits for pods that are starting")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use libcni::Edited;

use super::files::{self, Files};
use super::mounts::Replaced;
use super::plan::{self, Obstacle, Plan, Step};
use super::record;
use super::scope::Scope;
use super::settings::InstallSettings;
use super::snapshot::Snapshot;

/// Why a file stays on the node.
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

/// The number of periods `in_flight` for which a removal waits, if it can edit the cache meanwhile.
const PERIODS: u32 = 4;

/// Removes entry, kubeconfig and program from the directories of `scope`, and returns the failures.
///
/// Waits between entry and program: a runtime that read the chain before still executes the plugin for pods that are starting, and
/// caches the chain at the end of their ADD. Then plans again, because another writer may have restored the entry meanwhile.
pub fn remove(settings: &InstallSettings, scope: Scope, in_flight: Duration) -> Vec<Error> {
    remove_with(settings, scope, in_flight, &RuntimeCache::Mounted(&settings.cache_dir))
}

/// Like [`remove`], with this cache of the runtime.
pub fn remove_with(
    settings: &InstallSettings,
    scope: Scope,
    in_flight: Duration,
    cache: &RuntimeCache<'_>,
) -> Vec<Error> {
    files::sync_directories(settings);
    let (files, first) = (Files::new(), plan::removal(settings, &Snapshot::take(settings), scope, None));
    let mut chained = first.steps.iter().filter(in_chains(settings)).peekable();
    let in_flight = if chained.peek().is_some() { in_flight } else { Duration::ZERO };
    // The second plan below repeats a failed step, and reports its failure.
    chained.for_each(|step| apply(&files, step, settings, &mut Vec::new()));
    // If another agent uses other directories, a stub could shadow that agent's plugin.
    let cached = match scope {
        Scope::ALL => cache.empty(in_flight).err(),
        _ => {
            std::thread::sleep(in_flight);
            None
        }
    };
    let errors =
        apply_plan(&plan::removal(settings, &Snapshot::take(settings), scope, cached.as_deref()), settings, &files);
    if scope == Scope::ALL && cached.is_none() {
        cache.edit().map_or_else(|why| tracing::warn!("the plugin is removed, but {why}"), drop);
    }
    errors
}

/// The runtime's cache of chains.
#[derive(Debug)]
pub enum RuntimeCache<'a> {
    Mounted(&'a Path),
    /// The runtime does not write to the mounted directory any more.
    Replaced(&'a Replaced),
}

impl RuntimeCache<'_> {
    /// Removes the plugin from the cached chains, also from those of pods that are still starting. Fails with the reason if some
    /// chains name the plugin, or will.
    ///
    /// The runtime caches the chain of an ADD that began before the removal of the entry when all of its plugins have ended. No
    /// event reports that, so the last period must pass without an edit.
    fn empty(&self, in_flight: Duration) -> Result<(), String> {
        if self.edit().is_err() {
            std::thread::sleep(in_flight);
            return self.edit().map(drop);
        }
        let mut edited = 0;
        for _ in 0..PERIODS {
            std::thread::sleep(in_flight);
            edited = self.edit()?;
        }
        match edited {
            0 => Ok(()),
            edited => Err(format!("{edited} pods have ended their start with it just now, and more may follow")),
        }
    }

    /// Removes the plugin from the cached chains; returns the number of edited ones, or why some may still name the plugin.
    fn edit(&self) -> Result<usize, String> {
        let cache = match self {
            Self::Mounted(cache) => cache,
            Self::Replaced(replaced) => return Err(replaced.to_string()),
        };
        let cached = libcni::edit(cache, Edited::All).map_err(|error| format!("the runtime's cache {error}"))?;
        if cached.edited > 0 {
            let path = cache.display();
            tracing::info!(%path, attachments = cached.edited, "the plugin is taken out of cached chains");
        }
        match cached.naming {
            0 => Ok(cached.edited),
            naming => Err(format!("{naming} cached chains in {} name it and cannot be edited", cache.display())),
        }
    }
}

fn in_chains(settings: &InstallSettings) -> impl Fn(&&Step) -> bool {
    let record = settings.net_dir.join(record::FILE);
    move |step| step.operation.path().parent() == Some(&settings.net_dir) && step.operation.path() != record
}

/// Applies a removal plan and returns the failures. If a chain may still name the plugin, all files other than the network
/// configurations stay.
fn apply_plan(plan: &Plan, settings: &InstallSettings, files: &Files<'_>) -> Vec<Error> {
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

fn apply(files: &Files<'_>, step: &Step, settings: &InstallSettings, errors: &mut Vec<Error>) {
    let path = settings.given.path_on_node(step.operation.path());
    tracing::info!(reason = step.reason.as_str(), path = %path.display(), "{}", step.operation.verb());
    if let Err(error) = files.apply(&step.operation) {
        errors.push(error.into());
    }
}
