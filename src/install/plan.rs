//! Plans the file operations of an installation or a removal, each with its reason. Pure: a function of settings and snapshot.
//!
//! `reconcile` applies installation plans until one is empty; `remove` applies removal plans.

mod network;
mod order;
mod removal;
mod restore;
mod select;
mod unjudged;

pub use network::{PodNetwork, chained_network, pod_network};
pub use removal::removal;

use std::path::PathBuf;

use cni::Version;

use super::identity::NoAccount;
use super::installed;
use super::kubeconfig;
use super::locate::Unlocated;
use super::mounts::Replaced;
use super::operation::Operation;
use super::read::Unread;
use super::server::Unresolved;
use super::set_aside::SetAside;
use super::settings::InstallSettings;
use super::snapshot::{Binary, BinaryState, Snapshot};

/// The file operations of an installation or a removal, and the obstacles to further operations.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// The operations in their order. Pods can start on the node after each of them.
    pub steps: Vec<Step>,
    /// Problems that the installer cannot solve itself.
    pub obstacles: Vec<Obstacle>,
    /// The file that contains the chain entry, now or after the steps.
    pub network: Option<PathBuf>,
    /// Problems that do not prevent readiness.
    pub warnings: Vec<String>,
    /// Whether an earlier agent has installed the plugin. Chains are then edited even if the kubeconfig cannot be written.
    pub was_installed: bool,
    /// Whether Cilium has renamed a file of the configuration directory (`cni.exclusive`).
    pub is_renamed_by_cilium: bool,
}

/// An operation and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    pub operation: Operation,
    pub reason: Reason,
}

/// Why a file is changed, as log field and metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A temporary file is stale.
    Stale,
    /// A program is missing, or the file with its name cannot be executed.
    BinaryMissing,
    BinaryDiffers,
    KubeconfigMissing,
    /// Token, CA or address have changed.
    KubeconfigDiffers,
    EntryMissing,
    EntryDiffers,
    /// A list has replaced the file of a single plugin.
    Converted,
    /// The runtime no longer uses the file, an installation in another mode wrote it, or a removal left it.
    LeftBehind,
    /// A record of files or directories is not up to date.
    Recorded,
    /// The plugin is uninstalled.
    Removal,
}

/// A problem that the installer waits for others to solve.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// A mounted directory was moved or removed on the node.
    #[error(transparent)]
    Replaced(#[from] Replaced),
    /// The directories of the runtime's configuration are not known, or have changed.
    #[error(transparent)]
    Unlocated(#[from] Unlocated),
    /// A required directory or file cannot be read.
    #[error(transparent)]
    Unread(#[from] Unread),
    /// The API server's name has no address.
    #[error(transparent)]
    Unresolved(#[from] Unresolved),
    /// The kubeconfig's token or CA is missing.
    #[error(transparent)]
    Account(#[from] NoAccount),
    /// The node has no network configuration that can hold the plugin's entry.
    #[error("{} has no network configuration yet{}", dir.display(), list_ignored(ignored))]
    NoNetwork {
        dir: PathBuf,
        /// Names of files that no runtime would load, with the reasons.
        ignored: Vec<(String, String)>,
    },
    /// The file that the operator has named does not exist.
    #[error(
        "{} does not exist yet, neither with .conf nor with .conflist; CNI_CONF_NAME requires it; {}", path.display(),
        list_present(present)
    )]
    NamedAbsent {
        path: PathBuf,
        /// Names of the files that runtimes read.
        present: Vec<String>,
    },
    /// `libcni` refuses a file that sorts before the network.
    #[error(
        "no runtime loads {}: {reason}; containerd then loads no other network either, and CRI-O takes the next file: correct it, \
         or remove it", path.display()
    )]
    Refused { path: PathBuf, reason: String },
    /// A file that sorts before the network may be the one that the runtime uses.
    #[error(
        "{0}; the file sorts before the other networks, so the runtime may use it, without the plugin: let the agent's container read it, or \
         remove it"
    )]
    Unjudged(Unread),
    /// The file was changed a moment ago and is not valid JSON: its writer may not have finished.
    #[error("{} is not valid JSON yet: its writer may not have finished", path.display())]
    HalfWritten { path: PathBuf },
    /// No runtime would load the file, or it cannot hold the plugin's entry.
    #[error("the plugin cannot be added to {}: {reason}", path.display())]
    Unusable { path: PathBuf, reason: String },
    /// All other plugins of the chain are in another directory, in which the runtime would look for this plugin, too.
    #[error(
        "none of the plugins that {} names is in {} ({}): the runtime runs them from another directory, where it would not find \
         {}; set cniBinDir to that directory", network.display(), bin_dir.display(), missing.join(", "), contract::PLUGIN_NAME
    )]
    PluginsElsewhere {
        network: PathBuf,
        bin_dir: PathBuf,
        /// The types of the other plugins.
        missing: Vec<String>,
    },
    /// The plugin does not support the network's CNI version, so that the runtime would refuse the network, or each ADD.
    #[error(
        "the network of {} has the version {version:?} of CNI, which {} does not support, so no pod would start with it: set \
         cniVersion to one of {}", network.display(), contract::PLUGIN_NAME, supported_versions()
    )]
    Version { network: PathBuf, version: String },
    /// The runtime's directories lack plugins of the network.
    #[error(
        "{} names {}, which is in no directory that the runtime searches ({}): CRI-O ignores the network and uses the next one, and \
         containerd starts no pod; install the plugin, or correct the network", network.display(), missing.join(", "), list(searched)
    )]
    PluginsMissing {
        network: PathBuf,
        /// The types of the missing plugins.
        missing: Vec<String>,
        searched: Vec<PathBuf>,
    },
    /// No file has the network that CRI-O uses.
    #[error("CRI-O uses the network {name:?} (cni_default_network), and no file in {} has it yet", dir.display())]
    NoDefault { dir: PathBuf, name: String },
    /// One network has a `.conf` and a `.conflist`, and the latter was not written by this program.
    #[error("both {} and {} exist: remove the one that the node does not need", conf.display(), list.display())]
    Shadowed { conf: PathBuf, list: PathBuf },
    /// Multus reads the file by its path, but a list that replaces the file would have another name.
    #[error(
        "{} has the path of {}, which would have another name as a list, so the plugin is not added to it: if CNI_CONF_NAME names the file, \
         leave it empty, so that the plugin is added behind Multus; else let {} have the network's name instead, or remove it",
        by.display(), path.display(), by.display()
    )]
    Named { path: PathBuf, by: PathBuf },
    /// The list that Multus' daemon reads does not exist.
    #[error("{} has the path of {}, which does not exist yet", by.display(), path.display())]
    Absent { path: PathBuf, by: PathBuf },
    /// Multus' daemon has chosen the owned file as the network that it reads.
    #[error(
        "{} has the path of {}, so a copy of it would call itself: leave ISTIO_OWNED_CNI_CONFIG unset beside Multus' daemon, or name the \
         daemon's network in its configuration (multusMasterCNI)", multus.display(), owned.display()
    )]
    Loop { multus: PathBuf, owned: PathBuf },
    /// Multus runs a copy of the network that the operator has named, in which the plugin is missing or has other settings.
    #[error(
        "{} runs a copy of the network of {}, without the plugin or with former settings of it: restart Multus, so that it copies the \
         network again, or leave CNI_CONF_NAME empty, so that the plugin is added behind Multus", copy.display(), network.display()
    )]
    Copied { copy: PathBuf, network: PathBuf },
    /// Another program's file has the name that this program would use.
    #[error("{} belongs to another program; choose another file name by CNI_CONF_NAME or ISTIO_OWNED_CNI_CONF_FILENAME", path.display())]
    Foreign { path: PathBuf },
    /// The owned file is not the first in the runtime's order.
    #[error(
        "{} sorts before {}: the runtime uses the former, so pods are not redirected; set ISTIO_OWNED_CNI_CONF_FILENAME to a name \
         that sorts before it", first.display(), owned.display()
    )]
    Preempted {
        /// The file that the runtime uses.
        first: PathBuf,
        /// The file that this program writes.
        owned: PathBuf,
    },
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

/// Returns the versions of CNI that the plugin supports.
fn supported_versions() -> String {
    Version::ALL.map(Version::as_str).join(", ")
}

fn list_present(present: &[String]) -> String {
    match present {
        [] => "the directory holds no network configuration".to_owned(),
        present => format!("the directory holds {}", present.join(", ")),
    }
}

fn list_ignored(ignored: &[(String, String)]) -> String {
    let each: Vec<String> = ignored.iter().map(|(name, reason)| format!("; {name}: {reason}")).collect();
    each.concat()
}

impl Plan {
    /// Whether the plan has neither steps nor obstacles: the node is ready.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.obstacles.is_empty()
    }

    /// Returns the obstacles about the directories themselves, whose end no event reports.
    pub(super) fn of_directories(&self) -> Vec<Obstacle> {
        let is_of_directories = |found: &&Obstacle| matches!(found, Obstacle::Replaced(_) | Obstacle::Unlocated(_));
        self.obstacles.iter().filter(is_of_directories).cloned().collect()
    }

    /// Whether pods may start without redirection, or not at all, until the plan is applied. A new token, a stale temporary file
    /// and the record affect no pod.
    pub fn affects_pods(&self) -> bool {
        !self.obstacles.is_empty() || !self.steps.iter().all(|step| step.reason.is_routine())
    }

    fn step(&mut self, reason: Reason, operation: Operation) {
        self.steps.push(Step { operation, reason });
    }
}

/// Plans an installation. The binary precedes the chain entry, so that a chain never names a missing plugin. The
/// kubeconfig also precedes it, so that a chain never names a plugin without a kubeconfig on a node where the plugin is
/// new.
pub fn install(settings: &InstallSettings, snapshot: &Snapshot) -> Plan {
    let warnings = snapshot.warnings();
    let is_renamed_by_cilium = snapshot.set_aside.iter().any(SetAside::is_of_cilium);
    let mut plan = Plan { was_installed: was_installed(snapshot), warnings, is_renamed_by_cilium, ..Plan::default() };
    for path in &snapshot.stale {
        plan.step(Reason::Stale, remove(path.clone()));
    }
    let can_start_pods = has_kubeconfig(snapshot) || plan.was_installed;
    let binaries = plan_binaries(&mut plan, settings, snapshot, can_start_pods);
    plan_kubeconfig(&mut plan, settings, snapshot);
    match &snapshot.networks {
        Err(unread) => plan.obstacles.push(unread.clone().into()),
        Ok(files) if binaries && can_start_pods => {
            let first = plan.steps.len();
            network::install(&mut plan, settings, files, snapshot);
            let recorded = plan.network.is_some().then(|| record_directories(settings, snapshot)).flatten();
            plan.steps.splice(first..first, recorded);
        }
        Ok(_) => {}
    }
    plan
}

/// Returns the step that adds the directories to the record in the run directory. It precedes the edit of the chain.
fn record_directories(settings: &InstallSettings, snapshot: &Snapshot) -> Option<Step> {
    let operation = installed::update(&snapshot.installed, snapshot.directories.as_ref()?, &settings.run_dir)?;
    Some(Step { operation, reason: Reason::Recorded })
}

/// Whether the plugin has a kubeconfig, or one can be written.
fn has_kubeconfig(snapshot: &Snapshot) -> bool {
    snapshot.kubeconfig.is_some() || (snapshot.account.is_ok() && snapshot.server.endpoint.is_some())
}

/// Whether an earlier agent has installed the plugin: its binary is on the node and can be executed, or a chain names it. On such a node,
/// chains get the entry even if no kubeconfig exists, as after a reboot: the plugin then queries the agent, and an ADD
/// without a response fails, whereas pods would start without redirection if the entry were missing.
fn was_installed(snapshot: &Snapshot) -> bool {
    let is_installed = |binary: &Binary| {
        let exists = matches!(binary.state, BinaryState::Same | BinaryState::Different);
        exists && binary.name == contract::PLUGIN_NAME
    };
    (!snapshot.has_stub() && snapshot.binaries.iter().flatten().any(is_installed))
        || snapshot.networks.iter().flatten().any(select::names_the_plugin)
}

/// Adds the copies of the image's programs; returns whether the image could be read. Programs are copied only if the plugin
/// `can_start_pods`, because [`was_installed`] takes an existing binary as evidence of a working installation.
fn plan_binaries(plan: &mut Plan, settings: &InstallSettings, snapshot: &Snapshot, can_start_pods: bool) -> bool {
    let binaries = match &snapshot.binaries {
        Ok(binaries) => binaries,
        Err(unread) => {
            plan.obstacles.push(unread.clone().into());
            return false;
        }
    };
    for binary in binaries.iter().filter(|_| can_start_pods) {
        let reason = match binary.state {
            BinaryState::Same => continue,
            BinaryState::Missing | BinaryState::Unusable => Reason::BinaryMissing,
            BinaryState::Different => Reason::BinaryDiffers,
        };
        let (from, to) = (settings.bin_source.join(&binary.name), settings.bin_dir.join(&binary.name));
        plan.step(reason, Operation::Copy { from, to, mode: binary.mode });
    }
    if can_start_pods && snapshot.has_stub() {
        plan.step(Reason::LeftBehind, remove(settings.bin_dir.join(contract::REMOVED_MARKER)));
    }
    true
}

/// Adds the update of the kubeconfig. An existing kubeconfig stays while its new content is unknown.
fn plan_kubeconfig(plan: &mut Plan, settings: &InstallSettings, snapshot: &Snapshot) {
    let account = match &snapshot.account {
        Ok(account) => account,
        Err(missing) => return plan.obstacles.push(missing.clone().into()),
    };
    plan.obstacles.extend(snapshot.server.unresolved.clone().map(Obstacle::from));
    let Some(endpoint) = &snapshot.server.endpoint else { return };
    let content = kubeconfig::text(endpoint, account).into_bytes();
    let mode = settings.kubeconfig.mode;
    let reason = match &snapshot.kubeconfig {
        None => Reason::KubeconfigMissing,
        Some((current, current_mode)) if *current != content || *current_mode != mode => Reason::KubeconfigDiffers,
        Some(_) => return,
    };
    let path = settings.run_dir.join(contract::KUBECONFIG);
    plan.step(reason, Operation::Write { path, content, mode, expected: None, source: None });
}

/// Returns the operation that removes a file, whatever its content.
fn remove(path: PathBuf) -> Operation {
    Operation::Remove { path, expected: None, replaced_by: None }
}

impl Reason {
    /// Whether a change for this reason does not correct a change by another program: a new token, the record, temporary files.
    pub(super) fn is_routine(self) -> bool {
        matches!(self, Self::Stale | Self::KubeconfigDiffers | Self::Recorded)
    }

    /// Returns the name in logs and metric labels.
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
