//! Tests of encoding and decoding random, damaged and unknown expressions.

use ruleset::Port;

use super::*;
use proptest::collection::vec;
use proptest::prelude::*;

fn value() -> impl Strategy<Value = Value> {
    vec(any::<u8>(), 1..=16).prop_map(|bytes| Value::new(&bytes).unwrap())
}

fn xt() -> impl Strategy<Value = Xt> {
    ("[a-zA-Z]{1,20}", 0..4_u32, vec(any::<u8>(), 0..200)).prop_map(|(name, revision, bytes)| Xt {
        name: name.into(),
        revision,
        bytes: bytes.into(),
    })
}

fn number<T: std::fmt::Debug>(from: fn(u32) -> Option<T>) -> impl Strategy<Value = T> {
    (0..32_u32).prop_filter_map("not one of ours", from)
}

fn expr() -> impl Strategy<Value = Expr> {
    let verdict = prop_oneof![
        Just(Verdict::Drop),
        Just(Verdict::Accept),
        Just(Verdict::Return),
        "[a-zA-Z_-]{1,30}".prop_map(|chain| Verdict::Jump(chain.into())),
        "[a-zA-Z_-]{1,30}".prop_map(|chain| Verdict::Goto(chain.into())),
    ];
    let name = "[a-z_]{1,30}".prop_map(Set::Named);
    prop_oneof![
        number(Meta::from_number).prop_map(Expr::Meta),
        number(Meta::from_number).prop_map(Expr::SetMeta),
        number(Ct::from_number).prop_map(Expr::Ct),
        number(Ct::from_number).prop_map(Expr::SetCt),
        (number(Op::from_number), value()).prop_map(|(op, value)| Expr::Cmp(op, value)),
        (number(Base::from_number), any::<u8>(), any::<u8>()).prop_map(|(base, offset, length)| Expr::Payload {
            base,
            offset,
            length
        }),
        value().prop_map(Expr::Mask),
        (value(), value()).prop_filter_map("a mask alone", |(mask, xor)| {
            xor.as_bytes().iter().any(|b| *b != 0).then_some(Expr::MaskXor(mask, xor))
        }),
        value().prop_map(Expr::Load),
        (name, any::<bool>()).prop_map(|(set, negated)| Expr::Lookup { set, negated }),
        Just(Expr::Counter),
        verdict.prop_map(Expr::Verdict),
        Just(Expr::Redirect),
        prop_oneof![Just(Family::V4), Just(Family::V6)].prop_map(Expr::Tproxy),
        xt().prop_map(Expr::Match),
        xt().prop_map(Expr::Target),
    ]
}

fn encode(exprs: &[Expr]) -> Vec<u8> {
    let mut w = Writer::default();
    exprs.iter().for_each(|e| write(e, &mut w, &mut SetIds::default()));
    w.into_bytes().unwrap()
}

proptest! {
    #[test]
    fn what_is_written_is_read_back(exprs in vec(expr(), 0..8)) {
        prop_assert_eq!(read_all(&encode(&exprs)), Ok(exprs));
    }

    #[test]
    fn damaged_bytes_do_not_panic(exprs in vec(expr(), 1..4), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let mut bytes = encode(&exprs);
        let at = at.index(bytes.len());
        bytes[at] = to;
        let _ = read_all(&bytes);
        let _ = read_all(&bytes[..at]);
    }
}

#[test]
fn an_unknown_expression_is_kept_and_equals_none_of_ours() {
    let mut w = Writer::default();
    w.nested(NFTA_LIST_ELEM, |w| {
        w.text(NFTA_EXPR_NAME, "cmp");
        // Our rules use only register 1, so a comparison of register 2 is an unknown expression.
        w.nested(NFTA_EXPR_DATA, |w| {
            numbers(w, &[(NFTA_CMP_SREG, 2), (NFTA_CMP_OP, 0)]);
            constant(w, NFTA_CMP_DATA, &Value::port(Port(80)));
        });
    });
    let bytes = w.into_bytes().unwrap();
    let exprs = read_all(&bytes).unwrap();
    assert!(matches!(&exprs[..], [Expr::Other { name, body }] if name == "cmp" && body.len() == 28), "{exprs:?}");
}
