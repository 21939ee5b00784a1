//! Tests of CHECK: it fails if redirection is missing in a netns, and for no other reason. CRI-O replaces a pod whose CHECK
//! fails.

use libtest_mimic::Trial;
use serde_json::{Value, json};
use test_support::netns::trial;

use crate::backends::WITHOUT_SBIN;
use crate::plugin::{Pod, injected};

const TOOLS: &[&str] =
    &["iptables-nft", "ip6tables-nft", "iptables-legacy", "ip6tables-legacy", "iptables-legacy-save", "nft", "ip"];
const ADDRESSES: [&str; 2] = ["10.9.0.2/24", "fd00:9::2/64"];

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("check/missing_redirection_of_iptables_nft_fails", TOOLS, || iptables("nft")),
        trial("check/missing_redirection_of_iptables_legacy_fails", TOOLS, || iptables("legacy")),
        trial("check/missing_redirection_of_nftables_fails", TOOLS, nftables),
        trial("check/missing_redirection_of_tproxy_fails", TOOLS, tproxy),
        trial("check/rules_of_other_settings_pass", TOOLS, edited),
        trial("check/annotations_that_the_runtime_has_passed_to_add_decide", TOOLS, of_add),
        trial("check/rules_of_another_version_pass", TOOLS, other_version),
        trial("check/foreign_rules_pass", TOOLS, foreign),
        trial("check/another_way_to_the_same_chains_passes/iptables", TOOLS, other_ways),
        trial("check/another_way_to_the_same_chains_passes/nftables", TOOLS, other_ways_of_nftables),
        trial("check/an_ipv6_address_that_appears_later_passes", TOOLS, late_ipv6),
        trial("check/legacy_tables_that_cannot_be_read_pass", TOOLS, unreadable),
        trial("check/an_unknown_setting_passes", TOOLS, unknown_setting),
        trial("check/any_number_of_differences_is_reported", TOOLS, many),
        trial("check/a_pod_that_cannot_be_looked_up_passes", TOOLS, unknown),
        trial("check/an_annotation_that_became_invalid_passes", TOOLS, invalid),
    ]
}

fn env() -> Value {
    json!({"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_DUAL_STACK": "true"})
}

fn dual_stack(annotations: &Value) -> Pod {
    Pod::new(&ADDRESSES).facts(&injected(annotations, &env()))
}

/// Undoes parts of a pod's redirection, one in each pod, and expects CHECK to name what is missing.
fn is_named(conf: &Value, annotations: &Value, rows: &[(&[&str], &str)]) {
    for (undo, named) in rows {
        let pod = dual_stack(annotations);
        assert_eq!(pod.call("ADD", conf).code, 0);
        let (tool, args) = undo.split_first().unwrap();
        pod.netns.run(tool, args);
        let message = pod.call("CHECK", conf).error(999);
        assert!(
            message.contains("shop/web-0 is not redirected: ") && message.contains(named),
            "{undo:?}: {named:?} is not in {message:?}"
        );
        assert_eq!(pod.call("ADD", conf).code, 0);
        let check = pod.call("CHECK", conf);
        assert!(check.code == 0 && !check.stderr.contains("differs"), "{undo:?}: {check:?}");
    }
}

fn iptables(kind: &str) {
    let (v4, v6) = (format!("iptables-{kind}"), format!("ip6tables-{kind}"));
    let (v4, v6) = (v4.as_str(), v6.as_str());
    let rows: [(&[&str], &str); 8] = [
        (&[v4, "-t", "nat", "-D", "OUTPUT", "-j", "ISTIO_OUTPUT"], "OUTPUT of IPv4 table nat jumps to ISTIO_OUTPUT"),
        (&[v6, "-t", "nat", "-D", "OUTPUT", "-j", "ISTIO_OUTPUT"], "OUTPUT of IPv6 table nat jumps to ISTIO_OUTPUT"),
        (
            &[v4, "-t", "nat", "-D", "PREROUTING", "-p", "tcp", "-j", "ISTIO_INBOUND"],
            "PREROUTING of IPv4 table nat jumps to ISTIO_INBOUND",
        ),
        (&[v4, "-t", "nat", "-F", "ISTIO_INBOUND"], "chain ISTIO_INBOUND of IPv4 table nat has no rule that redirects"),
        (&[v4, "-t", "nat", "-F", "ISTIO_REDIRECT"], "chain ISTIO_REDIRECT of IPv4 table nat has no rule"),
        (&[v6, "-t", "nat", "-F", "ISTIO_OUTPUT"], "chain ISTIO_OUTPUT of IPv6 table nat has no rule"),
        (&[v4, "-t", "nat", "-F"], "OUTPUT of IPv4 table nat jumps to ISTIO_OUTPUT"),
        (&["ip", "-6", "addr", "del", "::6/128", "dev", "lo"], "::6"),
    ];
    is_named(&json!({ "force_iptables_binary": kind }), &json!({}), &rows);
}

fn nftables() {
    let table = ["inet", "istio-proxy-nat"];
    let one_family = "flush chain inet istio-proxy-nat output; add rule inet istio-proxy-nat output meta nfproto ipv4 jump istio-output";
    let mark_map = "flush chain inet istio-proxy-nat output; add rule inet istio-proxy-nat output meta mark set meta l4proto map { tcp : 1 }";
    let rows: [(&[&str], &str); 6] = [
        (&["nft", one_family], "jumps to istio-output"),
        (&["nft", mark_map], "jumps to istio-output"),
        (&["nft", "flush", "ruleset"], "Istio's rules are missing"),
        (&["nft", "flush", "chain", table[0], table[1], "output"], "jumps to istio-output"),
        (&["nft", "flush", "chain", table[0], table[1], "istio-redirect"], "istio-redirect"),
        (&["nft", "add", "table", table[0], table[1], "{ flags dormant; }"], "dormant"),
    ];
    is_named(&json!({ "native_nftables": true }), &json!({}), &rows);
}

fn tproxy() {
    let mode = json!({"sidecar.istio.io/interceptionMode": "TPROXY"});
    let no_mangle = "flush table ip mangle; delete table ip mangle";
    let rows: [(&[&str], &str); 6] = [
        (&["nft", no_mangle], "no rule assigns inbound packets to the proxy, although the IPv4 routing rule"),
        (&["ip", "rule", "del", "fwmark", "1337"], "IPv4 routing rule"),
        (&["ip", "-6", "rule", "del", "fwmark", "1337"], "IPv6 routing rule"),
        (&["ip", "-6", "route", "flush", "table", "133"], "IPv6 route"),
        (
            &["iptables-nft", "-t", "mangle", "-D", "PREROUTING", "-p", "tcp", "-j", "ISTIO_INBOUND"],
            "PREROUTING of IPv4 table mangle jumps to ISTIO_INBOUND",
        ),
        (&["ip6tables-nft", "-t", "mangle", "-F", "ISTIO_TPROXY"], "chain ISTIO_TPROXY of IPv6 table mangle"),
    ];
    is_named(&json!({}), &mode, &rows);
}

/// Expects CHECK to succeed and to log these strings.
fn passes(pod: &Pod, conf: &Value, logged: &[&str]) {
    let check = pod.call("CHECK", conf);
    assert_eq!((check.code, check.stdout.as_str()), (0, ""), "{check:?}");
    for text in logged {
        assert!(check.stderr.contains(text), "{text:?} is not in {check:?}");
    }
}

const DIFFERS: &str = r#""verdict":"verified","reason":"differs""#;

/// CHECK must succeed after the annotations were edited while the pod ran, from each of these sets to each other one.
fn edited() {
    let sets = [
        json!({}),
        json!({"sidecar.istio.io/interceptionMode": "TPROXY"}),
        json!({"traffic.sidecar.istio.io/includeInboundPorts": ""}),
        json!({"traffic.sidecar.istio.io/includeInboundPorts": "80"}),
        json!({"traffic.sidecar.istio.io/excludeInboundPorts": "80", "traffic.sidecar.istio.io/excludeOutboundPorts": "81"}),
        json!({"traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8"}),
        json!({"traffic.sidecar.istio.io/includeOutboundIPRanges": ""}),
        json!({"traffic.sidecar.istio.io/excludeInterfaces": "eth7"}),
        json!({"istio.io/reroute-virtual-interfaces": "eth8"}),
        json!({"istio.io/reroute-virtual-interfaces": "eth8", "traffic.sidecar.istio.io/includeOutboundIPRanges": ""}),
    ];
    for conf in [json!({"force_iptables_binary": "nft"}), json!({"native_nftables": true})] {
        for (i, from) in sets.iter().enumerate() {
            let mut pod = dual_stack(from);
            assert_eq!(pod.call("ADD", &conf).code, 0);
            for (j, to) in sets.iter().enumerate() {
                pod = pod.edited(&injected(to, &env()));
                passes(&pod, &conf, if i == j { &[] } else { &[DIFFERS] });
            }
        }
    }
}

fn other_version() {
    let pod = dual_stack(&json!({}));
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
    let nat = |args: &[&str]| pod.netns.run("iptables-nft", &[&["-t", "nat"], args].concat());
    // Another version has other exempt ports, additional chains, and jumps in another order and form.
    nat(&["-D", "ISTIO_INBOUND", "-p", "tcp", "--dport", "15090", "-j", "RETURN"]);
    nat(&["-D", "PREROUTING", "-p", "tcp", "-j", "ISTIO_INBOUND"]);
    nat(&["-A", "PREROUTING", "-p", "tcp", "!", "--dport", "1", "-j", "ISTIO_INBOUND"]);
    nat(&["-N", "ISTIO_NEW"]);
    nat(&["-I", "ISTIO_OUTPUT", "1", "-j", "ISTIO_NEW"]);
    passes(&pod, &json!({}), &[DIFFERS, "15090", "ISTIO_NEW"]);
    // The other version uses another backend.
    passes(&pod, &json!({"native_nftables": true}), &[DIFFERS, "iptables-nft holds rules of Istio, too"]);
    passes(&pod, &json!({"force_iptables_binary": "legacy"}), &[DIFFERS]);
}

fn foreign() {
    let pod = dual_stack(&json!({}));
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
    for chain in ["OUTPUT", "PREROUTING"] {
        for target in ["RETURN", "ACCEPT"] {
            pod.netns.run("iptables-nft", &["-t", "nat", "-I", chain, "1", "-s", "10.1.2.3", "-j", target]);
        }
        pod.netns.run("ip6tables-nft", &["-t", "filter", "-I", "INPUT", "1", "-p", "udp", "-j", "DROP"]);
    }
    passes(&pod, &json!({}), &[DIFFERS, "before Istio's jump"]);
    // The kernel deletes `::6` when IPv6 is disabled on `lo`.
    pod.netns.inside(|| std::fs::write("/proc/sys/net/ipv6/conf/lo/disable_ipv6", "1")).unwrap();
    passes(&pod, &json!({}), &[DIFFERS, "::6"]);
}

/// CHECK must use the annotations of ADD, which the runtime passes, although the pod's annotations were edited meanwhile.
fn of_add() {
    let passed = |annotations: &Value| {
        let mut all = json!({ "sidecar.istio.io/status": "{}" });
        all.as_object_mut().unwrap().extend(annotations.as_object().unwrap().clone());
        json!({ "runtimeConfig": { "io.kubernetes.cri.pod-annotations": all } })
    };
    let none = json!({ "sidecar.istio.io/interceptionMode": "NONE" });
    for annotations in [&none, &json!({ "sidecar.istio.io/inject": "false" })] {
        let (pod, conf) = (dual_stack(annotations), passed(annotations));
        assert_eq!(pod.call("ADD", &conf).code, 0);
        passes(&pod.edited(&injected(&json!({}), &env())), &conf, &[r#""verdict":"skipped""#]);
    }
    let (pod, conf) = (dual_stack(&json!({})), passed(&json!({})));
    assert_eq!(pod.call("ADD", &conf).code, 0);
    let pod = pod.edited(&injected(&none, &env()));
    passes(&pod, &conf, &[r#""verdict":"verified""#]);
    pod.netns.run("iptables-nft", &["-t", "nat", "-F"]);
    assert!(pod.call("CHECK", &conf).error(999).contains("is not redirected"));
}

/// If there is neither an agent nor a kubeconfig, or the agent has another pod with that name, CHECK must succeed after one lookup.
fn unknown() {
    let pod = dual_stack(&json!({}));
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
    let mut other = injected(&json!({}), &env());
    other["uid"] = "uid-2".into();
    for (pod, reason) in [(pod.edited(&other), "uid-2"), (dual_stack(&json!({})).without_agent(), "agent.sock")] {
        passes(&pod, &json!({}), &[r#""verdict":"unverified","reason":"lookup""#, "after 1 attempt in", reason]);
    }
}

fn invalid() {
    let pod = dual_stack(&json!({}));
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
    let ports = json!({"traffic.sidecar.istio.io/excludeInboundPorts": "many"});
    let pod = pod.edited(&injected(&ports, &env()));
    passes(&pod, &json!({}), &[r#""verdict":"unverified","reason":"annotation""#, "excludeInboundPorts"]);
    // The annotations are valid again, but there are no rules.
    let pod = pod.edited(&injected(&json!({}), &env()));
    pod.netns.run("nft", &["flush", "ruleset"]);
    assert!(pod.call("CHECK", &json!({})).error(999).contains("Istio's rules are missing"));
}

/// CHECK must succeed if packets reach Istio's chains by rules other than those that ADD added.
fn other_ways() {
    for kind in ["nft", "legacy"] {
        let conf = json!({ "force_iptables_binary": kind });
        let tool = format!("iptables-{kind}");
        let ways: [&[&[&str]]; 3] = [
            // `goto` instead of a jump.
            &[&["-D", "OUTPUT", "-j", "ISTIO_OUTPUT"], &["-A", "OUTPUT", "-g", "ISTIO_OUTPUT"]],
            // A chain in between.
            &[
                &["-N", "BEFORE"],
                &["-D", "PREROUTING", "-p", "tcp", "-j", "ISTIO_INBOUND"],
                &["-A", "PREROUTING", "-j", "BEFORE"],
                &["-A", "BEFORE", "-p", "tcp", "-j", "ISTIO_INBOUND"],
            ],
            // Another name.
            &[&["-E", "ISTIO_OUTPUT", "ISTIO_OUT"], &["-E", "ISTIO_IN_REDIRECT", "ISTIO_IN"]],
        ];
        for way in ways {
            let pod = dual_stack(&json!({}));
            assert_eq!(pod.call("ADD", &conf).code, 0);
            way.iter().for_each(|args| drop(pod.netns.run(&tool, &[&["-t", "nat"], *args].concat())));
            passes(&pod, &conf, &[DIFFERS]);
            // Without these rules there is no redirection.
            pod.netns.run(&tool, &["-t", "nat", "-F", "OUTPUT"]);
            let message = pod.call("CHECK", &conf).error(999);
            assert!(message.contains("OUTPUT of IPv4 table nat jumps to ISTIO_OUTPUT"), "{way:?}: {message}");
        }
    }
}

fn other_ways_of_nftables() {
    let conf = json!({"native_nftables": true});
    let ways = [
        "add rule inet istio-proxy-nat output goto istio-output",
        "add rule inet istio-proxy-nat output meta nfproto vmap { ipv4 : jump istio-output, ipv6 : jump istio-output }",
        "add chain inet istio-proxy-nat way; add rule inet istio-proxy-nat way jump istio-output; add rule inet istio-proxy-nat output jump way",
        "add rule inet istio-proxy-nat output meta nfproto ipv4 jump istio-output; add rule inet istio-proxy-nat output meta nfproto ipv6 jump istio-output",
        // A table that redirects nothing may be dormant, and packets that are dropped do not bypass the proxy.
        "add rule inet istio-proxy-nat output jump istio-output; add table inet istio-proxy-raw { flags dormant; }",
        "add rule inet istio-proxy-nat output jump istio-output; \
         add chain inet istio-proxy-nat output { type nat hook output priority -100; policy drop; }",
    ];
    for way in ways {
        let pod = dual_stack(&json!({}));
        assert_eq!(pod.call("ADD", &conf).code, 0);
        pod.netns.run("nft", &[&format!("flush chain inet istio-proxy-nat output; {way}")]);
        passes(&pod, &conf, &[DIFFERS]);
        assert_eq!(pod.call("ADD", &conf).code, 0, "{way}");
        let check = pod.call("CHECK", &conf);
        assert!(check.code == 0 && !check.stderr.contains("differs"), "{way}: {check:?}");
    }
}

/// CHECK must succeed when an IPv4 pod gets an IPv6 address, because its rules remain sufficient for IPv4. Rules that were added for IPv6
/// must not be missing.
fn late_ipv6() {
    for conf in [
        json!({"force_iptables_binary": "nft"}),
        json!({"force_iptables_binary": "legacy"}),
        json!({"native_nftables": true}),
    ] {
        let pod = Pod::new(&ADDRESSES[..1]).facts(&injected(&json!({}), &env()));
        assert_eq!(pod.call("ADD", &conf).code, 0);
        pod.netns.run("ip", &["addr", "add", ADDRESSES[1], "dev", "eth0", "nodad"]);
        passes(&pod, &conf, &[DIFFERS, "::6"]);
        // This ADD covers IPv6, so IPv6 must not be missing from now on.
        assert_eq!(pod.call("ADD", &conf).code, 0);
        passes(&pod, &conf, &[r#""verdict":"verified""#]);
        pod.netns.run("ip", &["-6", "addr", "del", "::6/128", "dev", "lo"]);
        assert!(pod.call("CHECK", &conf).error(999).contains("::6"));
    }
}

/// The tables of iptables-legacy can be read only with its programs. Without them the rules are unknown, and CHECK must succeed.
fn unreadable() {
    let pod = dual_stack(&json!({}));
    assert_eq!(pod.call("ADD", &json!({"force_iptables_binary": "legacy"})).code, 0);
    let check = pod.call_by("CHECK", &json!({}), |call| call.under(&WITHOUT_SBIN));
    assert_eq!(check.code, 0, "{check:?}");
    for text in [r#""verdict":"unverified","reason":"converge""#, "iptables-legacy-save"] {
        assert!(check.stderr.contains(text), "{text:?} is not in {check:?}");
    }
}

/// A chain entry from another version of the installer must not fail CHECK, which would end running pods. It must fail ADD.
fn unknown_setting() {
    let pod = dual_stack(&json!({}));
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
    let settings = [
        ("force_iptables_binary", json!("ebpf"), 7),
        ("native_nftables", json!("auto"), 6),
        ("exclude_namespaces", json!({}), 6),
    ];
    for (key, value, code) in settings {
        let conf = json!({ key: value });
        passes(&pod, &conf, &[r#""verdict":"unverified","reason":"request""#, key]);
        let message = pod.call("ADD", &conf).error(code);
        assert!(message.contains(key), "{message}");
    }
    // CHECK still fails if a field that the CNI protocol defines is invalid.
    let message = pod.call("CHECK", &json!({"name": 5})).error(6);
    assert!(message.contains("name"), "{message}");
}

/// However many chains, rules and elements another program adds, CHECK and ADD must succeed, and the log must stay short.
fn many() {
    use std::fmt::Write as _;
    let pod = dual_stack(&json!({}));
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
    let mut rules = String::from("table ip nat {\n");
    (0..5_000).for_each(|i| writeln!(rules, "chain ISTIO_{i} {{ return\n}}").unwrap());
    rules += "set ports { type inet_service; elements = { ";
    (1..2000).for_each(|port| write!(rules, "{port}, ").unwrap());
    rules += "65535 } }\nchain foreign {\n";
    (0..300).for_each(|_| rules += "tcp dport @ports return\n");
    rules += "}\n}\n";
    pod.netns.feed("nft", &["-f", "-"], &rules);
    let check = pod.call("CHECK", &json!({}));
    assert_eq!(check.code, 0);
    assert!(check.stderr.contains("and 4980 more"), "{}", &check.stderr[..check.stderr.len().min(2000)]);
    assert!(check.stderr.len() < 10_000, "{} bytes", check.stderr.len());
    assert_eq!(pod.call("ADD", &json!({})).code, 0);
}
