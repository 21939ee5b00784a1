//! Rules as data, which the backends of `netfilter` encode and compare with the kernel's.

use ipnet::IpNet;

use crate::{Chain, Interface, Layout, Owner, Port, Table};

/// The rules of one pod in order of application.
///
/// One list covers both families and all tables; each codec selects its part. Without `ipv6`, a rule of
/// [`Families::Both`] is only an IPv4 rule, and a rule of [`Families::V6`] is omitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleSet {
    /// Whether the pod has IPv6.
    pub ipv6: bool,
    pub layout: &'static Layout,
    /// Rules in order of application. The position of an insert refers to the chain as the preceding rules of this list
    /// left it.
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

    /// Sets the rule's position.
    pub fn at(self, at: At) -> Self {
        Self { at, ..self }
    }

    /// Limits the rule to these families.
    pub fn only(self, families: Families) -> Self {
        Self { families, ..self }
    }

    /// Returns the transport protocol that the rule matches.
    pub fn protocol(&self) -> Option<Proto> {
        self.matches.iter().find_map(|m| match m {
            Match::Protocol(proto) => Some(*proto),
            _ => None,
        })
    }

    /// Whether the rule matches a port.
    pub fn has_port(&self) -> bool {
        let of_port = |m: &Match| {
            matches!(m, Match::DestinationPort { .. } | Match::NotDestinationPorts(_) | Match::SourcePort(_))
        };
        self.matches.iter().any(of_port)
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

/// The families to which a rule applies.
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
    /// `! -o`
    NotOutInterface(Interface),
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
    /// `-m mark`; bits outside of the mask are ignored
    Mark { mark: u32, mask: u32, negated: bool },
    /// `-m connmark`; bits outside of the mask are ignored
    ConnMark { mark: u32, mask: u32, negated: bool },
    /// `-m tcp` or `-m udp`, if Istio writes it; matches any port unless the rule also matches a port
    Extension(Proto),
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
    /// Sends to the transparent listener on this port, and replaces the bits of the packet's mark that are in the mask.
    Tproxy {
        port: Port,
        mark: u32,
        mask: u32,
    },
    /// Replaces the bits of the packet's mark that are in the mask.
    SetMark {
        mark: u32,
        mask: u32,
    },
    /// Saves the packet's mark in its connection.
    SaveMark,
    /// Sets the packet's mark to its connection's.
    RestoreMark,
    /// Replaces the bits of the connection's mark that are in the mask.
    SetConnMark {
        mark: u32,
        mask: u32,
    },
    /// Tracks the connection in this zone.
    CtZone(u16),
}
