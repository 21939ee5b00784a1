//! Encodes rules as iptables-nft 1.8.9 does: its `iptables-save` prints them like rules that iptables-nft itself loaded.
//!
//! The order of expressions is iptables': interfaces, protocol, source, destination, the other matches in the rule's
//! order, counter, target.

use std::borrow::Cow;
use std::net::IpAddr;

use ipnet::IpNet;
use ruleset::{Family, Interface, Match, Owner, Port, Proto, RuleSet, Target};

use super::Unencodable;
use super::expr::{Base, Expr, Meta, Op, Value, Verdict};
use super::image::{Body, Chain, Hook, Image, Rule, Table, TableId};
use super::xt::{self, Id};

/// Encodes the tables `mangle`, `nat` and `raw` for both families.
pub(super) fn image(rules: &RuleSet) -> Result<Image<'_>, Unencodable> {
    let mut tables = Vec::new();
    for family in [Family::V4, Family::V6] {
        for ((table, chain), members) in rules.chains(family) {
            let id = TableId { family: family.into(), name: table.as_str() };
            let rules = members.into_iter().map(|r| rule(r, family)).collect::<Result<_, _>>()?;
            let chain = Chain { name: chain.as_str(), hook: Hook::of(table, chain), rules };
            push(&mut tables, id, chain);
        }
    }
    Ok(Image { tables })
}

/// Adds a chain to its table; chains must be sorted by table.
pub(super) fn push<'a>(tables: &mut Vec<Table<'a>>, id: TableId, chain: Chain<'a>) {
    match tables.last_mut() {
        Some(table) if table.id == id => table.chains.push(chain),
        _ => tables.push(Table { id, chains: vec![chain] }),
    }
}

fn rule(source: &ruleset::Rule, family: Family) -> Result<Rule<'_>, Unencodable> {
    let mut exprs = Vec::with_capacity(2 + 2 * source.matches.len());
    for header in [is_in, is_out, is_protocol, is_source, is_destination] {
        for m in source.matches.iter().filter(|m| header(m)) {
            write_header(m, &mut exprs);
        }
    }
    for m in &source.matches {
        extension(m, source, &mut exprs)?;
    }
    exprs.push(Expr::Counter);
    exprs.push(target(&source.target, family));
    Ok(Rule { body: Body::Exprs(exprs), protocol: source.protocol(), source })
}

fn is_in(m: &Match) -> bool {
    matches!(m, Match::InInterface(_))
}

fn is_out(m: &Match) -> bool {
    matches!(m, Match::OutInterface(_) | Match::NotOutInterface(_))
}

fn is_protocol(m: &Match) -> bool {
    matches!(m, Match::Protocol(_))
}

fn is_source(m: &Match) -> bool {
    matches!(m, Match::Source(_))
}

fn is_destination(m: &Match) -> bool {
    matches!(m, Match::Destination { .. })
}

/// Encodes a match that iptables stores in `struct ipt_ip` instead of an extension.
fn write_header(m: &Match, exprs: &mut Vec<Expr>) {
    match m {
        Match::InInterface(name) => interface(Meta::InInterface, name, Op::Equal, exprs),
        Match::OutInterface(name) => interface(Meta::OutInterface, name, Op::Equal, exprs),
        Match::NotOutInterface(name) => interface(Meta::OutInterface, name, Op::Unequal, exprs),
        Match::Protocol(p) => compare(Expr::Meta(Meta::Protocol), Op::Equal, Value::u8(number(*p)), exprs),
        Match::Source(net) => address(Side::Source, *net, Op::Equal, exprs),
        Match::Destination { net, negated } => address(Side::Destination, *net, op(*negated), exprs),
        _ => (),
    }
}

fn extension(m: &Match, rule: &ruleset::Rule, exprs: &mut Vec<Expr>) -> Result<(), Unencodable> {
    match m {
        Match::DestinationPort { port, negated } => ports(Side::Destination, *port, op(*negated), exprs),
        Match::SourcePort(port) => ports(Side::Source, *port, Op::Equal, exprs),
        Match::NotDestinationPorts(list) => exprs.push(xt::not_ports(list)?),
        Match::Uid { owner, negated } => exprs.push(xt::owner(Id::User(id(owner)?), *negated)),
        Match::Gid { owner, negated } => exprs.push(xt::owner(Id::Group(id(owner)?), *negated)),
        Match::CtState(states) => exprs.push(xt::ct_state(*states)),
        Match::Mark { mark, mask, negated } => {
            exprs.extend(mark_expressions(Expr::Meta(Meta::Mark), *mark, *mask, op(*negated)));
        }
        Match::ConnMark { mark, mask, negated } => exprs.push(xt::connmark(*mark, *mask, *negated)),
        Match::Extension(proto) if !rule.has_port() => exprs.push(xt::any_ports(*proto)),
        // If the rule matches a port, the comparison of the port is encoded in place of the extension. `write_header`
        // encodes the other matches.
        Match::Extension(_)
        | Match::InInterface(_)
        | Match::OutInterface(_)
        | Match::NotOutInterface(_)
        | Match::Protocol(_)
        | Match::Source(_)
        | Match::Destination { .. } => (),
    }
    Ok(())
}

fn target(target: &Target, family: Family) -> Expr {
    match target {
        Target::Return => Expr::Verdict(Verdict::Return),
        Target::Accept => Expr::Verdict(Verdict::Accept),
        Target::Drop => Expr::Verdict(Verdict::Drop),
        Target::Jump(chain) => Expr::Verdict(Verdict::Jump(Cow::Borrowed(chain.as_str()))),
        Target::RedirectTo(port) => xt::redirect(*port, family),
        Target::Tproxy { port, mark, mask } => xt::tproxy(*port, *mark, *mask),
        Target::SetMark { mark, mask } => xt::set_mark(*mark, *mask),
        Target::SaveMark => xt::save_mark(),
        Target::RestoreMark => xt::restore_mark(),
        Target::SetConnMark { mark, mask } => xt::set_connmark(*mark, *mask),
        Target::CtZone(zone) => xt::ct_zone(*zone),
    }
}

/// Returns the numeric id; fails for a name, which the caller must have resolved.
pub(super) fn id(owner: &Owner) -> Result<u32, Unencodable> {
    match owner {
        Owner::Id(id) => Ok(*id),
        Owner::Name(name) => Err(Unencodable::Name(name.clone())),
    }
}

pub(super) fn number(proto: Proto) -> u8 {
    match proto {
        Proto::Tcp => 6,
        Proto::Udp => 17,
    }
}

pub(super) fn op(negated: bool) -> Op {
    if negated { Op::Unequal } else { Op::Equal }
}

pub(super) fn compare(load: Expr, op: Op, value: Value, exprs: &mut Vec<Expr>) {
    exprs.extend([load, Expr::Cmp(op, value)]);
}

/// Compares the bits of a mark that are in the mask.
pub(super) fn mark_expressions(load: Expr, mark: u32, mask: u32, op: Op) -> impl Iterator<Item = Expr> {
    let masked = (mask != u32::MAX).then(|| Expr::Mask(Value::u32(mask)));
    std::iter::once(load).chain(masked).chain([Expr::Cmp(op, Value::u32(mark))])
}

/// Compares the name including its final zero byte, to exclude longer names with this prefix.
fn interface(key: Meta, name: &Interface, op: Op, exprs: &mut Vec<Expr>) {
    let bytes = name.padded();
    let length = bytes.iter().take_while(|byte| **byte != 0).fold(1, |length, _| length + 1);
    compare(Expr::Meta(key), op, Value::array(bytes).prefix(length), exprs);
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
}

/// Compares a TCP or UDP port.
pub(super) fn ports(side: Side, port: Port, op: Op, exprs: &mut Vec<Expr>) {
    let offset = if side == Side::Source { 0 } else { 2 };
    compare(Expr::Payload { base: Base::Transport, offset, length: 2 }, op, Value::port(port), exprs);
}

/// Returns the offset of an address in its header, and the bytes of the network and of its mask.
pub(super) fn network(side: Side, net: IpNet) -> (u8, Value, Value) {
    let (source, destination) = match net {
        IpNet::V4(_) => (12, 16),
        IpNet::V6(_) => (8, 24),
    };
    let bytes = |addr| match addr {
        IpAddr::V4(a) => Value::array(a.octets()),
        IpAddr::V6(a) => Value::array(a.octets()),
    };
    let offset = if side == Side::Source { source } else { destination };
    (offset, bytes(net.network()), bytes(net.netmask()))
}

/// Compares an address with a range; a range of all addresses needs no comparison, unless it is negated.
fn address(side: Side, net: IpNet, op: Op, exprs: &mut Vec<Expr>) {
    let (offset, network, mask) = network(side, net);
    let prefix = net.prefix_len();
    if prefix == 0 && op == Op::Equal {
        return;
    }
    masked(offset, prefix, network, mask, op, exprs);
}

/// Compares with a network: a prefix of whole bytes directly, any other through a mask.
pub(super) fn masked(offset: u8, prefix: u8, network: Value, mask: Value, op: Op, exprs: &mut Vec<Expr>) {
    let whole = prefix.is_multiple_of(8) && prefix > 0;
    let length = if whole { prefix / 8 } else { network.length() };
    exprs.push(Expr::Payload { base: Base::Network, offset, length });
    if !whole {
        exprs.push(Expr::Mask(mask));
    }
    exprs.push(Expr::Cmp(op, network.prefix(length)));
}
