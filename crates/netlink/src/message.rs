//! A writer and a reader of messages (`struct nlmsghdr`).

use std::fmt;

use nix::errno::Errno;

use super::{Attrs, Malformed};

const HEADER: usize = 16;
/// `NLMSG_ERROR`
const ERROR: u16 = 2;
/// `NLMSG_DONE`
const DONE: u16 = 3;
/// `NLM_F_CAPPED`: the acknowledgement does not repeat the refused message.
const CAPPED: u16 = 0x100;
/// `NLM_F_ACK_TLVS`: the acknowledgement has attributes that explain the refusal.
const EXPLAINED: u16 = 0x200;

/// Message flags (`linux/netlink.h`).
pub mod flag {
    /// `NLM_F_REQUEST`
    pub const REQUEST: u16 = 0x1;
    /// `NLM_F_ACK`
    pub const ACK: u16 = 0x4;
    /// `NLM_F_DUMP_INTR`: the dumped objects changed during the dump.
    pub const DUMP_INTERRUPTED: u16 = 0x10;
    /// `NLM_F_EXCL`
    pub const EXCL: u16 = 0x200;
    /// `NLM_F_DUMP`
    pub const DUMP: u16 = 0x300;
    /// `NLM_F_CREATE`
    pub const CREATE: u16 = 0x400;
    /// `NLM_F_APPEND`
    pub const APPEND: u16 = 0x800;
}

/// A buffer to which messages and attributes are appended.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    too_long: bool,
}

impl Writer {
    /// Creates an empty buffer with this capacity in bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), too_long: false }
    }

    /// Appends a message; `body` writes the part after the header.
    pub fn message(&mut self, kind: u16, flags: u16, seq: u32, body: impl FnOnce(&mut Self)) {
        let start = self.bytes.len();
        let ([k0, k1], [f0, f1], [s0, s1, s2, s3]) = (kind.to_ne_bytes(), flags.to_ne_bytes(), seq.to_ne_bytes());
        self.put([0, 0, 0, 0, k0, k1, f0, f1, s0, s1, s2, s3, 0, 0, 0, 0]);
        body(self);
        let length = u32::try_from(self.bytes.len() - start);
        self.too_long |= length.is_err();
        self.patch(start, &length.unwrap_or_default().to_ne_bytes());
    }

    /// Adds flags to the message that starts at `start`.
    pub fn add_flags(&mut self, start: usize, flags: u16) {
        if let Some(field) = self.bytes.get_mut(start + 6..start + 8) {
            let old = field.try_into().map_or(0, u16::from_ne_bytes);
            field.copy_from_slice(&(old | flags).to_ne_bytes());
        }
    }

    /// Appends bytes unchanged, such as a protocol's family header, and pads them.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.pad();
    }

    /// Appends an attribute.
    pub fn attr(&mut self, kind: u16, value: &[u8]) {
        self.header(kind, value.len() + 4);
        self.bytes.extend_from_slice(value);
        self.pad();
    }

    /// Appends a 32-bit number in network byte order, in one write because rules consist mostly of such attributes.
    pub fn u32_be(&mut self, kind: u16, value: u32) {
        let ([l0, l1], [k0, k1], [v0, v1, v2, v3]) = (8_u16.to_ne_bytes(), kind.to_ne_bytes(), value.to_be_bytes());
        self.put([l0, l1, k0, k1, v0, v1, v2, v3]);
    }

    /// Appends a number of elements as a 32-bit number in network byte order.
    pub fn count_be(&mut self, kind: u16, count: usize) {
        let number = u32::try_from(count);
        self.too_long |= number.is_err();
        self.u32_be(kind, number.unwrap_or_default());
    }

    /// Appends a 64-bit number in network byte order.
    pub fn u64_be(&mut self, kind: u16, value: u64) {
        self.attr(kind, &value.to_be_bytes());
    }

    /// Appends a string with a terminating zero byte.
    pub fn text(&mut self, kind: u16, value: &str) {
        self.header(kind, value.len() + 5);
        self.bytes.extend_from_slice(value.as_bytes());
        self.bytes.push(0);
        self.pad();
    }

    /// Appends an attribute that contains attributes.
    pub fn nested(&mut self, kind: u16, body: impl FnOnce(&mut Self)) {
        /// `NLA_F_NESTED`
        const NESTED: u16 = 0x8000;
        let start = self.open(kind | NESTED);
        body(self);
        self.close(start);
    }

    /// Returns the number of bytes written.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the buffer; fails if an attribute, a message or a number of elements exceeded its field.
    pub fn into_bytes(self) -> Result<Vec<u8>, Malformed> {
        if self.too_long {
            return Err(Malformed("an attribute, a message or a number of elements exceeds its field"));
        }
        Ok(self.bytes)
    }

    fn header(&mut self, kind: u16, length: usize) {
        let length = u16::try_from(length);
        self.too_long |= length.is_err();
        let ([l0, l1], [k0, k1]) = (length.unwrap_or_default().to_ne_bytes(), kind.to_ne_bytes());
        self.put([l0, l1, k0, k1]);
    }

    fn open(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        let [k0, k1] = kind.to_ne_bytes();
        self.put([0, 0, k0, k1]);
        start
    }

    /// Appends an array of known size, which compiles to moves instead of a call.
    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.bytes.extend_from_slice(&bytes);
    }

    fn close(&mut self, start: usize) {
        let length = u16::try_from(self.bytes.len() - start);
        self.too_long |= length.is_err();
        self.patch(start, &length.unwrap_or_default().to_ne_bytes());
    }

    fn patch(&mut self, at: usize, value: &[u8]) {
        if let Some(field) = self.bytes.get_mut(at..at + value.len()) {
            field.copy_from_slice(value);
        }
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

/// What a received message means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// The message with this sequence number succeeded.
    Ack,
    Refused(Refusal),
    /// The end of a dump.
    Done,
    /// A message of the protocol, with its type.
    Other(u16),
}

/// A received message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message<'a> {
    pub kind: Kind,
    pub flags: u16,
    /// The sequence number of the request.
    pub seq: u32,
    /// The part after the header.
    pub body: &'a [u8],
}

/// The kernel's refusal of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The sequence number of the refused message.
    pub seq: u32,
    pub errno: Errno,
    /// The kernel's message from the extended acknowledgement, if any.
    pub text: Option<String>,
}

impl Refusal {
    /// Whether a retry may succeed.
    pub fn is_temporary(&self) -> bool {
        super::is_temporary(self.errno)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel returned {}", self.errno)?;
        self.text.as_ref().map_or(Ok(()), |text| write!(f, " ({text})"))
    }
}

/// An iterator over the messages of a datagram; ends after the first malformed one.
#[derive(Debug, Clone)]
pub struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Messages<'a> {
    pub fn new(datagram: &'a [u8]) -> Self {
        Self { rest: datagram }
    }
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = std::mem::take(&mut self.rest);
        if rest.is_empty() {
            return None;
        }
        let Some((&[l0, l1, l2, l3, t0, t1, f0, f1, s0, s1, s2, s3, ..], _)) = rest.split_first_chunk::<HEADER>()
        else {
            return Some(Err(Malformed("a message's header is cut off")));
        };
        let length = usize::try_from(u32::from_ne_bytes([l0, l1, l2, l3])).unwrap_or(usize::MAX);
        let Some(body) = rest.get(HEADER..length) else {
            return Some(Err(Malformed("a message is longer than its datagram")));
        };
        self.rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        let flags = u16::from_ne_bytes([f0, f1]);
        let seq = u32::from_ne_bytes([s0, s1, s2, s3]);
        let kind = match u16::from_ne_bytes([t0, t1]) {
            ERROR => acknowledgement(flags, seq, body),
            DONE => done(seq, body),
            other => Ok(Kind::Other(other)),
        };
        Some(kind.map(|kind| Message { kind, flags, seq, body }))
    }
}

fn done(seq: u32, body: &[u8]) -> Result<Kind, Malformed> {
    Ok(refusal(0, seq, body)?.map_or(Kind::Done, Kind::Refused))
}

fn acknowledgement(flags: u16, seq: u32, body: &[u8]) -> Result<Kind, Malformed> {
    Ok(refusal(flags, seq, body)?.map_or(Kind::Ack, Kind::Refused))
}

/// Reads `struct nlmsgerr` or the end of a dump: 0 or a negative errno, then the refused message, then attributes.
fn refusal(flags: u16, seq: u32, body: &[u8]) -> Result<Option<Refusal>, Malformed> {
    let (code, rest) = body.split_first_chunk().ok_or(Malformed("an acknowledgement is cut off"))?;
    let code = i32::from_ne_bytes(*code);
    let errno = Errno::from_raw(code.saturating_neg());
    Ok((code < 0).then(|| Refusal { seq, errno, text: explanation(flags, rest) }))
}

fn explanation(flags: u16, refused: &[u8]) -> Option<String> {
    /// `NLMSGERR_ATTR_MSG`
    const TEXT: u16 = 1;
    if flags & EXPLAINED == 0 {
        return None;
    }
    let length = match flags & CAPPED {
        0 => usize::try_from(u32::from_ne_bytes(*refused.first_chunk()?)).ok()?,
        _ => HEADER,
    };
    let attrs = Attrs::new(refused.get(length.checked_next_multiple_of(4)?..)?);
    let text = attrs.map_while(Result::ok).find(|a| a.kind == TEXT)?;
    text.text().ok().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn refused(flags: u16, code: i32, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
        let mut w = Writer::default();
        w.message(ERROR, flags, 9, |w| {
            w.raw(&code.to_ne_bytes());
            w.message(0xa06, 1, 9, |_| ());
            body(w);
        });
        w.into_bytes().unwrap()
    }

    #[test]
    fn acks_and_refusals_are_read_with_the_kernels_message() {
        let bytes = refused(CAPPED | EXPLAINED, -2, |w| w.text(1, "no such chain"));
        let kind = Messages::new(&bytes).next().unwrap().unwrap().kind;
        let text = Some("no such chain".to_owned());
        assert_eq!(kind, Kind::Refused(Refusal { seq: 9, errno: Errno::ENOENT, text }));
        let ack = refused(CAPPED, 0, |_| ());
        assert_eq!(Messages::new(&ack).next().unwrap().unwrap().kind, Kind::Ack);
    }

    #[test]
    fn truncated_messages_are_refused() {
        let bytes = refused(0, -2, |_| ());
        let cut = Messages::new(&bytes[..bytes.len() - 1]).next();
        assert_eq!(cut, Some(Err(Malformed("a message is longer than its datagram"))));
        assert_eq!(Messages::new(&bytes[..15]).next(), Some(Err(Malformed("a message's header is cut off"))));
    }

    #[test]
    fn an_attribute_over_64k_is_an_error() {
        let mut w = Writer::default();
        w.attr(1, &vec![0; 70_000]);
        assert!(w.into_bytes().is_err());
    }

    proptest! {
        #[test]
        fn reading_hostile_datagrams_ends(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
            prop_assert!(Messages::new(&bytes).count() <= bytes.len() / HEADER + 1);
        }
    }
}
