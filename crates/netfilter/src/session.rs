//! A session with one backend in the calling thread's netns: observes its tables and applies plans.
//!
//! nf_tables uses one socket from the first query to the transaction; iptables-legacy runs programs.

use netlink::{self, Protocol, Socket};
use nix::errno::Errno;
use ruleset::Owned;

use super::batch::Change;
use super::expr::Expr;
use super::image::Rule;
use super::{Action, Backend, Error, Live, Outcome, Plan, encode, legacy, live};

#[derive(Debug)]
pub struct Session {
    backend: Backend,
    owned: &'static Owned,
    socket: Option<Socket>,
}

impl Session {
    /// Creates a session; it belongs to the netns in which it is first used.
    pub fn new(backend: Backend, owned: &'static Owned) -> Self {
        Self { backend, owned, socket: None }
    }

    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Reads the backend's tables.
    pub fn observe(&mut self) -> Result<Live, Error> {
        match self.backend {
            Backend::IptablesNft | Backend::NativeNft | Backend::NativeFallback => {
                live::observe(self.backend, self.owned, self.socket()?)
            }
            Backend::IptablesLegacy => legacy::observe(self.owned),
        }
    }

    /// Applies a plan. An empty plan changes nothing.
    pub fn apply(&mut self, plan: &Plan<'_>) -> Result<Outcome, Error> {
        match &plan.action {
            Action::Nothing => Ok(Outcome::Unchanged),
            Action::Restore(texts) => legacy::restore(texts).map(|()| Outcome::Changed),
            Action::Transaction(changes, generation) => {
                let outcome = transact(self.socket()?, changes, *generation);
                if !matches!(outcome, Ok(Outcome::Changed)) {
                    // The socket is not used again: more messages about the refused batch may follow on it.
                    self.socket = None;
                }
                outcome
            }
        }
    }

    fn socket(&mut self) -> Result<&mut Socket, Error> {
        Ok(match &mut self.socket {
            Some(socket) => socket,
            none => none.insert(Socket::open(Protocol::Netfilter)?),
        })
    }
}

fn transact(socket: &mut Socket, changes: &[Change<'_>], generation: Option<u32>) -> Result<Outcome, Error> {
    let batch = encode(changes, generation)?;
    let refusal = match socket.request("changing the ruleset", &batch.bytes, batch.last, |_| Ok(())) {
        Ok(()) => return Ok(Outcome::Changed),
        Err(netlink::Error::Refused { refusal, .. }) if refusal.errno == Errno::ERESTART => {
            return Err(Error::Contended);
        }
        Err(netlink::Error::Refused { refusal, .. }) => refusal,
        Err(error) => return Err(error.into()),
    };
    let change = batch.change_of(refusal.seq).and_then(|i| changes.get(i));
    let sentence = change.map_or_else(|| "committing the transaction".to_owned(), ToString::to_string);
    match (change, refusal.errno) {
        // The kernel lacks something. ENOENT means an expression or extension for a rule, because all chains that the rule
        // names exist by then, and the chain's type for a base chain (`nat` is a separate module). EOPNOTSUPP and
        // EAFNOSUPPORT mean the table's family or the chain's hook.
        (Some(Change::AddRule(..) | Change::AddChain(_, _, Some(_))), Errno::ENOENT)
        | (Some(Change::AddTable(_) | Change::AddChain(..)), Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT) => {
            Ok(Outcome::Unsupported { change: sentence, refusal })
        }
        // Another process created the chain after the tables were read. The generation does not show this if the netns
        // had no tables.
        (Some(Change::AddChain(_, _, None)), Errno::EEXIST) => Err(Error::Contended),
        (Some(Change::AddRule(_, _, rule, _)), Errno::EINVAL) if asks_for_owner(rule) => {
            Err(Error::OtherUserNamespace { change: sentence, refusal })
        }
        _ => Err(Error::Refused { change: sentence, refusal }),
    }
}

fn asks_for_owner(rule: &Rule<'_>) -> bool {
    rule.body.exprs().iter().any(|e| matches!(e, Expr::Match(xt) if xt.name == "owner"))
}
