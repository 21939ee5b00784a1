//! What a netns holds: what is read of it before anything is known of its pod, and what follows once the pod is known.
//!
//! The plugin takes a [`View`] while the agent looks up the pod. `converge` compares it with what a `Redirect` asks for.

use std::net::IpAddr;

use super::{Error, Options, Warning};
use crate::netfilter::{self, Backend, Difference, Live, Session};
use crate::netns::{HostAddresses, addresses};
use crate::redirect::Redirect;
use crate::rules::{self, Built, Family};

/// What the calling thread's netns holds. It is to be used in the same netns.
#[derive(Debug)]
pub struct View {
    pub(super) options: Options,
    addresses: Vec<IpAddr>,
    /// iptables-legacy has tables in this family.
    legacy_v4: bool,
    legacy_v6: bool,
    seen: Seen,
}

/// A conversation with a backend, and what it has said.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) session: Session,
    /// Good for one comparison: rules may change. Nothing where it is still to be read.
    live: Option<Result<Live, netfilter::Error>>,
}

impl Seen {
    /// Nothing has been asked yet.
    pub(super) fn nothing(backend: Backend) -> Self {
        Self { session: Session::new(backend), live: None }
    }

    fn live(&mut self) -> Result<Live, netfilter::Error> {
        self.live.take().unwrap_or_else(|| self.session.observe())
    }
}

impl View {
    /// Reads addresses and rules. A backend that cannot be asked is an error only for those who need an answer.
    pub fn take(options: Options) -> Result<Self, Error> {
        let addresses = addresses::read()?;
        let legacy_v4 = netfilter::legacy_in_use(Family::V4);
        let legacy_v6 = addresses.iter().any(IpAddr::is_ipv6) && netfilter::legacy_in_use(Family::V6);
        let mut session = Session::new(netfilter::presume(options.native_nftables, options.forced, legacy_v4));
        // A pod that turns out to need nothing must not cost a run of iptables-legacy's programs.
        let live = (session.backend() != Backend::IptablesLegacy).then(|| session.observe());
        Ok(Self { options, addresses, legacy_v4, legacy_v6, seen: Seen { session, live } })
    }

    /// What of it matters for this pod, and what its backend has said.
    pub(super) fn of(self, redirect: &Redirect) -> Result<(Netns, Seen), Error> {
        let Self { options, addresses, legacy_v4, legacy_v6, seen } = self;
        let host = addresses::families(&addresses, redirect.dual_stack)?;
        let legacy_in_use = legacy_v4 || host.ipv6 && legacy_v6;
        let presumed = netfilter::presume(options.native_nftables, options.forced, legacy_in_use);
        let seen = if presumed == seen.session.backend() { seen } else { Seen::nothing(presumed) };
        Ok((Netns { host }, seen))
    }
}

/// What decides, besides the [`Redirect`], which rules a netns gets and by which backend.
pub(super) struct Netns {
    host: HostAddresses,
}

impl Netns {
    /// iptables-legacy has tables of these families. An earlier attempt may have made them.
    fn legacy_in_use(&self) -> bool {
        netfilter::legacy_in_use(Family::V4) || self.host.ipv6 && netfilter::legacy_in_use(Family::V6)
    }

    /// What is not redirected, of rules for these families.
    pub(super) fn warnings(&self, ipv6: bool, built: Vec<rules::Warning>) -> Vec<Warning> {
        let spared = self.host.ipv6_address.filter(|_| !ipv6).map(Warning::Ipv6NotRedirected);
        built.into_iter().map(Warning::Rules).chain(spared).collect()
    }
}

/// What a netns is to hold, and what it holds.
pub(super) struct Comparison {
    /// The rules are to cover IPv6.
    pub(super) ipv6: bool,
    pub(super) built: Built,
    pub(super) live: Live,
    /// Other backends that hold rules of Istio's.
    pub(super) former: Vec<Backend>,
}

/// Builds what the netns is to hold, beside what it holds.
pub(super) fn compare(redirect: &Redirect, netns: &Netns, seen: &mut Seen) -> Result<Comparison, Error> {
    let live = seen.live()?;
    let others = others(&live, netns.legacy_in_use())?;
    let former = others.iter().filter(|live| live.is_programmed()).map(|live| live.backend).collect();
    let ipv6 = netns.host.ipv6 || live.covers_ipv6() || others.iter().any(Live::covers_ipv6);
    Ok(Comparison { ipv6, built: rules::build(redirect, ipv6), live, former })
}

/// Fails with [`netfilter::Error::Restless`] unless a second reading of tables that differ says the same.
///
/// With eight ADDs at once in a netns, a dump of nf_tables was seen to repeat a chain's last rule though the generation had
/// not changed; the rule that was deleted as surplus was the only one.
pub(super) fn confirm(live: &Live, difference: &Difference) -> Result<(), Error> {
    let is_dump = live.backend != Backend::IptablesLegacy;
    if is_dump && matches!(difference, Difference::Differs(_)) && Session::new(live.backend).observe()? != *live {
        return Err(netfilter::Error::Restless.into());
    }
    Ok(())
}

/// What other backends' tables hold, where there are some.
fn others(live: &Live, legacy_in_use: bool) -> Result<Vec<Live>, netfilter::Error> {
    let observe = |backend| Session::new(backend).observe();
    if live.backend == Backend::IptablesLegacy {
        let Some(first) = of_nf_tables(observe(Backend::IptablesNft))? else { return Ok(Vec::new()) };
        let second = first.other().map(observe).transpose()?;
        return Ok(std::iter::once(first).chain(second).collect());
    }
    let mut others = Vec::new();
    others.extend(live.other().map(observe).transpose()?);
    if legacy_in_use {
        match observe(Backend::IptablesLegacy) {
            Ok(legacy) => others.push(legacy),
            // Nobody can look, and nobody can have written them from here.
            Err(netfilter::Error::NoProgram { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(others)
}

/// A kernel without nf_tables answers with an error, and has none of its tables. A passing error says nothing of it.
fn of_nf_tables(observed: Result<Live, netfilter::Error>) -> Result<Option<Live>, netfilter::Error> {
    match observed {
        Err(error) if !error.is_temporary() => Ok(None),
        observed => observed.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use nix::errno::Errno;

    use super::*;
    use crate::netlink;

    #[test]
    fn a_passing_error_is_not_a_kernel_without_nf_tables() {
        let open = |cause| Err(netlink::Error::Open { protocol: "netfilter", cause }.into());
        assert!(matches!(of_nf_tables(open(Errno::EPROTONOSUPPORT)), Ok(None)));
        for error in [open(Errno::EMFILE), open(Errno::ENOMEM), Err(netfilter::Error::Restless)] {
            assert!(of_nf_tables(error).is_err());
        }
    }
}
