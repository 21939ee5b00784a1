//! Parses any datagram as netlink messages of the kernel, with attributes at all depths and the expressions of rules.

use netfilter::read_rule;
use netlink::{Attr, Attrs, Messages, Writer, nested};

/// Serializes attributes that were read, without the flag bits of their types and with zeros as padding.
fn rewritten(attrs: &[Attr<'_>]) -> Vec<u8> {
    let mut writer = Writer::default();
    attrs.iter().for_each(|attr| writer.attr(attr.kind, attr.value));
    writer.into_bytes().expect("lengths that were read can be written")
}

/// Reads attributes up to the first invalid one. Checks that they are the same after they are written and read again.
fn attributes(bytes: &[u8]) -> Vec<Attr<'_>> {
    let attrs: Vec<Attr<'_>> = Attrs::new(bytes).map_while(Result::ok).collect();
    let written = rewritten(&attrs);
    assert!(written.len() <= bytes.len().next_multiple_of(4));
    let again: Vec<Attr<'_>> = Attrs::new(&written).collect::<Result<_, _>>().expect("what was written");
    assert_eq!(again, attrs);
    attrs
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    // `nested` counts attributes at nine depths, and each attribute takes at least four bytes.
    assert!(nested(input) <= 9 * input.len().div_ceil(4));
    for expressions in [input].into_iter().chain(attributes(input).iter().map(|attr| attr.value)) {
        assert!(read_rule(expressions).map_or(true, |count| count <= expressions.len().div_ceil(4)));
    }
    let messages: Vec<_> = Messages::new(input).map_while(Result::ok).collect();
    assert!(
        messages.len() <= input.len().div_ceil(16) && messages.iter().all(|one| one.body.len() + 16 <= input.len())
    );
    for attr in messages.iter().filter_map(|message| message.body.get(4..)).flat_map(attributes) {
        let text = attr.text();
        assert!(text.is_ok_and(|text| !text.contains('\0') && text.len() <= attr.value.len()) || text.is_err());
        let _ = read_rule(attr.value);
    }
}
