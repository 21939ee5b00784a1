//! Encodes expressions as netlink attributes and decodes them.
//!
//! Decoding the kernel's dump of an encoded expression yields the same value.

use std::borrow::Cow;

use netlink::{Attr, Attrs, Malformed, Writer};
use ruleset::Family;

use super::expr::{Base, Ct, Expr, Meta, Op, Set, Value, Verdict, Xt};
use super::uapi::*;

/// The name of each anonymous set within the batch that creates it; the kernel replaces `%d` by a number.
pub(super) const ANONYMOUS: &str = "__set%d";

/// Numbers the anonymous sets of a batch in the order of their lookups.
#[derive(Debug, Default)]
pub(super) struct SetIds(pub(super) u32);

/// Encodes an expression as an element of a rule's list.
pub(super) fn write(expr: &Expr, w: &mut Writer, sets: &mut SetIds) {
    w.nested(NFTA_LIST_ELEM, |w| {
        let name = match expr {
            Expr::Other { name, .. } => name,
            known => name(known),
        };
        w.text(NFTA_EXPR_NAME, name);
        match expr {
            Expr::Other { body, .. } => w.attr(NFTA_EXPR_DATA, body),
            known => w.nested(NFTA_EXPR_DATA, |w| body(known, w, sets)),
        }
    });
}

fn name(expr: &Expr) -> &'static str {
    match expr {
        Expr::Meta(_) | Expr::SetMeta(_) => "meta",
        Expr::Cmp(..) => "cmp",
        Expr::Payload { .. } => "payload",
        Expr::Mask(_) | Expr::MaskXor(..) => "bitwise",
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
        Expr::Meta(key) => numbers(w, &[(NFTA_META_KEY, key.number()), (NFTA_META_DREG, NFT_REG_1)]),
        Expr::SetMeta(key) => numbers(w, &[(NFTA_META_KEY, key.number()), (NFTA_META_SREG, NFT_REG_1)]),
        Expr::Cmp(op, value) => {
            numbers(w, &[(NFTA_CMP_SREG, NFT_REG_1), (NFTA_CMP_OP, op.number())]);
            constant(w, NFTA_CMP_DATA, value);
        }
        Expr::Payload { base, offset, length } => {
            let (offset, length) = (u32::from(*offset), u32::from(*length));
            let location =
                [(NFTA_PAYLOAD_BASE, base.number()), (NFTA_PAYLOAD_OFFSET, offset), (NFTA_PAYLOAD_LEN, length)];
            numbers(w, &[(NFTA_PAYLOAD_DREG, NFT_REG_1)]);
            numbers(w, &location);
        }
        Expr::Mask(mask) => write_bitwise(*mask, mask.zeroed(), w),
        Expr::MaskXor(mask, xor) => write_bitwise(*mask, *xor, w),
        Expr::Load(value) => {
            w.u32_be(NFTA_IMMEDIATE_DREG, NFT_REG_1);
            constant(w, NFTA_IMMEDIATE_DATA, value);
        }
        Expr::Verdict(verdict) => {
            w.u32_be(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT);
            w.nested(NFTA_IMMEDIATE_DATA, |w| w.nested(NFTA_DATA_VERDICT, |w| write_verdict(verdict, w)));
        }
        Expr::Ct(key) => numbers(w, &[(NFTA_CT_DREG, NFT_REG_1), (NFTA_CT_KEY, key.number())]),
        Expr::SetCt(key) => numbers(w, &[(NFTA_CT_KEY, key.number()), (NFTA_CT_SREG, NFT_REG_1)]),
        Expr::Lookup { set, negated } => write_lookup(set, *negated, w, sets),
        Expr::Redirect => {
            numbers(w, &[(NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1), (NFTA_REDIR_REG_PROTO_MAX, NFT_REG_1)]);
            // The kernel sets this flag itself whenever a port is given.
            w.u32_be(NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED);
        }
        Expr::Tproxy(family) => {
            numbers(w, &[(NFTA_TPROXY_FAMILY, nfproto(*family)), (NFTA_TPROXY_REG_PORT, NFT_REG_1)]);
        }
        Expr::Match(xt) | Expr::Target(xt) => {
            w.text(NFTA_XT_NAME, &xt.name);
            w.u32_be(NFTA_XT_REV, xt.revision);
            w.attr(NFTA_XT_INFO, &xt.bytes);
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
    w.nested(kind, |w| w.attr(NFTA_DATA_VALUE, value.as_bytes()));
}

fn write_bitwise(mask: Value, xor: Value, w: &mut Writer) {
    numbers(w, &[(NFTA_BITWISE_SREG, NFT_REG_1), (NFTA_BITWISE_DREG, NFT_REG_1)]);
    w.u32_be(NFTA_BITWISE_LEN, u32::from(mask.length()));
    constant(w, NFTA_BITWISE_MASK, &mask);
    constant(w, NFTA_BITWISE_XOR, &xor);
}

fn write_verdict(verdict: &Verdict, w: &mut Writer) {
    match verdict {
        Verdict::Drop => w.u32_be(NFTA_VERDICT_CODE, NF_DROP),
        Verdict::Accept => w.u32_be(NFTA_VERDICT_CODE, NF_ACCEPT),
        Verdict::Return => w.u32_be(NFTA_VERDICT_CODE, NFT_RETURN),
        Verdict::Jump(chain) => write_transfer(NFT_JUMP, chain, w),
        Verdict::Goto(chain) => write_transfer(NFT_GOTO, chain, w),
    }
}

fn write_transfer(code: u32, chain: &str, w: &mut Writer) {
    w.u32_be(NFTA_VERDICT_CODE, code);
    w.text(NFTA_VERDICT_CHAIN, chain);
}

fn write_lookup(set: &Set, negated: bool, w: &mut Writer, sets: &mut SetIds) {
    w.u32_be(NFTA_LOOKUP_SREG, NFT_REG_1);
    match set {
        Set::Named(name) => w.text(NFTA_LOOKUP_SET, name),
        Set::Ports(_) => {
            sets.0 += 1;
            w.text(NFTA_LOOKUP_SET, ANONYMOUS);
            w.u32_be(NFTA_LOOKUP_SET_ID, sets.0);
        }
    }
    w.u32_be(NFTA_LOOKUP_FLAGS, if negated { NFT_LOOKUP_F_INV } else { 0 });
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
            NFTA_EXPR_NAME => name = Some(attr.text()?),
            NFTA_EXPR_DATA => data = attr.value,
            _ => (),
        }
    }
    let name = name.ok_or(Malformed("an expression has no name"))?;
    let fields = Fields::read(data)?;
    let known = fields.as_ref().and_then(|fields| known(name, fields));
    Ok(known.unwrap_or_else(|| Expr::Other { name: name.to_owned(), body: data.into() }))
}

/// An expression's attributes, indexed by attribute type minus one.
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
        Value::new(only(self.attr(kind)?, NFTA_DATA_VALUE)?.value)
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
        "meta" => meta(f),
        "cmp" if f.are(&[NFTA_CMP_SREG, NFTA_CMP_OP, NFTA_CMP_DATA]) => {
            f.is(NFTA_CMP_SREG, NFT_REG_1)?;
            Some(Expr::Cmp(Op::from_number(f.u32(NFTA_CMP_OP)?)?, f.constant(NFTA_CMP_DATA)?))
        }
        "payload" if f.are(&[NFTA_PAYLOAD_DREG, NFTA_PAYLOAD_BASE, NFTA_PAYLOAD_OFFSET, NFTA_PAYLOAD_LEN]) => {
            f.is(NFTA_PAYLOAD_DREG, NFT_REG_1)?;
            let offset = u8::try_from(f.u32(NFTA_PAYLOAD_OFFSET)?).ok()?;
            let length = u8::try_from(f.u32(NFTA_PAYLOAD_LEN)?).ok()?;
            Some(Expr::Payload { base: Base::from_number(f.u32(NFTA_PAYLOAD_BASE)?)?, offset, length })
        }
        "bitwise" => mask(f),
        "immediate" if f.is(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT).is_some() => verdict(f).map(Expr::Verdict),
        "immediate" if f.are(&[NFTA_IMMEDIATE_DREG, NFTA_IMMEDIATE_DATA]) => {
            f.is(NFTA_IMMEDIATE_DREG, NFT_REG_1).and(f.constant(NFTA_IMMEDIATE_DATA)).map(Expr::Load)
        }
        "ct" => ct(f),
        "lookup" => lookup(f),
        "redir" if f.are(&[NFTA_REDIR_REG_PROTO_MIN, NFTA_REDIR_REG_PROTO_MAX, NFTA_REDIR_FLAGS]) => {
            f.is(NFTA_REDIR_REG_PROTO_MIN, NFT_REG_1)?;
            f.is(NFTA_REDIR_REG_PROTO_MAX, NFT_REG_1)?;
            f.is(NFTA_REDIR_FLAGS, NF_NAT_RANGE_PROTO_SPECIFIED).map(|()| Expr::Redirect)
        }
        "tproxy" if f.are(&[NFTA_TPROXY_FAMILY, NFTA_TPROXY_REG_PORT]) => {
            f.is(NFTA_TPROXY_REG_PORT, NFT_REG_1)?;
            let family = [Family::V4, Family::V6].into_iter().find(|v| f.is(NFTA_TPROXY_FAMILY, nfproto(*v)).is_some());
            family.map(Expr::Tproxy)
        }
        "match" => xt(f).map(Expr::Match),
        "target" => xt(f).map(Expr::Target),
        _ => None,
    }
}

fn meta(f: &Fields<'_>) -> Option<Expr> {
    let key = Meta::from_number(f.u32(NFTA_META_KEY)?)?;
    if f.are(&[NFTA_META_DREG, NFTA_META_KEY]) {
        f.is(NFTA_META_DREG, NFT_REG_1).map(|()| Expr::Meta(key))
    } else if f.are(&[NFTA_META_KEY, NFTA_META_SREG]) {
        f.is(NFTA_META_SREG, NFT_REG_1).map(|()| Expr::SetMeta(key))
    } else {
        None
    }
}

fn ct(f: &Fields<'_>) -> Option<Expr> {
    let key = Ct::from_number(f.u32(NFTA_CT_KEY)?)?;
    if f.are(&[NFTA_CT_DREG, NFTA_CT_KEY]) {
        f.is(NFTA_CT_DREG, NFT_REG_1).map(|()| Expr::Ct(key))
    } else if f.are(&[NFTA_CT_KEY, NFTA_CT_SREG]) {
        f.is(NFTA_CT_SREG, NFT_REG_1).map(|()| Expr::SetCt(key))
    } else {
        None
    }
}

/// Whether the expression takes the rule's verdict from a map (`vmap`).
pub(super) fn is_verdict_map(expr: &Expr) -> bool {
    let Expr::Other { name, body } = expr else { return false };
    let fields = Fields::read(body).ok().flatten();
    name == "lookup" && fields.is_some_and(|fields| fields.is(NFTA_LOOKUP_DREG, NFT_REG_VERDICT).is_some())
}

fn lookup(f: &Fields<'_>) -> Option<Expr> {
    let without_flags = [NFTA_LOOKUP_SET, NFTA_LOOKUP_SREG];
    if !(f.are(&without_flags) || f.are(&[NFTA_LOOKUP_SET, NFTA_LOOKUP_SREG, NFTA_LOOKUP_FLAGS])) {
        return None;
    }
    f.is(NFTA_LOOKUP_SREG, NFT_REG_1)?;
    let negated = f.u32(NFTA_LOOKUP_FLAGS).unwrap_or_default() == NFT_LOOKUP_F_INV;
    Some(Expr::Lookup { set: Set::Named(f.attr(NFTA_LOOKUP_SET)?.text().ok()?.to_owned()), negated })
}

/// Decodes `reg = (reg & mask) ^ xor`; newer kernels add the operation, 0, as attribute 6.
fn mask(f: &Fields<'_>) -> Option<Expr> {
    const REQUIRED: [u16; 5] =
        [NFTA_BITWISE_SREG, NFTA_BITWISE_DREG, NFTA_BITWISE_LEN, NFTA_BITWISE_MASK, NFTA_BITWISE_XOR];
    let with_op = || [&REQUIRED[..], &[NFTA_BITWISE_OP]].concat();
    if !(f.are(&REQUIRED) || f.is(NFTA_BITWISE_OP, NFT_BITWISE_MASK_XOR).is_some() && f.are(&with_op())) {
        return None;
    }
    f.is(NFTA_BITWISE_SREG, NFT_REG_1).and(f.is(NFTA_BITWISE_DREG, NFT_REG_1))?;
    let (mask, xor) = (f.constant(NFTA_BITWISE_MASK)?, f.constant(NFTA_BITWISE_XOR)?);
    let unchanged = xor.as_bytes().iter().all(|b| *b == 0);
    Some(if unchanged { Expr::Mask(mask) } else { Expr::MaskXor(mask, xor) })
}

fn verdict(f: &Fields<'_>) -> Option<Verdict> {
    let inner = Fields::read(only(f.attr(NFTA_IMMEDIATE_DATA)?, NFTA_DATA_VERDICT)?.value).ok()??;
    match (inner.u32(NFTA_VERDICT_CODE)?, inner.attr(NFTA_VERDICT_CHAIN)) {
        (NF_DROP, None) => Some(Verdict::Drop),
        (NF_ACCEPT, None) => Some(Verdict::Accept),
        (NFT_RETURN, None) => Some(Verdict::Return),
        (NFT_JUMP, Some(chain)) => Some(Verdict::Jump(Cow::Owned(chain.text().ok()?.to_owned()))),
        (NFT_GOTO, Some(chain)) => Some(Verdict::Goto(Cow::Owned(chain.text().ok()?.to_owned()))),
        _ => None,
    }
}

fn xt(f: &Fields<'_>) -> Option<Xt> {
    let name = Cow::Owned(f.attr(NFTA_XT_NAME)?.text().ok()?.to_owned());
    Some(Xt { name, revision: f.u32(NFTA_XT_REV)?, bytes: f.attr(NFTA_XT_INFO)?.value.into() })
}

#[cfg(test)]
mod tests;
