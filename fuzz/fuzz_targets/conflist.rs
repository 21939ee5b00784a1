//! Runs [`fuzz_cases::conflist`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::conflist::property(input));
