//! Tests of the installer's kubeconfig, and of faults in other kubeconfigs.

use super::*;

/// A kubeconfig as Istio's installer writes it: keys sorted, token inlined.
const ISTIO: &str = "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: UEVN
    server: https://10.96.0.1:443
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
    token: s3cret.token
";

fn fault(from: &str, to: &str) -> Fault {
    assert!(ISTIO.contains(from), "{from}");
    parse(ISTIO.replace(from, to).as_bytes()).unwrap_err()
}

#[test]
fn the_installers_kubeconfig_is_read() {
    let expected = Parsed {
        server: "10.96.0.1:443".parse().unwrap(),
        server_name: "10.96.0.1".try_into().unwrap(),
        trust: Trust::Authorities(b"PEM".to_vec()),
        credential: Credential::Token(Token("s3cret.token".into())),
    };
    assert_eq!(parse(ISTIO.as_bytes()).unwrap(), expected);
}

#[test]
fn a_kubeconfig_may_be_json() {
    let json = serde_json::json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "l", "user": "u"}}],
        "clusters": [{"name": "l", "cluster": {"server": "https://[fd00::1]:6443", "insecure-skip-tls-verify": true}}],
        "users": [{"name": "u", "user": {"token": "unused", "tokenFile": "token"}}],
    });
    let parsed = parse(json.to_string().as_bytes()).unwrap();
    assert_eq!(parsed.server, "[fd00::1]:6443".parse().unwrap());
    assert_eq!(parsed.trust, Trust::SkipVerify);
    assert_eq!(parsed.credential, Credential::File("token".into()));
}

#[test]
fn servers_are_addresses() {
    for (url, expected) in [
        ("https://10.0.0.1", "10.0.0.1:443"),
        ("https://10.0.0.1:6443/", "10.0.0.1:6443"),
        ("https://[::1]", "[::1]:443"),
        ("https://[::1]:6443", "[::1]:6443"),
    ] {
        assert_eq!(parse_server(url), Ok(expected.parse().unwrap()), "{url}");
    }
    for (url, reason) in [
        ("http://10.0.0.1:80", "must start with https://"),
        ("https://kubernetes.default.svc:443", "host names are never resolved"),
        ("https://10.0.0.1:443/k8s/c-1", "without a path"),
        ("https://user@10.0.0.1:443", "an IP address and a port"),
        ("https://10.0.0.1:99999", "an IP address and a port"),
        ("", "must start with https://"),
    ] {
        let message = parse_server(url).unwrap_err().to_string();
        assert!(message.contains(reason) && message.contains(&format!("{url:?}")), "{message}");
    }
}

#[test]
fn tls_server_name_replaces_the_address() {
    let with = |name: &str| {
        let line = format!("    server: https://10.96.0.1:443\n    tls-server-name: {name}\n");
        parse(ISTIO.replace("    server: https://10.96.0.1:443\n", &line).as_bytes()).map(|parsed| parsed.server_name)
    };
    for (given, expected) in [("api.example.com", "api.example.com"), ("10.0.0.9", "10.0.0.9"), ("''", "10.96.0.1")] {
        assert_eq!(with(given), Ok(expected.try_into().unwrap()), "{given}");
    }
    assert_eq!(with("'a b'"), Err(Fault::ServerName));
}

#[test]
fn missing_fields_are_named() {
    for (from, to, missing) in [
        ("current-context: istio-cni-context\n", "", "current-context"),
        ("  name: istio-cni-context", "  name: other", "the context that current-context names"),
        ("  name: local", "  name: other", "the cluster of the current context"),
        ("- name: istio-cni\n", "- name: other\n", "the user of the current context"),
        ("    server: https://10.96.0.1:443\n", "", "cluster.server"),
        ("    certificate-authority-data: UEVN\n", "", "cluster.certificate-authority-data"),
        ("    token: s3cret.token", "    username: x", "user.token"),
    ] {
        let message = fault(from, to).to_string();
        assert!(message.starts_with(missing) && message.ends_with("is missing"), "{message}");
    }
}

#[test]
fn each_malformed_value_has_its_fault() {
    assert_eq!(fault("UEVN", "'%%'"), Fault::Authority);
    assert_eq!(fault("s3cret.token", "''"), Fault::Token);
    assert_eq!(fault("s3cret.token", "\"a\\r\\nX: y\""), Fault::Token);
    assert!(matches!(fault("users:\n", "users: {\n"), Fault::Syntax { .. }));
}

#[test]
fn no_output_shows_the_token() {
    let parsed = format!("{:?}", parse(ISTIO.as_bytes()).unwrap());
    assert!(!parsed.contains("s3cret"), "{parsed}");
    for broken in [
        ISTIO.replace("    token: s3cret.token", "    - s3cret.token"),
        ISTIO.replace("  user:\n    token: s3cret.token", "  user: s3cret.token"),
        ISTIO.replace("s3cret.token", "'s3cret.token"),
        ISTIO.replace("s3cret.token", "s3cret token"),
    ] {
        let fault = parse(broken.as_bytes()).unwrap_err();
        assert!(!format!("{fault} {fault:?}").contains("s3cret"), "{fault:?}");
    }
}

#[test]
fn a_token_file_is_relative_to_its_kubeconfig() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kubeconfig");
    std::fs::write(&path, ISTIO.replace("    token: s3cret.token", "    tokenFile: token")).unwrap();
    let missing = load(&path).unwrap_err().to_string();
    assert!(missing.contains(dir.path().join("token").to_str().unwrap()), "{missing}");
    std::fs::write(dir.path().join("token"), " rotated\n").unwrap();
    assert_eq!(load(&path).unwrap().token.secret(), "rotated");
}

#[test]
fn an_unreadable_or_oversized_file_is_named() {
    let missing = load(Path::new("/nonexistent/kubeconfig")).unwrap_err().to_string();
    assert!(missing.contains("/nonexistent/kubeconfig") && missing.contains("No such file"), "{missing}");
    let endless = load(Path::new("/dev/zero")).unwrap_err().to_string();
    assert!(endless.contains("larger than 1048576 bytes"), "{endless}");
}
