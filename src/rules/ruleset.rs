//! Rules as data: the input of netfilter's codecs and the reference of its observers.

use ipnet::IpNet;

use crate::redirect::{Interface, Owner, Port};

/// The rules of one pod in order of application.
///
/// One list covers both families and all tables; each codec selects its part. Without `ipv6`, a rule of
/// [`Families::Both`] is an IPv4 rule, and one of [`Families::V6`] is omitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleSet {
    /// Whether the pod has IPv6.
    pub ipv6: bool,
    /// Rules in order of application; an insert applies to the chain as the rules before it left it.
    pub rules: Vec<Rule>,
}

/// A rule and its position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub table: Table,
    pub chain: Chain,
    pub at: At,
    pub families: Families,
    /// Matches in Istio's order.
    pub matches: Vec<Match>,
    pub target: Target,
}

impl Rule {
    /// Creates a rule at the end of its chain, in both families.
    pub fn new(table: Table, chain: Chain, matches: impl Into<Vec<Match>>, target: Target) -> Self {
        Self { table, chain, at: At::End, families: Families::Both, matches: matches.into(), target }
    }

    /// Moves the rule to a position.
    pub fn at(self, at: At) -> Self {
        Self { at, ..self }
    }

    /// Limits the rule to these families.
    pub fn only(self, families: Families) -> Self {
        Self { families, ..self }
    }

    /// The transport protocol that the rule matches.
    pub fn protocol(&self) -> Option<Proto> {
        self.matches.iter().find_map(|m| match m {
            Match::Protocol(proto) => Some(*proto),
            _ => None,
        })
    }

    pub fn jumps_to(&self) -> Option<Chain> {
        match self.target {
            Target::Jump(chain) => Some(chain),
            _ => None,
        }
    }
}

/// The position of a rule in its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    End,
    /// 1-based, as in iptables.
    Place(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    V4,
    V6,
}

/// The families that have a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    V4,
    V6,
    /// Each family that the pod has.
    Both,
}

impl Families {
    pub fn has(self, family: Family) -> bool {
        match self {
            Self::Both => true,
            Self::V4 => family == Family::V4,
            Self::V6 => family == Family::V6,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    Mangle,
    Nat,
    Raw,
}

impl Table {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Raw => "raw",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chain {
    Prerouting,
    Output,
    IstioInbound,
    IstioRedirect,
    IstioInRedirect,
    IstioOutput,
    IstioOutputDns,
    IstioDivert,
    IstioTproxy,
    IstioDrop,
}

impl Chain {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Prerouting => "PREROUTING",
            Self::Output => "OUTPUT",
            Self::IstioInbound => "ISTIO_INBOUND",
            Self::IstioRedirect => "ISTIO_REDIRECT",
            Self::IstioInRedirect => "ISTIO_IN_REDIRECT",
            Self::IstioOutput => "ISTIO_OUTPUT",
            Self::IstioOutputDns => "ISTIO_OUTPUT_DNS",
            Self::IstioDivert => "ISTIO_DIVERT",
            Self::IstioTproxy => "ISTIO_TPROXY",
            Self::IstioDrop => "ISTIO_DROP",
        }
    }

    /// Whether the kernel provides the chain, which other programs' rules may share.
    pub fn is_builtin(self) -> bool {
        matches!(self, Self::Prerouting | Self::Output)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proto {
    Tcp,
    Udp,
}

impl Proto {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// Connection states that Istio's rules match.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CtStates {
    /// `INVALID`
    Invalid,
    /// `RELATED,ESTABLISHED`
    RelatedEstablished,
}

/// A condition on a packet, documented as iptables' arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// `-i`
    InInterface(Interface),
    /// `-o`
    OutInterface(Interface),
    /// `-s`
    Source(IpNet),
    /// `-d`, or `! -d`
    Destination { net: IpNet, negated: bool },
    /// `-p`
    Protocol(Proto),
    /// `--dport`, or `! --dport`; follows a `Protocol`
    DestinationPort { port: Port, negated: bool },
    /// `-m multiport ! --dports`; follows a `Protocol`
    NotDestinationPorts(Vec<Port>),
    /// `--sport`; follows a `Protocol`
    SourcePort(Port),
    /// `-m owner --uid-owner`
    Uid { owner: Owner, negated: bool },
    /// `-m owner --gid-owner`
    Gid { owner: Owner, negated: bool },
    /// `-m conntrack --ctstate`
    CtState(CtStates),
    /// `-m mark`
    Mark { mark: u32, negated: bool },
    /// `-m connmark`
    ConnMark(u32),
}

impl Match {
    pub fn tcp() -> Self {
        Self::Protocol(Proto::Tcp)
    }

    pub fn port(port: Port) -> Self {
        Self::DestinationPort { port, negated: false }
    }

    pub fn not_port(port: Port) -> Self {
        Self::DestinationPort { port, negated: true }
    }

    pub fn to(net: IpNet) -> Self {
        Self::Destination { net, negated: false }
    }

    pub fn not_to(net: IpNet) -> Self {
        Self::Destination { net, negated: true }
    }
}

/// The action on a matching packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Returns to the calling chain.
    Return,
    Accept,
    Drop,
    Jump(Chain),
    /// NAT to this port of this host.
    RedirectTo(Port),
    /// Sends to the transparent listener on this port and sets the mark.
    Tproxy {
        port: Port,
        mark: u32,
    },
    SetMark(u32),
    /// Saves the packet's mark in its connection.
    SaveMark,
    /// Sets the packet's mark to its connection's.
    RestoreMark,
    /// Tracks the connection in this zone.
    CtZone(u16),
}
