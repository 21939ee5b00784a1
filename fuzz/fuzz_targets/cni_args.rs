//! Runs [`fuzz_cases::cni_args`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::cni_args::property(input));
