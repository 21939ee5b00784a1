//! SIGTERM → is the plugin to stay on this node, or to go? Pure; every outcome with its reason.
//!
//! It stays unless somebody has said that the node is to be without it: a plugin that is taken away during an upgrade lets
//! pods start without redirection, and nobody is told.

use std::fmt;

/// What the API server says of the DaemonSet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is there.
    Found {
        /// It is being deleted.
        deleting: bool,
        /// It would run a pod on this node, as far as its node selector and affinity tell.
        selects_node: bool,
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
    /// All is removed.
    Remove(Remove),
}

/// Why the plugin stays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Keep {
    /// Another agent serves the node already.
    Superseded,
    /// The DaemonSet wants the node served: an upgrade, a restart, a reboot.
    Wanted,
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

/// Decides. `superseded`: another agent has taken the sockets over.
pub(super) fn decide(superseded: bool, answer: Answer) -> Ending {
    if superseded {
        return Ending::Keep(Keep::Superseded);
    }
    match answer {
        Answer::Found { deleting: true, .. } => Ending::Remove(Remove::Deleting),
        Answer::Found { selects_node: false, .. } => Ending::Remove(Remove::NodeNotSelected),
        Answer::Found { .. } => Ending::Keep(Keep::Wanted),
        Answer::NotFound => Ending::Remove(Remove::Deleted),
        Answer::RightMissing(code) => Ending::Keep(Keep::RightMissing(code)),
        Answer::Refused(code) => Ending::Remove(Remove::AccessWithdrawn(code)),
        Answer::Unanswered(why) => Ending::Keep(Keep::Unanswered(why)),
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Keep(Keep::Superseded) => f.write_str("kept: another agent serves this node already"),
            Self::Keep(Keep::Wanted) => f.write_str("kept: the DaemonSet is there, and another agent will follow"),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_only_where_somebody_wants_it_gone() {
        let found = |deleting, selects_node| Answer::Found { deleting, selects_node };
        let lost = || "timed out".to_owned();
        for (superseded, answer, expected) in [
            (false, found(false, true), Ending::Keep(Keep::Wanted)),
            (false, found(true, true), Ending::Remove(Remove::Deleting)),
            (false, found(true, false), Ending::Remove(Remove::Deleting)),
            (false, found(false, false), Ending::Remove(Remove::NodeNotSelected)),
            (false, Answer::NotFound, Ending::Remove(Remove::Deleted)),
            (false, Answer::Refused(403), Ending::Remove(Remove::AccessWithdrawn(403))),
            (false, Answer::RightMissing(403), Ending::Keep(Keep::RightMissing(403))),
            (false, Answer::Unanswered(lost()), Ending::Keep(Keep::Unanswered(lost()))),
            (true, Answer::NotFound, Ending::Keep(Keep::Superseded)),
            (true, Answer::Refused(401), Ending::Keep(Keep::Superseded)),
        ] {
            assert_eq!(decide(superseded, answer.clone()), expected, "{superseded} {answer:?}");
        }
    }
}
