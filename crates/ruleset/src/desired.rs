//! The desired redirection of a netns as data: its rules, its routes, and the families that they cover.
//!
//! `redirect` derives it from settings alone; `podnet` compares a netns with it and changes the netns.

use crate::RuleSet;

/// The desired redirection of a netns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Desired {
    pub rules: DesiredRules,
    pub routes: DesiredRoutes,
    pub ipv6: Ipv6,
}

/// The rules of a redirection. The netns determines whether they cover IPv6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DesiredRules {
    pub intended: RuleSet,
    /// All rules that earlier settings may have added to built-in chains; removal recognizes them by this list.
    pub former: RuleSet,
    /// The rules that any settings of the pod require: the settings may have changed since the rules were added.
    pub always: RuleSet,
}

/// The routes of a redirection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DesiredRoutes {
    pub intended: Routes,
    /// All routes that earlier settings may have added.
    pub former: Routes,
    /// Whether the marked packets are those that TPROXY assigns to a listener. Then rules without TPROXY need no marked
    /// route, and a marked route without TPROXY is useless.
    pub of_tproxy: bool,
}

/// What determines whether IPv6 is redirected in a netns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ipv6 {
    /// The pod's addresses: IPv6 is redirected if the first address is IPv6, or with `dual_stack` if any address is.
    OfAddresses { dual_stack: bool },
    /// The device `lo`: IPv6 is redirected if it is `wanted` and `lo` has it. The pod may have no addresses yet, or get more
    /// later. The routes depend on `lo`, too: if IPv6 is disabled after programming, the rules stay, but routes cannot exist.
    OfLoopback { wanted: bool },
}

/// The address and routes that a redirection needs besides rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Routes {
    /// The proxy connects to the application from `::6`; only with IPv6.
    pub passthrough: bool,
    pub marked: Option<MarkRoute>,
}

/// Local delivery of packets with a mark, through a routing table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkRoute {
    pub mark: u32,
    /// The bits of a packet's mark that are compared.
    pub mask: u32,
    pub table: u32,
    /// The priority of the routing rule. Without one, the kernel puts the rule before all others except the rule for local
    /// addresses, as with `ip rule add`, and an existing rule with any priority is treated as this rule.
    pub priority: Option<u32>,
}

impl MarkRoute {
    /// Returns the route of packets with exactly this mark, by a rule of any priority.
    pub const fn exact(mark: u32, table: u32) -> Self {
        Self { mark, mask: u32::MAX, table, priority: None }
    }
}
