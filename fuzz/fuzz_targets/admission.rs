//! Runs [`fuzz_cases::admission`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::admission::property(input));
