//! Runs [`fuzz_cases::netlink`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::netlink::property(input));
