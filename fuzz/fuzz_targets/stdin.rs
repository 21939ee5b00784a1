//! Runs [`fuzz_cases::stdin`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::stdin::property(input));
