//! Tests that `istio-cnictl trace` reads the rules of a netns from the kernel, and how it treats conditions that only the kernel can
//! evaluate.

use std::process::Command;

use libtest_mimic::Trial;
use netfilter::Backend;
use podnet::converge;
use podnet::netns::Netns;
use redirect::{Redirect, istio};
use ruleset::Family;
use serde_json::{Value, json};

use crate::find::netns;
use crate::truth::table::usual;
use test_support::netns::{NFT_COMPAT, TestNetns, by, trial};
use test_support::program::under_test;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("trace::a_netns_is_read_from_the_kernel", &[NFT_COMPAT], a_netns_is_read_from_the_kernel),
        trial("trace::a_foreign_rule_that_cannot_be_evaluated_is_named", &[NFT_COMPAT, "iptables-nft"], foreign_rule),
        trial(
            "trace::foreign_statements_and_targets_are_not_passed_over",
            &[NFT_COMPAT, "nft", "iptables-nft"],
            foreign_targets,
        ),
        trial("trace::a_netns_without_rules_has_none", &[], without_rules),
    ]
}

fn programmed() -> TestNetns {
    let pod = netns(&["10.0.0.2/24"]);
    let redirect = Redirect { dual_stack: true, ..usual() };
    pod.inside(|| converge::apply(&redirect.desired(), by(Backend::IptablesNft))).unwrap();
    pod
}

fn traced(pod: &TestNetns, args: &[&str]) -> Value {
    let netns = pod.path();
    let mut command = Command::new(under_test("istio-cnictl"));
    command.args(["trace", "-o", "json", "--netns"]).arg(&netns).args(args).env_clear();
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let all: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(all.as_array().unwrap().len(), 1, "{all}");
    all[0].clone()
}

fn a_netns_is_read_from_the_kernel() {
    let pod = programmed();
    for (args, verdict, port) in [
        (["--outbound", "198.51.100.7:80"], "redirected", json!(15001)),
        (["--inbound", "10.0.0.2:8080"], "redirected", json!(15006)),
        // The destination is the pod's own address, so the packet leaves through lo.
        (["--outbound", "10.0.0.2:8080"], "direct", json!(null)),
    ] {
        let traced = traced(&pod, &args);
        assert_eq!((&traced["verdict"], &traced["port"]), (&json!(verdict), &port), "{args:?}: {traced}");
    }
}

fn foreign_rule() {
    let pod = programmed();
    let rule =
        ["-t", "nat", "-I", "OUTPUT", "-p", "tcp", "-m", "statistic", "--mode", "random", "--probability", "0.5"];
    pod.run("iptables-nft", &[&rule[..], &["-j", "ACCEPT"]].concat());
    let traced = traced(&pod, &["--outbound", "198.51.100.7:80"]);
    assert_eq!(traced["verdict"], json!("undetermined"), "{traced}");
    let last = traced["path"].as_array().unwrap().last().unwrap();
    assert!(last["rule"].as_str().unwrap().contains("statistic"), "{last}");
    // If one condition of a rule does not hold, the rule does not match, although another condition cannot be
    // evaluated.
    let udp = self::traced(&pod, &["--outbound", "198.51.100.7:80", "--protocol", "udp"]);
    assert_eq!(udp["verdict"], json!("direct"), "{udp}");
}

/// A rule at the start of a chain, of this project or of another program, decides before the redirection. The verdict
/// must be the kernel's, or undetermined.
fn foreign_targets() {
    let undetermined = |last| ("undetermined", json!(null), last);
    for (program, rule, (verdict, port, last)) in [
        ("nft", "insert rule ip nat OUTPUT tcp dport 80 dnat to 203.0.113.9:81", undetermined("-j [nat]")),
        ("nft", "insert rule ip nat OUTPUT tcp dport 80 redirect", undetermined("-j [redir]")),
        ("nft", "insert rule ip nat OUTPUT tcp dport vmap { 80 : accept }", undetermined("-j [lookup]")),
        ("nft", "insert rule ip nat OUTPUT tcp dport 80 meta mark set 7 accept", undetermined("-j MARK -j ACCEPT")),
        ("iptables-nft", "-t raw -I OUTPUT -j CT --notrack", undetermined("-j CT")),
        ("iptables-nft", "-t nat -I OUTPUT -p tcp -m tcp --tcp-option 7 -j ACCEPT", undetermined("--tcp-option 7")),
        (
            "iptables-nft",
            "-t nat -I OUTPUT -p tcp -m multiport --dports 22,80:90 -j ACCEPT",
            ("direct", json!(null), ""),
        ),
        ("iptables-nft", "-t nat -I OUTPUT -p tcp -j REDIRECT", ("redirected", json!(80), "")),
        ("iptables-nft", "-t nat -I OUTPUT -p tcp -j REDIRECT --to-ports 81-90", undetermined("-j REDIRECT")),
    ] {
        let pod = programmed();
        pod.run("iptables-nft", &["-t", "raw", "-N", "EMPTY"]);
        pod.run(program, &rule.split(' ').collect::<Vec<_>>());
        let traced = traced(&pod, &["--outbound", "198.51.100.7:80"]);
        assert_eq!((&traced["verdict"], &traced["port"]), (&json!(verdict), &port), "{program} {rule}: {traced}");
        let end = traced["path"].as_array().unwrap().last().unwrap();
        let effect = end.to_string();
        assert!(verdict != "undetermined" || effect.contains(last), "{program} {rule}: {effect}");
    }
}

fn without_rules() {
    let pod = netns(&["10.0.0.2/24"]);
    assert!(Netns::open(&pod.path()).is_ok());
    assert_eq!(traced(&pod, &["--outbound", "198.51.100.7:80"])["verdict"], json!("direct"));
    let saved = pod.inside(|| converge::saved(Family::V4, &istio::OWNED)).unwrap();
    assert_eq!(saved.len(), 1, "{saved:?}");
}
