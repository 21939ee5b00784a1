//! Rule sets ⇄ kernel.
//!
//! `converge` observes what a netns holds, compares it with what is wanted and applies the difference, by one of three
//! backends. Deciding ([`choose`], [`diff`], [`removal`]) is pure; [`probe`], [`observe`] and [`apply`] act on the
//! netns that the calling thread is in, which they never change.

pub mod batch;
mod compat;
mod describe;
mod diff;
pub mod expr;
pub mod image;
mod live;
mod native;
pub mod nft;
mod removal;
pub mod restore;
mod wire;
mod xt;

pub use diff::{Difference, Mismatch, Wrong};
pub use live::{Live, LiveChain, LiveHook, LiveRule, LiveTable};
pub use wire::read_all;

use nix::errno::Errno;

use crate::netlink::{self, Malformed, Protocol, Refusal, Socket};
use crate::rules::RuleSet;

/// By which way rules get into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables, as iptables-nft writes it.
    IptablesNft,
    /// nf_tables, as Istio's native nftables mode writes it.
    NativeNft,
}

impl Backend {
    /// For logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IptablesNft => "iptables-nft",
            Self::NativeNft => "nftables",
        }
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
    /// Someone keeps changing the ruleset.
    #[error("the ruleset changed while it was read or compared; try again")]
    Restless,
    /// A message outgrew its bounds.
    #[error("writing netlink messages: {0}")]
    Encoding(#[source] Malformed),
}

/// What is to be done to a netns, and why.
#[derive(Debug)]
pub struct Plan<'a> {
    /// How the netns differs from what is wanted.
    pub difference: Difference,
    changes: Vec<batch::Change<'a>>,
    generation: Option<u32>,
}

impl Plan<'_> {
    /// Nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// What a backend's tables hold in the calling thread's netns.
pub fn observe(backend: Backend) -> Result<Live, Error> {
    live::observe(scope(backend))
}

/// The rules in the backend's words.
pub fn image(backend: Backend, wanted: &RuleSet) -> Result<image::Image<'_>, Error> {
    let image = match backend {
        Backend::IptablesNft => compat::image(wanted),
        Backend::NativeNft => native::image(wanted),
    };
    Ok(image?)
}

/// How a netns differs from what is wanted, with the changes that mend it.
pub fn diff<'a>(wanted: &'a image::Image<'a>, live: &'a Live) -> Plan<'a> {
    let diff::Comparison { difference, changes } = diff::compare(wanted, live);
    Plan { difference, changes, generation: live.generation }
}

/// What takes our rules out.
pub fn removal<'a>(wanted: &image::Image<'a>, live: &'a Live) -> Plan<'a> {
    let changes = removal::changes(wanted, live);
    let difference = if changes.is_empty() { Difference::Same } else { Difference::Differs(Vec::new()) };
    Plan { difference, changes, generation: live.generation }
}

/// Carries a plan out in one transaction, in the calling thread's netns. An empty plan touches nothing.
pub fn apply(plan: &Plan<'_>) -> Result<(), Error> {
    if plan.is_empty() {
        return Ok(());
    }
    let batch = batch::encode(&plan.changes, plan.generation).map_err(Error::Encoding)?;
    let mut socket = Socket::open(Protocol::Netfilter)?;
    let Err(error) = socket.ask("changing the ruleset", &batch.bytes, batch.last, |_| Ok(())) else { return Ok(()) };
    let netlink::Error::Refused { refusal, .. } = error else { return Err(error.into()) };
    if refusal.errno == Errno::ERESTART {
        return Err(Error::Restless);
    }
    let change = batch.change_of(refusal.seq).and_then(|i| plan.changes.get(i));
    let change = change.map_or_else(|| "committing the transaction".to_owned(), ToString::to_string);
    Err(Error::Refused { change, refusal })
}

fn scope(backend: Backend) -> live::Scope {
    match backend {
        Backend::IptablesNft => live::Scope::Iptables,
        Backend::NativeNft => live::Scope::Native,
    }
}
