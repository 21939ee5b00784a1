//! Tests of how rules of other programs are printed.

use redirect::istio;
use ruleset::{Chain, Match, Rule, RuleSet, Table, Target};

use super::*;
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
