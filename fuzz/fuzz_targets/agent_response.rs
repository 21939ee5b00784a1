//! Runs [`fuzz_cases::agent_response`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::agent_response::property(input));
