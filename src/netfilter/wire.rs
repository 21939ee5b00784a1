//! Encodes expressions as netlink attributes and decodes them.
//!
//! Decoding the kernel's dump of an encoded expression yields the same value.

use std::borrow::Cow;

use super::expr::{Base, Ct, Expr, Meta, Op, Set, Value, Verdict, Xt};
use crate::netlink::{Attr, Attrs, Malformed, Writer};
use crate::rules::Family;

/// `NFTA_LIST_ELEM`, also the name of an expression (`NFTA_EXPR_NAME`) in it.
pub(super) const ELEM: u16 = 1;
const NAME: u16 = 1;
const DATA: u16 = 2;
/// `NFTA_DATA_VALUE`
pub(super) const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
/// `NFT_REG_1`
const REG: u32 = 1;
/// `NFT_REG_VERDICT`
const REG_VERDICT: u32 = 0;
/// `NF_NAT_RANGE_PROTO_SPECIFIED`, which the kernel adds whenever a port is given.
const PORT_GIVEN: u32 = 2;
/// `NFT_LOOKUP_F_INV`
const INVERTED: u32 = 1;
const ACCEPT: u32 = 1;
const DROP: u32 = 0;
/// `NFT_JUMP` and `NFT_RETURN`, negative numbers.
const JUMP: u32 = -3_i32 as u32;
const RETURN: u32 = -5_i32 as u32;

/// The name of an anonymous set within the batch that creates it.
pub(super) const ANONYMOUS: &str = "__set%d";

/// Numbers the anonymous sets of a batch in the order of their lookups.
#[derive(Debug, Default)]
pub(super) struct SetIds(pub(super) u32);

/// Encodes an expression as an element of a rule's list.
pub(super) fn write(expr: &Expr, w: &mut Writer, sets: &mut SetIds) {
    w.nested(ELEM, |w| {
        let name = match expr {
            Expr::Other { name, .. } => name,
            known => name(known),
        };
        w.text(NAME, name);
        match expr {
            Expr::Other { body, .. } => w.attr(DATA, body),
            known => w.nested(DATA, |w| body(known, w, sets)),
        }
    });
}

fn name(expr: &Expr) -> &'static str {
    match expr {
        Expr::Meta(_) | Expr::SetMeta(_) => "meta",
        Expr::Cmp(..) => "cmp",
        Expr::Payload { .. } => "payload",
        Expr::Mask(_) => "bitwise",
        Expr::Load(_) | Expr::Verdict(_) => "immediate",
        Expr::Ct(_) | Expr::SetCt(_) => "ct",
        Expr::Lookup { .. } => "lookup",
        Expr::Counter => "counter",
        Expr::Redirect => "redir",
        Expr::Tproxy(_) => "tproxy",
        Expr::Match(_) => "match",
        Expr::Target(_) => "target",
        Expr::Other { .. } => "",
    }
}

fn body(expr: &Expr, w: &mut Writer, sets: &mut SetIds) {
    match expr {
        Expr::Meta(key) => numbers(w, &[(2, key.number()), (1, REG)]),
        Expr::SetMeta(key) => numbers(w, &[(2, key.number()), (3, REG)]),
        Expr::Cmp(op, value) => {
            numbers(w, &[(1, REG), (2, op.number())]);
            constant(w, 3, value);
        }
        Expr::Payload { base, offset, length } => {
            let (offset, length) = (u32::from(*offset), u32::from(*length));
            numbers(w, &[(1, REG), (2, base.number()), (3, offset), (4, length)]);
        }
        Expr::Mask(mask) => {
            let length = mask.as_bytes().len();
            numbers(w, &[(1, REG), (2, REG), (3, u32::try_from(length).unwrap_or_default())]);
            constant(w, 4, mask);
            w.nested(5, |w| w.attr(DATA_VALUE, [0; 16].get(..length).unwrap_or_default()));
        }
        Expr::Load(value) => {
            numbers(w, &[(1, REG)]);
            constant(w, 2, value);
        }
        Expr::Verdict(verdict) => {
            numbers(w, &[(1, REG_VERDICT)]);
            w.nested(2, |w| w.nested(DATA_VERDICT, |w| write_verdict(verdict, w)));
        }
        Expr::Ct(key) => numbers(w, &[(1, REG), (2, key.number())]),
        Expr::SetCt(key) => numbers(w, &[(2, key.number()), (4, REG)]),
        Expr::Lookup { set, negated } => write_lookup(set, *negated, w, sets),
        Expr::Redirect => numbers(w, &[(1, REG), (2, REG), (3, PORT_GIVEN)]),
        Expr::Tproxy(family) => numbers(w, &[(1, nfproto(*family)), (3, REG)]),
        Expr::Match(xt) | Expr::Target(xt) => {
            w.text(1, &xt.name);
            w.u32_be(2, xt.revision);
            w.attr(3, &xt.bytes);
        }
        Expr::Counter | Expr::Other { .. } => (),
    }
}

fn numbers(w: &mut Writer, attrs: &[(u16, u32)]) {
    for (kind, value) in attrs {
        w.u32_be(*kind, *value);
    }
}

fn constant(w: &mut Writer, kind: u16, value: &Value) {
    w.nested(kind, |w| w.attr(DATA_VALUE, value.as_bytes()));
}

fn write_verdict(verdict: &Verdict, w: &mut Writer) {
    match verdict {
        Verdict::Drop => w.u32_be(1, DROP),
        Verdict::Accept => w.u32_be(1, ACCEPT),
        Verdict::Return => w.u32_be(1, RETURN),
        Verdict::Jump(chain) => {
            w.u32_be(1, JUMP);
            w.text(2, chain);
        }
    }
}

fn write_lookup(set: &Set, negated: bool, w: &mut Writer, sets: &mut SetIds) {
    w.u32_be(2, REG);
    match set {
        Set::Named(name) => w.text(1, name),
        Set::Ports(_) => {
            sets.0 += 1;
            w.text(1, ANONYMOUS);
            w.u32_be(4, sets.0);
        }
    }
    w.u32_be(5, if negated { INVERTED } else { 0 });
}

/// `NFPROTO_IPV4`, `NFPROTO_IPV6`.
pub(super) fn nfproto(family: Family) -> u32 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

/// Decodes the expressions of a rule (`NFTA_RULE_EXPRESSIONS`).
pub(super) fn read_all(list: &[u8]) -> Result<Vec<Expr>, Malformed> {
    Attrs::new(list).map(|elem| read(elem?)).collect()
}

fn read(elem: Attr<'_>) -> Result<Expr, Malformed> {
    let (mut name, mut data) = (None, &[][..]);
    for attr in elem.attrs() {
        let attr = attr?;
        match attr.kind {
            NAME => name = Some(attr.text()?),
            DATA => data = attr.value,
            _ => (),
        }
    }
    let name = name.ok_or(Malformed("an expression has no name"))?;
    let fields = Fields::read(data)?;
    let known = fields.as_ref().and_then(|fields| known(name, fields));
    Ok(known.unwrap_or_else(|| Expr::Other { name: name.to_owned(), body: data.into() }))
}

/// An expression's attributes, indexed by type less one.
struct Fields<'a>([Option<Attr<'a>>; 9]);

impl<'a> Fields<'a> {
    fn read(data: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut fields = [None; 9];
        for attr in Attrs::new(data) {
            let attr = attr?;
            match usize::from(attr.kind).checked_sub(1).and_then(|i| fields.get_mut(i)) {
                Some(field) => *field = Some(attr),
                None => return Ok(None),
            }
        }
        Ok(Some(Self(fields)))
    }

    /// Whether exactly the attributes of these types exist.
    fn are(&self, kinds: &[u16]) -> bool {
        (1..=9).zip(&self.0).all(|(kind, field)| kinds.contains(&kind) == field.is_some())
    }

    fn attr(&self, kind: u16) -> Option<Attr<'a>> {
        self.0.get(usize::from(kind).checked_sub(1)?).copied().flatten()
    }

    fn u32(&self, kind: u16) -> Option<u32> {
        self.attr(kind)?.u32_be().ok()
    }

    fn is(&self, kind: u16, value: u32) -> Option<()> {
        (self.u32(kind)? == value).then_some(())
    }

    fn constant(&self, kind: u16) -> Option<Value> {
        Value::new(only(self.attr(kind)?, DATA_VALUE)?.value)
    }
}

pub(super) fn only(outer: Attr<'_>, kind: u16) -> Option<Attr<'_>> {
    let mut attrs = outer.attrs();
    let first = attrs.next()?.ok()?;
    (first.kind == kind && attrs.next().is_none()).then_some(first)
}

fn known(name: &str, f: &Fields<'_>) -> Option<Expr> {
    match name {
        "counter" => Some(Expr::Counter),
        "meta" if f.are(&[1, 2]) => f.is(1, REG).and(Meta::from_number(f.u32(2)?)).map(Expr::Meta),
        "meta" if f.are(&[2, 3]) => f.is(3, REG).and(Meta::from_number(f.u32(2)?)).map(Expr::SetMeta),
        "cmp" if f.are(&[1, 2, 3]) => {
            f.is(1, REG)?;
            Some(Expr::Cmp(Op::from_number(f.u32(2)?)?, f.constant(3)?))
        }
        "payload" if f.are(&[1, 2, 3, 4]) => {
            f.is(1, REG)?;
            let (offset, length) = (u8::try_from(f.u32(3)?).ok()?, u8::try_from(f.u32(4)?).ok()?);
            Some(Expr::Payload { base: Base::from_number(f.u32(2)?)?, offset, length })
        }
        "bitwise" => mask(f),
        "immediate" if f.is(1, REG_VERDICT).is_some() => verdict(f).map(Expr::Verdict),
        "immediate" if f.are(&[1, 2]) => f.is(1, REG).and(f.constant(2)).map(Expr::Load),
        "ct" if f.are(&[1, 2]) => f.is(1, REG).and(Ct::from_number(f.u32(2)?)).map(Expr::Ct),
        "ct" if f.are(&[2, 4]) => f.is(4, REG).and(Ct::from_number(f.u32(2)?)).map(Expr::SetCt),
        "lookup" if f.are(&[1, 2]) || f.are(&[1, 2, 5]) => {
            f.is(2, REG)?;
            let negated = f.u32(5).unwrap_or_default() == INVERTED;
            Some(Expr::Lookup { set: Set::Named(f.attr(1)?.text().ok()?.to_owned()), negated })
        }
        "redir" if f.are(&[1, 2, 3]) => {
            f.is(1, REG).and(f.is(2, REG)).and(f.is(3, PORT_GIVEN)).map(|()| Expr::Redirect)
        }
        "tproxy" if f.are(&[1, 3]) => {
            f.is(3, REG)?;
            let family = [Family::V4, Family::V6].into_iter().find(|v| f.is(1, nfproto(*v)).is_some());
            family.map(Expr::Tproxy)
        }
        "match" => xt(f).map(Expr::Match),
        "target" => xt(f).map(Expr::Target),
        _ => None,
    }
}

/// Decodes `reg = (reg & mask) ^ 0`; newer kernels add the operation, 0, as attribute 6.
fn mask(f: &Fields<'_>) -> Option<Expr> {
    if !(f.are(&[1, 2, 3, 4, 5]) || f.are(&[1, 2, 3, 4, 5, 6]) && f.is(6, 0).is_some()) {
        return None;
    }
    f.is(1, REG).and(f.is(2, REG))?;
    let unchanged = f.constant(5)?.as_bytes().iter().all(|b| *b == 0);
    unchanged.then_some(f.constant(4)?).map(Expr::Mask)
}

fn verdict(f: &Fields<'_>) -> Option<Verdict> {
    let inner = Fields::read(only(f.attr(2)?, DATA_VERDICT)?.value).ok()??;
    match (inner.u32(1)?, inner.attr(2)) {
        (DROP, None) => Some(Verdict::Drop),
        (ACCEPT, None) => Some(Verdict::Accept),
        (RETURN, None) => Some(Verdict::Return),
        (JUMP, Some(chain)) => Some(Verdict::Jump(Cow::Owned(chain.text().ok()?.to_owned()))),
        _ => None,
    }
}

fn xt(f: &Fields<'_>) -> Option<Xt> {
    let name = Cow::Owned(f.attr(1)?.text().ok()?.to_owned());
    Some(Xt { name, revision: f.u32(2)?, bytes: f.attr(3)?.value.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redirect::Port;
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
        fn damaged_bytes_end(exprs in vec(expr(), 1..4), at in any::<prop::sample::Index>(), to in any::<u8>()) {
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
        w.nested(ELEM, |w| {
            w.text(NAME, "cmp");
            // Register 2.
            w.nested(DATA, |w| {
                numbers(w, &[(1, 2), (2, 0)]);
                constant(w, 3, &Value::port(Port(80)));
            });
        });
        let bytes = w.into_bytes().unwrap();
        let exprs = read_all(&bytes).unwrap();
        assert!(matches!(&exprs[..], [Expr::Other { name, body }] if name == "cmp" && body.len() == 28), "{exprs:?}");
    }
}
