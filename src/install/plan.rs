//! What has to be done on a node, and why: a pure function of settings and snapshot.
//!
//! `keep` carries a plan out until it is empty, which is what ready means; `remove` carries out the other one.

mod network;

pub use network::chained_network;

use std::fmt;
use std::path::{Path, PathBuf};

use super::identity::NoAccount;
use super::kubeconfig;
use super::read::Unread;
use super::record;
use super::scope::Scope;
use super::server::Unresolved;
use super::settings::Settings;
use super::snapshot::{Binary, BinaryState, Snapshot};
use crate::contract;

/// File operations in their order, and what stands in the way of further ones.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// To be carried out one after the other; each leaves a node whose pods start.
    pub steps: Vec<Step>,
    /// What must come from elsewhere first.
    pub obstacles: Vec<Obstacle>,
    /// The file that holds the chain entry, or will.
    pub network: Option<PathBuf>,
    /// What an operator should know, though nothing waits for it.
    pub remarks: Vec<String>,
    /// Whether an earlier agent has installed the plugin: chains are then edited even where the kubeconfig cannot be written.
    pub was_at_work: bool,
}

/// An operation and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What.
    pub operation: Operation,
    /// Why.
    pub reason: Reason,
}

/// A change of one file.
#[derive(Clone, PartialEq, Eq)]
pub enum Operation {
    /// Copies a program.
    Copy {
        /// In the image.
        from: PathBuf,
        /// On the node.
        to: PathBuf,
        /// Its access mode.
        mode: u32,
    },
    /// Writes a file whole.
    Write {
        /// Where.
        path: PathBuf,
        /// What.
        content: Vec<u8>,
        /// Its access mode.
        mode: u32,
        /// What the plan read there: the change of another writer since then is not written over.
        over: Option<Vec<u8>>,
        /// The other file that the content was made of, which must still be as the plan read it.
        source: Option<Source>,
    },
    /// Removes a file.
    Remove {
        /// Which.
        path: PathBuf,
        /// What the plan read there: what another writer has put there since then is not removed.
        over: Option<Vec<u8>>,
    },
}

/// A file as a plan read it.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    /// Where.
    pub path: PathBuf,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// Why a file is changed: log field and metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A temporary of an earlier life.
    Stale,
    /// The node has no plugin.
    BinaryMissing,
    /// It has another one.
    BinaryDiffers,
    /// The plugin has no kubeconfig.
    KubeconfigMissing,
    /// Token, CA or address have changed.
    KubeconfigDiffers,
    /// The chain lacks the plugin.
    EntryMissing,
    /// The chain has it otherwise.
    EntryDiffers,
    /// A single plugin's file has become a list.
    Converted,
    /// The runtime does not use that file any more.
    LeftBehind,
    /// The record of our files is not up to date.
    Recorded,
    /// The plugin leaves the node.
    Removal,
}

/// What the installer waits for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A directory or a file that must be there is not.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The API server's name has no address.
    #[error(transparent)]
    Unresolved(#[from] Unresolved),
    /// The kubeconfig's token or CA.
    #[error(transparent)]
    Account(#[from] NoAccount),
    /// No network that could be chained into.
    #[error("{} has no network configuration yet{}", dir.display(), seen(passed_over))]
    NoNetwork {
        /// The directory.
        dir: PathBuf,
        /// Files that no runtime would load, and why.
        passed_over: Vec<(String, String)>,
    },
    /// The file that the operator has named.
    #[error("{} is not there yet, nor under the other extension; CNI_CONF_NAME names it", path.display())]
    NamedAbsent {
        /// Where it is awaited.
        path: PathBuf,
    },
    /// Somebody is still writing it.
    #[error("{} is not whole yet", path.display())]
    HalfWritten {
        /// The file.
        path: PathBuf,
    },
    /// It is there, but no runtime would load it, or nothing can be chained into it.
    #[error("nothing can be chained into {}: {reason}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// All other plugins of the chain are in another directory, and so would the runtime look for ours.
    #[error(
        "none of the plugins that {} names is in {} ({}): the runtime runs them from another directory, where it would not find \
         {}; set cniBinDir to that directory", network.display(), bin_dir.display(), missing.join(", "), contract::PLUGIN_NAME
    )]
    PluginsElsewhere {
        /// The chain.
        network: PathBuf,
        /// The plugin directory.
        bin_dir: PathBuf,
        /// The plugins' names.
        missing: Vec<String>,
    },
    /// Two files of one network, of which neither is ours.
    #[error("{} and {} are both there: remove the one that the node does not need", conf.display(), list.display())]
    Shadowed {
        /// The file that the runtime uses.
        conf: PathBuf,
        /// The file that it would have to become.
        list: PathBuf,
    },
    /// The name of a file of ours is taken.
    #[error("{} is another program's: choose another name for ours", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The owned file is not the first.
    #[error("{} sorts before {}: the runtime uses the former, and pods pass us by; choose another name for ours", first.display(), owned.display())]
    Preempted {
        /// The file that the runtime uses.
        first: PathBuf,
        /// Ours.
        owned: PathBuf,
    },
}

fn seen(passed_over: &[(String, String)]) -> String {
    let each: Vec<String> = passed_over.iter().map(|(name, reason)| format!("; {name}: {reason}")).collect();
    each.concat()
}

impl Plan {
    /// Nothing to do and nothing to wait for: the node is ready.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.obstacles.is_empty()
    }

    /// Whether pods could be started wrongly until it is carried out: a new token, an old temporary and the record concern none.
    pub fn disturbs(&self) -> bool {
        let harmless =
            |step: &Step| matches!(step.reason, Reason::Stale | Reason::KubeconfigDiffers | Reason::Recorded);
        !self.obstacles.is_empty() || !self.steps.iter().all(harmless)
    }

    fn step(&mut self, reason: Reason, operation: Operation) {
        self.steps.push(Step { operation, reason });
    }
}

/// What installs the plugin: temporaries, then binary, kubeconfig and chain entry, so that a chain never names a plugin that is
/// not there, nor, on a node where it is new, one that has no kubeconfig.
pub fn install(settings: &Settings, snapshot: &Snapshot) -> Plan {
    let mut plan = Plan { was_at_work: was_at_work(snapshot), ..Plan::default() };
    for path in &snapshot.stale {
        plan.step(Reason::Stale, remove(path.clone()));
    }
    let starts_pods = has_kubeconfig(snapshot) || plan.was_at_work;
    let binaries = plan_binaries(&mut plan, settings, snapshot, starts_pods);
    plan_kubeconfig(&mut plan, settings, snapshot);
    match &snapshot.networks {
        Err(unread) => plan.obstacles.push(unread.clone().into()),
        Ok(files) if binaries && starts_pods => network::install(&mut plan, settings, files, snapshot),
        Ok(_) => {}
    }
    plan
}

/// Whether the plugin has a kubeconfig, or one can be written.
fn has_kubeconfig(snapshot: &Snapshot) -> bool {
    snapshot.kubeconfig.is_some() || (snapshot.account.is_ok() && snapshot.server.endpoint.is_some())
}

/// Whether an earlier agent has installed the plugin: its binary is on the node, or a chain names it. Without a kubeconfig, as
/// after a reboot, the plugin asks the agent, and an ADD that gets no answer fails; without the entry, pods would start that
/// nobody redirects.
fn was_at_work(snapshot: &Snapshot) -> bool {
    let is_there = |binary: &Binary| binary.name == contract::PLUGIN_NAME && binary.state != BinaryState::Missing;
    snapshot.binaries.iter().flatten().any(is_there)
        || snapshot.networks.iter().flatten().any(network::names_the_plugin)
}

/// Whether the node has, or will have, the plugin. It is copied only where it can `start_pods`: its binary on the node is what
/// [`was_at_work`] goes by.
fn plan_binaries(plan: &mut Plan, settings: &Settings, snapshot: &Snapshot, starts_pods: bool) -> bool {
    let binaries = match &snapshot.binaries {
        Ok(binaries) => binaries,
        Err(unread) => {
            plan.obstacles.push(unread.clone().into());
            return false;
        }
    };
    for binary in binaries.iter().filter(|_| starts_pods) {
        let reason = match binary.state {
            BinaryState::Same => continue,
            BinaryState::Missing => Reason::BinaryMissing,
            BinaryState::Different => Reason::BinaryDiffers,
        };
        let (from, to) = (settings.bin_source.join(&binary.name), settings.bin_dir.join(&binary.name));
        plan.step(reason, Operation::Copy { from, to, mode: binary.mode });
    }
    true
}

/// Adds what brings the kubeconfig up to date. One that cannot be renewed for now is better than none.
fn plan_kubeconfig(plan: &mut Plan, settings: &Settings, snapshot: &Snapshot) {
    let account = match &snapshot.account {
        Ok(account) => account,
        Err(missing) => return plan.obstacles.push(missing.clone().into()),
    };
    plan.obstacles.extend(snapshot.server.fault.clone().map(Obstacle::from));
    let Some(endpoint) = &snapshot.server.endpoint else { return };
    let content = kubeconfig::text(endpoint, account).into_bytes();
    let mode = settings.kubeconfig.mode;
    let reason = match &snapshot.kubeconfig {
        None => Reason::KubeconfigMissing,
        Some((there, allowed)) if *there != content || *allowed != mode => Reason::KubeconfigDiffers,
        Some(_) => return,
    };
    let path = settings.run_dir.join(contract::KUBECONFIG);
    plan.step(reason, Operation::Write { path, content, mode, over: None, source: None });
}

/// What removes the plugin from the directories of `scope`: the chain entry first, so that no chain names what is not there,
/// the binary last.
pub fn removal(settings: &Settings, snapshot: &Snapshot, scope: Scope) -> Plan {
    let mut plan = Plan::default();
    match &snapshot.networks {
        _ if !scope.conf => {}
        Ok(files) => network::removal(&mut plan, settings, files, snapshot.record.as_ref()),
        Err(unread) => plan.obstacles.push(unread.clone().into()),
    }
    // As long as one of its files may be there, it is needed.
    if scope.conf && snapshot.record.is_some() {
        plan.step(Reason::Removal, remove(settings.net_dir.join(record::FILE)));
    }
    if scope.run && snapshot.kubeconfig.is_some() {
        plan.step(Reason::Removal, remove(settings.run_dir.join(contract::KUBECONFIG)));
    }
    if scope.bin {
        plan_programs_removal(&mut plan, settings, snapshot, scope);
    }
    let covered = scope.paths(settings);
    for path in snapshot.stale.iter().filter(|path| covered.iter().any(|dir| path.parent() == Some(dir))) {
        plan.step(Reason::Stale, remove(path.clone()));
    }
    plan
}

/// Adds what removes the programs from the plugin directory. They stay where a chain outside of `scope` may need them.
fn plan_programs_removal(plan: &mut Plan, settings: &Settings, snapshot: &Snapshot, scope: Scope) {
    if let Some(need) = need_of_programs(settings, snapshot).filter(|_| !scope.conf) {
        let (dir, name) = (settings.bin_dir.display(), contract::PLUGIN_NAME);
        plan.remarks.push(format!(
            "{dir}/{name} stays: {need}, and the runtime may search no other directory; remove it once the runtime does"
        ));
        return;
    }
    let names = match &snapshot.binaries {
        Ok(binaries) => {
            let there = binaries.iter().filter(|binary| binary.state != BinaryState::Missing);
            there.map(|binary| binary.name.as_str()).collect()
        }
        Err(_) => vec![contract::PLUGIN_NAME],
    };
    for name in names {
        plan.step(Reason::Removal, remove(settings.bin_dir.join(name)));
    }
}

/// Why a runtime may run the plugin from the plugin directory, if no evidence excludes that.
fn need_of_programs(settings: &Settings, snapshot: &Snapshot) -> Option<String> {
    let files = match &snapshot.networks {
        Ok(files) => files,
        Err(unread) => return Some(unread.to_string()),
    };
    let file = files.iter().find(|file| network::may_run_from(file, &snapshot.plugins))?;
    let (dir, network) = (settings.bin_dir.display(), settings.net_dir.join(&file.name));
    Some(format!("{} may be a chain whose other plugins are all in {dir}", network.display()))
}

/// Removes a file, whatever it holds.
fn remove(path: PathBuf) -> Operation {
    Operation::Remove { path, over: None }
}

impl Operation {
    /// The file that is changed.
    pub fn path(&self) -> &Path {
        match self {
            Self::Copy { to: path, .. } | Self::Write { path, .. } | Self::Remove { path, .. } => path,
        }
    }

    /// For logs and errors.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "copy",
            Self::Write { .. } => "write",
            Self::Remove { .. } => "remove",
        }
    }
}

/// Contents are not shown: a kubeconfig holds a token.
impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb(), self.path().display())
    }
}

impl Reason {
    /// For logs and metric labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stale => "stale_temporary",
            Self::BinaryMissing => "binary_missing",
            Self::BinaryDiffers => "binary_differs",
            Self::KubeconfigMissing => "kubeconfig_missing",
            Self::KubeconfigDiffers => "kubeconfig_differs",
            Self::EntryMissing => "entry_missing",
            Self::EntryDiffers => "entry_differs",
            Self::Converted => "converted",
            Self::LeftBehind => "left_behind",
            Self::Recorded => "recorded",
            Self::Removal => "removal",
        }
    }
}

#[cfg(test)]
mod tests;
