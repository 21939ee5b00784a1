//! Reads and programs rule sets in the kernel.
//!
//! `podnet` observes the rules of a netns, compares them with the desired ones and applies the difference with one of the
//! [`Backend`]s. Decisions ([`choose`], [`diff`], [`removal`]) are pure; [`probe`] and a [`Session`] act on the netns of
//! the calling thread and never move the thread to another netns. "Own" and "our" tables, chains and rules are those that
//! [`ruleset::Owned`] describes.

mod batch;
mod bypass;
mod choose;
mod compat;
mod describe;
mod diff;
mod difference;
mod expr;
mod image;
mod interruption;
mod legacy;
mod live;
mod native;
mod print;
mod removal;
mod save;
mod session;
mod uapi;
mod wire;
mod xt;

pub use choose::{KernelFacts, Unavailable, candidates, choose, legacy_in_use, legacy_mangle_in_use, presume, probe};
pub use diff::RulesState;
pub use difference::{Difference, DifferenceKind};
pub use live::Live;
pub use session::Session;

use std::collections::BTreeSet;
use std::io;

use netlink::{Malformed, Refusal};
use ruleset::{Family, RuleSet};

use batch::{Batch, Change};
use image::{Image, TableFamily};

/// An implementation through which rules are programmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables with the expressions of iptables-nft.
    IptablesNft,
    /// nf_tables with native tables.
    NativeNft,
    /// The tables of [`NativeNft`](Self::NativeNft), only for the redirected families: the fallback if the kernel does
    /// not accept iptables' rules.
    NativeFallback,
    /// The programs of iptables-legacy.
    IptablesLegacy,
}

impl Backend {
    /// Returns the backend's name in logs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::IptablesNft => "iptables-nft",
            Self::NativeNft | Self::NativeFallback => "nftables",
            Self::IptablesLegacy => "iptables-legacy",
        }
    }

    /// Whether the backend uses native tables, which no other program shares.
    fn is_native(self) -> bool {
        matches!(self, Self::NativeNft | Self::NativeFallback)
    }
}

/// A rule that cannot be encoded for the kernel.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unencodable {
    /// The kernel accepts only numeric ids.
    #[error("user or group {0:?} is a name: give its number, or run where the name can be resolved")]
    Name(String),
    /// A match has more ports than it can hold.
    #[error("{given} ports in one match: iptables allows at most {limit}")]
    Ports { given: usize, limit: usize },
}

/// Decodes a rule's list of expressions and returns their number; for fuzzing.
pub fn read_rule(list: &[u8]) -> Result<usize, Malformed> {
    wire::read_all(list).map(|exprs| exprs.len())
}

/// The rules could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Netlink(#[from] netlink::Error),
    #[error(transparent)]
    Unencodable(#[from] Unencodable),
    /// The kernel refused a change and so the whole transaction.
    #[error("{change}: {refusal}; nothing has been changed")]
    Refused {
        /// The change, for messages.
        change: String,
        refusal: Refusal,
    },
    /// A rule matches a socket's owner in a netns of another user namespace (`xt_owner.c`, `owner_check`).
    #[error(
        "{change}: {refusal}: the network namespace belongs to another user namespace (a pod with hostUsers: false), \
         and the kernel accepts owner matches of iptables only from that one; Istio's native nftables mode \
         (global.nativeNftables) has no such limit; nothing has been changed"
    )]
    OtherUserNamespace {
        /// The change, for messages.
        change: String,
        refusal: Refusal,
    },
    /// Another process changed the ruleset while it was read, or between our read and our write.
    #[error("the ruleset changed while it was read or compared; try again")]
    Contended,
    /// A required program of iptables-legacy is not installed.
    #[error("{program} is required, but is neither in PATH nor in the usual sbin directories")]
    NoProgram { program: &'static str },
    #[error("{program}: {what}")]
    Program {
        program: &'static str,
        /// The failure, with the program's own message.
        what: String,
        retry: Retry,
    },
    /// The tables of iptables-legacy in the netns are unknown.
    #[error("cannot read {path}, the kernel's list of the tables of iptables-legacy: {cause}")]
    LegacyTables { path: &'static str, cause: io::Error },
    /// A message exceeded its size limit.
    #[error("a netlink message cannot be encoded: {0}")]
    Encoding(Malformed),
}

/// Whether the process lacked memory or descriptors, or was interrupted, so that a retry may succeed.
fn is_temporary(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|code| netlink::is_temporary(nix::errno::Errno::from_raw(code)))
}

/// The condition under which a failed program may succeed when it is run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// The program rejects its input, or the kernel lacks a table.
    Never,
    /// The kernel rejected the change: another writer may have deleted a rule that the change was to delete.
    AfterReading,
    /// A lock was held, the time limit passed, or this process lacked memory or descriptors.
    Later,
}

impl Error {
    /// Whether a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Contended => true,
            Self::Netlink(error) => error.is_temporary(),
            Self::Program { retry, .. } => *retry == Retry::Later,
            Self::Refused { refusal, .. } => refusal.is_temporary(),
            Self::LegacyTables { cause, .. } => is_temporary(cause),
            Self::Unencodable(_) | Self::OtherUserNamespace { .. } | Self::NoProgram { .. } | Self::Encoding(_) => {
                false
            }
        }
    }

    /// Whether the kernel lacks nf_tables or an extension of it. False if the error does not tell.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Netlink(error) if error.is_unsupported())
    }

    /// Whether the process lacks a privilege.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Netlink(error) => error.is_denied(),
            Self::Refused { refusal, .. } => refusal.errno == nix::errno::Errno::EPERM,
            _ => false,
        }
    }
}

/// The changes that give a netns its desired rules, and the state that makes them necessary.
#[derive(Debug)]
pub struct Plan<'a> {
    pub state: RulesState,
    action: Action<'a>,
}

#[derive(Debug)]
enum Action<'a> {
    Nothing,
    /// One nf_tables transaction, valid for one generation of the ruleset.
    Transaction(Vec<Change<'a>>, Option<u32>),
    /// The input of each family's restore program, which is not run if its input is empty.
    Restore([String; 2]),
}

impl Plan<'_> {
    /// Whether the plan has no changes.
    pub fn is_empty(&self) -> bool {
        matches!(self.action, Action::Nothing)
    }

    /// Encodes the plan as netlink messages; empty without changes or with iptables-legacy.
    pub fn messages(&self) -> Result<Vec<u8>, Error> {
        match &self.action {
            Action::Transaction(changes, generation) => Ok(encode(changes, *generation)?.bytes),
            Action::Nothing | Action::Restore(_) => Ok(Vec::new()),
        }
    }
}

/// The outcome of applying a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The plan was empty; nothing was sent.
    Unchanged,
    /// The plan was applied.
    Changed,
    /// The kernel lacks an expression or an iptables extension that a rule needs. Nothing was changed; another backend
    /// may work.
    Unsupported {
        /// The refused change, for messages.
        change: String,
        refusal: Refusal,
    },
}

/// Compares a netns with the desired rules and plans the changes. Owners must be numeric ids.
pub fn diff<'a>(wanted: &'a RuleSet, live: &'a Live) -> Result<Plan<'a>, Unencodable> {
    diff_from(None, wanted, live)
}

/// Like [`diff`], for a netns that may have rules of earlier settings, which `former` holds. If a table has an own chain that
/// is not desired, rules of `former` in its built-in chains are also ours, although they jump to none of our chains.
pub fn diff_from<'a>(former: Option<&RuleSet>, wanted: &'a RuleSet, live: &'a Live) -> Result<Plan<'a>, Unencodable> {
    let residue = former.map(|former| image(former, live.backend)).transpose()?.unwrap_or_default();
    let diff::Comparison { state, changes } = diff::compare(image(wanted, live.backend)?, &residue, live);
    Ok(Plan { state, action: action(wanted, former.unwrap_or(wanted), live, changes) })
}

/// Finds other programs' rules that make packets skip the jump to an own chain.
pub fn bypasses(wanted: &RuleSet, live: &Live) -> Result<Vec<Difference>, Unencodable> {
    Ok(bypass::find(&image(wanted, live.backend)?, live))
}

/// Finds the places at which a family's traffic no longer reaches a redirecting rule. `always` holds the rules that any
/// settings of the pod require.
pub fn interruptions(
    wanted: &RuleSet,
    always: &RuleSet,
    family: Family,
    live: &Live,
) -> Result<Vec<Difference>, Unencodable> {
    Ok(interruption::find(&image(wanted, live.backend)?, &image(always, live.backend)?, family, live))
}

/// Plans the removal of our rules. A rule in a built-in chain is ours if it jumps to one of our chains, or if it is in
/// `former`.
pub fn removal<'a>(former: &RuleSet, live: &'a Live) -> Result<Plan<'a>, Unencodable> {
    let nothing = RuleSet::empty(former.layout);
    let changes = removal::changes(&image(former, live.backend)?, live);
    let state = diff::compare(image(&nothing, live.backend)?, &Image::default(), live).state;
    Ok(Plan { state, action: action(&nothing, former, live, changes) })
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
    Action::Restore(legacy::restore_input(wanted, former, live, &tables))
}

fn encode(changes: &[Change<'_>], generation: Option<u32>) -> Result<Batch, Error> {
    batch::encode(changes, generation).map_err(Error::Encoding)
}
