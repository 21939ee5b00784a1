//! Which backend holds the rules: one at a time, whatever was there before, and one that the node has.

use std::os::unix::fs::symlink;
use std::process::Command;

use istio_cni::converge::{self, OnDifference, Options};
use istio_cni::netfilter::{Backend, Forced};
use istio_cni::redirect::Redirect;
use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::encoder::LEGACY;
use crate::plugin::{Pod, injected};
use crate::support::{TestNetns, by, trial};

pub(crate) fn trials() -> Vec<Trial> {
    const ALL: &[&str] = &["iptables-nft-save", "ip6tables-nft-save", "nft", "iptables-legacy-save"];
    let mut trials = Vec::new();
    for (from, to) in [(0, 1), (1, 2), (2, 0), (0, 2), (2, 1), (1, 0)] {
        let name = format!("backends/a_change_leaves_one_rule_set/{}_to_{}", WORDS[from], WORDS[to]);
        trials.push(trial(name, ALL, move || one_rule_set(from, to)));
    }
    trials.push(trial("backends/another_backends_rules_are_refused_without_reconcile", ALL, refused));
    trials.push(trial("backends/others_tables_are_not_a_second_rule_set", ALL, others_tables));
    trials.push(trial("backends/concurrent_calls_are_contention/iptables", ALL, || at_once(&json!({}))));
    trials.push(trial("backends/concurrent_calls_are_contention/nft", ALL, || {
        at_once(&json!({"native_nftables": true}));
    }));
    trials.push(trial("backends/a_verdict_before_the_jump_is_said_by_check", ALL, bypass));
    trials.push(trial("backends/plain_programs_of_legacy", LEGACY, plain_programs));
    trials
}

const WORDS: [&str; 3] = ["iptables", "nft", "legacy"];

fn conf(backend: usize) -> Value {
    match WORDS[backend] {
        "iptables" => json!({"force_iptables_binary": "nft"}),
        "nft" => json!({"native_nftables": true}),
        _ => json!({"force_iptables_binary": "legacy"}),
    }
}

/// Rules of each backend, in the order of [`WORDS`].
fn counts(netns: &TestNetns) -> [usize; 3] {
    let saved = |family: &str, kind: &str| netns.run(&format!("{family}-{kind}-save"), &[]).matches("\n-A ").count();
    let native = netns
        .run("nft", &["list", "ruleset"])
        .split("table ")
        .filter(|t| t.contains("istio-proxy"))
        .collect::<String>();
    [
        saved("iptables", "nft") + saved("ip6tables", "nft"),
        native.matches("counter").count(),
        saved("iptables", "legacy") + saved("ip6tables", "legacy"),
    ]
}

fn one_rule_set(from: usize, to: usize) {
    let env = json!({"ISTIO_META_DNS_CAPTURE": "true", "ISTIO_DUAL_STACK": "true"});
    let pod = || Pod::new(&["10.9.0.2/24", "fd00:9::2/64"]).facts(&injected(&json!({}), &env));
    let (changed, fresh) = (pod(), pod());
    assert_eq!(changed.call("ADD", &conf(from)).code, 0);
    let said = changed.call("CHECK", &conf(to)).error(999);
    assert!(said.contains("none of its rules is there") && said.contains("are there by"), "{said}");
    let answer = changed.call("ADD", &conf(to));
    assert!(answer.code == 0 && answer.stderr.contains(r#""change":"mended""#), "{answer:?}");
    assert_eq!(fresh.call("ADD", &conf(to)).code, 0);
    let expected = counts(&fresh.netns);
    assert!(expected[to] > 30 && expected.iter().filter(|count| **count > 0).count() == 1, "{expected:?}");
    assert_eq!(counts(&changed.netns), expected);
    assert_eq!(changed.call("CHECK", &conf(to)).code, 0);
    let again = changed.call("ADD", &conf(to));
    assert!(again.code == 0 && again.stderr.contains(r#""change":"none""#), "{again:?}");
}

fn refused() {
    let netns = TestNetns::new();
    netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
    let apply = |options: Options| netns.inside(|| converge::apply(&Redirect::default(), options));
    apply(by(Backend::IptablesNft)).unwrap();
    let error = apply(by(Backend::NativeNft)).unwrap_err().to_string();
    assert!(error.contains("rules of Istio's are there by iptables-nft too"), "{error}");
    let mend = Options { on_difference: OnDifference::Mend, ..by(Backend::NativeNft) };
    assert_eq!(apply(mend).unwrap().backend, Backend::NativeNft);
    apply(by(Backend::NativeNft)).unwrap();
}

/// Tables of the same names, and rules in them, that are someone else's.
fn others_tables() {
    let netns = TestNetns::new();
    netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
    netns.run("iptables-nft", &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "RETURN"]);
    netns.run("iptables-legacy", &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "RETURN"]);
    let forced = Options { forced: Some(Forced::Nft), ..by(Backend::IptablesNft) };
    for (options, backend) in [(by(Backend::NativeNft), Backend::NativeNft), (forced, Backend::IptablesNft)] {
        let netns = &netns;
        let apply = || netns.inside(|| converge::apply(&Redirect::default(), options));
        let mended = Options { on_difference: OnDifference::Mend, ..options };
        assert_eq!(netns.inside(|| converge::apply(&Redirect::default(), mended)).unwrap().backend, backend);
        assert_eq!(apply().unwrap().change, converge::Change::None);
        for save in ["iptables-nft-save", "iptables-legacy-save"] {
            let text = netns.run(save, &["-t", "nat"]);
            assert!(text.contains("-A OUTPUT -d 10.1.2.3/32 -j RETURN"), "{save}: {text}");
        }
    }
}

/// A runtime that gave up on a call and repeats it may have both under way.
fn at_once(conf: &Value) {
    for _ in 0..4 {
        let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| pod.call("ADD", conf))).collect();
            for call in calls {
                let answer = call.join().unwrap();
                assert_eq!(answer.code, 0, "{answer:?}");
            }
        });
        assert_eq!(pod.call("CHECK", conf).code, 0);
    }
}

/// Somebody's ACCEPT or RETURN: left alone, and named, with each of iptables' backends.
fn bypass() {
    for (conf, tool) in [(conf(0), "iptables-nft"), (conf(2), "iptables-legacy")] {
        let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
        assert_eq!(pod.call("ADD", &conf).code, 0);
        let rules = [
            "-A OUTPUT -d 10.1.2.3/32 -j ACCEPT",
            "-A OUTPUT -p tcp -m tcp --dport 22 -j RETURN",
            "-A PREROUTING -i eth7 -j ACCEPT",
        ];
        for rule in &rules {
            let words: Vec<&str> = rule.split(' ').collect();
            pod.netns.run(tool, &[&["-t", "nat", "-I", words[1], "1"], &words[2..]].concat());
        }
        pod.netns.run(tool, &["-t", "nat", "-A", "OUTPUT", "-d", "10.9.9.9", "-j", "ACCEPT"]);
        let said = pod.call("CHECK", &conf).error(999);
        for rule in rules {
            assert!(said.contains(&format!("`{rule}` before Istio's jump")), "{tool}: {rule} is not in {said}");
        }
        assert!(!said.contains("10.9.9.9"), "{said}");
        let again = pod.call("ADD", &conf);
        assert!(again.code == 0 && again.stderr.contains(r#""change":"none""#), "{again:?}");
    }
}

/// Before iptables 1.8 the programs of iptables-legacy had plain names. A plain name of iptables-nft is not taken for one.
fn plain_programs() {
    let netns = TestNetns::new();
    netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
    for (multi, found) in [("xtables-legacy-multi", true), ("xtables-nft-multi", false)] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(format!("/usr/sbin/{multi}"), dir.path().join(multi)).unwrap();
        for name in ["iptables-restore", "iptables-save", "ip6tables-restore", "ip6tables-save"] {
            symlink(multi, dir.path().join(name)).unwrap();
        }
        // Nothing else is to be found.
        let hidden = "mount -t tmpfs none /usr/sbin && exec \"$0\" --force-iptables-binary legacy";
        let run = netns.inside(|| {
            let mut command = Command::new("unshare");
            command.args(["-m", "sh", "-c", hidden, env!("CARGO_BIN_EXE_istio-iptables")]);
            command.env("PATH", format!("{}:/usr/bin:/bin", dir.path().display())).output().unwrap()
        });
        let said = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.success(), found, "{multi}: {said}");
        if !found {
            assert!(said.contains("iptables-legacy-restore"), "{said}");
        }
        assert!(netns.run("iptables-legacy-save", &[]).contains("-A ISTIO_OUTPUT"), "{multi}");
    }
}
