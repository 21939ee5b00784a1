//! Brings a netns to what a [`Redirect`] asks for, says how it differs, and undoes it.
//!
//! The one place that joins rules, kernel, addresses and routes. `plugin` and `iptables` call it, on a thread that is
//! in the netns. It does not ask whom it serves, and it enters nothing.

use std::fmt;

use crate::netfilter::{self, Backend, Difference, Forced, Mismatch, Session};
use crate::netns::routes::{self, Entry, MarkRoute, Routes};
use crate::netns::{self, HostAddresses, addresses};
use crate::redirect::Redirect;
use crate::rules::{self, Built, RuleSet};

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
    /// What was asked for and is not among the rules.
    pub warnings: Vec<rules::Warning>,
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
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRules => f.write_str("none of its rules is there"),
            Self::Rule(mismatch) => mismatch.fmt(f),
            Self::Route(entry) => write!(f, "{entry} is missing"),
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

/// Deviations as one sentence.
pub fn list(deviations: &[Deviation]) -> String {
    deviations.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// How often the rules are compared anew where somebody else changes them meanwhile.
const ATTEMPTS: usize = 5;

/// What a netns is to hold.
struct Intent {
    rules: RuleSet,
    routes: Routes,
}

/// Sees to it that the rules, addresses and routes are there. A second call changes nothing.
pub fn apply(redirect: &Redirect, options: Options) -> Result<Outcome, Error> {
    let HostAddresses { ipv6, .. } = host(redirect)?;
    let Built { rules, warnings } = rules::build(redirect, ipv6);
    let intent = Intent { rules, routes: Routes::of(redirect, ipv6) };
    let presumed = netfilter::presume(options.native_nftables, options.forced, ipv6);
    let (backend, change) = match bring(&intent, presumed, options.on_difference) {
        Ok(Some(change)) => (presumed, change),
        Err(error @ (Error::Differs(_) | Error::Netns(_))) => return Err(error),
        lacking => second_choice(&intent, presumed, options, lacking)?,
    };
    Ok(Outcome { backend, ipv6, change, warnings })
}

/// The backend that is left where the presumed one turns out not to work here.
fn second_choice(
    intent: &Intent,
    presumed: Backend,
    options: Options,
    lacking: Result<Option<Change>, Error>,
) -> Result<(Backend, Change), Error> {
    let backend = match &lacking {
        // nf_tables' own match of owners goes by the netns' user namespace, whoever writes it.
        Err(Error::Netfilter(netfilter::Error::OtherUserNamespace { .. })) if options.forced.is_none() => {
            Backend::NativeNft
        }
        _ => netfilter::choose(options.native_nftables, options.forced, &netfilter::probe()?)?,
    };
    if backend == presumed {
        return Err(lacking.err().unwrap_or(Error::Lacking(backend)));
    }
    let change = bring(intent, backend, options.on_difference)?;
    Ok((backend, change.ok_or(Error::Lacking(backend))?))
}

/// One backend's way: look, compare, change what differs. `None` where the kernel lacks what the rules need.
fn bring(intent: &Intent, backend: Backend, on_difference: OnDifference) -> Result<Option<Change>, Error> {
    let mut session = Session::new(backend);
    settled(|| {
        let live = session.observe()?;
        let plan = netfilter::diff(&intent.rules, &live)?;
        let mut deviations = deviations(&plan.difference);
        if on_difference == OnDifference::Refuse && matches!(plan.difference, Difference::Differs(_)) {
            return Err(Error::Differs(deviations));
        }
        // Before the rules: a packet that TPROXY marks must find its route.
        deviations.extend(intent.routes.apply()?.into_iter().map(Deviation::Route));
        let change = match plan.difference {
            Difference::Absent => Change::Added,
            _ if deviations.is_empty() => Change::None,
            _ => Change::Mended(deviations),
        };
        Ok(match session.apply(&plan)? {
            netfilter::Outcome::Changed | netfilter::Outcome::Unchanged => Some(change),
            netfilter::Outcome::Unsupported { .. } => None,
        })
    })
}

/// How the calling thread's netns is not as asked for; nothing where it is.
pub fn check(redirect: &Redirect, options: Options) -> Result<Vec<Deviation>, Error> {
    let HostAddresses { ipv6, .. } = host(redirect)?;
    let built = rules::build(redirect, ipv6);
    let mut deviations = deviations(&difference(&built.rules, options)?);
    deviations.extend(Routes::of(redirect, ipv6).missing()?.into_iter().map(Deviation::Route));
    Ok(deviations)
}

/// Where the presumed backend has nothing, what [`apply`] fell back to for a netns of another user namespace counts.
fn difference(rules: &RuleSet, options: Options) -> Result<Difference, Error> {
    let by = |backend| -> Result<Difference, Error> {
        Ok(netfilter::diff(rules, &Session::new(backend).observe()?)?.difference)
    };
    let presumed = netfilter::presume(options.native_nftables, options.forced, rules.ipv6);
    match by(presumed)? {
        Difference::Absent if presumed == Backend::IptablesNft && options.forced.is_none() => by(Backend::NativeNft),
        difference => Ok(difference),
    }
}

fn deviations(difference: &Difference) -> Vec<Deviation> {
    match difference {
        Difference::Same => Vec::new(),
        Difference::Absent => vec![Deviation::NoRules],
        Difference::Differs(found) => found.iter().cloned().map(Deviation::Rule).collect(),
    }
}

/// Takes out whatever [`apply`] may have put in, by whichever backend. A netns that holds nothing of it is left as it is.
pub fn cleanup(redirect: &Redirect) -> Result<(), Error> {
    let former = rules::build(redirect, true).rules;
    let facts = netfilter::probe()?;
    let nft = [Backend::IptablesNft, Backend::NativeNft].into_iter().filter(|_| facts.nf_tables);
    let legacy = facts.legacy_in_use.then_some(Backend::IptablesLegacy);
    for backend in nft.chain(legacy) {
        let mut session = Session::new(backend);
        settled(|| {
            let live = session.observe()?;
            Ok(session.apply(&netfilter::removal(&former, &live)?)?)
        })?;
    }
    routes::remove(MarkRoute { mark: redirect.tproxy_mark, table: redirect.tproxy_table })?;
    Ok(())
}

fn host(redirect: &Redirect) -> Result<HostAddresses, Error> {
    Ok(addresses::families(&addresses::read()?, redirect.dual_stack)?)
}

/// Repeats what another writer has come between.
fn settled<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(Error::Netfilter(netfilter::Error::Restless)) => {}
            done => return done,
        }
    }
    attempt()
}
