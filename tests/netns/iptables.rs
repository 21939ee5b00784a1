//! Tests of `istio-iptables` as a process: exit codes, output, and the resulting state of its netns.

use std::collections::BTreeMap;
use std::process::Command;

use libtest_mimic::Trial;

use test_support::netns::{TestNetns, trial};
use test_support::program::under_test;

pub(crate) fn trials() -> Vec<Trial> {
    const SAVE: &[&str] = &["iptables-nft-save", "ip6tables-nft-save", "nft"];
    vec![
        trial("iptables::second_run_changes_nothing", SAVE, second_run_changes_nothing),
        trial(
            "iptables::without_reconcile_other_rules_are_not_changed",
            SAVE,
            without_reconcile_other_rules_are_not_changed,
        ),
        trial("iptables::force_apply_never_refuses", SAVE, force_apply_never_refuses),
        trial("iptables::cleanup_leaves_the_netns_as_it_was", SAVE, cleanup_leaves_the_netns_as_it_was),
        trial("iptables::cleanup_needs_no_flags", SAVE, cleanup_needs_no_flags),
        trial("iptables::dry_run_prints_and_changes_nothing", SAVE, dry_run_prints_and_changes_nothing),
        trial("iptables::exit_codes_distinguish_usage_and_error", &[], exit_codes_distinguish_usage_and_error),
    ]
}

const SIDECAR: &[&str] = &["-b", "*", "-d", "15090,15021,15020", "-i", "*", "-m", "TPROXY", "--dual-stack"];

struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

fn run(pod: &TestNetns, arguments: &[&[&str]], env: &[(&str, &str)]) -> Run {
    let output = pod.inside(|| {
        let mut command = Command::new(under_test("istio-iptables"));
        command
            .args(arguments.concat())
            .env_clear()
            .envs(env.iter().copied().collect::<BTreeMap<_, _>>())
            .output()
            .unwrap()
    });
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Run { code: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

#[track_caller]
fn done(run: &Run, message: &str) {
    assert!(
        run.code == Some(0) && run.out.contains(message),
        "{:?}, not {message:?}:\n{}{}",
        run.code,
        run.out,
        run.err
    );
}

fn pod() -> TestNetns {
    let pod = TestNetns::new();
    let batch = "link add eth0 type veth\naddress add 10.0.0.2/24 dev eth0\naddress add fd00::2/64 dev eth0 nodad\n";
    pod.feed("ip", &["-batch", "-"], batch);
    pod
}

/// Returns the state of a netns: rules without counters and dates, routing rules, and the addresses of `lo`.
fn state(pod: &TestNetns) -> String {
    let mut text = String::new();
    for save in ["iptables-nft-save", "ip6tables-nft-save"] {
        let saved = pod.run(save, &[]);
        text.extend(saved.lines().filter(|line| line.starts_with('-')).flat_map(|line| [line, "\n"]));
    }
    text += &pod.run("nft", &["list", "tables", "inet"]);
    for arguments in [&["-4", "rule"][..], &["-6", "rule"], &["address", "show", "dev", "lo"]] {
        text += &pod.run("ip", arguments);
    }
    text
}

/// Asserts that two states are the same.
#[track_caller]
fn same(left: &str, right: &str) {
    let lacks = |text: &str, line: &str| !text.lines().any(|other| other == line);
    let removed: Vec<_> = right.lines().filter(|line| lacks(left, line)).collect();
    let new: Vec<_> = left.lines().filter(|line| lacks(right, line)).collect();
    assert!(left == right, "removed: {removed:#?}\nnew: {new:#?}");
}

fn second_run_changes_nothing() {
    let pod = pod();
    done(&run(&pod, &[SIDECAR], &[]), "Traffic is redirected (IPv4 and IPv6).");
    let first = state(&pod);
    assert!(
        first.contains("-A ISTIO_TPROXY") && first.contains("fwmark 0x539") && first.contains("::6/128"),
        "{first}"
    );
    done(&run(&pod, &[SIDECAR], &[]), "nothing was changed");
    same(&state(&pod), &first);
}

fn without_reconcile_other_rules_are_not_changed() {
    let pod = pod();
    done(&run(&pod, &[&["-b", "80", "-i", "*", "--dual-stack"]], &[]), "redirected");
    let first = state(&pod);
    let refused = run(&pod, &[SIDECAR], &[]);
    assert_eq!(refused.code, Some(1), "{}{}", refused.out, refused.err);
    assert!(refused.err.contains("--reconcile") && refused.err.contains("ISTIO_INBOUND"), "{}", refused.err);
    same(&state(&pod), &first);

    done(&run(&pod, &[SIDECAR], &[("RECONCILE", "true")]), "reconciled");
    let fresh = self::pod();
    done(&run(&fresh, &[SIDECAR], &[]), "redirected");
    same(&state(&pod), &state(&fresh));
}

fn force_apply_never_refuses() {
    let pod = pod();
    done(&run(&pod, &[&["-b", "80"]], &[]), "redirected");
    done(&run(&pod, &[SIDECAR, &["--force-apply"]], &[]), "reconciled");
    done(&run(&pod, &[SIDECAR, &["--force-apply"]], &[]), "nothing was changed");
}

fn cleanup_leaves_the_netns_as_it_was() {
    let pod = pod();
    pod.run("iptables-nft", &["-t", "nat", "-A", "OUTPUT", "-p", "tcp", "--dport", "1", "-j", "RETURN"]);
    let before = state(&pod);
    for _ in 0..2 {
        done(&run(&pod, &[SIDECAR, &["--cleanup-only"]], &[]), "removed");
        same(&state(&pod), &before);
        done(&run(&pod, &[SIDECAR], &[]), "redirected");
        assert_ne!(state(&pod), before);
    }
    done(&run(&pod, &[SIDECAR, &["--cleanup-only"]], &[]), "removed");
    same(&state(&pod), &before);
}

fn cleanup_needs_no_flags() {
    let dns: &[&str] = &["-b", "*", "-i", "*", "--redirect-dns", "--capture-all-dns", "--dual-stack"];
    for (arguments, env) in [(dns, &[][..]), (SIDECAR, &[]), (SIDECAR, &[("NATIVE_NFTABLES", "true")])] {
        let pod = pod();
        let before = state(&pod);
        done(&run(&pod, &[arguments], env), "redirected");
        assert_ne!(state(&pod), before);
        done(&run(&pod, &[&["--cleanup-only"]], &[]), "removed");
        same(&state(&pod), &before);
    }
}

fn dry_run_prints_and_changes_nothing() {
    let pod = pod();
    let before = state(&pod);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("rules");
    let arguments: &[&[&str]] = &[SIDECAR, &["-n", "-u", "envoy"]];
    let printed = run(&pod, arguments, &[("DRY_RUN_FILE_PATH", file.to_str().unwrap())]);
    done(&printed, "-A ISTIO_OUTPUT -m owner --uid-owner envoy -j RETURN");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), printed.out);
    same(&state(&pod), &before);
    done(&run(&pod, arguments, &[("NATIVE_NFTABLES", "1")]), "add table inet istio-proxy-nat");
    same(&state(&pod), &before);
}

fn exit_codes_distinguish_usage_and_error() {
    let pod = pod();
    for (arguments, code, message) in [
        (&["--no-such-flag"][..], 255, "--no-such-flag"),
        (&["--iptables-probe-port", "70000"], 255, "70000"),
        (&["-x", "*"], 1, "--istio-service-exclude-cidr"),
        (&["--force-iptables-binary", "ebtables"], 1, "ebtables"),
        (&["-u", "nobody-of-that-name"], 1, "is not in /etc/passwd"),
    ] {
        let run = run(&pod, &[arguments], &[]);
        assert!(run.code == Some(code) && run.err.contains(message), "{arguments:?}: {:?}\n{}", run.code, run.err);
    }
    let no_address = run(&TestNetns::new(), &[], &[]);
    assert!(
        no_address.code == Some(1) && no_address.err.contains("no valid local IP address found"),
        "{}",
        no_address.err
    );
    let help = run(&pod, &[&["--help"]], &[]);
    assert!(help.code == Some(0) && help.out.contains("--run-validation"), "{}", help.out);
}
