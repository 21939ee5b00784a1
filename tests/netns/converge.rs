//! Tests of applying rules again, reconciling and removing them with each backend. Rules that are as desired and rules
//! of other programs are not changed.

use libtest_mimic::Trial;
use netfilter::{Backend, Error, Live, Outcome, RulesState, Session};
use redirect::{InterceptionMode, PortSelector, Redirect, istio, rules};
use ruleset::{Interface, RuleSet};

use crate::encoder::{CASES, LEGACY, assert_same, case, program, saved, saved_legacy};
use crate::random;
use test_support::netns::{self as support, NFT_COMPAT, TestNetns, Users};

const IPTABLES: &[&str] = &["iptables-nft", "iptables-nft-save", "ip6tables-nft-save", "nft"];
const BACKENDS: [(Backend, &str, &[&str]); 3] = [
    (Backend::IptablesNft, "iptables", IPTABLES),
    (Backend::NativeNft, "nft", &["nft"]),
    (Backend::IptablesLegacy, "legacy", LEGACY),
];

pub(crate) fn trials() -> Vec<Trial> {
    const COMPAT_AND_LEGACY: &[&str] = &[NFT_COMPAT, "iptables-legacy", "ip6tables-legacy-restore"];
    let mut trials = Vec::new();
    for (backend, word, programs) in BACKENDS {
        for name in CASES {
            let title = format!("converge/{word}/apply_is_idempotent/{name}");
            trials.push(support::trial(title, programs, move || apply_is_idempotent(backend, &case(name))));
        }
        trials.push(support::trial(format!("converge/{word}/apply_is_idempotent/random"), programs, move || {
            random::check(|wanted| apply_is_idempotent(backend, wanted));
        }));
        trials.push(support::trial(format!("converge/{word}/removes_all_our_rules"), programs, move || {
            removes_all_our_rules(backend);
        }));
    }
    for (name, damage) in [
        ("a_deleted_rule", deleted as fn()),
        ("a_changed_rule", changed),
        ("a_moved_rule", moved),
        ("an_added_rule", added),
        ("a_second_jump", second_jump),
        ("a_leftover_chain", leftover),
        ("another_configuration", reconfigured),
        ("a_moved_rule_of_a_built_in_chain", moved_in_built_in),
    ] {
        trials.push(support::trial(format!("converge/iptables/reconciles/{name}"), IPTABLES, damage));
    }
    trials.push(support::trial("converge/iptables/keeps_foreign_rules", IPTABLES, || {
        keeps_foreign_rules(Backend::IptablesNft, "iptables-nft", saved);
    }));
    trials.push(support::trial("converge/legacy/keeps_foreign_rules", LEGACY, || {
        keeps_foreign_rules(Backend::IptablesLegacy, "iptables-legacy", saved_legacy);
    }));
    trials.push(support::trial("converge/iptables/an_existing_chain_name_changes_nothing", IPTABLES, existing_name));
    trials.push(support::trial("converge/iptables/a_contended_session_can_retry", IPTABLES, contended));
    trials.push(support::trial(
        "converge/iptables/reports_another_user_namespace",
        &["unshare", NFT_COMPAT],
        other_user_namespace,
    ));
    trials.push(support::trial("converge/iptables/foreign_rules_are_printed_as_saved", IPTABLES, printed_as_saved));
    trials.push(support::trial("converge/probe_distinguishes_the_backends", COMPAT_AND_LEGACY, probe));
    trials.push(support::trial("converge/nft/reads_sets_while_they_are_replaced", &["nft"], replaced_sets));
    trials.push(support::trial("converge/iptables/three_thousand_rules", IPTABLES, many));
    trials
}

fn observe(netns: &TestNetns, backend: Backend) -> Live {
    netns.inside(|| Session::new(backend, &istio::OWNED).observe().unwrap())
}

fn rules_state(netns: &TestNetns, backend: Backend, wanted: &RuleSet) -> RulesState {
    netfilter::diff(wanted, &observe(netns, backend)).unwrap().state
}

/// Returns the messages that report the differences from `wanted`; panics if nothing differs.
fn sentences(netns: &TestNetns, wanted: &RuleSet) -> Vec<String> {
    match rules_state(netns, Backend::IptablesNft, wanted) {
        RulesState::Differs(differences) => differences.iter().map(ToString::to_string).collect(),
        other => panic!("nothing differs: {other:?}"),
    }
}

fn apply_is_idempotent(backend: Backend, wanted: &RuleSet) {
    let netns = TestNetns::new();
    assert_eq!(rules_state(&netns, backend, wanted), RulesState::Absent);
    assert_eq!(program(&netns, backend, wanted), Outcome::Changed);
    assert_eq!(rules_state(&netns, backend, wanted), RulesState::Same);
    let before = observe(&netns, backend);
    assert_eq!(program(&netns, backend, wanted), Outcome::Unchanged);
    assert_eq!(observe(&netns, backend), before, "the second time changed something");
}

/// Returns rules with TPROXY, DNS, an excluded and a virtual interface, which use every built-in chain.
fn everything() -> RuleSet {
    let nic = |name| vec![Interface::new(name).unwrap()];
    let redirect = Redirect {
        mode: InterceptionMode::Tproxy,
        inbound_ports: PortSelector::All,
        dns: redirect::DnsCapture::All,
        exclude_interfaces: nic("eth9"),
        virtual_interfaces: nic("tap0"),
        drop_invalid: true,
        ..Redirect::default()
    };
    rules::build(&redirect, true)
}

fn remove(netns: &TestNetns, backend: Backend, former: &RuleSet) -> Outcome {
    netns.inside(|| {
        let mut session = Session::new(backend, &istio::OWNED);
        let live = session.observe().unwrap();
        session.apply(&netfilter::removal(former, &live).unwrap()).unwrap()
    })
}

fn removes_all_our_rules(backend: Backend) {
    let netns = TestNetns::new();
    assert_eq!(remove(&netns, backend, &everything()), Outcome::Unchanged);
    program(&netns, backend, &everything());
    assert_eq!(remove(&netns, backend, &everything()), Outcome::Changed);
    if backend == Backend::IptablesLegacy {
        let left = saved_legacy(&netns);
        assert!(!left.contains("-A ") && !left.contains("ISTIO_"), "{left}");
    } else {
        assert_eq!(netns.run("nft", &["list", "ruleset"]), "");
    }
    assert_eq!(remove(&netns, backend, &everything()), Outcome::Unchanged);
}

/// Programs rules, damages them, and reconciles. Asserts that the damage is reported, that the original rules are restored, and that
/// undamaged rules keep their handles.
fn reconciles(damage: &[&[&str]], sentence: &str, new_rules: usize) {
    let netns = TestNetns::new();
    let wanted = case("tproxy");
    program(&netns, Backend::IptablesNft, &wanted);
    let (before, handles) = (saved(&netns), handles(&netns));
    for args in damage {
        netns.run("iptables-nft", args);
    }
    let sentences = sentences(&netns, &wanted);
    assert!(sentences.iter().any(|s| s.contains(sentence)), "no sentence contains {sentence:?}: {sentences:#?}");
    program(&netns, Backend::IptablesNft, &wanted);
    assert_same(&before, &saved(&netns));
    assert_eq!(rules_state(&netns, Backend::IptablesNft, &wanted), RulesState::Same);
    let after = self::handles(&netns);
    let new = after.iter().filter(|line| !handles.contains(line)).count();
    assert_eq!(new, new_rules, "rules that were as wanted were replaced");
}

/// Returns each rule with its handle, without the counter's values. iptables-nft puts a counter into every rule.
fn handles(netns: &TestNetns) -> Vec<String> {
    netns
        .run("nft", &["-a", "-s", "list", "ruleset"])
        .lines()
        .filter(|l| l.contains("counter"))
        .map(str::to_owned)
        .collect()
}

fn deleted() {
    reconciles(
        &[&["-t", "nat", "-D", "ISTIO_OUTPUT", "2"]],
        "IPv4 table nat is missing rule 2 `-A ISTIO_OUTPUT ! -d 127.0.0.1/32 -o lo -p tcp -m multiport ! --dports \
         53,15008 -m owner --uid-owner 1337 -j ISTIO_IN_REDIRECT`",
        1,
    );
}

fn changed() {
    reconciles(
        &[&["-t", "nat", "-R", "ISTIO_REDIRECT", "1", "-p", "tcp", "-j", "REDIRECT", "--to-ports", "15002"]],
        "` instead of rule 1 `-A ISTIO_REDIRECT -p tcp -j REDIRECT --to-ports 15001`",
        1,
    );
}

fn moved() {
    let rule = ["-s", "127.0.0.6/32", "-o", "lo", "-j", "RETURN"];
    let delete = [&["-t", "nat", "-D", "ISTIO_OUTPUT"][..], &rule].concat();
    let append = [&["-t", "nat", "-A", "ISTIO_OUTPUT"][..], &rule].concat();
    reconciles(&[&delete, &append], "rule 1 `-A ISTIO_OUTPUT -s 127.0.0.6/32 -o lo -j RETURN`", 1);
}

fn moved_in_built_in() {
    let rule = ["-p", "tcp", "-j", "ISTIO_INBOUND"];
    let delete = [&["-t", "mangle", "-D", "PREROUTING"][..], &rule].concat();
    let append = [&["-t", "mangle", "-A", "PREROUTING"][..], &rule].concat();
    reconciles(&[&delete, &append], "chain PREROUTING of IPv4 table mangle is missing rule 2", 1);
}

fn added() {
    reconciles(
        &[&["-t", "nat", "-I", "ISTIO_OUTPUT", "3", "-p", "tcp", "--dport", "22", "-j", "ACCEPT"]],
        "has the unexpected rule 3 `-A ISTIO_OUTPUT -p tcp -m tcp --dport 22 -j ACCEPT`",
        0,
    );
}

/// Foreign rules are reported in the format of `iptables-save`.
fn printed_as_saved() {
    let netns = TestNetns::new();
    let wanted = rules::build(&Redirect::default(), true);
    program(&netns, Backend::IptablesNft, &wanted);
    let v4 = [
        "-s 10.1.0.0/16 -d 10.2.3.4/32 -j RETURN",
        "! -s 10.1.2.0/23 -o eth+ -j ACCEPT",
        "-p udp -m udp ! --sport 53 -m mark ! --mark 0x7/0xff -j ACCEPT",
        "-p tcp -m multiport --dports 80,443 -m owner --uid-owner 5-9 ! --gid-owner 3 -j RETURN",
        "-o lo -m conntrack --ctstate INVALID,NEW -m connmark --mark 0x539/0xf -j ISTIO_REDIRECT",
        "-p tcp -j REDIRECT --to-ports 15009",
        "-p icmp -j RETURN",
    ];
    let v6 = ["-s 2001:db8::/32 ! -d ::1/128 -p tcp -m tcp --dport 8080 -j RETURN"];
    for (tool, rules) in [("iptables-nft", &v4[..]), ("ip6tables-nft", &v6)] {
        for rule in rules {
            let words: Vec<&str> = ["-t", "nat", "-A", "ISTIO_INBOUND"].into_iter().chain(rule.split(' ')).collect();
            netns.run(tool, &words);
        }
    }
    let sentences = sentences(&netns, &wanted).join("\n");
    let saved = saved(&netns);
    for rule in v4.iter().chain(&v6) {
        let line = format!("-A ISTIO_INBOUND {rule}");
        assert!(saved.lines().any(|l| l == line), "{line} is not what iptables-save prints:\n{saved}");
        assert!(sentences.contains(&format!("`{line}`")), "{line} is not in\n{sentences}");
    }
}

fn second_jump() {
    reconciles(
        &[&["-t", "nat", "-A", "OUTPUT", "-j", "ISTIO_OUTPUT"]],
        "has the unexpected rule 3 `-A OUTPUT -j ISTIO_OUTPUT`",
        0,
    );
}

fn leftover() {
    reconciles(
        &[
            &["-t", "mangle", "-N", "ISTIO_OLD"],
            &["-t", "mangle", "-A", "ISTIO_OLD", "-j", "DROP"],
            &["-t", "mangle", "-A", "OUTPUT", "-j", "ISTIO_OLD"],
        ],
        "IPv4 table mangle has the leftover chain ISTIO_OLD",
        0,
    );
}

fn reconfigured() {
    let netns = TestNetns::new();
    for name in ["dns-uid-gid", "ipv6-inbound-ports", "drop-invalid", "inbound-ports-wildcard", "dns-uid-gid"] {
        program(&netns, Backend::IptablesNft, &case(name));
        assert_eq!(rules_state(&netns, Backend::IptablesNft, &case(name)), RulesState::Same, "{name}");
    }
    let fresh = TestNetns::new();
    program(&fresh, Backend::IptablesNft, &case("dns-uid-gid"));
    let rules = |n: &TestNetns| saved(n).lines().filter(|l| l.starts_with("-A")).collect::<Vec<_>>().join("\n");
    assert_same(&rules(&fresh), &rules(&netns));
}

fn keeps_foreign_rules(backend: Backend, tool: &str, saved: fn(&TestNetns) -> String) {
    let netns = TestNetns::new();
    for args in [
        &["-t", "nat", "-N", "THEIRS"][..],
        &["-t", "nat", "-A", "OUTPUT", "-d", "10.1.2.3", "-j", "THEIRS"],
        &["-t", "mangle", "-A", "PREROUTING", "-i", "eth7", "-j", "ACCEPT"],
        &["-t", "filter", "-A", "INPUT", "-p", "tcp", "--dport", "9", "-j", "DROP"],
    ] {
        netns.run(tool, args);
    }
    let before = saved(&netns);
    program(&netns, backend, &everything());
    netns.run(tool, &["-t", "nat", "-I", "OUTPUT", "2", "-d", "10.1.2.4", "-j", "THEIRS"]);
    assert_eq!(rules_state(&netns, backend, &everything()), RulesState::Same);
    // Our rules that are inserted precede those of other programs; our rules that are appended follow them.
    let with_ours = saved(&netns);
    program(&netns, backend, &case("empty"));
    program(&netns, backend, &everything());
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join("\n")
    };
    assert_same(&sorted(&with_ours), &sorted(&saved(&netns)));
    remove(&netns, backend, &everything());
    netns.run(tool, &["-t", "nat", "-D", "OUTPUT", "-d", "10.1.2.4", "-j", "THEIRS"]);
    let after: String = saved(&netns);
    let rules = |text: &str| {
        text.lines().filter(|l| l.starts_with("-A") || l.contains(" - ")).map(|l| format!("{l}\n")).collect::<String>()
    };
    assert_same(&rules(&before), &rules(&after));
}

/// If another process creates a chain with one of our names between reading and writing, nothing is applied.
fn existing_name() {
    let netns = TestNetns::new();
    netns.inside(|| {
        let wanted = case("empty");
        let mut session = Session::new(Backend::IptablesNft, &istio::OWNED);
        let live = session.observe().unwrap();
        let plan = netfilter::diff(&wanted, &live).unwrap();
        netns.run("iptables-nft", &["-t", "nat", "-N", "ISTIO_OUTPUT"]);
        let before = saved(&netns);
        let error = session.apply(&plan).unwrap_err();
        assert!(matches!(error, Error::Contended), "{error}");
        assert_same(&before, &saved(&netns));
        // The session does not mistake further messages about the failed batch for the next response.
        let again = session.observe().unwrap();
        assert_eq!(again, observe(&netns, Backend::IptablesNft));
    });
}

/// If another writer changes the rules between reading and writing, the plan is refused, and the same session can
/// retry.
fn contended() {
    let (netns, wanted) = (TestNetns::new(), everything());
    program(&netns, Backend::IptablesNft, &case("empty"));
    netns.inside(|| {
        let mut session = Session::new(Backend::IptablesNft, &istio::OWNED);
        let before = session.observe().unwrap();
        netns.run("iptables-nft", &["-t", "nat", "-N", "FOREIGN"]);
        let error = session.apply(&netfilter::diff(&wanted, &before).unwrap()).unwrap_err();
        assert!(matches!(error, Error::Contended), "{error}");
        let after = session.observe().unwrap();
        assert_eq!(session.apply(&netfilter::diff(&wanted, &after).unwrap()).unwrap(), Outcome::Changed);
    });
    assert_eq!(rules_state(&netns, Backend::IptablesNft, &wanted), RulesState::Same);
}

/// While another thread replaces rules and deletes their anonymous sets, reading succeeds, or fails because the rules
/// change.
fn replaced_sets() {
    const WRITES: usize = 200;
    let (netns, states) = (TestNetns::new(), [everything(), case("empty")]);
    program(&netns, Backend::NativeNft, &states[0]);
    std::thread::scope(|scope| {
        let writes = || (0..WRITES).for_each(|i| drop(program(&netns, Backend::NativeNft, &states[(i + 1) % 2])));
        let writer = scope.spawn(writes);
        let reads = || {
            let mut session = Session::new(Backend::NativeNft, &istio::OWNED);
            while !writer.is_finished() {
                if let Err(error) = session.observe() {
                    assert!(matches!(error, Error::Contended), "{error}");
                }
            }
        };
        netns.inside(reads);
    });
}

fn other_user_namespace() {
    let (_users, pod) = Users::with_netns();
    let apply = |backend| {
        pod.inside(|| {
            let mut session = Session::new(backend, &istio::OWNED);
            let live = session.observe().unwrap();
            session.apply(&netfilter::diff(&case("empty"), &live).unwrap())
        })
    };
    let error = apply(Backend::IptablesNft).unwrap_err();
    assert!(matches!(&error, Error::OtherUserNamespace { change, .. } if change.contains("owner")), "{error}");
    assert_eq!(apply(Backend::NativeNft).unwrap(), Outcome::Changed);
}

fn probe() {
    let netns = TestNetns::new();
    let facts = |n: &TestNetns| n.inside(|| netfilter::probe().unwrap());
    let fresh = facts(&netns);
    assert!(fresh.nf_tables && fresh.compat && !fresh.legacy_in_use, "{fresh:?}");
    netns.run("iptables-legacy", &["-t", "nat", "-A", "OUTPUT", "-j", "ACCEPT"]);
    let facts = facts(&netns);
    assert_eq!(netfilter::choose(false, None, &facts), Ok(Backend::IptablesLegacy), "{facts:?}");
}

/// A batch that is larger than the default send buffer of a socket is applied.
fn many() {
    let ports = (1..=1500).map(ruleset::Port).collect();
    let redirect = Redirect { outbound_ports_exclude: ports, ..Redirect::default() };
    apply_is_idempotent(Backend::IptablesNft, &rules::build(&redirect, true));
}
