//! Brings a netns to what a [`Redirect`] asks for, says how it differs, and undoes it.
//!
//! The one place that joins rules, kernel, addresses and routes. `plugin` and `iptables` call it, on a thread that is
//! in the netns. It does not ask whom it serves, and it enters nothing.

use std::path::Path;

use crate::netfilter::{self, Backend, Difference, Forced, Live, Mismatch};
use crate::netns::{self, HostAddresses};
use crate::redirect::{InterceptionMode, PortSelector, Redirect};
use crate::rules::{self, RuleSet};

/// How rules get into the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The netns as a path: the lock of iptables-legacy.
    pub netns: &'a Path,
    /// Native nftables tables instead of iptables' ones.
    pub native_nftables: bool,
    /// The operator's choice of iptables flavour.
    pub forced: Option<Forced>,
    /// What to do where other rules of Istio's are there already.
    pub on_difference: OnDifference,
}

/// What to do where a netns has Istio's rules, but not the intended ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDifference {
    /// Change what differs.
    Mend,
    /// Touch nothing and say what differs.
    Refuse,
}

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// Who holds the rules.
    pub backend: Backend,
    /// The pod has IPv6.
    pub ipv6: bool,
    /// What had to be changed.
    pub change: Change,
}

/// What had to be changed for the rules to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// None was there: all were added.
    Added,
    /// These differed and were mended.
    Mended(Vec<Mismatch>),
    /// Nothing.
    None,
}

/// Why a netns cannot be brought to, or compared with, what is asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its addresses cannot be read, or it has none.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// What is asked for makes no rules.
    #[error(transparent)]
    Rules(#[from] rules::Error),
    /// The kernel refuses.
    #[error(transparent)]
    Netfilter(#[from] netfilter::Error),
    /// Other rules are there and were to be left.
    #[error("Istio's rules are there already and differ; `--reconcile` replaces them: {}", list(.0))]
    Differs(Vec<Mismatch>),
}

fn list(mismatches: &[Mismatch]) -> String {
    mismatches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// The netns as it is and as it should be.
struct View {
    addresses: HostAddresses,
    wanted: RuleSet,
    backend: Backend,
    live: Live,
    difference: Difference,
}
