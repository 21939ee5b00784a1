//! The rules as data: what netfilter's codecs write and what its observers are compared with.

use ipnet::IpNet;

use crate::redirect::{Interface, Owner, Port};

/// All rules of one pod, in the order in which they are applied.
///
/// One list for both families and all tables: a codec picks what concerns it. `ipv6` says whether the pod has IPv6;
/// where it has not, a rule of [`Families::Both`] is an IPv4 rule and one of [`Families::V6`] is not there at all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RuleSet {
    /// The pod has IPv6.
    pub ipv6: bool,
    /// Rules in order of application; inserts see the chain as the rules before them left it.
    pub rules: Vec<Rule>,
}

/// One rule and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Table.
    pub table: Table,
    /// Chain, built in or Istio's.
    pub chain: Chain,
    /// End of the chain, or a place from its start.
    pub at: At,
    /// Families that have it.
    pub families: Families,
    /// What a packet must be, in the order in which Istio writes it.
    pub matches: Vec<Match>,
    /// What happens to it.
    pub target: Target,
}

impl Rule {
    /// A rule at the end of its chain, in both families.
    pub fn new(table: Table, chain: Chain, matches: impl Into<Vec<Match>>, target: Target) -> Self {
        Self { table, chain, at: At::End, families: Families::Both, matches: matches.into(), target }
    }

    /// The same at this place.
    pub fn at(self, at: At) -> Self {
        Self { at, ..self }
    }

    /// The same for these families alone.
    pub fn only(self, families: Families) -> Self {
        Self { families, ..self }
    }

    /// The transport protocol that a packet must have.
    pub fn protocol(&self) -> Option<Proto> {
        self.matches.iter().find_map(|m| match m {
            Match::Protocol(proto) => Some(*proto),
            _ => None,
        })
    }

    /// The chain to which packets are sent on.
    pub fn jumps_to(&self) -> Option<Chain> {
        match self.target {
            Target::Jump(chain) => Some(chain),
            _ => None,
        }
    }
}

/// Where in a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// Last.
    End,
    /// At this place, the first being 1 as iptables counts.
    Place(u32),
}

/// One address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// The families that have a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 alone.
    V4,
    /// IPv6 alone.
    V6,
    /// Each family that the pod has.
    Both,
}

impl Families {
    /// Whether a rule with these families exists in `family`.
    pub fn has(self, family: Family) -> bool {
        match self {
            Self::Both => true,
            Self::V4 => family == Family::V4,
            Self::V6 => family == Family::V6,
        }
    }
}

/// Tables, by iptables' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// `mangle`
    Mangle,
    /// `nat`
    Nat,
    /// `raw`
    Raw,
}

impl Table {
    /// The name that iptables gives it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mangle => "mangle",
            Self::Nat => "nat",
            Self::Raw => "raw",
        }
    }
}

/// Chains, by iptables' names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Chain {
    /// Built in: what arrives.
    Prerouting,
    /// Built in: what is sent.
    Output,
    /// `ISTIO_INBOUND`
    IstioInbound,
    /// `ISTIO_REDIRECT`
    IstioRedirect,
    /// `ISTIO_IN_REDIRECT`
    IstioInRedirect,
    /// `ISTIO_OUTPUT`
    IstioOutput,
    /// `ISTIO_OUTPUT_DNS`
    IstioOutputDns,
    /// `ISTIO_DIVERT`
    IstioDivert,
    /// `ISTIO_TPROXY`
    IstioTproxy,
    /// `ISTIO_DROP`
    IstioDrop,
}

impl Chain {
    /// The name that iptables gives it.
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

    /// Whether the kernel has it without us: others may have rules in it too.
    pub fn is_builtin(self) -> bool {
        matches!(self, Self::Prerouting | Self::Output)
    }
}

/// Transport protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Proto {
    /// TCP
    Tcp,
    /// UDP
    Udp,
}

impl Proto {
    /// The name that iptables and nft give it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        }
    }
}

/// States of a connection that Istio's rules ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CtStates {
    /// `INVALID`
    Invalid,
    /// `RELATED,ESTABLISHED`
    RelatedEstablished,
}

/// What a packet must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// `-i`
    InInterface(Interface),
    /// `-o`
    OutInterface(Interface),
    /// `-s`
    Source(IpNet),
    /// `-d`, or `! -d`
    Destination {
        /// Range.
        net: IpNet,
        /// Everything but.
        negated: bool,
    },
    /// `-p`
    Protocol(Proto),
    /// `--dport`, or `! --dport`; follows a `Protocol`
    DestinationPort {
        /// Port.
        port: Port,
        /// Everything but.
        negated: bool,
    },
    /// `-m multiport ! --dports`; follows a `Protocol`
    NotDestinationPorts(Vec<Port>),
    /// `--sport`; follows a `Protocol`
    SourcePort(Port),
    /// `-m owner --uid-owner`
    Uid {
        /// User.
        owner: Owner,
        /// Everyone but.
        negated: bool,
    },
    /// `-m owner --gid-owner`
    Gid {
        /// Group.
        owner: Owner,
        /// Everyone but.
        negated: bool,
    },
    /// `-m conntrack --ctstate`
    CtState(CtStates),
    /// `-m mark`
    Mark {
        /// Packet mark.
        mark: u32,
        /// Everything but.
        negated: bool,
    },
    /// `-m connmark`
    ConnMark(u32),
}

impl Match {
    /// TCP.
    pub fn tcp() -> Self {
        Self::Protocol(Proto::Tcp)
    }

    /// To this port.
    pub fn port(port: Port) -> Self {
        Self::DestinationPort { port, negated: false }
    }

    /// To any other port.
    pub fn not_port(port: Port) -> Self {
        Self::DestinationPort { port, negated: true }
    }

    /// To this range.
    pub fn to(net: IpNet) -> Self {
        Self::Destination { net, negated: false }
    }

    /// To anywhere else.
    pub fn not_to(net: IpNet) -> Self {
        Self::Destination { net, negated: true }
    }
}

/// What happens to a packet that matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// Back to the calling chain.
    Return,
    /// Accepted.
    Accept,
    /// Dropped.
    Drop,
    /// On to another chain.
    Jump(Chain),
    /// To this port of this host.
    RedirectTo(Port),
    /// To the transparent listener on this port, marked.
    Tproxy {
        /// Port.
        port: Port,
        /// Packet mark.
        mark: u32,
    },
    /// The packet's mark is set.
    SetMark(u32),
    /// The packet's mark is kept in its connection.
    SaveMark,
    /// The packet gets its connection's mark.
    RestoreMark,
    /// The connection is tracked in this zone.
    CtZone(u16),
}
