//! Renders the plugin's kubeconfig. Pure. `lookup::kubeconfig` parses it in the plugin.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::server::Endpoint;

/// The credentials of a service account.
#[derive(Clone, PartialEq, Eq)]
pub struct Account {
    /// The bearer token.
    pub token: String,
    /// The API server's CA, as PEM; `None` if the plugin does not verify the server.
    pub ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Account(…)")
    }
}

/// Returns the kubeconfig, with keys in Istio's alphabetical order. It contains the token itself, because the token's path in this
/// container does not exist on the node.
pub(super) fn text(endpoint: &Endpoint, account: &Account) -> String {
    let trust = match &account.ca {
        Some(ca) => format!("certificate-authority-data: {}", STANDARD.encode(ca)),
        None => "insecure-skip-tls-verify: true".to_owned(),
    };
    let name = endpoint.tls_server_name.iter().map(|name| format!("\n    tls-server-name: {name}")).collect::<String>();
    format!(
        "apiVersion: v1
clusters:
- cluster:
    {trust}
    server: {}{name}
  name: local
contexts:
- context:
    cluster: local
    user: istio-cni
  name: istio-cni-context
current-context: istio-cni-context
kind: Config
users:
- name: istio-cni
  user:
    token: {}
",
        endpoint.url, account.token
    )
}

#[cfg(test)]
mod tests {
    use lookup::kubeconfig::{Credential, Trust, parse};

    use super::*;

    fn endpoint(host: &str) -> Endpoint {
        Endpoint { url: format!("https://{host}:443"), tls_server_name: None }
    }

    #[test]
    fn the_plugin_parses_the_kubeconfig() {
        let account = Account { token: "ey.J-_x".to_owned(), ca: Some(b"-----BEGIN CERTIFICATE-----".to_vec()) };
        let read = parse(text(&endpoint("[fd00::1]"), &account).as_bytes()).unwrap();
        assert_eq!((read.server, read.server_name), ("[fd00::1]:443".parse().unwrap(), "fd00::1".try_into().unwrap()));
        assert!(matches!(read.credential, Credential::Token(token) if token.secret() == "ey.J-_x"));
        assert_eq!(read.trust, Trust::Authorities(b"-----BEGIN CERTIFICATE-----".to_vec()));

        let named = Endpoint { tls_server_name: Some("api.example.com".to_owned()), ..endpoint("10.96.0.1") };
        let read = parse(text(&named, &account).as_bytes()).unwrap();
        assert_eq!(read.server, "10.96.0.1:443".parse().unwrap());
        assert_eq!(read.server_name, "api.example.com".try_into().unwrap());

        let skip = Account { ca: None, ..account };
        let read = parse(text(&endpoint("10.96.0.1"), &skip).as_bytes()).unwrap();
        assert_eq!(read.trust, Trust::SkipVerify);
    }

    #[test]
    fn debug_output_omits_the_token() {
        let account = Account { token: "secret".to_owned(), ca: None };
        assert_eq!(format!("{account:?}"), "Account(…)");
    }
}
