//! The desired redirection of a netns, to a sidecar or to ztunnel.
//!
//! Pure, apart from reading whether `lo` has IPv6.

use std::net::{IpAddr, Ipv6Addr};

use redirect::ambient::AmbientRedirect;
use redirect::rules::{self, Built};
use redirect::{InterceptionMode, Redirect};
use ruleset::RuleSet;

use super::{Error, Warning};
use crate::netns::routes::{MarkRoute, Routes};
use crate::netns::{addresses, loopback_has_ipv6};

/// The settings of the desired redirection.
#[derive(Debug, Clone, Copy)]
pub enum Desired<'a> {
    Sidecar(&'a Redirect),
    Ambient(&'a AmbientRedirect),
}

impl<'a> From<&'a Redirect> for Desired<'a> {
    fn from(redirect: &'a Redirect) -> Self {
        Self::Sidecar(redirect)
    }
}

impl<'a> From<&'a AmbientRedirect> for Desired<'a> {
    fn from(redirect: &'a AmbientRedirect) -> Self {
        Self::Ambient(redirect)
    }
}

/// The properties of a netns that determine its rules and backend besides the [`Desired`] settings.
pub(super) struct NetnsFacts {
    /// Whether the rules of a fresh netns must cover IPv6.
    pub(super) ipv6: bool,
    /// Whether the pod has no IPv4 address. Then rules for IPv6 have been necessary from the start.
    pub(super) only_ipv6: bool,
    /// The first usable IPv6 address of a pod with a sidecar, whether the rules cover it or not.
    pub(super) ipv6_address: Option<Ipv6Addr>,
}

impl NetnsFacts {
    /// Returns warnings about traffic that the rules do not redirect; `ipv6` is whether they cover IPv6.
    pub(super) fn warnings(&self, ipv6: bool, built: Vec<rules::Warning>) -> Vec<Warning> {
        let spared = self.ipv6_address.filter(|_| !ipv6).map(Warning::Ipv6NotRedirected);
        built.into_iter().map(Warning::Rules).chain(spared).collect()
    }
}

impl Desired<'_> {
    /// Determines whether IPv6 is redirected in a netns with these addresses. In ambient mode they do not matter,
    /// because the pod may have none yet, or get more later.
    pub(super) fn facts(self, addresses: &[IpAddr]) -> Result<NetnsFacts, Error> {
        Ok(match self {
            Self::Sidecar(redirect) => {
                let host = addresses::families(addresses, redirect.dual_stack)?;
                NetnsFacts { ipv6: host.ipv6, only_ipv6: host.host_ip.is_ipv6(), ipv6_address: host.ipv6_address }
            }
            Self::Ambient(redirect) => {
                let ipv6 = redirect.ipv6 && loopback_has_ipv6();
                NetnsFacts { ipv6, only_ipv6: ipv6, ipv6_address: None }
            }
        })
    }

    /// Builds the rules; `ipv6` is whether they must cover IPv6.
    pub(super) fn build(self, ipv6: bool) -> Built {
        match self {
            Self::Sidecar(redirect) => rules::build(redirect, ipv6),
            Self::Ambient(redirect) => Built { rules: rules::ambient::build(redirect, ipv6), warnings: Vec::new() },
        }
    }

    /// The routes that belong to the rules; `ipv6` is whether the rules cover IPv6. In ambient mode the routes depend
    /// instead on whether the netns has IPv6: if IPv6 was disabled after programming, the rules are still there, but
    /// the routes cannot exist.
    pub(super) fn routes(self, netns: &NetnsFacts, ipv6: bool) -> Routes {
        match self {
            Self::Sidecar(redirect) => Routes::of(redirect, ipv6),
            Self::Ambient(_) => Routes::ambient(netns.ipv6),
        }
    }

    /// Builds a rule set with all rules that these settings may have added to built-in chains, by which removal finds
    /// them. The rules of TPROXY contain all of REDIRECT's, so they serve for either mode.
    pub(super) fn former(self) -> RuleSet {
        match self {
            Self::Sidecar(redirect) => {
                let any_mode = Redirect { mode: InterceptionMode::Tproxy, ..redirect.clone() };
                rules::build(&any_mode, true).rules
            }
            Self::Ambient(redirect) => rules::ambient::build(redirect, true),
        }
    }

    /// Builds the rules that every setting needs: a pod's annotations may have changed since its rules were added.
    pub(super) fn always(self, ipv6: bool) -> RuleSet {
        match self {
            Self::Sidecar(_) => rules::build(&Redirect::default(), ipv6).rules,
            Self::Ambient(_) => self.build(ipv6).rules,
        }
    }

    /// The routes that live rules need; `marked` is whether they use TPROXY.
    pub(super) fn needed_routes(self, ipv6: bool, marked: bool) -> Routes {
        let routes = self.former_routes();
        match self {
            Self::Sidecar(_) => Routes { ipv6, marked: routes.marked.filter(|_| marked), ..routes },
            Self::Ambient(_) => Routes { ipv6, ..routes },
        }
    }

    /// The routes that these settings may have added, of both families.
    pub(super) fn former_routes(self) -> Routes {
        match self {
            Self::Sidecar(redirect) => {
                let marked = MarkRoute::tproxy(redirect.tproxy_mark, redirect.tproxy_table);
                Routes { ipv6: true, passthrough: true, marked: Some(marked) }
            }
            Self::Ambient(_) => Routes::ambient(true),
        }
    }
}
