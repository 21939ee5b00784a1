//! Any kubeconfig: parsed or refused, and nothing that is printed has the token in it.
#![no_main]

use istio_cni::pod::kubeconfig::{Credential, parse};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Ok(parsed) = parse(input) else { return };
    if let Credential::Token(token) = &parsed.credential {
        assert!(token.secret().bytes().all(|b| b.is_ascii_graphic()) && !token.secret().is_empty());
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
});
