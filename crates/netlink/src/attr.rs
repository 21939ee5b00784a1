//! A reader of attributes (`struct nlattr`): length, type, and value padded to four bytes.
//!
//! Borrows the received bytes and never panics on any input.

use super::Malformed;

/// The flag bits of an attribute's type (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const FLAGS: u16 = 0xc000;
const HEADER: usize = 4;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attr<'a> {
    /// The type without its flag bits.
    pub kind: u16,
    /// The value without padding.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    /// Returns the nested attributes.
    pub fn attrs(&self) -> Attrs<'a> {
        Attrs::new(self.value)
    }

    pub fn u8(&self) -> Result<u8, Malformed> {
        self.array().map(|[b]| b)
    }

    /// Reads a 32-bit number in network byte order, as nf_tables uses.
    pub fn u32_be(&self) -> Result<u32, Malformed> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads a 64-bit number in network byte order.
    pub fn u64_be(&self) -> Result<u64, Malformed> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads a string up to the first zero byte or the end of the value.
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

/// An iterator over attributes; ends after the first malformed one.
#[derive(Debug, Clone)]
pub struct Attrs<'a> {
    rest: &'a [u8],
}

impl<'a> Attrs<'a> {
    /// Reads the body of a message, or the value of a nested attribute.
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

/// Counts attributes up to a depth of eight and reads each as nested if possible; for fuzzing.
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
    use crate::Writer;
    use proptest::prelude::*;

    fn kinds(bytes: &[u8]) -> Vec<Result<u16, Malformed>> {
        Attrs::new(bytes).map(|a| a.map(|a| a.kind)).collect()
    }

    #[test]
    fn written_attributes_are_read_back() {
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
    fn iteration_ends_at_a_truncated_header_or_an_excessive_length() {
        assert_eq!(kinds(&[5, 0, 1, 0, 9, 0, 0, 0, 4]), [Ok(1), Err(Malformed("an attribute's header is cut off"))]);
        assert_eq!(kinds(&[8, 0, 1, 0, 9]), [Err(Malformed("an attribute is longer than its message"))]);
        assert_eq!(kinds(&[3, 0, 1, 0]), [Err(Malformed("an attribute is longer than its message"))]);
        assert_eq!(kinds(&[5, 0, 1, 0, 9]), [Ok(1)], "the last attribute may lack its padding");
    }

    proptest! {
        #[test]
        fn reading_hostile_bytes_ends(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            prop_assert!(nested(&bytes) <= bytes.len() * 9);
        }
    }
}
