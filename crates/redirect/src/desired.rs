//! Derives the desired redirection of a netns from settings: to a sidecar or to ztunnel.
//!
//! Pure. `plugin`, `iptables` and `repair` pass the result to `podnet`, which compares it with the netns.

use contract::ambient;
use ruleset::{Desired, DesiredRoutes, DesiredRules, Ipv6, MarkRoute, Routes};

use crate::ambient::AmbientRedirect;
use crate::{InterceptionMode, PortSelector, Redirect, rules};

impl Redirect {
    /// Builds the rules and routes that redirect to a sidecar.
    pub fn desired(&self) -> Desired {
        // `former` is for rules in built-in chains that jump to no own chain. TPROXY has all such rules that REDIRECT has.
        let any_mode = Self { mode: InterceptionMode::Tproxy, ..self.clone() };
        Desired {
            rules: DesiredRules {
                intended: rules::build(self, false),
                former: rules::build(&any_mode, true),
                always: rules::build(&Self::default(), false),
            },
            routes: self.routes(),
            ipv6: Ipv6::OfAddresses { dual_stack: self.dual_stack },
        }
    }

    fn routes(&self) -> DesiredRoutes {
        // Delivers inbound connections that TPROXY assigned to the proxy's listener.
        let marked = MarkRoute::exact(self.tproxy_mark, self.tproxy_table);
        let tproxy = self.mode == InterceptionMode::Tproxy && self.inbound_ports != PortSelector::None;
        DesiredRoutes {
            intended: Routes { passthrough: true, marked: tproxy.then_some(marked) },
            former: Routes { passthrough: true, marked: Some(marked) },
            of_tproxy: true,
        }
    }
}

/// The route of ambient mode, which delivers the application's replies to ztunnel although they are addressed to the client.
const AMBIENT: MarkRoute = MarkRoute {
    mark: ambient::CONN_MARK,
    mask: ambient::MARK_MASK,
    table: ambient::TABLE,
    priority: Some(ambient::RULE_PRIORITY),
};

impl AmbientRedirect {
    /// Builds the rules and routes that redirect to ztunnel. The routes do not depend on the settings.
    pub fn desired(&self) -> Desired {
        let intended = rules::ambient::build(self, false);
        let routes = Routes { passthrough: false, marked: Some(AMBIENT) };
        Desired {
            rules: DesiredRules { former: intended.covering(true), always: intended.clone(), intended },
            routes: DesiredRoutes { intended: routes, former: routes, of_tproxy: false },
            ipv6: Ipv6::OfLoopback { wanted: self.ipv6 },
        }
    }
}

#[cfg(test)]
mod tests {
    use ruleset::Port;

    use super::*;

    const NONE: Routes = Routes { passthrough: true, marked: None };
    const MARKED: Routes = Routes { passthrough: true, marked: Some(MarkRoute::exact(1337, 133)) };

    #[test]
    fn redirect_mode_needs_no_tproxy_routes() {
        let redirect = Redirect { inbound_ports: PortSelector::All, ..Redirect::default() };
        assert_eq!(redirect.desired().routes, DesiredRoutes { intended: NONE, former: MARKED, of_tproxy: true });
    }

    #[test]
    fn tproxy_needs_routes_if_it_has_inbound_ports() {
        let mut redirect = Redirect { mode: InterceptionMode::Tproxy, ..Redirect::default() };
        assert_eq!(redirect.desired().routes.intended, NONE);
        for ports in [PortSelector::All, PortSelector::List(vec![Port(80)])] {
            redirect.inbound_ports = ports;
            assert_eq!(redirect.desired().routes.intended, MARKED);
        }
    }

    #[test]
    fn rules_of_the_other_mode_are_former_ones() {
        for mode in [InterceptionMode::Redirect, InterceptionMode::Tproxy] {
            let redirect = Redirect { mode, inbound_ports: PortSelector::All, ..Redirect::default() };
            let DesiredRules { intended, former, always } = redirect.desired().rules;
            assert_eq!(former, rules::build(&Redirect { mode: InterceptionMode::Tproxy, ..redirect }, true));
            assert_eq!(always, rules::build(&Redirect::default(), false));
            assert_eq!(former.rules == intended.rules, mode == InterceptionMode::Tproxy);
        }
    }
}
