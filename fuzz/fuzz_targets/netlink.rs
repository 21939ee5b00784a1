//! Any datagram of the kernel: messages, attributes at all depths, and expressions of rules.
#![no_main]

use istio_cni::netfilter::read_all;
use istio_cni::netlink::{Attrs, Messages, nested};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    nested(input);
    drop(read_all(input));
    for message in Messages::new(input).map_while(Result::ok) {
        let Some(attrs) = message.body.get(4..) else { continue };
        for attr in Attrs::new(attrs).map_while(Result::ok) {
            let _ = attr.text();
            drop(read_all(attr.value));
        }
    }
});
