//! Tests which address families of a pod are redirected: those that its addresses and settings require, and those that
//! were redirected before.

use std::net::{Ipv6Addr, TcpListener};

use contract::{annotation, proxy_env};
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::encoder::LEGACY;
use crate::plugin::{Pod, injected};
use test_support::netns::{IPV6, Users, trial};
use test_support::program::{as_user, under_test};

pub(crate) fn trials() -> Vec<Trial> {
    const SAVE: &[&str] = &["iptables-nft-save", "ip6tables-nft-save", "nft"];
    vec![
        trial("families/a_user_namespace_does_not_redirect_ipv6", &["nft", "nsenter", "setpriv", IPV6], user_namespace),
        trial("families/a_later_address_removes_no_family/iptables", SAVE, || {
            a_later_address(&json!({}), |pod| pod.netns.run("ip6tables-nft-save", &[]));
        }),
        trial("families/a_later_address_removes_no_family/nft", SAVE, || {
            a_later_address(&json!({"native_nftables": true}), Pod::ruleset);
        }),
        trial("families/a_later_address_removes_no_family/legacy", LEGACY, || {
            let legacy = json!({"force_iptables_binary": "legacy"});
            a_later_address(&legacy, |pod| pod.netns.run("ip6tables-legacy-save", &[]));
        }),
        trial("families/an_ipv6_address_that_is_not_redirected_is_reported", SAVE, named),
        trial("families/invalid_variables_that_istio_ignores_do_not_fail_a_pod", SAVE, ignored_variables),
    ]
}

const DUAL: [&str; 2] = ["10.9.0.2/24", "fd00:9::2/64"];

fn pod(addresses: &[&str], env: &Value) -> Pod {
    Pod::new(addresses).facts(&injected(&json!({}), env))
}

/// In a pod with `hostUsers: false` native nftables tables replace iptables' rules. They have rules for IPv4 only, so
/// IPv6 is not redirected.
fn user_namespace() {
    let (users, netns) = Users::with_netns();
    let pod = Pod::within(netns, &DUAL).facts(&injected(&json!({}), &json!({})));
    let reply = pod.call("ADD", &json!({}));
    assert_eq!(reply.code, 0, "{reply:?}");
    assert_eq!(pod.netns.run("nft", &["list", "tables"]), "table ip istio-proxy-nat\n");
    assert_eq!(pod.call("CHECK", &json!({})).code, 0);

    let address: Ipv6Addr = "fd00:9::2".parse().unwrap();
    let listener = pod.netns.inside(|| TcpListener::bind((address, 8080)).unwrap());
    listener.set_nonblocking(true).unwrap();
    for id in ["1000", "1337"] {
        let connect = ["bash", "-c", "exec 3<>/dev/tcp/fd00:9::2/8080"];
        let connected = pod.netns.inside(|| users.command(id, &connect).output().unwrap());
        assert!(connected.status.success() && listener.accept().is_ok(), "{id}: {connected:?}");
    }
    assert!(pod.call("ADD", &json!({})).stderr.contains(r#""change":"none""#));
}

/// A pod with only an IPv6 address gets an IPv4 address from a second network (Multus). CHECK must succeed, and another ADD must change
/// nothing.
fn a_later_address(conf: &Value, rules: impl Fn(&Pod) -> String) {
    let pod = pod(&["fd00:9::2/64"], &json!({}));
    assert_eq!(pod.call("ADD", conf).code, 0);
    let counts = |text: &str| (text.matches("-A ISTIO").count(), text.matches("ip6 ").count());
    let first = counts(&rules(&pod));
    assert!(first.0 + first.1 > 3, "{}", rules(&pod));
    pod.netns.run("ip", &["link", "add", "net1", "type", "veth", "peer", "name", "net1peer"]);
    pod.netns.run("ip", &["addr", "add", "10.7.0.2/24", "dev", "net1"]);
    assert_eq!(pod.call("CHECK", conf).code, 0);
    let again = pod.call("ADD", conf);
    assert!(again.code == 0 && again.stderr.contains(r#""change":"none""#), "{again:?}");
    assert_eq!(counts(&rules(&pod)), first);
}

fn named() {
    let message = |env: &Value| {
        let reply = pod(&DUAL, env).call("ADD", &json!({}));
        assert_eq!(reply.code, 0, "{reply:?}");
        reply.stderr
    };
    let warned = message(&json!({}));
    assert!(warned.contains("IPv6 address fd00:9::2") && warned.contains("ISTIO_DUAL_STACK=true"), "{warned}");
    let covered = message(&json!({proxy_env::DUAL_STACK: "true"}));
    assert!(!covered.contains("fd00:9::2"), "{covered}");
}

fn ignored_variables() {
    for (key, value) in [
        (proxy_env::LOOPBACK_CIDR, "127.0.0.0/8"),
        (proxy_env::LOOPBACK_CIDR, "loopback"),
        (proxy_env::OWNER_GROUPS, "java,202"),
        (proxy_env::OWNER_GROUPS_EXCLUDE, "ftp,202"),
    ] {
        let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({annotation::STATUS: "{}"}), &json!({key: value})));
        let reply = pod.call("ADD", &json!({}));
        assert!(reply.code == 0 && reply.stderr.contains(key), "{key}={value}: {reply:?}");
        assert_eq!(pod.call("CHECK", &json!({})).code, 0);
        let validated = pod.netns.inside(|| {
            let mut command = as_user(&under_test("istio-iptables"), 1337, 1337);
            command.args(["--run-validation", "--skip-rule-apply", "--probe-timeout", "120s"]);
            command.env_clear().output().unwrap()
        });
        assert!(validated.status.success(), "{key}={value}: {validated:?}");
        let save = pod.netns.run("iptables-nft-save", &[]);
        let spared = save.contains("--gid-owner 202 -j RETURN");
        assert_eq!(spared, key == proxy_env::OWNER_GROUPS_EXCLUDE, "{key}={value}: {save}");
    }
}
