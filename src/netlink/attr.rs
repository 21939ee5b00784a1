//! Reading attributes (`struct nlattr`): type, length, value, padded to four bytes.
//!
//! Borrows from the received bytes and never panics, whatever they are.

use super::Malformed;

/// The bits of an attribute's type that say how to read it (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const FLAGS: u16 = 0xc000;
const HEADER: usize = 4;

/// One attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// Type, without the flag bits.
    pub kind: u16,
    /// Value, without padding.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    /// The attributes inside.
    pub fn attrs(&self) -> Attrs<'a> {
        Attrs::new(self.value)
    }

    /// A byte.
    pub fn u8(&self) -> Result<u8, Malformed> {
        self.array().map(|[b]| b)
    }

    /// A 32-bit number in network order, as nf_tables has them.
    pub fn u32_be(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// A 64-bit number in network order.
    pub fn u64_be(&self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// Text that ends with a zero byte, or with the value.
    pub fn text(&self) -> Result<&'a str, Malformed> {
        let end = self.value.iter().position(|b| *b == 0).unwrap_or(self.value.len());
        self.value
            .get(..end)
            .and_then(|t| std::str::from_utf8(t).ok())
            .ok_or(Malformed("an attribute's text is not UTF-8"))
    }

    fn array<const N: usize>(&self) -> Result<[u8; N], Malformed> {
        self.value.try_into().map_err(|_| Malformed("an attribute has the wrong length"))
    }
}

/// The attributes in a run of bytes; ends after the first that makes no sense.
#[derive(Debug, Clone)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    /// The attributes of a message's body, or of a nested attribute's value.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let Some((&[l0, l1, t0, t1], _)) = rest.split_first_chunk::<HEADER>() else {
            return Some(Err(Malformed("an attribute's header is cut off")));
        };
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(value) = rest.get(HEADER..length) else {
            return Some(Err(Malformed("an attribute is longer than its message")));
        };
        self.rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Ok(Attr { kind: u16::from_ne_bytes([t0, t1]) & !FLAGS, value }))
    }
}

/// Reads all attributes at all depths up to eight, each taken as nested where it could be: what a fuzzer calls.
pub fn nested(bytes: &[u8]) -> usize {
    fn count(bytes: &[u8], depth: u8) -> usize {
        let inner = |a: Attr<'_>| if depth == 0 { 0 } else { count(a.value, depth - 1) };
        Attrs::new(bytes).map_while(Result::ok).map(|a| 1 + inner(a)).sum()
    }
    count(bytes, 8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::Writer;
    use proptest::prelude::*;

    fn kinds(bytes: &[u8]) -> Vec<Result<u16, Malformed>> {
        Attrs::new(bytes).map(|a| a.map(|a| a.kind)).collect()
    }

    #[test]
    fn reads_what_the_writer_wrote() {
        let mut w = Writer::default();
        w.nested(4, |w| {
            w.u32_be(1, 7);
            w.text(2, "lo");
        });
        w.u64_be(5, 9);
        let bytes = w.into_bytes().unwrap();
        let attrs: Vec<_> = Attrs::new(&bytes).map(Result::unwrap).collect();
        let inner: Vec<_> = attrs[0].attrs().map(Result::unwrap).collect();
        assert_eq!((attrs[0].kind, inner[0].u32_be(), inner[1].text()), (4, Ok(7), Ok("lo")));
        assert_eq!(attrs[1].u64_be(), Ok(9));
        assert_eq!(attrs[1].u32_be(), Err(Malformed("an attribute has the wrong length")));
    }

    #[test]
    fn stops_at_a_cut_header_and_at_a_length_past_the_end() {
        assert_eq!(kinds(&[5, 0, 1, 0, 9, 0, 0, 0, 4]), [Ok(1), Err(Malformed("an attribute's header is cut off"))]);
        assert_eq!(kinds(&[8, 0, 1, 0, 9]), [Err(Malformed("an attribute is longer than its message"))]);
        assert_eq!(kinds(&[3, 0, 1, 0]), [Err(Malformed("an attribute is longer than its message"))]);
        assert_eq!(kinds(&[5, 0, 1, 0, 9]), [Ok(1)], "the last attribute may lack its padding");
    }

    proptest! {
        #[test]
        fn hostile_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            prop_assert!(nested(&bytes) <= bytes.len() * 9);
        }
    }
}
