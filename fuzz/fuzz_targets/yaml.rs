//! Runs [`fuzz_cases::yaml`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::yaml::property(input));
