//! Runs [`fuzz_cases::command_line`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::command_line::property(input));
