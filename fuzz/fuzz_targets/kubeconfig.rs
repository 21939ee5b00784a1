//! Runs [`fuzz_cases::kubeconfig`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzz_cases::kubeconfig::property(input));
