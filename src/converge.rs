//! Brings a netns to what a [`Redirect`] asks for, says how it differs, and undoes it.
//!
//! The one place that joins rules, kernel, addresses and routes. `plugin` and `iptables` call it, on a thread that is
//! in the netns. It does not ask whom it serves, and it enters nothing.

mod view;

pub use view::View;

use std::fmt;
use std::net::Ipv6Addr;

use crate::netfilter::{self, Backend, Difference, Forced, Live, Mismatch, Plan, Session};
use crate::netns;
use crate::netns::routes::{self, Entry, MarkRoute, Routes};
use crate::redirect::{InterceptionMode, Redirect};
use crate::rules;
use view::{Comparison, Netns, Seen};

/// How rules get into the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Native nftables tables instead of iptables' ones.
    pub native_nftables: bool,
    /// The operator's choice of iptables flavour.
    pub forced: Option<Forced>,
    /// What to do where other rules of Istio's are there already.
    pub on_difference: OnDifference,
}

impl Options {
    /// The operator insists on a backend.
    fn is_chosen(&self) -> bool {
        self.native_nftables || self.forced.is_some()
    }
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
    /// The rules cover IPv6.
    pub ipv6: bool,
    /// What had to be changed.
    pub change: Change,
    /// Traffic that stays unredirected although the pod's settings or addresses suggest otherwise.
    pub warnings: Vec<Warning>,
}

/// Traffic that stays unredirected although the pod's settings or addresses suggest otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// What was asked for and is not among the rules.
    #[error(transparent)]
    Rules(#[from] rules::Warning),
    /// The pod has both families, and did not say so.
    #[error(
        "the pod has the IPv6 address {0}, and its IPv6 traffic is not redirected: where it is to be, set \
         ISTIO_DUAL_STACK=true in the environment of its proxy (proxyMetadata) and of istiod"
    )]
    Ipv6NotRedirected(Ipv6Addr),
}

/// One way in which a netns is not as asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deviation {
    /// None of Istio's rules is there.
    NoRules,
    /// A rule or a chain differs.
    Rule(Mismatch),
    /// What the rules need beside them is missing.
    Route(Entry),
    /// Another backend holds rules of Istio's too.
    Former(Backend),
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRules => f.write_str("none of its rules is there"),
            Self::Rule(mismatch) => mismatch.fmt(f),
            Self::Route(entry) => write!(f, "{entry} is missing"),
            Self::Former(backend) => write!(f, "rules of Istio's are there by {} too", backend.as_str()),
        }
    }
}

/// What had to be changed for all to be there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// No rule was there: all were added.
    Added,
    /// These were found and mended.
    Mended(Vec<Deviation>),
    /// Nothing.
    None,
}

impl Change {
    /// For logs.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Mended(_) => "mended",
            Self::None => "none",
        }
    }

    /// What differed.
    pub fn mended(&self) -> &[Deviation] {
        match self {
            Self::Mended(deviations) => deviations,
            Self::Added | Self::None => &[],
        }
    }
}

/// Why a netns cannot be brought to, or compared with, what is asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its addresses cannot be read, or it has none; or its routes cannot be set.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// The kernel refuses.
    #[error(transparent)]
    Netfilter(#[from] netfilter::Error),
    /// A rule that no kernel can hold.
    #[error(transparent)]
    Unencodable(#[from] netfilter::Unencodable),
    /// No backend is there.
    #[error(transparent)]
    NoBackend(#[from] netfilter::Unavailable),
    /// The kernel refuses an expression that it said it has.
    #[error("the kernel lacks what {}'s rules need; load the modules nft_compat, xt_owner, xt_conntrack, xt_CT and xt_TPROXY", .0.as_str())]
    Lacking(Backend),
    /// Other rules are there and were to be left.
    #[error("Istio's rules are there already and differ; `--reconcile` replaces them: {}", list(.0))]
    Differs(Vec<Deviation>),
}

impl Error {
    /// The same may pass next time.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Netns(netns::Error::Netlink(error)) => error.is_temporary(),
            Self::Netfilter(error) => error.is_temporary(),
            _ => false,
        }
    }

    /// Another backend may do.
    fn is_of_backend(&self) -> bool {
        use netfilter::Error::{Netlink, NoProgram, OtherUserNamespace, Program};
        match self {
            Self::Lacking(_) => true,
            Self::Netfilter(error) if error.is_temporary() => false,
            Self::Netfilter(error) => {
                matches!(error, Netlink(_) | NoProgram { .. } | OtherUserNamespace { .. } | Program { .. })
            }
            _ => false,
        }
    }
}

/// Deviations as one sentence.
pub fn list(deviations: &[Deviation]) -> String {
    deviations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// How often the rules are compared anew where somebody else changes them meanwhile.
const ATTEMPTS: usize = 5;

/// Sees to it that the rules, addresses and routes are there. A second call changes nothing.
pub fn apply(redirect: &Redirect, options: Options) -> Result<Outcome, Error> {
    View::take(options)?.apply(redirect)
}

impl View {
    /// Sees to it that the rules, addresses and routes are there.
    ///
    /// A family that is redirected stays so: an address that the pod was given meanwhile may decide otherwise for a fresh
    /// netns, but not take redirection away.
    pub fn apply(self, redirect: &Redirect) -> Result<Outcome, Error> {
        let Self { options, .. } = self;
        let (netns, mut seen) = self.of(redirect)?;
        let presumed = seen.session.backend();
        let mut lacking = match bring(redirect, &netns, &mut seen, options.on_difference) {
            Err(Error::Differs(found)) => return unless_fallen_back(redirect, &netns, options, found),
            Err(error) if !error.is_of_backend() => return Err(error),
            Ok(Some(outcome)) => return Ok(outcome),
            Ok(None) => Error::Lacking(presumed),
            Err(error) => error,
        };
        for backend in fallbacks(&lacking, presumed, options)? {
            match bring(redirect, &netns, &mut Seen::nothing(backend), options.on_difference) {
                Ok(Some(outcome)) => return Ok(outcome),
                Ok(None) => lacking = Error::Lacking(backend),
                Err(error) if error.is_of_backend() => lacking = error,
                Err(error) => return Err(error),
            }
        }
        Err(lacking)
    }

    /// How the netns is not as asked for; nothing where it is.
    pub fn check(self, redirect: &Redirect) -> Result<Vec<Deviation>, Error> {
        let Self { options, .. } = self;
        let (netns, mut seen) = self.of(redirect)?;
        settled(|| examine(redirect, &netns, &mut seen, options))
    }
}

/// How the netns is not as asked for, by the backend that [`View::apply`] would leave it with.
fn examine(redirect: &Redirect, netns: &Netns, seen: &mut Seen, options: Options) -> Result<Vec<Deviation>, Error> {
    let presumed = seen.session.backend();
    let mut found = match view::compare(redirect, netns, seen) {
        Err(error) if error.is_of_backend() => fallbacks(&error, presumed, options)?
            .into_iter()
            .map(|backend| view::compare(redirect, netns, &mut Seen::nothing(backend)))
            .find(|compared| !matches!(compared, Err(error) if error.is_of_backend()))
            .unwrap_or(Err(error))?,
        compared => compared?,
    };
    // Where the presumed backend has nothing, what `apply` fell back to counts.
    if let (false, false, [fallback, ..]) = (options.is_chosen(), found.live.is_programmed(), &found.former[..]) {
        found = view::compare(redirect, netns, &mut Seen::nothing(*fallback))?;
    }
    let difference = netfilter::diff(&found.built.rules, &found.live)?.difference;
    view::confirm(&found.live, &difference)?;
    let mut deviations = deviations(&difference, &found.former);
    let bypasses = netfilter::bypasses(&found.built.rules, &found.live)?;
    deviations.extend(bypasses.into_iter().map(Deviation::Rule));
    deviations.extend(Routes::of(redirect, found.ipv6).missing()?.into_iter().map(Deviation::Route));
    Ok(deviations)
}

/// What an earlier call fell back to is compared instead where the presumed backend, which nobody insists on, has no rules.
fn unless_fallen_back(
    redirect: &Redirect,
    netns: &Netns,
    options: Options,
    found: Vec<Deviation>,
) -> Result<Outcome, Error> {
    match found[..] {
        [Deviation::NoRules, Deviation::Former(backend), ..] if !options.is_chosen() => {
            bring(redirect, netns, &mut Seen::nothing(backend), options.on_difference)?.ok_or(Error::Lacking(backend))
        }
        _ => Err(Error::Differs(found)),
    }
}

/// The backends that are left where the presumed one turns out not to work here.
fn fallbacks(lacking: &Error, presumed: Backend, options: Options) -> Result<Vec<Backend>, Error> {
    // nf_tables reads the ids of its native owner match in the netns' user namespace, whichever namespace the writer is in.
    if matches!(lacking, Error::Netfilter(netfilter::Error::OtherUserNamespace { .. })) {
        return Ok(options.forced.is_none().then_some(Backend::NativeFallback).into_iter().collect());
    }
    let mut left = netfilter::candidates(options.native_nftables, options.forced, &netfilter::probe()?)?;
    left.retain(|backend| *backend != presumed);
    Ok(left)
}

/// One backend's way: look, compare, change what differs. `None` where the kernel lacks what the rules need.
fn bring(
    redirect: &Redirect,
    netns: &Netns,
    seen: &mut Seen,
    on_difference: OnDifference,
) -> Result<Option<Outcome>, Error> {
    let backend = seen.session.backend();
    let brought = settled(|| {
        let Comparison { ipv6, built, live, former } = view::compare(redirect, netns, seen)?;
        let plan = netfilter::diff(&built.rules, &live)?;
        view::confirm(&live, &plan.difference)?;
        let mut deviations = deviations(&plan.difference, &former);
        let fresh = plan.difference == Difference::Absent && former.is_empty();
        if on_difference == OnDifference::Refuse && !fresh && !deviations.is_empty() {
            return Err(Error::Differs(deviations));
        }
        // Before the rules: a packet that TPROXY marks must find its route.
        deviations.extend(Routes::of(redirect, ipv6).apply()?.into_iter().map(Deviation::Route));
        let is_done = |live: &Live| Ok(netfilter::diff(&built.rules, live)?.is_empty());
        if matches!(carry_out(&mut seen.session, &plan, &live, is_done)?, netfilter::Outcome::Unsupported { .. }) {
            return Ok(None);
        }
        let change = match deviations.is_empty() {
            _ if fresh => Change::Added,
            true => Change::None,
            false => Change::Mended(deviations),
        };
        let warnings = netns.warnings(ipv6, built.warnings);
        Ok(Some((Outcome { backend, ipv6, change, warnings }, former)))
    })?;
    let Some((outcome, former)) = brought else { return Ok(None) };
    // Afterwards, so that traffic is redirected at any moment.
    former.into_iter().try_for_each(|backend| remove(redirect, backend))?;
    Ok(Some(outcome))
}

fn deviations(difference: &Difference, former: &[Backend]) -> Vec<Deviation> {
    let mut deviations = match difference {
        Difference::Same => Vec::new(),
        Difference::Absent => vec![Deviation::NoRules],
        Difference::Differs(found) => found.iter().cloned().map(Deviation::Rule).collect(),
    };
    deviations.extend(former.iter().copied().map(Deviation::Former));
    deviations
}

/// Takes out whatever [`apply`] may have put in, by whichever backend. A netns that holds nothing of it is left as it is.
pub fn cleanup(redirect: &Redirect) -> Result<(), Error> {
    let facts = netfilter::probe()?;
    let nft = [Backend::IptablesNft, Backend::NativeFallback].into_iter().filter(|_| facts.nf_tables);
    let legacy = facts.legacy_in_use.then_some(Backend::IptablesLegacy);
    nft.chain(legacy).try_for_each(|backend| remove(redirect, backend))?;
    routes::remove(MarkRoute { mark: redirect.tproxy_mark, table: redirect.tproxy_table })?;
    Ok(())
}

/// Takes a backend's rules out. TPROXY has all of REDIRECT's rules in the built-in chains, and more: so they all go,
/// whichever mode they were made for.
fn remove(redirect: &Redirect, backend: Backend) -> Result<(), Error> {
    let any_mode = Redirect { mode: InterceptionMode::Tproxy, ..redirect.clone() };
    let former = rules::build(&any_mode, true).rules;
    let mut session = Session::new(backend);
    settled(|| {
        let live = session.observe()?;
        let is_done = |live: &Live| Ok(netfilter::removal(&former, live)?.is_empty());
        carry_out(&mut session, &netfilter::removal(&former, &live)?, &live, is_done).map(drop)
    })
}

/// Carries out a plan that was made for `live`.
///
/// nf_tables refuses a plan that another writer has overtaken. iptables-legacy has no generations: the tables are read
/// again afterwards. Where a restore changes nothing, no writer is the reason, but the programs.
fn carry_out(
    session: &mut Session,
    plan: &Plan<'_>,
    live: &Live,
    is_done: impl Fn(&Live) -> Result<bool, Error>,
) -> Result<netfilter::Outcome, Error> {
    let applied = session.apply(plan)?;
    if session.backend() == Backend::IptablesLegacy && applied == netfilter::Outcome::Changed {
        let after = session.observe()?;
        if after != *live && !is_done(&after)? {
            return Err(netfilter::Error::Restless.into());
        }
    }
    Ok(applied)
}

/// Repeats what another writer has come between. A restore that fails may have been to delete a rule that it deleted.
fn settled<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(Error::Netfilter(netfilter::Error::Restless | netfilter::Error::Program { passing: false, .. })) => {}
            done => return done,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::netlink;

    #[test]
    fn a_passing_error_does_not_change_the_backend() {
        let open = |cause| netlink::Error::Open { protocol: "netfilter", cause };
        let program = |passing| netfilter::Error::Program { program: "x", what: String::new(), passing };
        for error in [open(Errno::ENOMEM).into(), open(Errno::EMFILE).into(), program(true)] {
            let error = Error::from(error);
            assert!(error.is_temporary() && !error.is_of_backend(), "{error}");
        }
        for error in [open(Errno::EPROTONOSUPPORT).into(), program(false), netfilter::Error::NoProgram { program: "x" }]
        {
            let error = Error::from(error);
            assert!(!error.is_temporary() && error.is_of_backend(), "{error}");
        }
    }
}
