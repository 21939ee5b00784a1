//! Decides at SIGTERM whether the plugin stays on this node, and in which directories. Pure; every outcome has its reason.
//!
//! It stays unless somebody has said that the node is to be without it: a plugin that is taken away during an upgrade lets
//! pods start without redirection, and nobody is told.

use std::fmt;
use std::path::PathBuf;

use crate::install::{Place, Relocation};

/// The agent that answers the plugin as the daemon ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Successor {
    /// No agent but this one.
    None,
    /// Another one that has not said where it has installed the plugin, and why not.
    Unknown(String),
    /// Another one, whose plugin and chain entry are in place.
    Installed(Relocation),
}

/// What the API server says of the DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is there.
    Found {
        /// It is being deleted.
        deleting: bool,
        /// It would run a pod on this node, as far as its node selector and affinity tell.
        selects_node: bool,
        /// Directories of the node that the daemon's pod mounts for plugin or configuration, and pods of the DaemonSet's template
        /// do not.
        unmounted: Vec<PathBuf>,
    },
    /// There is none.
    NotFound,
    /// The daemon's account may not ask (401, 403), but may still read the daemon's own pod.
    RightMissing(u16),
    /// The daemon's account may read neither (401, 403), and not for a moment only.
    Refused(u16),
    /// Nobody answers, or with a failure of their own.
    Unanswered(String),
}

/// What becomes of the plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// Plugin, chain entry and kubeconfig stay.
    Keep(Keep),
    /// Files in directories that the successor does not use are removed; all other files belong to the successor.
    Vacate(Relocation),
    /// All is removed.
    Remove(Remove),
}

/// Why the plugin stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Keep {
    /// Another agent serves the node already, with the same directories.
    Superseded,
    /// Another agent serves the node, and has not said where it has installed the plugin.
    Unconfirmed {
        /// Why not.
        why: String,
        /// As of [`Answer::Found`].
        unmounted: Vec<PathBuf>,
    },
    /// Another agent serves the node with another configuration directory, in which it has chained into another network: the
    /// runtime may still read this agent's directory.
    OtherNetwork {
        /// As of [`Successor::Installed`].
        moved: Relocation,
        /// As of [`Answer::Found`].
        unmounted: Vec<PathBuf>,
    },
    /// The DaemonSet wants the node served: an upgrade, a restart, a reboot.
    Wanted {
        /// As of [`Answer::Found`].
        unmounted: Vec<PathBuf>,
    },
    /// The role lacks a right, or has just been replaced by that of another version, but the account lives on.
    RightMissing(u16),
    /// Nobody can tell. A plugin too many can still be removed, a pod that started without redirection cannot be helped.
    Unanswered(String),
}

/// Why the plugin goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Remove {
    /// The DaemonSet is gone.
    Deleted,
    /// The DaemonSet is going.
    Deleting,
    /// The DaemonSet no longer wants this node.
    NodeNotSelected,
    /// The account or its role is gone: so it is when all of it is deleted at once.
    AccessWithdrawn(u16),
}

/// Decides. A directory is vacated only once a successor has installed the plugin in another one, and in the chain of the same
/// network: until then pods would start without redirection, whereas leftover files can be removed later.
pub(super) fn decide(successor: Successor, answer: Answer) -> Ending {
    match (successor, answer) {
        (Successor::Installed(moved), _) if moved.former.is_empty() => Ending::Keep(Keep::Superseded),
        (Successor::Installed(moved), answer) if moved.former.conf && !moved.is_same_network() => {
            Ending::Keep(Keep::OtherNetwork { moved, unmounted: answer.unmounted() })
        }
        (Successor::Installed(moved), _) => Ending::Vacate(moved),
        (Successor::Unknown(why), answer) => Ending::Keep(Keep::Unconfirmed { why, unmounted: answer.unmounted() }),
        (Successor::None, answer) => decide_alone(answer),
    }
}

fn decide_alone(answer: Answer) -> Ending {
    match answer {
        Answer::Found { deleting: true, .. } => Ending::Remove(Remove::Deleting),
        Answer::Found { selects_node: false, .. } => Ending::Remove(Remove::NodeNotSelected),
        Answer::Found { unmounted, .. } => Ending::Keep(Keep::Wanted { unmounted }),
        Answer::NotFound => Ending::Remove(Remove::Deleted),
        Answer::RightMissing(code) => Ending::Keep(Keep::RightMissing(code)),
        Answer::Refused(code) => Ending::Remove(Remove::AccessWithdrawn(code)),
        Answer::Unanswered(why) => Ending::Keep(Keep::Unanswered(why)),
    }
}

impl Answer {
    /// Directories of the node that the template no longer mounts, as far as known.
    fn unmounted(self) -> Vec<PathBuf> {
        match self {
            Self::Found { unmounted, .. } => unmounted,
            _ => Vec::new(),
        }
    }
}

impl Ending {
    /// Directories of the node in which files may stay that no agent looks after any more.
    pub(super) fn unmounted(&self) -> &[PathBuf] {
        match self {
            Self::Keep(
                Keep::Unconfirmed { unmounted, .. } | Keep::OtherNetwork { unmounted, .. } | Keep::Wanted { unmounted },
            ) => unmounted,
            _ => &[],
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep(Keep::Superseded) => f.write_str("kept: another agent serves this node already"),
            Self::Keep(Keep::Unconfirmed { why, .. }) => {
                write!(f, "kept: another agent serves this node already, and has not said where the plugin is: {why}")
            }
            Self::Keep(Keep::Wanted { .. }) => {
                f.write_str("kept: the DaemonSet is there, and another agent will follow")
            }
            Self::Keep(Keep::OtherNetwork { moved: Relocation { from, to, .. }, .. }) => write!(
                f,
                "kept: another agent has chained into {}, this one into {} (paths as each agent mounts them), and nothing proves \
                 that the runtime reads the former; set cniConfDir to the directory that the runtime reads; if that is the \
                 former, `install-cni uninstall` in a pod that mounts the latter removes the files",
                Chain(to),
                Chain(from)
            ),
            Self::Vacate(Relocation { former, from, to }) => {
                f.write_str("removed from former directories: another agent has installed the plugin in other ones")?;
                let moves = [(former.conf, &from.conf, &to.conf), (former.bin, &from.bin, &to.bin)];
                moves
                    .into_iter()
                    .filter(|(is_left, ..)| *is_left)
                    .try_for_each(|(_, from, to)| write!(f, "; {} is replaced by its {}", from.display(), to.display()))
            }
            Self::Keep(Keep::RightMissing(code)) => write!(
                f,
                "kept: the DaemonSet may not be asked for (status {code}), and the account is still there; \
                 `install-cni uninstall` removes it"
            ),
            Self::Keep(Keep::Unanswered(why)) => {
                write!(f, "kept: nobody can say whether it is to go ({why}); `install-cni uninstall` removes it")
            }
            Self::Remove(Remove::Deleted) => f.write_str("removed: the DaemonSet is deleted"),
            Self::Remove(Remove::Deleting) => f.write_str("removed: the DaemonSet is being deleted"),
            Self::Remove(Remove::NodeNotSelected) => f.write_str("removed: the DaemonSet no longer selects this node"),
            Self::Remove(Remove::AccessWithdrawn(code)) => {
                write!(f, "removed: neither the DaemonSet nor the own pod may be asked for any more (status {code})")
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

    const KEPT: Scope = Scope { conf: false, bin: false, run: false };

    fn moved(former: Scope, from: Option<&str>, to: Option<&str>) -> Relocation {
        let place = |conf: &str, bin: &str, network: Option<&str>| Place {
            conf: conf.into(),
            bin: bin.into(),
            network: network.map(str::to_owned),
        };
        Relocation { former, from: place("/from/net", "/from/bin", from), to: place("/to/net", "/to/bin", to) }
    }

    fn found(deleting: bool, selects_node: bool) -> Answer {
        Answer::Found { deleting, selects_node, unmounted: vec!["/former".into()] }
    }

    /// Every kind of answer.
    fn answers() -> Vec<Answer> {
        let found = [(false, true), (true, true), (true, false), (false, false)].map(|(d, s)| found(d, s));
        let others = [
            Answer::NotFound,
            Answer::Refused(403),
            Answer::RightMissing(403),
            Answer::Unanswered("timed out".to_owned()),
        ];
        found.into_iter().chain(others).collect()
    }

    #[test]
    fn without_a_successor_it_goes_only_where_somebody_wants_it_gone() {
        let expected = [
            Ending::Keep(Keep::Wanted { unmounted: vec!["/former".into()] }),
            Ending::Remove(Remove::Deleting),
            Ending::Remove(Remove::Deleting),
            Ending::Remove(Remove::NodeNotSelected),
            Ending::Remove(Remove::Deleted),
            Ending::Remove(Remove::AccessWithdrawn(403)),
            Ending::Keep(Keep::RightMissing(403)),
            Ending::Keep(Keep::Unanswered("timed out".to_owned())),
        ];
        for (answer, expected) in answers().into_iter().zip(expected) {
            assert_eq!(decide(Successor::None, answer.clone()), expected, "{answer:?}");
        }
    }

    #[test]
    fn a_successor_keeps_what_it_has_and_former_directories_are_vacated_whatever_the_api_server_says() {
        for answer in answers() {
            for (conf, bin) in [(true, true), (true, false), (false, true)] {
                let moved = moved(Scope { conf, bin, ..KEPT }, Some("net"), Some("net"));
                let ending = decide(Successor::Installed(moved.clone()), answer.clone());
                assert_eq!(ending, Ending::Vacate(moved), "{answer:?}");
                for (is_named, dir) in [(conf, "/from/net"), (bin, "/from/bin")] {
                    assert_eq!(ending.to_string().contains(dir), is_named, "{ending}");
                }
            }
            let ending = decide(Successor::Installed(moved(KEPT, None, Some("net"))), answer.clone());
            assert_eq!(ending, Ending::Keep(Keep::Superseded), "{answer:?}");
        }
    }

    #[test]
    fn a_configuration_directory_is_vacated_only_where_its_network_has_moved() {
        let conf = Scope { conf: true, ..KEPT };
        let both = Scope { bin: true, ..conf };
        for (from, to) in [(Some("net"), Some("podman")), (Some("net"), None), (None, Some("podman")), (None, None)] {
            for (answer, left) in answers().into_iter().flat_map(|answer| [(answer.clone(), conf), (answer, both)]) {
                let moved = moved(left, from, to);
                let unmounted = answer.clone().unmounted();
                let ending = decide(Successor::Installed(moved.clone()), answer);
                for part in [from, to, Some("/from/net"), Some("/to/net")].into_iter().flatten() {
                    assert!(ending.to_string().contains(part), "{part}: {ending}");
                }
                assert_eq!(ending, Ending::Keep(Keep::OtherNetwork { moved, unmounted }));
            }
        }
        // The plugin directory alone says nothing about networks.
        let moved = moved(Scope { bin: true, ..KEPT }, Some("net"), None);
        assert_eq!(decide(Successor::Installed(moved.clone()), Answer::NotFound), Ending::Vacate(moved));
    }

    #[test]
    fn nothing_is_removed_under_a_successor_that_has_not_said_where_the_plugin_is() {
        for answer in answers() {
            let ending = decide(Successor::Unknown("not yet".to_owned()), answer.clone());
            assert!(matches!(ending, Ending::Keep(Keep::Unconfirmed { .. })), "{answer:?} {ending:?}");
            let is_found = matches!(answer, Answer::Found { .. });
            assert_eq!(ending.unmounted().len(), usize::from(is_found), "{answer:?}");
        }
    }
}

#[cfg(test)]
mod model;
