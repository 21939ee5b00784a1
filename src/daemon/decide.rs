//! Decides at SIGTERM whether the plugin stays on this node, and in which directories. Pure; every action has its reason.
//!
//! The plugin stays unless the DaemonSet no longer covers the node: removing it during an upgrade would start pods without
//! redirection and without an error.

use std::fmt;
use std::path::PathBuf;

use crate::install::{Place, Relocation};

/// The agent that serves the plugin when the daemon shuts down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Successor {
    /// No other agent serves the plugin.
    None,
    /// Another agent whose directories are unknown, with the reason.
    Unknown(String),
    /// Another agent that has installed plugin and chain entry, with the differences between its directories and this
    /// agent's.
    Installed(Relocation),
}

/// The result of a query for the DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DaemonSetState {
    Found {
        /// Whether it is being deleted.
        deleting: bool,
        /// Whether its node selector and affinity select this node.
        selects_node: bool,
        /// Directories on the node that the daemon's pod mounts for plugin or configuration, and the DaemonSet's pod template does not.
        unmounted: Vec<PathBuf>,
    },
    NotFound,
    /// The daemon's account may not read the DaemonSet (status 401 or 403), but may read the daemon's own pod.
    Forbidden(u16),
    /// The daemon's account may read neither the DaemonSet nor the daemon's own pod (status 401 or 403), in several
    /// attempts, or may not read the DaemonSet, and the pod's name is unknown.
    AccessWithdrawn(u16),
    /// The API server does not respond, or fails, with the reason.
    Unknown(String),
}

/// What the daemon does with the plugin's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Action {
    /// Plugin, chain entry and kubeconfig stay.
    Keep(KeepReason),
    /// Files in directories that the successor does not use are removed; all other files belong to the successor.
    RemoveFormer(Relocation),
    /// All files are removed.
    RemoveAll(RemoveReason),
}

/// Why the plugin is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum KeepReason {
    /// Another agent serves the node with the same directories.
    Superseded,
    /// Another agent serves the node, and its directories are unknown for this reason.
    Unconfirmed(String),
    /// Another agent serves the node with another configuration directory and another network: the runtime may still read this
    /// agent's directory.
    OtherNetwork(Relocation),
    /// The DaemonSet still selects the node, as in an upgrade, a restart or a reboot.
    Selected,
    /// The role lacks a right, or another version's role has just replaced it, but the account exists.
    Forbidden(u16),
    /// The DaemonSet's state is unknown. An unneeded plugin can be removed later; a pod that started without redirection stays so.
    Unknown(String),
}

/// Why the plugin is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemoveReason {
    /// The DaemonSet does not exist.
    Deleted,
    /// The DaemonSet is being deleted.
    Deleting,
    /// The DaemonSet no longer selects this node.
    NodeNotSelected,
    /// The account has lost all rights: all manifests are being deleted at once.
    AccessWithdrawn(u16),
}

/// Decides which files of the plugin stay. Files in directories that the successor does not use are removed only if the successor
/// has installed the plugin in its own directories, and, if the configuration directories differ, in the chain of the same network.
/// Otherwise a removal could let pods start without redirection, whereas leftover files can be removed later.
pub(super) fn decide(successor: Successor, daemon_set: &DaemonSetState) -> Action {
    match successor {
        Successor::Installed(moved) if moved.former.is_empty() => Action::Keep(KeepReason::Superseded),
        Successor::Installed(moved) if moved.former.conf && !moved.is_same_network() => {
            Action::Keep(KeepReason::OtherNetwork(moved))
        }
        Successor::Installed(moved) => Action::RemoveFormer(moved),
        Successor::Unknown(why) => Action::Keep(KeepReason::Unconfirmed(why)),
        Successor::None => decide_alone(daemon_set),
    }
}

fn decide_alone(daemon_set: &DaemonSetState) -> Action {
    match daemon_set {
        DaemonSetState::Found { deleting: true, .. } => Action::RemoveAll(RemoveReason::Deleting),
        DaemonSetState::Found { selects_node: false, .. } => Action::RemoveAll(RemoveReason::NodeNotSelected),
        DaemonSetState::Found { .. } => Action::Keep(KeepReason::Selected),
        DaemonSetState::NotFound => Action::RemoveAll(RemoveReason::Deleted),
        DaemonSetState::Forbidden(code) => Action::Keep(KeepReason::Forbidden(*code)),
        DaemonSetState::AccessWithdrawn(code) => Action::RemoveAll(RemoveReason::AccessWithdrawn(*code)),
        DaemonSetState::Unknown(why) => Action::Keep(KeepReason::Unknown(why.clone())),
    }
}

impl Action {
    /// Returns the node's directories in which files stay although no agent will manage them.
    pub(super) fn orphaned<'a>(&self, daemon_set: &'a DaemonSetState) -> &'a [PathBuf] {
        match (self, daemon_set) {
            (Self::Keep(KeepReason::Superseded), _) => &[],
            (Self::Keep(_), DaemonSetState::Found { unmounted, .. }) => unmounted,
            _ => &[],
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep(KeepReason::Superseded) => f.write_str("kept: another agent serves this node already"),
            Self::Keep(KeepReason::Unconfirmed(why)) => {
                write!(f, "kept: another agent serves this node already, and its directories are unknown: {why}")
            }
            Self::Keep(KeepReason::Selected) => {
                f.write_str("kept: the DaemonSet selects this node, and another agent will follow")
            }
            Self::Keep(KeepReason::OtherNetwork(Relocation { from, to, .. })) => write!(
                f,
                "kept: another agent has chained into {}, this one into {} (paths as each agent mounts them), and nothing proves \
                 that the runtime reads the former; set cniConfDir to the directory that the runtime reads; if that is the \
                 former, `install-cni uninstall` in a pod that mounts the latter removes the files",
                Chain(to),
                Chain(from)
            ),
            Self::RemoveFormer(Relocation { former, from, to }) => {
                f.write_str("removed from former directories: another agent has installed the plugin in other ones")?;
                let moves = [(former.conf, &from.conf, &to.conf), (former.bin, &from.bin, &to.bin)];
                moves
                    .into_iter()
                    .filter(|(is_former, ..)| *is_former)
                    .try_for_each(|(_, from, to)| write!(f, "; {} is replaced by its {}", from.display(), to.display()))
            }
            Self::Keep(KeepReason::Forbidden(code)) => write!(
                f,
                "kept: the DaemonSet may not be read (status {code}), and the agent's service account exists; \
                 `install-cni uninstall` removes it"
            ),
            Self::Keep(KeepReason::Unknown(why)) => {
                write!(f, "kept: the state of the DaemonSet is unknown ({why}); `install-cni uninstall` removes it")
            }
            Self::RemoveAll(RemoveReason::Deleted) => f.write_str("removed: the DaemonSet is deleted"),
            Self::RemoveAll(RemoveReason::Deleting) => f.write_str("removed: the DaemonSet is being deleted"),
            Self::RemoveAll(RemoveReason::NodeNotSelected) => {
                f.write_str("removed: the DaemonSet no longer selects this node")
            }
            Self::RemoveAll(RemoveReason::AccessWithdrawn(code)) => {
                write!(f, "removed: neither the DaemonSet nor the agent's own pod may be read any more (status {code})")
            }
        }
    }
}

/// Formats a network and its configuration directory, by the path under which the directory's agent mounts it.
struct Chain<'a>(&'a Place);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { conf, network, .. } = self.0;
        match network {
            Some(network) => write!(f, "network {network:?} of {}", conf.display()),
            None => write!(f, "no single network of {}", conf.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::install::Scope;

    const NONE: Scope = Scope { conf: false, bin: false, run: false };

    fn moved(former: Scope, from: Option<&str>, to: Option<&str>) -> Relocation {
        let place = |conf: &str, bin: &str, network: Option<&str>| Place {
            conf: conf.into(),
            bin: bin.into(),
            network: network.map(str::to_owned),
        };
        Relocation { former, from: place("/from/net", "/from/bin", from), to: place("/to/net", "/to/bin", to) }
    }

    fn found(deleting: bool, selects_node: bool) -> DaemonSetState {
        DaemonSetState::Found { deleting, selects_node, unmounted: vec!["/former".into()] }
    }

    /// Returns a state of each kind.
    fn states() -> Vec<DaemonSetState> {
        let found = [(false, true), (true, true), (true, false), (false, false)].map(|(d, s)| found(d, s));
        let others = [
            DaemonSetState::NotFound,
            DaemonSetState::AccessWithdrawn(403),
            DaemonSetState::Forbidden(403),
            DaemonSetState::Unknown("timed out".to_owned()),
        ];
        found.into_iter().chain(others).collect()
    }

    #[test]
    fn without_a_successor_the_plugin_is_removed_only_if_the_daemon_set_no_longer_covers_the_node() {
        let expected = [
            Action::Keep(KeepReason::Selected),
            Action::RemoveAll(RemoveReason::Deleting),
            Action::RemoveAll(RemoveReason::Deleting),
            Action::RemoveAll(RemoveReason::NodeNotSelected),
            Action::RemoveAll(RemoveReason::Deleted),
            Action::RemoveAll(RemoveReason::AccessWithdrawn(403)),
            Action::Keep(KeepReason::Forbidden(403)),
            Action::Keep(KeepReason::Unknown("timed out".to_owned())),
        ];
        for (state, expected) in states().into_iter().zip(expected) {
            assert_eq!(decide(Successor::None, &state), expected, "{state:?}");
        }
    }

    #[test]
    fn files_in_former_directories_are_removed_regardless_of_the_daemon_set() {
        for state in states() {
            for (conf, bin) in [(true, true), (true, false), (false, true)] {
                let moved = moved(Scope { conf, bin, ..NONE }, Some("net"), Some("net"));
                let action = decide(Successor::Installed(moved.clone()), &state);
                assert_eq!(action, Action::RemoveFormer(moved), "{state:?}");
                for (is_named, dir) in [(conf, "/from/net"), (bin, "/from/bin")] {
                    assert_eq!(action.to_string().contains(dir), is_named, "{action}");
                }
            }
            let action = decide(Successor::Installed(moved(NONE, None, Some("net"))), &state);
            assert_eq!(action, Action::Keep(KeepReason::Superseded), "{state:?}");
        }
    }

    #[test]
    fn files_in_a_configuration_directory_stay_if_the_successor_has_another_network() {
        let conf = Scope { conf: true, ..NONE };
        let both = Scope { bin: true, ..conf };
        for (from, to) in [(Some("net"), Some("podman")), (Some("net"), None), (None, Some("podman")), (None, None)] {
            for (state, former) in states().into_iter().flat_map(|state| [(state.clone(), conf), (state, both)]) {
                let moved = moved(former, from, to);
                let action = decide(Successor::Installed(moved.clone()), &state);
                for part in [from, to, Some("/from/net"), Some("/to/net")].into_iter().flatten() {
                    assert!(action.to_string().contains(part), "{part}: {action}");
                }
                assert_eq!(action, Action::Keep(KeepReason::OtherNetwork(moved)));
            }
        }
        // The networks are not compared if only the plugin directory differs.
        let moved = moved(Scope { bin: true, ..NONE }, Some("net"), None);
        assert_eq!(decide(Successor::Installed(moved.clone()), &DaemonSetState::NotFound), Action::RemoveFormer(moved));
    }

    #[test]
    fn no_file_is_removed_while_the_successors_directories_are_unknown() {
        for state in states() {
            let action = decide(Successor::Unknown("not yet".to_owned()), &state);
            assert!(matches!(action, Action::Keep(KeepReason::Unconfirmed(_))), "{state:?} {action:?}");
            let is_found = matches!(state, DaemonSetState::Found { .. });
            assert_eq!(action.orphaned(&state).len(), usize::from(is_found), "{state:?}");
        }
    }
}

#[cfg(test)]
mod model;
