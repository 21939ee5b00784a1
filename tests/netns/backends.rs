//! Tests which backend contains the rules: only one backend at a time, whichever one contained them before, and only a
//! backend that the node supports.

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;

use contract::IptablesBinary;
use libtest_mimic::Trial;
use netfilter::Backend;
use podnet::converge::{self, Change, Difference, OnDifference, Options, View};
use redirect::{InterceptionMode, PortSelector, Redirect};
use serde_json::{Value, json};

use crate::encoder::LEGACY;
use crate::plugin::{Pod, injected};
use test_support::netns::{self as support, IPV6, LEGACY_TABLES, NFT_COMPAT, TestNetns, Users, by, trial};
use test_support::program::under_test;

pub(crate) fn trials() -> Vec<Trial> {
    const ALL: &[&str] = &["iptables-nft-save", "ip6tables-nft-save", "nft", "iptables-legacy-save"];
    const NFT: &[&str] = &["iptables-nft-save", "ip6tables-nft-save", "nft"];
    const WITHOUT_COMPAT: &[&str] = &["iptables-legacy-save", "ip6tables-legacy-save", "nft"];
    let mut trials = Vec::new();
    for (from, to, needs) in
        [(0, 1, NFT), (1, 2, WITHOUT_COMPAT), (2, 0, ALL), (0, 2, ALL), (2, 1, WITHOUT_COMPAT), (1, 0, NFT)]
    {
        let name = format!("backends/a_change_leaves_one_rule_set/{}_to_{}", WORDS[from], WORDS[to]);
        trials.push(trial(name, needs, move || one_rule_set(from, to)));
    }
    trials.push(trial("backends/the_kernel_lacks_the_declared_parts", &[], declared));
    trials.push(trial("backends/another_backends_rules_are_refused_without_reconcile", ALL, refused));
    trials.push(trial("backends/foreign_tables_are_not_a_second_rule_set", ALL, others_tables));
    trials.push(trial("backends/concurrent_calls_are_contention/iptables", ALL, || at_once(&json!({}))));
    trials.push(trial("backends/concurrent_calls_are_contention/nft", &["nft"], || {
        at_once(&json!({"native_nftables": true}));
    }));
    trials.push(trial("backends/check_reports_a_verdict_before_the_jump", ALL, bypass));
    trials.push(trial("backends/concurrent_calls_are_contention/legacy", LEGACY, || at_once(&conf(2))));
    trials.push(trial("backends/plain_programs_of_legacy", ALL, plain_programs));
    trials.push(trial("backends/legacy_tables_without_programs_are_checked", ALL, legacy_tables_without_programs));
    trials.push(trial("backends/legacy_tables_without_programs_limit_a_cleanup", ALL, cleanup_without_programs));
    trials.push(trial("backends/a_fallback_is_not_another_rule_set", ALL, fallen_back_without_reconcile));
    trials.push(trial("backends/legacy_rules_since_the_first_read", ALL, legacy_rules_since_the_first_read));
    trials.push(trial("backends/a_skipped_pod_runs_no_program", LEGACY, skipped_without_programs));
    trials.push(trial("backends/a_restore_without_wait_option", ALL, old_restore));
    for backend in [Backend::IptablesNft, Backend::NativeNft, Backend::IptablesLegacy] {
        let name = format!("backends/nothing_of_tproxy_stays_in_redirect_mode/{}", backend.as_str());
        trials.push(trial(name, ALL, move || tproxy_then_redirect(backend)));
    }
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

/// The kernel lacks the parts that `KERNEL_LACKS` names, and no others.
fn declared() {
    let netns = TestNetns::new();
    let rule = ["-t", "nat", "-A", "OUTPUT", "-m", "owner", "--uid-owner", "1", "-j", "RETURN"];
    for (part, tool) in [(NFT_COMPAT, "iptables-nft"), (LEGACY_TABLES, "iptables-legacy")] {
        let ran = netns.try_feed(tool, &rule, "");
        assert_eq!(ran.is_err(), support::lacks(part), "{part}: {ran:?}");
    }
    let bound = netns.inside(|| std::net::UdpSocket::bind("[::1]:0").map(drop));
    assert_eq!(bound.is_err(), support::lacks(IPV6), "IPv6: {bound:?}");
}

/// Returns the number of rules of each backend, in the order of [`WORDS`].
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
    let checked = changed.call("CHECK", &conf(to));
    let message = &checked.stderr;
    assert!(
        checked.code == 0
            && message.contains("Istio's rules are missing")
            && message.contains("holds rules of Istio, too"),
        "the former backend redirects: {checked:?}"
    );
    let reply = changed.call("ADD", &conf(to));
    assert!(reply.code == 0 && reply.stderr.contains(r#""change":"reconciled""#), "{reply:?}");
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
    let apply = |options: Options| netns.inside(|| converge::apply(&Redirect::default().desired(), options));
    apply(by(Backend::IptablesNft)).unwrap();
    let error = apply(by(Backend::NativeNft)).unwrap_err().to_string();
    assert!(error.contains("iptables-nft holds rules of Istio, too"), "{error}");
    let reconcile = Options { on_difference: OnDifference::Reconcile, ..by(Backend::NativeNft) };
    assert_eq!(apply(reconcile).unwrap().backend, Backend::NativeNft);
    apply(by(Backend::NativeNft)).unwrap();
}

/// Rules of another program must stay, although its tables have the same names as ours.
fn others_tables() {
    let netns = TestNetns::new();
    netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
    netns.run("iptables-nft", &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "RETURN"]);
    netns.run("iptables-legacy", &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "RETURN"]);
    let forced = Options { forced: Some(IptablesBinary::Nft), ..by(Backend::IptablesNft) };
    for (options, backend) in [(by(Backend::NativeNft), Backend::NativeNft), (forced, Backend::IptablesNft)] {
        let netns = &netns;
        let apply = || netns.inside(|| converge::apply(&Redirect::default().desired(), options));
        let reconcile = Options { on_difference: OnDifference::Reconcile, ..options };
        assert_eq!(
            netns.inside(|| converge::apply(&Redirect::default().desired(), reconcile)).unwrap().backend,
            backend
        );
        assert_eq!(apply().unwrap().change, converge::Change::None);
        for save in ["iptables-nft-save", "iptables-legacy-save"] {
            let text = netns.run(save, &["-t", "nat"]);
            assert!(text.contains("-A OUTPUT -d 10.1.2.3/32 -j RETURN"), "{save}: {text}");
        }
    }
}

/// Concurrent calls of ADD for one pod succeed, as when a runtime repeats a call after its time limit.
fn at_once(conf: &Value) {
    for _ in 0..4 {
        let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
        let mut lines = Vec::new();
        std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8).map(|_| scope.spawn(|| pod.call("ADD", conf))).collect();
            for call in calls {
                let reply = call.join().unwrap();
                assert_eq!(reply.code, 0, "{reply:?}");
                lines.push(reply.stderr);
            }
        });
        let checked = pod.call("CHECK", conf);
        assert_eq!(checked.code, 0, "{checked:?} after {lines:?}");
    }
}

/// With each iptables backend, an ACCEPT or RETURN rule of another program that bypasses ours stays and is reported.
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
        let checked = pod.call("CHECK", &conf);
        let message = checked.stderr.replace("\\u{60}", "`");
        assert_eq!(checked.code, 0, "{tool}: {message}");
        for rule in rules {
            assert!(message.contains(&format!("`{rule}` before Istio's jump")), "{tool}: {rule} is not in {message}");
        }
        assert!(!message.contains("10.9.9.9"), "{message}");
        let again = pod.call("ADD", &conf);
        assert!(again.code == 0 && again.stderr.contains(r#""change":"none""#), "{again:?}");
    }
}

/// The programs of iptables-legacy must also be found by the plain names that they had before iptables 1.8. Programs of iptables-nft with
/// plain names must not be mistaken for them.
fn plain_programs() {
    for (multi, found) in [("xtables-legacy-multi", true), ("xtables-nft-multi", false)] {
        let netns = TestNetns::new();
        netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
        let dir = tempfile::tempdir().unwrap();
        std::fs::copy(format!("/usr/sbin/{multi}"), dir.path().join(multi)).unwrap();
        for name in ["iptables-restore", "iptables-save", "ip6tables-restore", "ip6tables-save"] {
            symlink(multi, dir.path().join(name)).unwrap();
        }
        let run = netns.inside(|| {
            let mut command = Command::new(WITHOUT_SBIN[0]);
            command.args(&WITHOUT_SBIN[1..]).arg(under_test("istio-iptables"));
            command.args(["--force-iptables-binary", "legacy"]);
            command.env("PATH", format!("{}:/usr/bin:/bin", dir.path().display())).output().unwrap()
        });
        let message = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.success(), found, "{multi}: {message}");
        assert_eq!(message.contains("iptables-legacy-restore"), !found, "{multi}: {message}");
        let rules = counts(&netns);
        assert_eq!((rules[0], rules[1], rules[2] > 0), (0, 0, found), "{multi}: {rules:?}");
    }
}

/// A command line that runs a program without access to the machine's iptables programs.
pub(crate) const WITHOUT_SBIN: [&str; 5] =
    ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /usr/sbin && exec \"$0\" \"$@\""];

/// The pod's netns has legacy tables of another plugin, and the node has no programs of iptables-legacy, so ADD falls back to iptables-nft.
/// CHECK must compare with the rules of this backend.
fn legacy_tables_without_programs() {
    let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
    pod.netns.run("iptables-legacy", &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "RETURN"]);
    let call = |verb| pod.call_by(verb, &json!({}), |call| call.under(&WITHOUT_SBIN));
    let added = call("ADD");
    assert!(added.code == 0 && added.stderr.contains(r#""backend":"iptables-nft""#), "{added:?}");
    let checked = call("CHECK");
    assert_eq!(checked.code, 0, "{checked:?}");
    pod.netns.run("iptables-nft", &["-t", "nat", "-F", "ISTIO_IN_REDIRECT"]);
    let message = call("CHECK").error(999);
    assert!(message.contains("ISTIO_IN_REDIRECT"), "{message}");
}

/// Without the programs of iptables-legacy, a cleanup in a netns with legacy tables removes only the rules of
/// nf_tables. If the legacy tables include a mangle table, which may contain rules of TPROXY, the cleanup fails and
/// keeps the routes of TPROXY.
fn cleanup_without_programs() {
    let netns = TestNetns::new();
    netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
    let program = under_test("istio-iptables").display().to_string();
    let run = |under: &[&str], args: &[&str]| {
        netns.inside(|| {
            let words = [under, &[&*program], args].concat();
            let run = Command::new(words[0]).args(&words[1..]).env("PATH", "/usr/bin:/bin").output().unwrap();
            (run.status.code(), String::from_utf8_lossy(&run.stderr).into_owned())
        })
    };
    let rules = || netns.run("ip", &["-4", "rule"]);
    let before = rules();
    assert_eq!(run(&[], &["-b", "*", "-i", "*", "-m", "TPROXY"]).0, Some(0));
    let redirected = rules();
    assert!(counts(&netns)[0] > 0 && redirected != before);
    netns.run("iptables-legacy", &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "RETURN"]);
    let (code, said) = run(&WITHOUT_SBIN, &["--cleanup-only"]);
    assert!(code == Some(0) && said.contains("tables of iptables-legacy were not read"), "{code:?} {said}");
    assert_eq!((counts(&netns), rules()), ([0, 0, 1], before.clone()));

    let legacy = ["-b", "*", "-i", "*", "-m", "TPROXY", "--force-iptables-binary", "legacy"];
    assert_eq!(run(&[], &legacy).0, Some(0));
    let programmed = counts(&netns);
    assert_eq!((programmed[2] > 1, rules()), (true, redirected.clone()), "{programmed:?}");
    let (code, said) = run(&WITHOUT_SBIN, &["--cleanup-only"]);
    assert!(code == Some(1) && said.contains("iptables-legacy-save and iptables-legacy-restore"), "{code:?} {said}");
    assert_eq!((counts(&netns), rules()), (programmed, redirected));
    let (code, said) = run(&[], &["--cleanup-only"]);
    assert_eq!((code, counts(&netns), rules()), (Some(0), [0, 0, 1], before), "{said}");
}

/// If a call has fallen back to another backend, the next call compares with the rules of that backend and finds only
/// real differences.
fn fallen_back_without_reconcile() {
    let (_users, netns) = Users::with_netns();
    netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
    let options = by(Backend::IptablesNft);
    let apply = || netns.inside(|| converge::apply(&Redirect::default().desired(), options));
    for change in [Change::Added, Change::None] {
        let outcome = apply().unwrap();
        assert_eq!((outcome.backend, outcome.change), (Backend::NativeFallback, change));
    }
    netns.run("nft", &["flush", "chain", "ip", "istio-proxy-nat", "istio-output"]);
    let error = apply().unwrap_err();
    assert!(error.to_string().contains("istio-output") && !error.to_string().contains("rules are missing"), "{error}");
}

/// Rules of iptables-legacy that appear after the first read, as after a restore that failed in the second family, must be removed.
fn legacy_rules_since_the_first_read() {
    let netns = TestNetns::new();
    netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
    let reconcile = Options { on_difference: OnDifference::Reconcile, ..by(Backend::IptablesNft) };
    let outcome = netns.inside(|| {
        let view = View::take(reconcile).unwrap();
        converge::apply(&Redirect::default().desired(), by(Backend::IptablesLegacy)).unwrap();
        view.apply(&Redirect::default().desired()).unwrap()
    });
    assert_eq!(outcome.change.reconciled().last(), Some(&Difference::Former(Backend::IptablesLegacy)));
    let counts = counts(&netns);
    assert_eq!((counts[0] > 0, counts[1], counts[2]), (true, 0, 0), "{counts:?}");
}

/// Creates a program that runs the shell command `first` and then the machine's program of the same name. Returns the
/// directory of the new program, for `PATH`.
fn wrapped(program: &str, first: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(program);
    std::fs::write(&path, format!("#!/bin/sh\n{first}\nexec /usr/sbin/{program} \"$@\"\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

/// For a skipped pod the plugin runs no program, whatever tables the pod's netns has.
fn skipped_without_programs() {
    let save = wrapped("iptables-legacy-save", ": > \"$0.ran\"");
    let ran = save.path().join("iptables-legacy-save.ran");
    let path = save.path().to_str().unwrap();
    let skipped = json!({"uid": "uid-1", "annotations": {}, "hasInit": false, "proxy": null});
    for (facts, runs) in [(skipped, false), (injected(&json!({}), &json!({})), true)] {
        let pod = Pod::new(&["10.9.0.2/24"]).facts(&facts);
        pod.netns.run("iptables-legacy", &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "RETURN"]);
        let reply = pod.call_by("ADD", &json!({}), |call| call.env("PATH", path));
        let verdict = if runs { "pod redirected" } else { "pod skipped" };
        assert!(reply.code == 0 && reply.stderr.contains(verdict), "{reply:?}");
        assert_eq!(ran.exists(), runs, "{verdict}");
    }
}

/// ADD must succeed with versions of iptables-restore before 1.6.2, which do not support `--wait` and read a separate word as the name of
/// the input file.
fn old_restore() {
    let old = "for word; do case $word in -*) ;; *) echo \"cannot open $word\" >&2; exit 1;; esac; done";
    let restore = wrapped("iptables-legacy-restore", old);
    let pod = Pod::new(&["10.9.0.2/24"]).facts(&injected(&json!({}), &json!({})));
    let path = restore.path().to_str().unwrap();
    let reply = pod.call_by("ADD", &conf(2), |call| call.env("PATH", path));
    assert_eq!(reply.code, 0, "{reply:?}");
    assert!(counts(&pod.netns)[2] > 0);
}

/// After a change from TPROXY to REDIRECT, rules, routing rules and routes must equal those in a netns that was never in TPROXY mode, in
/// both families. Other programs' routing rules with the same mark or table, and rules for other marks, must stay.
fn tproxy_then_redirect(backend: Backend) {
    let redirect = Redirect { inbound_ports: PortSelector::All, dual_stack: true, ..Redirect::default() };
    let tproxy = Redirect { mode: InterceptionMode::Tproxy, ..redirect.clone() };
    let netns = || {
        let netns = TestNetns::new();
        netns.run("ip", &["link", "set", "lo", "up"]);
        netns.run("ip", &["addr", "add", "10.9.0.2/24", "dev", "lo"]);
        netns.run("ip", &["addr", "add", "fd00:9::2/64", "dev", "lo", "nodad"]);
        for family in ["-4", "-6"] {
            netns.run("ip", &[family, "rule", "add", "fwmark", "1337", "lookup", "200", "priority", "90"]);
            netns.run("ip", &[family, "rule", "add", "fwmark", "5", "lookup", "133", "priority", "91"]);
        }
        netns
    };
    let state = |netns: &TestNetns| {
        let routes = ["-4", "-6"].map(|family| {
            let table = netns.try_feed("ip", &[family, "route", "show", "table", "133"], "").unwrap_or_default();
            netns.run("ip", &[family, "rule"]) + &table
        });
        let saved = ["iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save"];
        let rules = saved.map(|save| {
            let text = netns.run(save, &[]);
            text.lines().filter(|line| line.starts_with("-A ")).map(str::to_owned).collect::<Vec<_>>()
        });
        (routes, rules, netns.run("nft", &["list", "ruleset"]).matches("istio-proxy-mangle").count())
    };
    let foreign = |netns: &TestNetns| {
        let tool = if backend == Backend::IptablesLegacy { "iptables-legacy" } else { "iptables-nft" };
        netns.run(tool, &["-t", "mangle", "-A", "OUTPUT", "-p", "tcp", "-m", "mark", "--mark", "7", "-j", "RETURN"]);
    };
    let reconciling = Options { on_difference: OnDifference::Reconcile, ..by(backend) };
    let apply = |netns: &TestNetns, redirect: &Redirect| {
        netns.inside(|| converge::apply(&redirect.desired(), reconciling)).unwrap().change
    };
    let (changed, fresh) = (netns(), netns());
    [&changed, &fresh].into_iter().for_each(foreign);
    assert_eq!(apply(&changed, &tproxy), Change::Added);
    assert_ne!(state(&changed), state(&fresh));
    assert_eq!(apply(&fresh, &redirect), Change::Added);
    let change = apply(&changed, &redirect);
    assert_eq!(state(&changed), state(&fresh), "{change:?}");
    let unwanted = change.reconciled().iter().filter(|found| matches!(found, Difference::Unwanted(_))).count();
    assert_eq!(unwanted, 4, "a routing rule and a route of each family: {change:?}");
    assert_eq!(apply(&changed, &redirect), Change::None);
    // An interrupted ADD, or an older version, may have left the routing rule in addition to the right rules.
    changed.run("ip", &["rule", "add", "fwmark", "1337", "lookup", "133"]);
    let left = apply(&changed, &redirect);
    assert!(matches!(left.reconciled(), [Difference::Unwanted(_)]), "{left:?}");
    assert_eq!(state(&changed), state(&fresh));
}
