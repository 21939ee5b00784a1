//! A pod's redirection settings as types: a [`Redirect`] and the address families of the netns determine all rules.
//!
//! `annotations` builds a [`Redirect`] from the pod's fields (for the plugin), `iptables` from command line and
//! environment; both parse and check all values, so that every [`Redirect`] can be expressed as rules. `rules` builds
//! the rules from it, [`Redirect::desired`] the rules and routes.

pub mod ambient;
pub mod annotations;
mod cidr;
mod desired;
mod interfaces;
pub mod iptables;
pub mod istio;
pub mod origin;
mod owner;
mod pod;
mod ports;
pub mod rules;
pub mod trace;

pub use cidr::{CIDRS, CidrSelector, parse_cidrs, parse_loopback};
pub(crate) use interfaces::parse_interface;
pub use interfaces::parse_interfaces;
pub use owner::{OwnerGroups, parse_owners};
pub use pod::PodSettings;
pub use ports::{PortSelector, parse_ports};

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};
use ruleset::{Interface, Owner, Port};

/// How inbound connections reach the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InterceptionMode {
    /// NAT: the proxy sees 127.0.0.6 as the source address.
    #[default]
    Redirect,
    /// Transparent proxying: the proxy sees the client's address.
    Tproxy,
}

/// The DNS traffic that is redirected to the agent's DNS proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DnsCapture {
    #[default]
    Off,
    /// Traffic to these resolvers (those of `/etc/resolv.conf`); with both lists empty the same as `Off`.
    Servers { v4: Vec<Ipv4Addr>, v6: Vec<Ipv6Addr> },
    /// All traffic to port 53.
    All,
}

/// The settings that, together with the address families of the netns, determine a pod's rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    pub mode: InterceptionMode,
    /// Outbound traffic is redirected to this port.
    pub proxy_port: Port,
    /// Inbound traffic is redirected to this port.
    pub inbound_capture_port: Port,
    /// HBONE's port, never redirected.
    pub inbound_tunnel_port: Port,
    /// Users whose traffic is the proxy's own.
    pub proxy_uids: Vec<Owner>,
    /// Groups whose traffic is the proxy's own.
    pub proxy_gids: Vec<Owner>,
    /// Inbound ports that are redirected.
    pub inbound_ports: PortSelector,
    /// Inbound ports that are not redirected; used only if `inbound_ports` is `All`.
    pub inbound_ports_exclude: Vec<Port>,
    /// Outbound ports that are redirected whatever their destination.
    pub outbound_ports_include: Vec<Port>,
    /// Outbound ports that are not redirected.
    pub outbound_ports_exclude: Vec<Port>,
    /// Outbound destinations that are redirected.
    pub outbound_cidrs: CidrSelector,
    /// Outbound destinations that are not redirected.
    pub outbound_cidrs_exclude: Vec<IpNet>,
    /// Interfaces whose traffic is not redirected.
    pub exclude_interfaces: Vec<Interface>,
    /// Interfaces of virtual machines; their inbound traffic is handled as outbound.
    pub virtual_interfaces: Vec<Interface>,
    pub dns: DnsCapture,
    /// Redirect each family that has an address, not only the family of the first address.
    pub dual_stack: bool,
    /// Drop packets in conntrack state INVALID.
    pub drop_invalid: bool,
    pub owner_groups: OwnerGroups,
    /// The range within 127.0.0.0/8 that is treated as loopback.
    pub loopback_v4: Ipv4Net,
    pub tproxy_mark: u32,
    pub tproxy_table: u32,
}

impl Default for Redirect {
    /// Istio's base configuration (`istio-iptables` without flags): the proxy's ports and ids, no redirected traffic.
    fn default() -> Self {
        let id = vec![Owner::Id(contract::PROXY_ID)];
        Self {
            mode: InterceptionMode::Redirect,
            proxy_port: Port(contract::port::OUTBOUND),
            inbound_capture_port: Port(contract::port::INBOUND),
            inbound_tunnel_port: Port(contract::port::TUNNEL),
            proxy_uids: id.clone(),
            proxy_gids: id,
            inbound_ports: PortSelector::None,
            inbound_ports_exclude: Vec::new(),
            outbound_ports_include: Vec::new(),
            outbound_ports_exclude: Vec::new(),
            outbound_cidrs: CidrSelector::None,
            outbound_cidrs_exclude: Vec::new(),
            exclude_interfaces: Vec::new(),
            virtual_interfaces: Vec::new(),
            dns: DnsCapture::Off,
            dual_stack: false,
            drop_invalid: false,
            owner_groups: OwnerGroups::default(),
            loopback_v4: Ipv4Net::new_assert(Ipv4Addr::LOCALHOST, 32),
            tproxy_mark: contract::TPROXY_MARK,
            tproxy_table: contract::TPROXY_TABLE,
        }
    }
}

/// An annotation, a flag or a variable has an invalid value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {value:?} is not allowed: expected {allowed}")]
pub struct Error {
    /// Annotation key, flag or environment variable.
    pub key: String,
    /// The value, truncated for logs.
    pub value: String,
    /// The valid values.
    pub allowed: &'static str,
}

impl Error {
    /// Maximum length of [`Self::value`], in characters.
    const MAX_VALUE: usize = 120;

    pub(crate) fn new(key: &str, value: &str, allowed: &'static str) -> Self {
        Self { key: key.to_owned(), value: value.chars().take(Self::MAX_VALUE).collect(), allowed }
    }
}
