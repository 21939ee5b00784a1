//! Runs [`fuzz_cases::relay`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::relay::property(input));
