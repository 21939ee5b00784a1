//! Runs [`fuzz_cases::pod`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::pod::property(input));
