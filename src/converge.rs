//! Brings a netns to what a [`Redirect`] asks for, says how it differs, and undoes it.
//!
//! The one place that joins rules, kernel, addresses and routes. `plugin` and `iptables` call it, on a thread that is
//! in the netns. It does not ask whom it serves, and it enters nothing.

use std::path::Path;

use crate::netfilter::{self, Backend, Difference, Mismatch};
use crate::netns::routes::{self, MarkRoute, Routes};
use crate::netns::{self, HostAddresses, addresses};
use crate::redirect::Redirect;
use crate::rules::{self, Built};

/// How rules get into the kernel.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// By which way.
    pub backend: Backend,
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
    pub fn mended(&self) -> &[Mismatch] {
        match self {
            Self::Mended(mismatches) => mismatches,
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
    /// Other rules are there and were to be left.
    #[error("Istio's rules are there already and differ; `--reconcile` replaces them: {}", list(.0))]
    Differs(Vec<Mismatch>),
}

/// Differences as one sentence.
pub fn list(mismatches: &[Mismatch]) -> String {
    mismatches.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// How often the rules are compared anew where somebody else changes them meanwhile.
const ATTEMPTS: usize = 5;

/// Sees to it that the rules, addresses and routes are there. A second call changes nothing.
pub fn apply(redirect: &Redirect, _netns: &Path, options: Options) -> Result<Outcome, Error> {
    let host = host(redirect)?;
    let Built { rules, warnings } = rules::build(redirect, host.ipv6);
    let wanted = netfilter::image(options.backend, &rules)?;
    let change = settled(|| {
        let live = netfilter::observe(options.backend)?;
        let plan = netfilter::diff(&wanted, &live);
        let change = match &plan.difference {
            Difference::Same => Change::None,
            Difference::Absent => Change::Added,
            Difference::Differs(found) if options.on_difference == OnDifference::Refuse => {
                return Err(Error::Differs(found.clone()));
            }
            Difference::Differs(found) => Change::Mended(found.clone()),
        };
        // Before the rules: a packet that TPROXY marks must find its route.
        Routes::of(redirect, host.ipv6).apply()?;
        netfilter::apply(&plan)?;
        Ok(change)
    })?;
    Ok(Outcome { backend: options.backend, ipv6: host.ipv6, change, warnings })
}

/// How the live rules differ from the intended ones.
pub fn check(redirect: &Redirect, _netns: &Path, options: Options) -> Result<Difference, Error> {
    let host = host(redirect)?;
    let built = rules::build(redirect, host.ipv6);
    let wanted = netfilter::image(options.backend, &built.rules)?;
    let live = netfilter::observe(options.backend)?;
    Ok(netfilter::diff(&wanted, &live).difference)
}

/// Takes out whatever [`apply`] may have put in. A netns that holds nothing of it is left as it is.
pub fn cleanup(redirect: &Redirect, _netns: &Path, options: Options) -> Result<(), Error> {
    let built = rules::build(redirect, true);
    let wanted = netfilter::image(options.backend, &built.rules)?;
    settled(|| {
        let live = netfilter::observe(options.backend)?;
        Ok(netfilter::apply(&netfilter::removal(&wanted, &live))?)
    })?;
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
