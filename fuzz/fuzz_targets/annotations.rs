//! Runs [`fuzz_cases::annotations`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::annotations::property(input));
