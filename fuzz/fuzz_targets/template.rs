//! Runs [`fuzz_cases::template`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::template::property(input));
