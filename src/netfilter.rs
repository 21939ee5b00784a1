//! Rule sets ⇄ kernel.
//!
//! `converge` observes what a netns holds, compares it with what is wanted and applies the difference, by one of three
//! backends. Deciding ([`choose`], [`diff`], [`removal`]) is pure; [`probe`] and a [`Session`] act on the netns that the
//! calling thread is in, which they never change.

mod batch;
mod bypass;
mod choose;
mod compat;
mod describe;
mod diff;
mod expr;
mod image;
mod legacy;
mod live;
mod mismatch;
mod native;
pub mod nft;
mod print;
mod removal;
pub mod restore;
mod session;
mod wire;
mod xt;

pub use choose::{Forced, KernelFacts, Unavailable, candidates, choose, legacy_in_use, presume, probe};
pub use diff::Difference;
pub use live::Live;
pub use mismatch::{Mismatch, Wrong};
pub use session::Session;

use std::collections::BTreeSet;

use batch::{Batch, Change};
use image::{Image, TableFamily};

use crate::netlink::{self, Malformed, Refusal};
use crate::rules::RuleSet;

/// By which way rules get into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables, as iptables-nft writes it.
    IptablesNft,
    /// nf_tables, as Istio's native nftables mode writes it.
    NativeNft,
    /// The tables of [`NativeNft`](Self::NativeNft), for the redirected families alone: what stands in for iptables'
    /// rules where the kernel does not take those.
    NativeFallback,
    /// The programs of iptables-legacy.
    IptablesLegacy,
}

impl Backend {
    /// For logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IptablesNft => "iptables-nft",
            Self::NativeNft | Self::NativeFallback => "nftables",
            Self::IptablesLegacy => "iptables-legacy",
        }
    }

    /// Whether its tables are Istio's own.
    fn is_native(self) -> bool {
        matches!(self, Self::NativeNft | Self::NativeFallback)
    }
}

/// Why a rule cannot be put into the kernel's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unencodable {
    /// The kernel knows numbers only.
    #[error("user or group {0:?} is a name: give its number, or run where the name can be resolved")]
    Name(String),
    /// More ports than one match holds.
    #[error("{given} ports in one match, where iptables takes {limit}")]
    Ports {
        /// Ports given.
        given: usize,
        /// Ports taken.
        limit: usize,
    },
}

/// What a fuzzer calls: reads a rule's list of expressions, and says how many there are.
pub fn read_rule(list: &[u8]) -> Result<usize, Malformed> {
    wire::read_all(list).map(|exprs| exprs.len())
}

/// Why the kernel's rules could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The conversation failed.
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    /// A rule that the kernel has no words for.
    #[error(transparent)]
    Unencodable(#[from] Unencodable),
    /// The kernel refused a change, and with it all others of the transaction.
    #[error("{change}: {refusal}; nothing has been changed")]
    Refused {
        /// The change, as a sentence.
        change: String,
        /// The kernel's reason.
        refusal: Refusal,
    },
    /// A rule that asks for a socket's owner, in a netns of another user namespace (`xt_owner.c`, `owner_check`).
    #[error(
        "{change}: {refusal}: the network namespace belongs to another user namespace (a pod with hostUsers: false), \
         from where alone the kernel takes owner matches of iptables; native nftables mode has no such limit; nothing \
         has been changed"
    )]
    OtherUserNamespace {
        /// The change, as a sentence.
        change: String,
        /// The kernel's reason.
        refusal: Refusal,
    },
    /// The ruleset was changed by another process meanwhile.
    #[error("the ruleset changed while it was read or compared; try again")]
    Restless,
    /// A program of iptables-legacy is needed and not there.
    #[error("{program} is needed, and is neither in PATH nor in the usual sbin directories")]
    NoProgram {
        /// The program.
        program: &'static str,
    },
    /// A program of iptables-legacy failed.
    #[error("{program}: {what}")]
    Program {
        /// The program.
        program: &'static str,
        /// How, with its own words.
        what: String,
        /// It may pass next time: a lock was held, or its time was over.
        passing: bool,
    },
    /// A message outgrew its bounds.
    #[error("writing netlink messages: {0}")]
    Encoding(#[source] Malformed),
}

impl Error {
    /// The same may pass next time.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Restless => true,
            Self::Netlink(error) => error.is_temporary(),
            Self::Program { passing, .. } => *passing,
            Self::Refused { refusal, .. } => refusal.is_temporary(),
            Self::Unencodable(_) | Self::OtherUserNamespace { .. } | Self::NoProgram { .. } | Self::Encoding(_) => {
                false
            }
        }
    }
}

/// What is to be done to a netns, and why.
#[derive(Debug)]
pub struct Plan<'a> {
    /// How the netns differs from what is wanted.
    pub difference: Difference,
    action: Action<'a>,
}

#[derive(Debug)]
enum Action<'a> {
    Nothing,
    /// One nf_tables transaction, good for one generation of the ruleset.
    Transaction(Vec<Change<'a>>, Option<u32>),
    /// Input for the restore programs of both families; empty text is not restored.
    Restore([String; 2]),
}

impl Plan<'_> {
    /// Nothing is to be done.
    pub fn is_empty(&self) -> bool {
        matches!(self.action, Action::Nothing)
    }

    /// The netlink messages that carry it out; none where it is empty or goes by iptables-legacy.
    pub fn messages(&self) -> Result<Vec<u8>, Error> {
        match &self.action {
            Action::Transaction(changes, generation) => Ok(encode(changes, *generation)?.bytes),
            Action::Nothing | Action::Restore(_) => Ok(Vec::new()),
        }
    }
}

/// What came of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was empty: nothing was sent.
    Unchanged,
    /// It was carried out.
    Changed,
    /// The kernel lacks an expression or an extension of iptables that a rule needs. Nothing has been changed; another
    /// backend may do.
    Unsupported {
        /// The change that was refused, as a sentence.
        change: String,
        /// The kernel's reason.
        refusal: Refusal,
    },
}

/// How a netns differs from what is wanted, with the changes that mend it. Owners must be numbers.
pub fn diff<'a>(wanted: &'a RuleSet, live: &'a Live) -> Result<Plan<'a>, Unencodable> {
    let diff::Comparison { difference, changes } = diff::compare(image(wanted, live.backend)?, live);
    Ok(Plan { difference, action: action(wanted, wanted, live, changes) })
}

/// Rules of others by which packets pass Istio's jumps by.
pub fn bypasses(wanted: &RuleSet, live: &Live) -> Result<Vec<Mismatch>, Unencodable> {
    Ok(bypass::find(&image(wanted, live.backend)?, live))
}

/// What takes our rules out of a netns. `former` says which rules of built-in chains are ours, besides those that lead
/// to our chains.
pub fn removal<'a>(former: &RuleSet, live: &'a Live) -> Result<Plan<'a>, Unencodable> {
    let nothing = RuleSet::default();
    let changes = removal::changes(&image(former, live.backend)?, live);
    let difference = diff::compare(image(&nothing, live.backend)?, live).difference;
    Ok(Plan { difference, action: action(&nothing, former, live, changes) })
}

fn image(wanted: &RuleSet, backend: Backend) -> Result<Image<'_>, Unencodable> {
    match backend {
        Backend::IptablesNft => compat::image(wanted),
        Backend::NativeNft => native::image(wanted, TableFamily::Inet),
        Backend::NativeFallback if wanted.ipv6 => native::image(wanted, TableFamily::Inet),
        Backend::NativeFallback => native::image(wanted, TableFamily::Ip),
        Backend::IptablesLegacy => Ok(legacy::image(wanted)),
    }
}

fn action<'a>(wanted: &RuleSet, former: &RuleSet, live: &Live, changes: Vec<Change<'a>>) -> Action<'a> {
    if changes.is_empty() {
        return Action::Nothing;
    }
    if live.backend != Backend::IptablesLegacy {
        return Action::Transaction(changes, live.generation);
    }
    let tables: BTreeSet<_> = changes.iter().map(Change::table).collect();
    let tables: Vec<_> = tables.into_iter().collect();
    Action::Restore(legacy::mend(wanted, former, live, &tables))
}

fn encode(changes: &[Change<'_>], generation: Option<u32>) -> Result<Batch, Error> {
    batch::encode(changes, generation).map_err(Error::Encoding)
}
