//! What a pod asks for, as types: the one value from which all rules follow.
//!
//! Filled by `annotations` (the plugin: pod facts) and by `flags` (`istio-iptables`: command line and environment);
//! read by `rules`. Parsing happens here and nowhere later: what is in a [`Redirect`] can be put into a rule.

pub mod annotations;
mod cidr;
mod interface;
mod owner;
mod ports;

pub use cidr::{CidrSelector, fmt_addr, fmt_net, parse_cidrs, parse_loopback};
pub use interface::Interface;
pub use owner::{Owner, OwnerGroups};
pub use ports::{Port, PortSelector};

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net};

use crate::contract;

/// How inbound connections reach the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum InterceptionMode {
    /// NAT: the proxy sees 127.0.0.6 as source.
    #[default]
    Redirect,
    /// Transparent proxying: the source address is kept.
    Tproxy,
}

/// Which DNS traffic goes to the agent's DNS proxy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DnsCapture {
    /// None.
    #[default]
    Off,
    /// Only what goes to these resolvers (those of `/etc/resolv.conf`); both lists empty is the same as `Off`.
    Servers {
        /// IPv4 resolvers.
        v4: Vec<Ipv4Addr>,
        /// IPv6 resolvers.
        v6: Vec<Ipv6Addr>,
    },
    /// All of port 53.
    All,
}

/// Everything that decides a pod's rules, apart from what its netns looks like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redirect {
    /// How inbound connections reach the proxy.
    pub mode: InterceptionMode,
    /// Where outbound traffic goes.
    pub proxy_port: Port,
    /// Where inbound traffic goes.
    pub inbound_capture_port: Port,
    /// HBONE's port, never redirected.
    pub inbound_tunnel_port: Port,
    /// Users whose traffic is the proxy's own.
    pub proxy_uids: Vec<Owner>,
    /// Groups whose traffic is the proxy's own.
    pub proxy_gids: Vec<Owner>,
    /// Inbound ports that are redirected.
    pub inbound_ports: PortSelector,
    /// Inbound ports that are not; used only where `inbound_ports` is `All`.
    pub inbound_ports_exclude: Vec<Port>,
    /// Outbound ports that are redirected whatever their destination.
    pub outbound_ports_include: Vec<Port>,
    /// Outbound ports that are left alone.
    pub outbound_ports_exclude: Vec<Port>,
    /// Outbound destinations that are redirected.
    pub outbound_cidrs: CidrSelector,
    /// Outbound destinations that are left alone.
    pub outbound_cidrs_exclude: Vec<IpNet>,
    /// Interfaces whose traffic is left alone.
    pub exclude_interfaces: Vec<Interface>,
    /// Interfaces whose inbound traffic counts as outbound (virtual machines).
    pub virtual_interfaces: Vec<Interface>,
    /// DNS capture.
    pub dns: DnsCapture,
    /// Look for an address of each family instead of letting the first decide.
    pub dual_stack: bool,
    /// Drop packets that conntrack calls invalid.
    pub drop_invalid: bool,
    /// Groups whose outbound traffic is redirected.
    pub owner_groups: OwnerGroups,
    /// The part of 127.0.0.0/8 that counts as loopback destination.
    pub loopback_v4: Ipv4Net,
    /// Packet mark of TPROXY.
    pub tproxy_mark: u32,
    /// Routing table of TPROXY.
    pub tproxy_table: u32,
}

impl Default for Redirect {
    /// Istio's base configuration (`istio-iptables` with no flags): nothing but the proxy's own ports and ids.
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

/// Why a value cannot become part of a [`Redirect`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {value:?} is not allowed: {allowed}")]
pub struct Error {
    /// Annotation key, flag or environment name.
    pub key: String,
    /// What was given, cut to a length that a log can hold.
    pub value: String,
    /// What would have been allowed.
    pub allowed: &'static str,
}

impl Error {
    /// The longest part of a value that an error repeats, in characters.
    const SHOWN: usize = 120;

    pub(crate) fn new(key: &str, value: &str, allowed: &'static str) -> Self {
        Self { key: key.to_owned(), value: value.chars().take(Self::SHOWN).collect(), allowed }
    }
}
