//! Walks the packet through hooks and tables in the kernel's order, and through each chain rule by rule.
//!
//! Order and semantics are those of the kernel's `nf_hook_slow`, `ipt_do_table` and `nf_nat_inet_fn`. POSTROUTING is left
//! out: it changes the source, not who accepts the connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::condition::Packet;
use super::saved::{Chain, Rule, Ruleset};
use super::target::Target;
use super::{Connection, Direction, LO};

/// The maximum depth of nested chains, beyond which the verdict is undetermined. The kernel refuses loops of chains, but a
/// file may contain them.
const MAX_DEPTH: usize = 128;
/// The maximum number of rules that are evaluated for one packet; beyond it the verdict is undetermined.
const MAX_STEPS: usize = 1 << 20;

/// The path of a connection's first packet, and its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// All evaluated rules, in order.
    pub hops: Vec<Hop>,
    pub verdict: Verdict,
}

/// An evaluated rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    pub table: &'static str,
    pub chain: String,
    /// The rule's number in its chain, from 1; none for the chain's policy.
    pub number: Option<usize>,
    /// The rule's matches and target.
    pub rule: String,
    pub effect: Effect,
}

/// The effect of a rule on the packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// This condition does not hold.
    NoMatch { condition: String },
    /// This condition cannot be evaluated here.
    Undetermined { condition: String },
    /// The rule matches, and this describes its action.
    Match { action: String },
}

/// The listener that accepts the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The listener at the original destination: no rule changes it.
    Direct,
    /// The listener on this port of the pod, by `REDIRECT`.
    Redirected { port: u16 },
    /// The transparent listener on this port of the pod, by `TPROXY`.
    Transparent { port: u16 },
    /// Another destination, by `DNAT`.
    Rewritten { to: SocketAddr },
    /// No listener: the packet is dropped.
    Dropped,
    /// The verdict depends on a condition or target that only the kernel can evaluate.
    Undetermined,
}

/// Walks the rules of the connection's family.
pub fn trace(rules: &Ruleset, connection: &Connection) -> Trace {
    let mut walk = Walk { rules, hops: Vec::new(), packet: first_packet(connection), nat: None, tproxy: None };
    let end = match &connection.direction {
        Direction::Inbound { .. } => walk.inbound(),
        Direction::Outbound { .. } => walk.outbound(),
    };
    let verdict = match (end, walk.tproxy, walk.nat) {
        (Err(Stop::Dropped), ..) => Verdict::Dropped,
        (Err(Stop::Undetermined), ..) => Verdict::Undetermined,
        (Ok(()), Some(port), _) => Verdict::Transparent { port },
        (Ok(()), None, Some(Nat::Redirect)) => Verdict::Redirected { port: walk.packet.destination.port() },
        (Ok(()), None, Some(Nat::Dnat)) => Verdict::Rewritten { to: walk.packet.destination },
        (Ok(()), None, None) => Verdict::Direct,
    };
    Trace { hops: walk.hops, verdict }
}

fn first_packet(connection: &Connection) -> Packet {
    let (in_interface, out_interface, owner) = match connection.direction.clone() {
        Direction::Inbound { interface } => (Some(interface), None, None),
        Direction::Outbound { interface, uid, gid } => (None, Some(interface), Some((uid, gid))),
    };
    let Connection { protocol, source, destination, .. } = *connection;
    Packet { protocol, source, destination, in_interface, out_interface, owner, mark: 0, ct_mark: 0 }
}

/// Why traversal ends before the packet is delivered.
enum Stop {
    Dropped,
    Undetermined,
}

/// How a chain ends, for its caller.
enum Chained {
    /// The end of the chain, or `RETURN`.
    Returned,
    /// The table accepts the packet.
    Accepted,
}

#[derive(Clone, Copy)]
enum Nat {
    Redirect,
    Dnat,
}

struct Walk<'a> {
    rules: &'a Ruleset,
    hops: Vec<Hop>,
    packet: Packet,
    /// The translation that was applied to the destination, if any.
    nat: Option<Nat>,
    /// The port of the transparent listener.
    tproxy: Option<u16>,
}

impl Walk<'_> {
    fn inbound(&mut self) -> Result<(), Stop> {
        for table in ["raw", "mangle", "nat"] {
            self.table(table, "PREROUTING")?;
        }
        self.delivered()
    }

    fn outbound(&mut self) -> Result<(), Stop> {
        for table in ["raw", "mangle", "nat", "filter"] {
            self.table(table, "OUTPUT")?;
        }
        if matches!(self.nat, Some(Nat::Redirect)) {
            self.packet.out_interface = Some(LO.to_owned());
        }
        if self.packet.out_interface.as_deref() != Some(LO) {
            return Ok(());
        }
        // The packet arrives on the loopback device, no longer with its socket. Its connection has already passed nat
        // (`nf_nat_initialized`), so that the kernel skips nat's PREROUTING.
        (self.packet.in_interface, self.packet.out_interface, self.packet.owner) = (Some(LO.to_owned()), None, None);
        self.table("raw", "PREROUTING")?;
        self.table("mangle", "PREROUTING")?;
        self.delivered()
    }

    fn delivered(&mut self) -> Result<(), Stop> {
        self.table("mangle", "INPUT")?;
        self.table("filter", "INPUT")
    }

    /// Walks a built-in chain and its policy.
    fn table(&mut self, table: &'static str, name: &str) -> Result<(), Stop> {
        let rules = self.rules;
        let Some(chain) = rules.chain(table, name) else { return Ok(()) };
        if let Chained::Returned = self.chain(table, name, chain, 0)?
            && chain.drops
        {
            let effect = Effect::Match { action: "the chain's policy drops the packet".to_owned() };
            self.hops.push(Hop { table, chain: name.to_owned(), number: None, rule: "policy DROP".to_owned(), effect });
            return Err(Stop::Dropped);
        }
        Ok(())
    }

    fn chain(&mut self, table: &'static str, name: &str, chain: &Chain, depth: usize) -> Result<Chained, Stop> {
        for (index, rule) in chain.rules.iter().enumerate() {
            let (effect, taken) = self.evaluate(rule);
            let hop = Hop { table, chain: name.to_owned(), number: Some(index + 1), rule: rule.text.clone(), effect };
            self.hops.push(hop);
            if depth > MAX_DEPTH || self.hops.len() > MAX_STEPS {
                return Err(Stop::Undetermined);
            }
            match taken {
                Taken::Stop(stop) => return Err(stop),
                Taken::Next => {}
                Taken::Accept => return Ok(Chained::Accepted),
                Taken::Return => return Ok(Chained::Returned),
                Taken::Chain { name, goto } => {
                    let rules = self.rules;
                    let Some(callee) = rules.chain(table, &name) else { continue };
                    let end = self.chain(table, &name, callee, depth + 1)?;
                    if goto || matches!(end, Chained::Accepted) {
                        return Ok(end);
                    }
                }
            }
        }
        Ok(Chained::Returned)
    }

    /// Evaluates a rule, and applies its target if it matches.
    fn evaluate(&mut self, rule: &Rule) -> (Effect, Taken) {
        let results: Vec<_> = rule.conditions.iter().map(|c| (c, c.holds(&self.packet))).collect();
        if let Some((condition, _)) = results.iter().find(|(_, holds)| *holds == Some(false)) {
            return (Effect::NoMatch { condition: condition.text.clone() }, Taken::Next);
        }
        let harmless = matches!(rule.target, Target::Continue);
        if let Some((condition, _)) = results.iter().find(|(_, holds)| holds.is_none() && !harmless) {
            return (Effect::Undetermined { condition: condition.text.clone() }, Taken::Stop(Stop::Undetermined));
        }
        if let Target::Unknown(name) = &rule.target {
            return (Effect::Undetermined { condition: format!("-j {name}") }, Taken::Stop(Stop::Undetermined));
        }
        let (action, taken) = self.apply(&rule.target);
        (Effect::Match { action }, taken)
    }

    /// Applies a target; returns a description of its effect for the user, and the place at which traversal continues.
    fn apply(&mut self, target: &Target) -> (String, Taken) {
        match target {
            Target::Accept => ("ends this table: accepted".to_owned(), Taken::Accept),
            Target::Drop => ("drops the packet".to_owned(), Taken::Stop(Stop::Dropped)),
            Target::Return => ("returns from the chain".to_owned(), Taken::Return),
            Target::Jump(name) => (format!("continues in {name}"), Taken::Chain { name: name.clone(), goto: false }),
            Target::Goto(name) => (format!("continues in {name}"), Taken::Chain { name: name.clone(), goto: true }),
            Target::Redirect(port) => {
                let to = SocketAddr::new(self.own_address(), port.unwrap_or(self.packet.destination.port()));
                (self.packet.destination, self.nat) = (to, Some(Nat::Redirect));
                (format!("redirects to port {} of the pod", to.port()), Taken::Accept)
            }
            Target::Dnat { address, port } => {
                let old = self.packet.destination;
                let to = SocketAddr::new(address.unwrap_or(old.ip()), port.unwrap_or(old.port()));
                (self.packet.destination, self.nat) = (to, Some(Nat::Dnat));
                (format!("changes the destination to {to}"), Taken::Accept)
            }
            Target::Tproxy { port, mark, mask } => {
                self.packet.mark = self.packet.mark & !mask ^ mark;
                self.tproxy = Some(*port);
                (format!("assigns the packet to the transparent listener on port {port}"), Taken::Accept)
            }
            Target::SetMark { value, mask } => {
                self.packet.mark = self.packet.mark & !mask ^ value;
                (format!("sets the packet's mark to {}", self.packet.mark), Taken::Next)
            }
            Target::SetConnMark { value, mask } => self.set_conn_mark(self.packet.ct_mark & !mask ^ value),
            Target::SaveMark { packet_mask, ct_mask } => {
                self.set_conn_mark(self.packet.ct_mark & !ct_mask ^ (self.packet.mark & packet_mask))
            }
            Target::RestoreMark { packet_mask, ct_mask } => {
                self.packet.mark = self.packet.mark & !packet_mask ^ (self.packet.ct_mark & ct_mask);
                (format!("sets the packet's mark to {}, the connection's", self.packet.mark), Taken::Next)
            }
            Target::Continue | Target::Unknown(_) => ("continues with the next rule".to_owned(), Taken::Next),
        }
    }

    fn set_conn_mark(&mut self, mark: u32) -> (String, Taken) {
        self.packet.ct_mark = mark;
        (format!("sets the connection's mark to {mark}"), Taken::Next)
    }

    /// Returns the address to which `REDIRECT` sends: loopback for packets from the pod, else the address of the receiving
    /// interface. The packet's destination is assumed to be that address, because the packet arrived there.
    fn own_address(&self) -> IpAddr {
        match (self.packet.owner, self.packet.destination.ip()) {
            (None, ip) => ip,
            (Some(_), IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
            (Some(_), IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
        }
    }
}

/// The place at which traversal continues after a rule.
enum Taken {
    Next,
    Return,
    Accept,
    Chain { name: String, goto: bool },
    Stop(Stop),
}

#[cfg(test)]
mod tests;
