//! Parses any kubeconfig. Checks that error messages are short, that the token is not in the debug output, and that an accepted kubeconfig
//! has the same values after it is written and parsed again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lookup::kubeconfig::{Credential, Parsed, Trust, parse};
use serde_json::{Value, json};

/// Returns a kubeconfig with these values.
fn kubeconfig(parsed: &Parsed) -> Value {
    let mut cluster =
        json!({"server": format!("https://{}", parsed.server), "tls-server-name": parsed.server_name.to_str()});
    match &parsed.trust {
        Trust::Authorities(der) => cluster["certificate-authority-data"] = STANDARD.encode(der).into(),
        Trust::SkipVerify => cluster["insecure-skip-tls-verify"] = true.into(),
    }
    let user = match &parsed.credential {
        Credential::Token(token) => json!({"token": token.secret()}),
        Credential::File(path) => json!({"tokenFile": path}),
    };
    json!({
        "current-context": "x",
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    })
}

/// Checks the properties for one input.
pub fn property(input: &[u8]) {
    let parsed = match parse(input) {
        Ok(parsed) => parsed,
        Err(fault) => return assert!(matches!(fault.to_string().len(), 1..2000), "{fault}"),
    };
    if let Credential::Token(token) = &parsed.credential {
        assert!(token.secret().bytes().all(|b| b.is_ascii_graphic()) && !token.secret().is_empty());
        assert_eq!(format!("{token:?}"), "Token(…)");
    }
    let written = kubeconfig(&parsed).to_string();
    assert_eq!(parse(written.as_bytes()).as_ref(), Ok(&parsed), "{written}");
}
