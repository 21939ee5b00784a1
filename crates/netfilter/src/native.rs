//! Encodes rules as nft 1.0.6 encodes the output of [`nft::render`], so that `nft list ruleset` prints both alike.

use std::borrow::Cow;

use ipnet::IpNet;
use ruleset::{CtStates, Families, Family, Interface, Match, NativeTable, Port, RuleSet, Spelling, Target, nft};

use super::Unencodable;
use super::compat::{self, Side, compare, op, push};
use super::expr::{Base, Ct, Expr, Meta, Op, Set, Value, Verdict};
use super::image::{Body, Chain, Hook, Image, Rule, TableFamily, TableId};

/// Encodes the rules as native tables of this family, with chains in the layout's order. [`nft::render`] uses the family
/// `inet`, in which a rule without an address also applies to IPv6, even if the pod has only IPv4 rules.
pub(super) fn image(rules: &RuleSet, family: TableFamily) -> Result<Image<'_>, Unencodable> {
    let mut chains = rules.merged_chains();
    let mut tables = Vec::new();
    for NativeTable { table, name, chains: declared, .. } in rules.layout.tables {
        let id = TableId { family, name };
        for chain in declared {
            let Some(members) = chains.remove(&(table, *chain)) else { continue };
            let members =
                members.into_iter().map(|r| rule(r, family, rules.layout.spelling)).collect::<Result<_, _>>()?;
            push(&mut tables, id, Chain { name: chain.native(), hook: Hook::of(table, *chain), rules: members });
        }
    }
    Ok(Image { tables })
}

fn rule(source: &ruleset::Rule, family: TableFamily, spelling: Spelling) -> Result<Rule<'_>, Unencodable> {
    // A rule in a table of one family needs no match on the family.
    let family = [Family::V4, Family::V6].into_iter().find(|f| TableFamily::from(*f) == family);
    let mut out = Out { spelling, exprs: Vec::with_capacity(4 + 2 * source.matches.len()), family, protocol: None };
    let mut matches: Vec<&Match> = source.matches.iter().collect();
    matches.sort_by_key(|m| nft::rank(m, source.table, spelling));
    for m in matches {
        out.add(m, source)?;
    }
    out.target(source);
    Ok(Rule { body: Body::Exprs(out.exprs), protocol: source.protocol(), source })
}

/// The expressions so far, and the family and protocol that they already match: nft matches each once.
struct Out {
    spelling: Spelling,
    exprs: Vec<Expr>,
    family: Option<Family>,
    protocol: Option<u8>,
}

impl Out {
    fn add(&mut self, m: &Match, rule: &ruleset::Rule) -> Result<(), Unencodable> {
        match m {
            Match::InInterface(name) => self.interface(Meta::InInterface, name, Op::Equal),
            Match::OutInterface(name) => self.interface(Meta::OutInterface, name, Op::Equal),
            Match::NotOutInterface(name) => self.interface(Meta::OutInterface, name, Op::Unequal),
            Match::Source(net) => self.address(Side::Source, *net, Op::Equal),
            Match::Destination { net, negated } => self.address(Side::Destination, *net, op(*negated)),
            // The match on the port adds the protocol itself, unless Istio's rule names the protocol separately.
            Match::Protocol(_) if !nft::spells_protocol(rule, self.spelling) => (),
            Match::Protocol(p) => self.protocol(compat::number(*p)),
            Match::DestinationPort { port, negated } => {
                self.protocol_of(rule);
                compat::ports(Side::Destination, *port, op(*negated), &mut self.exprs);
            }
            Match::SourcePort(port) => {
                self.protocol_of(rule);
                compat::ports(Side::Source, *port, Op::Equal, &mut self.exprs);
            }
            Match::NotDestinationPorts(ports) => {
                self.protocol_of(rule);
                self.not_ports(ports);
            }
            Match::Uid { owner, negated } => {
                self.compare(Expr::Meta(Meta::Uid), op(*negated), Value::u32(compat::id(owner)?));
            }
            Match::Gid { owner, negated } => {
                self.compare(Expr::Meta(Meta::Gid), op(*negated), Value::u32(compat::id(owner)?));
            }
            Match::CtState(states) => self.state(*states),
            Match::Mark { mark, mask, negated } => self.mark(Expr::Meta(Meta::Mark), *mark, *mask, op(*negated)),
            Match::ConnMark { mark, mask, negated } => self.mark(Expr::Ct(Ct::Mark), *mark, *mask, op(*negated)),
            Match::Extension(_) => (),
        }
        Ok(())
    }

    fn compare(&mut self, load: Expr, op: Op, value: Value) {
        compare(load, op, value, &mut self.exprs);
    }

    fn mark(&mut self, load: Expr, mark: u32, mask: u32, op: Op) {
        self.exprs.extend(compat::mark_expressions(load, mark, mask, op));
    }

    fn interface(&mut self, key: Meta, name: &Interface, op: Op) {
        self.compare(Expr::Meta(key), op, Value::array(name.padded()));
    }

    fn family(&mut self, family: Family) {
        if self.family.replace(family) != Some(family) {
            self.compare(Expr::Meta(Meta::Family), Op::Equal, Value::u8(TableFamily::from(family) as u8));
        }
    }

    fn protocol(&mut self, number: u8) {
        if self.protocol.replace(number) != Some(number) {
            self.compare(Expr::Meta(Meta::Protocol), Op::Equal, Value::u8(number));
        }
    }

    fn protocol_of(&mut self, rule: &ruleset::Rule) {
        if let Some(protocol) = rule.protocol() {
            self.protocol(compat::number(protocol));
        }
    }

    /// Compares an address with a range; unlike iptables, nft does so even with a prefix length of 0.
    fn address(&mut self, side: Side, net: IpNet, op: Op) {
        self.family(match net {
            IpNet::V4(_) => Family::V4,
            IpNet::V6(_) => Family::V6,
        });
        let (offset, network, mask) = compat::network(side, net);
        compat::masked(offset, net.prefix_len(), network, mask, op, &mut self.exprs);
    }

    fn not_ports(&mut self, ports: &[Port]) {
        let mut sorted = ports.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        self.exprs.extend([
            Expr::Payload { base: Base::Transport, offset: 2, length: 2 },
            Expr::Lookup { set: Set::Ports(sorted), negated: true },
        ]);
    }

    /// Tests bits of the connection state (`NF_CT_STATE_BIT`): 1 invalid, 2 established, 4 related.
    fn state(&mut self, states: CtStates) {
        let bits = match states {
            CtStates::Invalid => {
                self.protocol(compat::number(ruleset::Proto::Tcp));
                1
            }
            CtStates::RelatedEstablished => 2 | 4,
        };
        self.exprs.extend([Expr::Ct(Ct::State), Expr::Mask(Value::u32(bits)), Expr::Cmp(Op::Unequal, Value::u32(0))]);
    }

    fn set_mark(&mut self, mark: u32, mask: u32) {
        match mask {
            u32::MAX => self.exprs.push(Expr::Load(Value::u32(mark))),
            _ => self.exprs.extend([Expr::Meta(Meta::Mark), replace(mark, mask)]),
        }
        self.exprs.push(Expr::SetMeta(Meta::Mark));
    }

    /// Appends the target. The counter comes first; with TPROXY it comes just before the verdict, and some jumps have none.
    fn target(&mut self, rule: &ruleset::Rule) {
        let jump = |chain: &ruleset::Chain| Verdict::Jump(Cow::Borrowed(chain.native()));
        if let Target::Tproxy { port, mark, mask } = &rule.target {
            let family = if rule.families == Families::V6 { Family::V6 } else { Family::V4 };
            self.exprs.extend([Expr::Load(Value::port(*port)), Expr::Tproxy(family)]);
            self.set_mark(*mark, *mask);
            self.exprs.extend([Expr::Counter, Expr::Verdict(Verdict::Accept)]);
            return;
        }
        if nft::has_counter(rule, self.spelling) {
            self.exprs.push(Expr::Counter);
        }
        match &rule.target {
            Target::Return => self.exprs.push(Expr::Verdict(Verdict::Return)),
            Target::Accept | Target::Tproxy { .. } => self.exprs.push(Expr::Verdict(Verdict::Accept)),
            Target::Drop => self.exprs.push(Expr::Verdict(Verdict::Drop)),
            Target::Jump(chain) => self.exprs.push(Expr::Verdict(jump(chain))),
            Target::RedirectTo(port) => self.exprs.extend([Expr::Load(Value::port(*port)), Expr::Redirect]),
            Target::SetMark { mark, mask } => self.set_mark(*mark, *mask),
            Target::SaveMark => self.exprs.extend([Expr::Meta(Meta::Mark), Expr::SetCt(Ct::Mark)]),
            Target::RestoreMark => self.exprs.extend([Expr::Ct(Ct::Mark), Expr::SetMeta(Meta::Mark)]),
            Target::SetConnMark { mark, mask } => {
                self.exprs.extend([Expr::Ct(Ct::Mark), replace(*mark, *mask), Expr::SetCt(Ct::Mark)]);
            }
            Target::CtZone(zone) => self.exprs.extend([Expr::Load(Value::u16(*zone)), Expr::SetCt(Ct::Zone)]),
        }
    }
}

/// Replaces the bits of a loaded mark that are in the mask.
fn replace(mark: u32, mask: u32) -> Expr {
    match mark {
        0 => Expr::Mask(Value::u32(!mask)),
        _ => Expr::MaskXor(Value::u32(!mask), Value::u32(mark)),
    }
}
