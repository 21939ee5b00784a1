//! `istio-cnictl trace` as a process: rules of a pod and saved rules, as text and JSON, and its errors.

use serde_json::{Value, json};

use crate::cnictl::{POD, cnictl, text};

const PROXIED: &str = "\
pod shop/web
  outbound tcp from 192.0.2.1:32768 to 198.51.100.7:80, uid 1000, gid 1000, through eth0
  nat    OUTPUT           1  continues in ISTIO_OUTPUT           -j ISTIO_OUTPUT
  nat    ISTIO_OUTPUT    11  continues in ISTIO_REDIRECT         -j ISTIO_REDIRECT
  nat    ISTIO_REDIRECT   1  redirects to port 15001 of the pod  -p tcp -j REDIRECT --to-ports 15001
  redirected to port 15001 of the pod, the proxy's for outbound connections
";

fn traced(args: &[&str], input: &str) -> Value {
    let done = cnictl(&[&["trace", "-o", "json"], args].concat(), input, None);
    assert!(done.status.success(), "{}", text(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap()
}

#[test]
fn a_connection_of_a_pod_is_followed_to_the_proxy() {
    let done = cnictl(&["trace", "--builtIn", "-f", "-", "--outbound", "198.51.100.7:80"], POD, None);
    assert_eq!((text(&done.stdout).as_str(), text(&done.stderr).as_str()), (PROXIED, ""));
}

#[test]
fn each_side_of_a_pod_has_its_verdict() {
    for (args, verdict, port) in [
        (&["--inbound", "10.0.0.2:8080"][..], "redirected", json!(15006)),
        (&["--inbound", "10.0.0.2:15021"], "direct", json!(null)),
        (&["--outbound", "198.51.100.7:80", "--uid", "1337"], "direct", json!(null)),
        (&["--outbound", "198.51.100.7:80", "--uid", "1000", "--gid", "1337"], "direct", json!(null)),
        (&["--outbound", "198.51.100.7:80", "--protocol", "udp"], "direct", json!(null)),
        (&["--outbound", "127.0.0.1:80"], "direct", json!(null)),
        (&["--outbound", "[2001:db8::7]:80"], "direct", json!(null)),
        (&["--outbound", "[2001:db8::7]:80", "--ipv6"], "redirected", json!(15001)),
    ] {
        let all = traced(&[&["--builtIn", "-f", "-"], args].concat(), POD);
        assert_eq!((&all[0]["verdict"], &all[0]["port"]), (&json!(verdict), &port), "{args:?}: {all}");
    }
}

#[test]
fn the_trace_of_a_pod_without_redirection_has_the_reason() {
    let input = POD.replace("{containers", "{hostNetwork: true, containers");
    let all = traced(&["--builtIn", "-f", "-", "--outbound", "198.51.100.7:80"], &input);
    assert_eq!(all[0]["verdict"], json!(null));
    assert!(all[0]["reason"].as_str().unwrap().starts_with("no: "), "{all}");
}

#[test]
fn saved_rules_are_walked_with_the_condition_that_does_not_hold() {
    let rules = "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -d 10.0.0.0/8 -p tcp -j REDIRECT --to-ports 15001\nCOMMIT\n\
                 *filter\n-A OUTPUT -m set --match-set blocked dst -j DROP\nCOMMIT\n";
    let all = traced(&["--rules", "-", "--outbound", "198.51.100.7:80", "--all"], rules);
    let path = all[0]["path"].as_array().unwrap();
    assert_eq!((&path[0]["matches"], &path[0]["effect"]), (&json!(false), &json!("no match: -d 10.0.0.0/8")));
    assert_eq!((&path[1]["matches"], &all[0]["verdict"]), (&json!(null), &json!("undetermined")));
}

#[test]
fn invalid_saved_rules_are_refused_with_their_line() {
    for (args, input, wanted) in [
        (
            &["--rules", "-", "--outbound", "198.51.100.7:80"][..],
            "table ip nat {",
            "rules of -: line 1: expected a line",
        ),
        (&["--rules", "-"], "", "no connection specified (see --inbound and --outbound)"),
        (&["--netns", "/dev/null", "--outbound", "198.51.100.7:80"], "", "/dev/null"),
    ] {
        let done = cnictl(&[&["trace"], args].concat(), input, None);
        assert!(!done.status.success() && text(&done.stderr).contains(wanted), "{args:?}: {}", text(&done.stderr));
    }
    let both = cnictl(&["trace", "--inbound", "10.0.0.2:80", "--outbound", "10.0.0.3:80", "--rules", "-"], "", None);
    assert_eq!(both.status.code(), Some(64), "{}", text(&both.stderr));
}
