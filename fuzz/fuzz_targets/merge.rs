//! Runs [`fuzz_cases::merge`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::merge::property(input));
