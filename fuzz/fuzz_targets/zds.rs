//! Runs [`fuzz_cases::zds`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::zds::property(input));
