//! Runs [`fuzz_cases::dapr`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::dapr::property(input));
