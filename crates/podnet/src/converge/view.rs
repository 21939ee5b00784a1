//! The observed state of a netns, which can be read before its pod is known, and its comparison with the desired state.
//!
//! The plugin takes a [`View`] while the agent looks up the pod. `converge` compares it with the [`Desired`] redirection.

use std::net::IpAddr;

use netfilter::{self, Backend, Live, RulesState, Session};
use ruleset::{Desired, Family, Owned, RuleSet};

use super::facts::NetnsFacts;
use super::{Error, Options};
use crate::netns::addresses;

/// The state of the calling thread's netns; valid only in that netns.
#[derive(Debug)]
pub struct View {
    pub(super) options: Options,
    addresses: Vec<IpAddr>,
    /// Fails if the tables of iptables-legacy are unknown, which determine the backend.
    presumed: Result<Presumed, netfilter::Error>,
}

/// The backend that is presumed before the pod is known.
#[derive(Debug)]
struct Presumed {
    /// Whether iptables-legacy has IPv4 tables; `legacy_v6` is the same for IPv6.
    legacy_v4: bool,
    legacy_v6: bool,
    observed: Observation,
}

impl Presumed {
    fn read(addresses: &[IpAddr], options: Options) -> Result<Self, netfilter::Error> {
        let legacy_v4 = netfilter::legacy_in_use(Family::V4)?;
        let legacy_v6 = addresses.iter().any(IpAddr::is_ipv6) && netfilter::legacy_in_use(Family::V6)?;
        let presumed = netfilter::presume(options.native_nftables, options.forced, legacy_v4);
        let mut session = Session::new(presumed, options.owned);
        // A pod that needs no rules must not cost a run of iptables-legacy's programs.
        let live = (session.backend() != Backend::IptablesLegacy).then(|| session.observe());
        Ok(Self { legacy_v4, legacy_v6, observed: Observation { session, live } })
    }
}

/// A session with a backend, and the rules that it read.
#[derive(Debug)]
pub(super) struct Observation {
    pub(super) session: Session,
    /// The live rules, used for one comparison only, because they may change; `None` if they must be read.
    live: Option<Result<Live, netfilter::Error>>,
}

impl Observation {
    /// Starts a session without reading.
    pub(super) fn new(backend: Backend, owned: &'static Owned) -> Self {
        Self { session: Session::new(backend, owned), live: None }
    }

    fn live(&mut self) -> Result<Live, netfilter::Error> {
        self.live.take().unwrap_or_else(|| self.session.observe())
    }
}

impl View {
    /// Reads addresses and rules. A backend's failure becomes an error only when its rules are needed.
    pub fn take(options: Options) -> Result<Self, Error> {
        Ok(Self::with_addresses(addresses::read()?, options))
    }

    /// Like [`take`](Self::take), but treats the netns as if it had these addresses.
    pub fn with_addresses(addresses: Vec<IpAddr>, options: Options) -> Self {
        let presumed = Presumed::read(&addresses, options);
        Self { options, addresses, presumed }
    }

    /// Determines what converging this pod needs: the properties of its netns, and the observed rules of the presumed
    /// backend.
    pub(super) fn for_pod(self, desired: &Desired) -> Result<(NetnsFacts, Observation), Error> {
        let Self { options, addresses, presumed } = self;
        let netns = NetnsFacts::new(desired.ipv6, &addresses)?;
        let Presumed { legacy_v4, legacy_v6, observed } = presumed?;
        let legacy_in_use = legacy_v4 || netns.ipv6 && legacy_v6;
        let presumed = netfilter::presume(options.native_nftables, options.forced, legacy_in_use);
        let observed = match presumed == observed.session.backend() {
            true => observed,
            false => Observation::new(presumed, options.owned),
        };
        Ok((netns, observed))
    }
}

/// The desired and the observed state of a netns.
pub(super) struct Comparison {
    /// Whether the rules must cover IPv6.
    pub(super) ipv6: bool,
    pub(super) rules: RuleSet,
    pub(super) live: Live,
    /// Other backends that hold own rules.
    pub(super) former: Vec<Backend>,
    /// Why the tables of iptables-legacy could not be read.
    pub(super) unread: Option<netfilter::Error>,
}

/// Determines the desired state and reads the observed one.
pub(super) fn compare(desired: &Desired, netns: &NetnsFacts, observed: &mut Observation) -> Result<Comparison, Error> {
    let live = observed.live()?;
    let Others { read: others, unread } = others(&live, legacy_in_use(netns)?)?;
    let former = others.iter().filter(|live| live.is_programmed()).map(|live| live.backend).collect();
    let ipv6 = netns.ipv6 || live.covers_ipv6() || others.iter().any(Live::covers_ipv6);
    Ok(Comparison { ipv6, rules: desired.rules.intended.covering(ipv6), live, former, unread })
}

/// Fails with [`netfilter::Error::Contended`] if the observed tables differ from the desired ones and a second read
/// does not yield the same tables.
///
/// With eight concurrent ADDs in a netns, a dump of nf_tables was observed to contain a chain's last rule twice, although
/// the chain had it once and the generation had not changed. Deleting the apparent duplicate deleted the only copy.
pub(super) fn confirm(live: &Live, state: &RulesState) -> Result<(), Error> {
    let is_dump = live.backend != Backend::IptablesLegacy;
    if is_dump && matches!(state, RulesState::Differs(_)) && Session::new(live.backend, live.owned).observe()? != *live
    {
        return Err(netfilter::Error::Contended.into());
    }
    Ok(())
}

/// Reads whether iptables-legacy has tables of the families of a netns; an earlier attempt may have created them.
fn legacy_in_use(netns: &NetnsFacts) -> Result<bool, netfilter::Error> {
    Ok(netfilter::legacy_in_use(Family::V4)? || netns.ipv6 && netfilter::legacy_in_use(Family::V6)?)
}

/// The tables of the backends that were not presumed.
#[derive(Default)]
struct Others {
    read: Vec<Live>,
    /// Why the tables of iptables-legacy could not be read. When rules are written, these tables are treated as having no
    /// own rules, because the program that writes rules to them is missing, too.
    unread: Option<netfilter::Error>,
}

/// Reads the tables of other backends, if there are any.
fn others(live: &Live, legacy_in_use: bool) -> Result<Others, netfilter::Error> {
    let observe = |backend| Session::new(backend, live.owned).observe();
    if live.backend == Backend::IptablesLegacy {
        let Some(first) = of_nf_tables(observe(Backend::IptablesNft))? else { return Ok(Others::default()) };
        let second = first.other().map(observe).transpose()?;
        return Ok(Others { read: std::iter::once(first).chain(second).collect(), unread: None });
    }
    let mut others = Others::default();
    others.read.extend(live.other().map(observe).transpose()?);
    if legacy_in_use {
        match observe(Backend::IptablesLegacy) {
            Ok(legacy) => others.read.push(legacy),
            Err(error @ netfilter::Error::NoProgram { .. }) => others.unread = Some(error),
            Err(error) => return Err(error),
        }
    }
    Ok(others)
}

/// Reads the rules that apply to a family in the calling thread's netns, as `iptables-save` prints them: from each
/// backend that holds own rules, else from iptables-nft.
pub fn saved(family: Family, owned: &'static Owned) -> Result<Vec<(Backend, String)>, Error> {
    let first = of_nf_tables(Session::new(Backend::IptablesNft, owned).observe())?;
    let legacy_in_use = netfilter::legacy_in_use(family)?;
    let live = match first {
        Some(live) => live,
        None => Session::new(Backend::IptablesLegacy, owned).observe()?,
    };
    let all: Vec<Live> = others(&live, legacy_in_use)?.read.into_iter().chain(std::iter::once(live)).collect();
    let programmed = all.iter().any(Live::is_programmed);
    let shown = all.iter().filter(|live| live.is_programmed() || !programmed && live.backend == Backend::IptablesNft);
    Ok(shown.map(|live| (live.backend, live.save(family))).collect())
}

/// Returns none if the kernel has no nf_tables, and so no such tables. After any other error there may be such tables, and
/// the error is returned.
fn of_nf_tables(observed: Result<Live, netfilter::Error>) -> Result<Option<Live>, netfilter::Error> {
    match observed {
        Err(error) if error.is_unsupported() => Ok(None),
        observed => observed.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use netlink::{Malformed, Refusal};
    use nix::errno::Errno;

    use super::*;

    #[test]
    fn only_an_unsupported_request_means_a_kernel_without_nf_tables() {
        let open = |cause| Err(netlink::Error::Open { protocol: "netfilter", cause }.into());
        let refusal = |errno| Refusal { seq: 1, errno, text: None };
        let refused = |errno| Err(netlink::Error::Refused { request: "x", refusal: refusal(errno) }.into());
        let malformed = || Err(netlink::Error::Malformed { request: "x", cause: Malformed("cut off") }.into());
        let long = || Err(netlink::Error::TooLong { request: "x", limit: 1 }.into());
        for error in [open(Errno::EPROTONOSUPPORT), refused(Errno::EINVAL)] {
            assert!(matches!(of_nf_tables(error), Ok(None)));
        }
        for error in [open(Errno::EMFILE), open(Errno::ENOMEM), Err(netfilter::Error::Contended)] {
            assert!(of_nf_tables(error).is_err_and(|error| error.is_temporary()));
        }
        for error in [open(Errno::EPERM), refused(Errno::EPERM), malformed(), long()] {
            assert!(of_nf_tables(error).is_err_and(|error| !error.is_temporary()));
        }
    }
}
