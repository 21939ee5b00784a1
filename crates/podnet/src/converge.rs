//! Makes the rules, addresses and routes of a netns match the [`Desired`] redirection, reports how they differ from it,
//! and removes them.
//!
//! `plugin`, `iptables` and `repair` call this module on a thread in the netns; the module enters no namespace itself.

mod available;
mod check;
mod cleanup;
mod facts;
mod retry;
mod view;

pub use available::available;
pub use check::Checked;
pub use cleanup::{Cleanup, cleanup};
pub use view::{View, saved};

use std::fmt;
use std::net::Ipv6Addr;

use contract::IptablesBinary;
use netfilter::{self, Backend, Live, Plan, RulesState, Session};
use ruleset::{Desired, Owned};

use crate::netns;
use crate::netns::routes::{self, Entry};
use cleanup::{remove, remove_unwanted_routes};
use facts::NetnsFacts;
use retry::retry_on_contention;
use view::{Comparison, Observation};

/// Options for programming rules.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Use native nftables tables instead of iptables' tables.
    pub native_nftables: bool,
    /// The operator's choice of iptables implementation.
    pub forced: Option<IptablesBinary>,
    pub on_difference: OnDifference,
    /// Which rules and chains are compared and changed, whatever the desired rules are.
    pub owned: &'static Owned,
}

impl Options {
    /// Whether the operator requires a backend.
    fn is_chosen(&self) -> bool {
        self.native_nftables || self.forced.is_some()
    }
}

/// The reaction to own rules in a netns that differ from the desired rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDifference {
    /// Correct the differences.
    Reconcile,
    /// Change nothing and report the differences.
    Refuse,
}

/// The result of [`apply`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The backend that holds the rules.
    pub backend: Backend,
    /// Whether the rules cover IPv6.
    pub ipv6: bool,
    pub change: Change,
    pub warning: Option<Warning>,
}

/// Traffic that is not redirected although the pod's addresses suggest it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The pod has IPv4 and IPv6 addresses, but its settings redirect only IPv4.
    #[error(
        "the pod has the IPv6 address {0}, but its IPv6 traffic is not redirected; to redirect it, set \
         ISTIO_DUAL_STACK=true in the environment of its proxy (proxyMetadata) and of istiod"
    )]
    Ipv6NotRedirected(Ipv6Addr),
}

/// A difference between a netns and its desired state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    NoRules,
    /// A rule or a chain differs.
    Rule(netfilter::Difference),
    /// An address, routing rule or route is missing.
    Route(Entry),
    /// A routing rule or route of an earlier mode exists.
    Unwanted(Entry),
    /// The routing rule of TPROXY exists, but nothing assigns inbound packets to the proxy.
    NoTproxy(Entry),
    /// Another backend also holds own rules.
    Former(Backend),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRules => f.write_str("Istio's rules are missing"),
            Self::Rule(difference) => difference.fmt(f),
            Self::Route(entry) => write!(f, "{entry} is missing"),
            Self::Unwanted(entry) => write!(f, "{entry} is left over"),
            Self::NoTproxy(rule) => {
                write!(f, "no rule assigns inbound packets to the proxy, although the {rule} exists")
            }
            Self::Former(backend) => write!(f, "{} holds rules of Istio, too", backend.as_str()),
        }
    }
}

/// The changes that were necessary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// All rules were added; there were none.
    Added,
    /// These differences were corrected.
    Reconciled(Vec<Difference>),
    None,
}

impl Change {
    fn of(corrected: Vec<Difference>) -> Self {
        if corrected.is_empty() { Self::None } else { Self::Reconciled(corrected) }
    }

    /// Returns the change's name in logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Reconciled(_) => "reconciled",
            Self::None => "none",
        }
    }

    /// Returns the corrected differences.
    pub fn reconciled(&self) -> &[Difference] {
        match self {
            Self::Reconciled(differences) => differences,
            Self::Added | Self::None => &[],
        }
    }
}

/// A netns could not be converged or compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The addresses cannot be read or none is usable, or the routes cannot be changed.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    #[error(transparent)]
    Netfilter(#[from] netfilter::Error),
    #[error(transparent)]
    Unencodable(#[from] netfilter::Unencodable),
    #[error(transparent)]
    NoBackend(#[from] netfilter::Unavailable),
    /// The kernel refused an expression that it had reported as supported.
    #[error("the kernel lacks extensions that rules of {} need; load the modules nft_compat, xt_owner, xt_conntrack, xt_CT and xt_TPROXY", .0.as_str())]
    Unsupported(Backend),
    /// The netns has other rules of Istio, which are replaced only with `--reconcile`.
    #[error("other rules of Istio exist already; `--reconcile` replaces them: {}", list(.0))]
    Differs(Vec<Difference>),
}

impl Error {
    /// Whether a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Netns(netns::Error::Netlink(error)) => error.is_temporary(),
            Self::Netfilter(error) => error.is_temporary(),
            _ => false,
        }
    }

    /// Whether the process lacks a privilege.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Netns(netns::Error::Netlink(error)) => error.is_denied(),
            Self::Netfilter(error) => error.is_denied(),
            _ => false,
        }
    }

    /// Whether another backend may succeed.
    fn is_backend_specific(&self) -> bool {
        use netfilter::Error::{Netlink, NoProgram, OtherUserNamespace, Program};
        match self {
            Self::Unsupported(_) => true,
            Self::Netfilter(error) if error.is_temporary() => false,
            Self::Netfilter(error) => {
                matches!(error, Netlink(_) | NoProgram { .. } | OtherUserNamespace { .. } | Program { .. })
            }
            _ => false,
        }
    }
}

/// Maximum number of differences in a list. A netns can have any number; events, logs and replies contain the list.
const LISTED: usize = 20;

/// Joins the first differences into one line; counts the rest.
pub fn list(differences: &[Difference]) -> String {
    let mut named: Vec<String> = differences.iter().take(LISTED).map(ToString::to_string).collect();
    if let Some(more @ 1..) = differences.len().checked_sub(LISTED) {
        named.push(format!("and {more} more"));
    }
    named.join("; ")
}

/// Ensures that rules, addresses and routes exist in the calling thread's netns. A second call changes nothing.
pub fn apply(desired: &Desired, options: Options) -> Result<Outcome, Error> {
    View::take(options)?.apply(desired)
}

impl View {
    /// Ensures that rules, addresses and routes exist.
    ///
    /// A family that the present rules redirect stays redirected, even if the pod's present addresses alone would not
    /// require rules for it.
    pub fn apply(self, desired: &Desired) -> Result<Outcome, Error> {
        let options = self.options;
        let (netns, mut observed) = self.for_pod(desired)?;
        let mut convergence = Convergence { desired, netns, options, added: Vec::new() };
        let presumed = observed.session.backend();
        let mut failure = match convergence.run(&mut observed) {
            Ok(Attempt::Elsewhere(backend, _)) if !options.is_chosen() => {
                return convergence.run(&mut Observation::new(backend, options.owned))?.outcome(backend);
            }
            attempt => match attempt.and_then(|attempt| attempt.outcome(presumed)) {
                Err(error) if error.is_backend_specific() => error,
                outcome => return outcome,
            },
        };
        for backend in fallbacks(&failure, presumed, options)? {
            let attempt = convergence.run(&mut Observation::new(backend, options.owned));
            match attempt.and_then(|attempt| attempt.outcome(backend)) {
                Err(error) if error.is_backend_specific() => failure = error,
                outcome => return outcome,
            }
        }
        Err(failure)
    }
}

/// Lists the backends to try after the presumed one proved unusable.
fn fallbacks(failure: &Error, presumed: Backend, options: Options) -> Result<Vec<Backend>, Error> {
    // The kernel refuses iptables' owner match in a netns of another user namespace. The native match works there:
    // nf_tables reads ids in the netns's user namespace, whichever namespace the writer is in.
    if matches!(failure, Error::Netfilter(netfilter::Error::OtherUserNamespace { .. })) {
        return Ok(options.forced.is_none().then_some(Backend::NativeFallback).into_iter().collect());
    }
    let mut left = netfilter::candidates(options.native_nftables, options.forced, &netfilter::probe()?)?;
    left.retain(|backend| *backend != presumed);
    Ok(left)
}

/// The result of an attempt with one backend.
enum Attempt {
    Converged(Outcome),
    /// The kernel lacks an expression that the rules need.
    Unsupported,
    /// The backend has no own rules, but this other one has, perhaps because an earlier call fell back to it. The caller
    /// refuses differences, so nothing was changed.
    Elsewhere(Backend, Vec<Difference>),
}

impl Attempt {
    /// Returns the final result if no other backend is to be tried.
    fn outcome(self, backend: Backend) -> Result<Outcome, Error> {
        match self {
            Self::Converged(outcome) => Ok(outcome),
            Self::Unsupported => Err(Error::Unsupported(backend)),
            Self::Elsewhere(_, differences) => Err(Error::Differs(differences)),
        }
    }
}

/// The convergence of one netns, which may try several backends.
struct Convergence<'a> {
    desired: &'a Desired,
    netns: NetnsFacts,
    options: Options,
    /// The addresses, routing rules and routes that all attempts so far have added. The outcome lists them even if a later
    /// attempt found them present.
    added: Vec<Entry>,
}

impl Convergence<'_> {
    /// Converges with one backend: observes, compares and corrects.
    fn run(&mut self, observed: &mut Observation) -> Result<Attempt, Error> {
        let (attempt, former) = retry_on_contention(|| self.attempt(observed))?;
        let Attempt::Converged(mut outcome) = attempt else { return Ok(attempt) };
        // Rules of other backends are removed last, so that traffic is redirected at all times.
        former.into_iter().try_for_each(|backend| remove(self.desired, backend, self.options.owned))?;
        // After an ADD in a netns without rules, routes of an earlier mode are not searched for, to save time. If another
        // program removed only the rules, such routes stay until the next call that reconciles.
        if self.options.on_difference == OnDifference::Reconcile && outcome.change != Change::Added {
            let removed = remove_unwanted_routes(self.desired, outcome.ipv6)?;
            outcome.change = Change::of([outcome.change.reconciled(), &removed].concat());
        }
        Ok(Attempt::Converged(outcome))
    }

    /// Converges once, and returns the other backends that have own rules, which must be removed afterwards.
    fn attempt(&mut self, observed: &mut Observation) -> Result<(Attempt, Vec<Backend>), Error> {
        let backend = observed.session.backend();
        let Comparison { ipv6, rules, live, former, .. } = view::compare(self.desired, &self.netns, observed)?;
        let former_rules = live.is_programmed().then_some(&self.desired.rules.former);
        let plan = netfilter::diff_from(former_rules, &rules, &live)?;
        view::confirm(&live, &plan.state)?;
        let mut differences = differences(&plan.state, &former);
        let fresh = plan.state == RulesState::Absent && former.is_empty();
        if self.options.on_difference == OnDifference::Refuse && !fresh && !differences.is_empty() {
            return match former.first() {
                Some(backend) if plan.state == RulesState::Absent => {
                    Ok((Attempt::Elsewhere(*backend, differences), former))
                }
                _ => Err(Error::Differs(differences)),
            };
        }
        // Routes are added before the rules, because a packet that TPROXY marks must find its route.
        let ipv6_routes = self.netns.needs_ipv6_routes(self.desired.ipv6, ipv6);
        self.added.extend(routes::apply(self.desired.routes.intended, ipv6_routes)?);
        let is_done = |live: &Live| Ok(netfilter::diff(&rules, live)?.is_empty());
        if matches!(apply_plan(&mut observed.session, &plan, &live, is_done)?, netfilter::Outcome::Unsupported { .. }) {
            return Ok((Attempt::Unsupported, former));
        }
        differences.extend(self.added.iter().cloned().map(Difference::Route));
        let change = if fresh { Change::Added } else { Change::of(differences) };
        let warning = self.netns.warning(ipv6);
        Ok((Attempt::Converged(Outcome { backend, ipv6, change, warning }), former))
    }
}

fn differences(state: &RulesState, former: &[Backend]) -> Vec<Difference> {
    let mut differences = match state {
        RulesState::Same => Vec::new(),
        RulesState::Absent => vec![Difference::NoRules],
        RulesState::Differs(found) => found.iter().cloned().map(Difference::Rule).collect(),
    };
    differences.extend(former.iter().copied().map(Difference::Former));
    differences
}

/// Applies a plan that was made for `live`.
///
/// If another process changed the tables in the meantime, the result is [`netfilter::Error::Contended`]. nf_tables
/// detects such a change by the ruleset's generation and refuses the plan. iptables-legacy has no generations, so its
/// tables are read again after the restore. Tables that the restore left unchanged are not treated as contention: then
/// the cause is the restore program, and a retry would not help.
fn apply_plan(
    session: &mut Session,
    plan: &Plan<'_>,
    live: &Live,
    is_done: impl Fn(&Live) -> Result<bool, Error>,
) -> Result<netfilter::Outcome, Error> {
    let applied = session.apply(plan)?;
    if session.backend() == Backend::IptablesLegacy && applied == netfilter::Outcome::Changed {
        let after = session.observe()?;
        if after != *live && !is_done(&after)? {
            return Err(netfilter::Error::Contended.into());
        }
    }
    Ok(applied)
}

#[cfg(test)]
mod tests {
    use netfilter::Retry;
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn a_temporary_error_does_not_change_the_backend() {
        let open = |cause| netlink::Error::Open { protocol: "netfilter", cause };
        let program = |retry| netfilter::Error::Program { program: "x", what: String::new(), retry };
        for error in [open(Errno::ENOMEM).into(), open(Errno::EMFILE).into(), program(Retry::Later)] {
            let error = Error::from(error);
            assert!(error.is_temporary() && !error.is_backend_specific(), "{error}");
        }
        for error in
            [open(Errno::EPROTONOSUPPORT).into(), program(Retry::Never), netfilter::Error::NoProgram { program: "x" }]
        {
            let error = Error::from(error);
            assert!(!error.is_temporary() && error.is_backend_specific(), "{error}");
        }
    }
}
