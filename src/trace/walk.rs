//! The traversal: hooks and tables in the kernel's order, and each chain rule by rule.
//!
//! Order and semantics: `nf_hook_slow`, `ipt_do_table` and `nf_nat_inet_fn`. POSTROUTING is left out: it changes the
//! source, not who accepts the connection.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::condition::Packet;
use super::saved::{Chain, Rule, Ruleset};
use super::target::Target;
use super::{Connection, Direction, LO};

/// The largest number of nested chains; the kernel refuses rules with loops, a file may contain them.
const MAX_DEPTH: usize = 128;
/// The largest number of rules that are evaluated for one packet.
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
    /// The rule matches; its action, for people.
    Match { action: String },
}

/// The acceptor of the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Whoever listens at the destination: no rule changes it.
    Direct,
    /// The listener on this port of the pod, by `REDIRECT`.
    Redirected { port: u16 },
    /// The transparent listener on this port of the pod, by `TPROXY`.
    Transparent { port: u16 },
    /// Another destination, by `DNAT`.
    Rewritten { to: SocketAddr },
    /// Nobody: the packet is dropped.
    Dropped,
    /// A rule depends on what only the kernel can evaluate.
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

/// The end of traversal before delivery.
enum Stop {
    Dropped,
    Undetermined,
}

/// The result of a chain for its caller.
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
    /// The translation of the destination.
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
        // The packet arrives on the loopback device without its socket. Its connection has passed nat already
        // (`nf_nat_initialized`), so that nat's PREROUTING is not consulted again.
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

    /// Applies a target; returns what it does, for people, and where traversal continues.
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
            Target::SaveMark => {
                self.packet.ct_mark = self.packet.mark;
                (format!("sets the connection's mark to {}", self.packet.mark), Taken::Next)
            }
            Target::RestoreMark => {
                self.packet.mark = self.packet.ct_mark;
                (format!("sets the packet's mark to {}, the connection's", self.packet.mark), Taken::Next)
            }
            Target::Continue | Target::Unknown(_) => ("continues with the next rule".to_owned(), Taken::Next),
        }
    }

    /// The address to which `REDIRECT` sends: loopback for packets of the pod, else the address of the interface, for
    /// which the destination stands, because the packet arrived for it.
    fn own_address(&self) -> IpAddr {
        match (self.packet.owner, self.packet.destination.ip()) {
            (None, ip) => ip,
            (Some(_), IpAddr::V4(_)) => Ipv4Addr::LOCALHOST.into(),
            (Some(_), IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
        }
    }
}

/// Where traversal continues after a rule.
enum Taken {
    Next,
    Return,
    Accept,
    Chain { name: String, goto: bool },
    Stop(Stop),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Proto;

    fn outbound(to: &str, uid: u32) -> Connection {
        let source = SocketAddr::new(Ipv4Addr::new(10, 0, 0, 2).into(), 40000);
        let direction = Direction::Outbound { interface: "eth0".to_owned(), uid, gid: uid };
        Connection { direction, protocol: Proto::Tcp, source, destination: to.parse().unwrap() }
    }

    fn inbound(to: &str) -> Connection {
        let direction = Direction::Inbound { interface: "eth0".to_owned() };
        Connection { direction, ..outbound(to, 0) }
    }

    fn walked(rules: &str, connection: &Connection) -> Trace {
        trace(&Ruleset::parse(rules).unwrap(), connection)
    }

    /// The path as `table/chain/number` of matching rules.
    fn path(trace: &Trace) -> Vec<String> {
        let matching = trace.hops.iter().filter(|hop| matches!(hop.effect, Effect::Match { .. }));
        matching.map(|hop| format!("{}/{}/{}", hop.table, hop.chain, hop.number.unwrap_or(0))).collect()
    }

    const NAT: &str = "*nat\n:OUTPUT ACCEPT [0:0]\n:OWN - [0:0]\n-A OUTPUT -p tcp -j OWN\n\
                       -A OWN -m owner --uid-owner 1337 -j RETURN\n-A OWN -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n";

    #[test]
    fn the_first_matching_rule_of_a_chain_applies() {
        let redirected = walked(NAT, &outbound("10.1.1.1:80", 1000));
        assert_eq!(redirected.verdict, Verdict::Redirected { port: 15001 });
        assert_eq!(path(&redirected), ["nat/OUTPUT/1", "nat/OWN/2"]);
        let of_proxy = walked(NAT, &outbound("10.1.1.1:80", 1337));
        assert_eq!(of_proxy.verdict, Verdict::Direct);
        assert_eq!(path(&of_proxy), ["nat/OUTPUT/1", "nat/OWN/1"]);
    }

    #[test]
    fn a_chain_returns_to_the_caller_after_a_jump_and_to_its_caller_after_a_goto() {
        let rules = |how: &str| {
            format!(
                "*nat\n:A - [0:0]\n-A OUTPUT {how} A\n-A OUTPUT -p tcp -j REDIRECT --to-ports 1\n-A A -j RETURN\nCOMMIT"
            )
        };
        assert_eq!(walked(&rules("-j"), &outbound("10.1.1.1:80", 1)).verdict, Verdict::Redirected { port: 1 });
        assert_eq!(walked(&rules("-g"), &outbound("10.1.1.1:80", 1)).verdict, Verdict::Direct);
    }

    #[test]
    fn an_unknown_condition_makes_the_verdict_undetermined_only_where_it_decides() {
        let rules = "*filter\n-A OUTPUT -d 10.9.0.0/16 -m set --match-set x dst -j DROP\nCOMMIT";
        assert_eq!(walked(rules, &outbound("10.1.1.1:80", 1)).verdict, Verdict::Direct);
        let undetermined = walked(rules, &outbound("10.9.1.1:80", 1));
        assert_eq!(undetermined.verdict, Verdict::Undetermined);
        let last = undetermined.hops.last().unwrap();
        assert_eq!(last.effect, Effect::Undetermined { condition: "--match-set x dst".to_owned() });
        let logged =
            "*filter\n-A OUTPUT -m limit --limit 5/min -j LOG --log-prefix \"a -j b\"\n-A OUTPUT -j DROP\nCOMMIT";
        assert_eq!(walked(logged, &outbound("10.9.1.1:80", 1)).verdict, Verdict::Dropped);
    }

    #[test]
    fn policies_and_filter_rules_drop() {
        let policy =
            walked("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 80 -j ACCEPT\nCOMMIT", &inbound("10.0.0.2:81"));
        assert_eq!((policy.verdict, policy.hops.last().unwrap().number), (Verdict::Dropped, None));
        let accepted =
            walked("*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 80 -j ACCEPT\nCOMMIT", &inbound("10.0.0.2:80"));
        assert_eq!(accepted.verdict, Verdict::Direct);
        assert_eq!(
            walked("*filter\n-A OUTPUT -j REJECT\nCOMMIT", &outbound("10.1.1.1:80", 1)).verdict,
            Verdict::Dropped
        );
    }

    #[test]
    fn marks_are_set_and_compared_under_their_masks() {
        let rules = "*mangle\n-A OUTPUT -j MARK --set-xmark 0x539/0xfff\n-A OUTPUT -m mark --mark 0x539/0xff -j DROP\n\
                     -A OUTPUT -m mark ! --mark 0x539/0xfff -j DROP\n-A OUTPUT -j CONNMARK --save-mark\n\
                     -A OUTPUT -m connmark --mark 0x539 -j ACCEPT\n-A OUTPUT -j DROP\nCOMMIT";
        assert_eq!(walked(rules, &outbound("10.1.1.1:80", 1)).verdict, Verdict::Direct);
    }

    #[test]
    fn chains_that_call_each_other_end() {
        let rules = "*nat\n:A - [0:0]\n:B - [0:0]\n-A OUTPUT -j A\n-A A -j B\n-A B -j A\nCOMMIT";
        assert_eq!(walked(rules, &outbound("10.1.1.1:80", 1)).verdict, Verdict::Undetermined);
    }

    #[test]
    fn other_translations_are_reported_as_such() {
        let to = |rule: &str| walked(&format!("*nat\n-A PREROUTING {rule}\nCOMMIT"), &inbound("10.0.0.2:80")).verdict;
        assert_eq!(
            to("-p tcp -j DNAT --to-destination 10.0.0.9:81"),
            Verdict::Rewritten { to: "10.0.0.9:81".parse().unwrap() }
        );
        assert_eq!(to("-p udp -j DNAT --to-destination 10.0.0.9:81"), Verdict::Direct);
        assert_eq!(to("-j DNAT --to-destination 10.0.0.1-10.0.0.9"), Verdict::Undetermined);
        assert_eq!(to("-p tcp -j REDIRECT"), Verdict::Redirected { port: 80 });
    }
}
