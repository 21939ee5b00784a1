//! Tests of how rules of other programs are printed.

use redirect::istio;
use ruleset::{Chain, Match, Rule, RuleSet, Table, Target};

use super::*;
use crate::expr::Xt;
use crate::image::TableFamily;
use crate::{compat, native};

fn text(exprs: &[Expr]) -> String {
    rule("X", exprs).trim_start_matches("-A X ").to_owned()
}

fn marks(load: Expr, mask: u32, xor: u32, set: Expr) -> [Expr; 3] {
    let bits = match xor {
        0 => Expr::Mask(Value::u32(mask)),
        xor => Expr::MaskXor(Value::u32(mask), Value::u32(xor)),
    };
    [load, bits, set]
}

#[test]
fn statements_about_bits_of_marks_have_the_syntax_of_iptables() {
    let (packet, conn) = (|| Expr::Meta(Meta::Mark), || Expr::Ct(Ct::Mark));
    let (to_packet, to_conn) = (|| Expr::SetMeta(Meta::Mark), || Expr::SetCt(Ct::Mark));
    for (exprs, expected) in [
        (marks(packet(), !0x4000, 0x4000, to_packet()), "-j MARK --set-xmark 0x4000/0x4000"),
        (marks(packet(), !0x4000, 0, to_packet()), "-j MARK --set-xmark 0x0/0x4000"),
        (marks(packet(), u32::MAX, 0x4000, to_packet()), "-j MARK --set-xmark 0x4000/0x0"),
        (marks(conn(), !0xfff, 0x111, to_conn()), "-j CONNMARK --set-xmark 0x111/0xfff"),
        (marks(conn(), !0xfff, 0, to_conn()), "-j CONNMARK --set-xmark 0x0/0xfff"),
        (marks(packet(), 0xff, 0, to_conn()), "-j CONNMARK --save-mark --nfmask 0xff --ctmask 0xffffffff"),
        (marks(conn(), 0xff, 0, to_packet()), "-j CONNMARK --restore-mark --nfmask 0xffffffff --ctmask 0xff"),
        (marks(conn(), 0xff, 1, to_packet()), "-j CONNMARK --restore-mark [...]"),
        (marks(Expr::Meta(Meta::Uid), 0xff, 0, to_packet()), "-j MARK [...]"),
    ] {
        assert_eq!(text(&exprs), expected);
    }
    assert_eq!(text(&[Expr::Load(Value::u32(7)), to_conn()]), "-j CONNMARK --set-xmark 0x7/0xffffffff");
}

#[test]
fn comparisons_after_a_mask_keep_their_meaning() {
    let state = |mask, op, value| [Expr::Ct(Ct::State), Expr::Mask(Value::u32(mask)), Expr::Cmp(op, Value::u32(value))];
    for (exprs, expected) in [
        (state(1, Op::Unequal, 0), "-m conntrack --ctstate INVALID"),
        (state(6, Op::Equal, 0), "-m conntrack ! --ctstate RELATED,ESTABLISHED"),
        (state(6, Op::Equal, 2), "[comparison]"),
        (marks(Expr::Meta(Meta::Mark), 0xff, 0, Expr::Cmp(Op::Unequal, Value::u32(1))), "-m mark ! --mark 0x1/0xff"),
        (marks(Expr::Ct(Ct::Mark), 0xff, 3, Expr::Cmp(Op::Equal, Value::u32(1))), "-m connmark --mark 0x2/0xff"),
    ] {
        assert_eq!(text(&exprs), expected);
    }
    let exact = [Expr::Ct(Ct::State), Expr::Cmp(Op::Unequal, Value::u32(8))];
    assert_eq!(text(&exact), "-m conntrack ! --ctstate NEW");
}

#[test]
fn a_mask_that_is_no_prefix_is_printed_as_an_address() {
    let to = |mask: [u8; 4]| {
        let load = Expr::Payload { base: Base::Network, offset: 16, length: 4 };
        let value = |bytes: &[u8]| Value::new(bytes).unwrap();
        text(&[load, Expr::Mask(value(&mask)), Expr::Cmp(Op::Equal, value(&[10, 0, 7, 0]))])
    };
    assert_eq!(to([255, 255, 255, 0]), "-d 10.0.7.0/24");
    assert_eq!(to([255, 0, 255, 0]), "-d 10.0.7.0/255.0.255.0");
}

#[test]
fn marks_of_packets_and_connections_are_matched_alike() {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&0x4000_u32.to_ne_bytes());
    bytes[4..8].copy_from_slice(&0x4000_u32.to_ne_bytes());
    bytes[8] = 1;
    for name in ["mark", "connmark"] {
        let xt = Xt { name: name.into(), revision: 1, bytes: bytes.into() };
        assert_eq!(text(&[Expr::Match(xt)]), format!("-m {name} ! --mark 0x4000/0x4000"));
    }
}

#[test]
fn both_encoders_compare_and_replace_bits_of_marks() {
    let (mark, mask) = (0x111, 0xfff);
    for (matches, target, expected) in [
        (vec![], Target::SetMark { mark, mask }, "-j MARK --set-xmark 0x111/0xfff"),
        (vec![], Target::SetMark { mark: 0, mask }, "-j MARK --set-xmark 0x0/0xfff"),
        (vec![], Target::SetMark { mark, mask: u32::MAX }, "-j MARK --set-xmark 0x111/0xffffffff"),
        (vec![], Target::SetConnMark { mark, mask }, "-j CONNMARK --set-xmark 0x111/0xfff"),
        (
            vec![Match::tcp()],
            Target::Tproxy { port: Port(15006), mark, mask },
            "-p tcp -j TPROXY --on-port 15006 --tproxy-mark 0x111/0xfff",
        ),
        (
            vec![Match::ConnMark { mark, mask, negated: true }],
            Target::Return,
            "-m connmark ! --mark 0x111/0xfff -j RETURN",
        ),
    ] {
        let rules = vec![Rule::new(Table::Mangle, Chain::OUTPUT, matches, target)];
        let set = RuleSet { rules, ..RuleSet::empty(&istio::SIDECAR) };
        for image in [compat::image(&set), native::image(&set, TableFamily::Inet)] {
            assert_eq!(text(image.unwrap().tables[0].chains[0].rules[0].body.exprs()), expected);
        }
    }
}

fn of(name: &'static str, revision: u32, size: usize, fields: &[(usize, &[u8])]) -> Xt {
    let mut bytes = vec![0; size];
    for (at, value) in fields {
        bytes[*at..at + value.len()].copy_from_slice(value);
    }
    Xt { name: name.into(), revision, bytes: bytes.into() }
}

/// A pair of ports in host byte order.
fn pair(first: u16, last: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (first.to_ne_bytes(), last.to_ne_bytes());
    [a, b, c, d]
}

#[test]
fn ports_and_flags_of_xt_tcp_and_xt_udp_are_printed() {
    let all = pair(0, u16::MAX);
    let tcp = |source: &[u8], destination: &[u8], rest: [u8; 4]| {
        text(&[Expr::Match(of("tcp", 0, 12, &[(0, source), (4, destination), (8, &rest)]))])
    };
    assert_eq!(tcp(&all, &all, [0; 4]), "-m tcp");
    assert_eq!(tcp(&all, &pair(80, 80), [0; 4]), "-m tcp --dport 80");
    assert_eq!(tcp(&pair(1, 9), &pair(80, 90), [0, 0, 0, 2]), "-m tcp --sport 1:9 ! --dport 80:90");
    assert_eq!(tcp(&all, &all, [0, 0x17, 2, 4]), "-m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN");
    assert_eq!(tcp(&all, &all, [7, 1, 0, 8]), "-m tcp ! --tcp-option 7 --tcp-flags FIN NONE");
    // No port is outside the range of all ports.
    assert_eq!(tcp(&all, &all, [0, 0, 0, 1]), "-m tcp ! --sport 0:65535");
    let udp = of("udp", 0, 12, &[(0, &all), (4, &pair(53, 53)), (8, &[2])]);
    assert_eq!(text(&[Expr::Match(udp)]), "-m udp ! --dport 53");
}

#[test]
fn a_range_of_multiport_is_not_printed_as_two_ports() {
    let ports = [pair(80, 8000), pair(8100, 443)].concat();
    let match_ = of("multiport", 1, 48, &[(0, &[1, 4]), (2, &ports), (32, &[0, 1, 0, 0])]);
    assert_eq!(text(&[Expr::Match(match_)]), "-m multiport --dports 80,8000:8100,443");
}

#[test]
fn the_flags_of_redirect_decide_which_port_it_uses() {
    let redirect = |flags: u32, first: u16, last: u16| {
        let ports = [first.to_be_bytes(), last.to_be_bytes()].concat();
        let v4 = of("REDIRECT", 0, 24, &[(4, &flags.to_ne_bytes()), (16, &ports)]);
        let v6 = of("REDIRECT", 0, 40, &[(0, &flags.to_ne_bytes()), (36, &ports)]);
        let printed = text(&[Expr::Target(v4)]);
        assert_eq!(text(&[Expr::Target(v6)]), printed);
        printed
    };
    assert_eq!(redirect(0, 0, 0), "-j REDIRECT");
    assert_eq!(redirect(2, 80, 80), "-j REDIRECT --to-ports 80");
    assert_eq!(redirect(2, 80, 90), "-j REDIRECT --to-ports 80-90");
    assert_eq!(redirect(6, 80, 90), "-j REDIRECT [...]");
}

#[test]
fn targets_of_conntrack_are_printed_or_marked_as_incomplete() {
    let ct = |fields: &[(usize, &[u8])]| text(&[Expr::Target(of("CT", 2, 72, fields))]);
    let native = |number: u16| number.to_ne_bytes();
    assert_eq!(ct(&[(2, &native(7))]), "-j CT --zone 7");
    assert_eq!(ct(&[(0, &native(1))]), "-j CT --notrack");
    assert_eq!(ct(&[(0, &native(3))]), "-j CT --notrack");
    assert_eq!(ct(&[(0, &native(4)), (2, &native(7))]), "-j CT [...]");
    assert_eq!(ct(&[(12, b"ftp")]), "-j CT [...]");
}

/// An expression that is neither a condition nor known can end the traversal, so that it is printed as a target.
#[test]
fn unknown_statements_are_targets_and_unknown_conditions_are_not() {
    let other = |name: &str, body: &[u8]| Expr::Other { name: name.to_owned(), body: body.into() };
    for statement in ["nat", "redir", "tproxy", "queue", "reject", "masq", "notrack", "immediate", "fwd"] {
        assert_eq!(text(&[other(statement, &[])]), format!("-j [{statement}]"));
    }
    for condition in ["fib", "limit", "socket", "meta", "lookup", "dynset", "objref"] {
        let printed = text(&[other(condition, &[]), Expr::Verdict(super::Verdict::Accept)]);
        assert_eq!(printed, format!("[{condition}] -j ACCEPT"));
    }
    // NFTA_LOOKUP_DREG (3) is NFT_REG_VERDICT (0): `vmap`.
    assert_eq!(text(&[other("lookup", &[8, 0, 3, 0, 0, 0, 0, 0])]), "-j [lookup]");
    assert_eq!(text(&[Expr::Redirect]), "-j REDIRECT [...]");
    assert_eq!(text(&[Expr::Tproxy(ruleset::Family::V4)]), "-j TPROXY [...]");
}

#[test]
fn a_comparison_after_an_unknown_expression_is_not_of_the_field_before() {
    let load = Expr::Payload { base: Base::Transport, offset: 2, length: 2 };
    let direction = Expr::Other { name: "ct".to_owned(), body: Box::default() };
    let compare = |value| Expr::Cmp(Op::Equal, value);
    let rule = [load, compare(Value::port(Port(80))), direction, compare(Value::u8(0))];
    assert_eq!(text(&rule), "-m tcp --dport 80 [ct] [comparison]");
}

#[test]
fn all_statements_of_a_native_rule_are_printed() {
    let mark = [Expr::Load(Value::u32(7)), Expr::SetMeta(Meta::Mark), Expr::Verdict(super::Verdict::Accept)];
    assert_eq!(text(&mark), "-j MARK --set-xmark 0x7/0xffffffff -j ACCEPT");
    let tproxy = [Expr::Load(Value::port(Port(80))), Expr::Tproxy(ruleset::Family::V4)];
    assert_eq!(text(&tproxy), "-j TPROXY --on-port 80");
}
