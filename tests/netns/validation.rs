//! Tests of `istio-iptables --run-validation`, run as in the container `istio-validation`: by the proxy's user, without
//! capabilities.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::{Child, Output, Stdio};

use libtest_mimic::Trial;
use netfilter::Backend;
use podnet::converge;
use redirect::{InterceptionMode, PortSelector, Redirect};

use test_support::netns::{IPV6, TestNetns, by, trial};
use test_support::program::{as_user, under_test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("validation::proves_each_family", &[IPV6], proves_each_family),
        trial("validation::proves_tproxy_and_native_tables", &[IPV6], proves_tproxy_and_native_tables),
        trial("validation::proves_beside_a_proxy_that_shares_its_ports", &[IPV6], proves_beside_a_sharing_listener),
        trial("validation::retries_until_rules_exist", &[IPV6], retries_until_rules_exist),
        trial("validation::refused_without_rules", &[IPV6], refused_without_rules),
        trial("validation::refused_to_another_user", &[IPV6], refused_to_another_user),
        trial("validation::one_family_without_rules_is_a_failure", &[IPV6], one_family_without_rules_is_a_failure),
        trial("validation::another_programs_listener_is_a_failure", &[IPV6], another_programs_listener_is_a_failure),
        trial("validation::used_ports_are_reported", &[IPV6], used_ports_are_reported),
        trial("validation::dropped_connections_time_out", &["nft", IPV6], dropped_connections_time_out),
        trial("validation::runs_from_a_directory_that_its_user_may_not_enter", &[], runs_from_a_closed_directory),
    ]
}

/// Returns the netns of a pod with an address of each family.
fn pod() -> TestNetns {
    let pod = TestNetns::new();
    pod.feed(
        "ip",
        &["-batch", "-"],
        "link add eth0 type veth\naddress add 10.0.0.2/24 dev eth0\naddress add fd00::2/64 dev eth0 nodad\n",
    );
    pod
}

fn load(pod: &TestNetns, backend: Backend, redirect: &Redirect, dual_stack: bool) {
    let redirect = Redirect { dual_stack, ..redirect.clone() };
    pod.inside(|| converge::apply(&redirect.desired(), by(backend))).unwrap();
}

fn start(pod: &TestNetns, user: u32, timeout: &str) -> Child {
    let arguments = ["--run-validation", "--skip-rule-apply", "--dual-stack", "--probe-timeout", timeout];
    pod.inside(|| {
        let mut command = as_user(&under_test("istio-iptables"), user, user);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    })
}

/// Waits for the end of a validation; returns its exit code and output.
fn finish(child: Child) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    (status.code(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

/// The time limit of a validation that must succeed. It ends as soon as it has proven the rules.
const AMPLE: &str = "120s";
/// The time limit of a validation that must fail. It lasts as long, which suffices for one attempt on a busy machine.
const BRIEF: &str = "2s";

#[track_caller]
fn proven((code, text): (Option<i32>, String)) {
    assert_eq!(code, Some(0), "{text}");
    for arrival in ["127.0.0.6:15002 arrived at 127.0.0.1:15006", "[::6]:15002 arrived at [::1]:15006"] {
        assert!(text.contains(arrival), "{arrival} is not in\n{text}");
    }
}

#[track_caller]
fn failed((code, text): (Option<i32>, String), wanted: &[&str]) {
    assert_eq!(code, Some(126), "{text}");
    for wanted in wanted.iter().chain(&["cni.repair.deletePods=true"]) {
        assert!(text.contains(wanted), "{wanted} is not in\n{text}");
    }
}

/// Programs must start as another user even if the checkout is below a directory of mode 0700, because the trials run programs this way.
fn runs_from_a_closed_directory() {
    let closed = tempfile::tempdir().unwrap();
    fs::set_permissions(closed.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let program = closed.path().join("istio-iptables");
    symlink(under_test("istio-iptables"), &program).unwrap();
    let output = as_user(&program, 1337, 1337).arg("--help").output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn proves_each_family() {
    let pod = pod();
    load(&pod, Backend::IptablesNft, &Redirect::default(), true);
    proven(finish(start(&pod, 1337, AMPLE)));
}

fn proves_tproxy_and_native_tables() {
    let tproxy = Redirect { mode: InterceptionMode::Tproxy, inbound_ports: PortSelector::All, ..Redirect::default() };
    for (backend, redirect) in [(Backend::IptablesNft, &tproxy), (Backend::NativeNft, &Redirect::default())] {
        let pod = pod();
        load(&pod, backend, redirect, true);
        proven(finish(start(&pod, 1337, AMPLE)));
    }
}

/// Two validations listen on the same ports, and the kernel distributes the connections between them. An attempt whose connection reaches
/// the other validation must be repeated.
fn proves_beside_a_sharing_listener() {
    let pod = pod();
    load(&pod, Backend::IptablesNft, &Redirect::default(), true);
    let children: [Child; 2] = std::array::from_fn(|_| start(&pod, 1337, AMPLE));
    for child in children {
        proven(finish(child));
    }
}

fn retries_until_rules_exist() {
    let pod = pod();
    let early = start(&pod, 1337, AMPLE);
    load(&pod, Backend::IptablesNft, &Redirect::default(), true);
    proven(finish(early));
}

fn refused_without_rules() {
    failed(
        finish(start(&pod(), 1337, BRIEF)),
        &["connection to 127.0.0.6:15002 was refused", "IPv6: no connection to [::6]:15002"],
    );
}

fn refused_to_another_user() {
    let pod = pod();
    load(&pod, Backend::IptablesNft, &Redirect::default(), true);
    let refused = ["127.0.0.6:15002 was refused", "[::6]:15002 was refused", "the user that they name"];
    failed(finish(start(&pod, 1000, BRIEF)), &refused);
}

fn one_family_without_rules_is_a_failure() {
    let pod = pod();
    load(&pod, Backend::IptablesNft, &Redirect::default(), false);
    failed(finish(start(&pod, 1337, BRIEF)), &["127.0.0.6:15002 arrived at 127.0.0.1:15006", "IPv6: no connection"]);
}

fn another_programs_listener_is_a_failure() {
    let pod = pod();
    load(&pod, Backend::IptablesNft, &Redirect::default(), true);
    let _foreign = pod.inside(|| ["127.0.0.1:15006", "[::1]:15006"].map(|address| TcpListener::bind(address).unwrap()));
    let wanted = [
        "127.0.0.6:15002 was accepted by another program",
        "[::6]:15002 was accepted by another program",
        "could not listen on 127.0.0.1:15006: Address already in use",
    ];
    failed(finish(start(&pod, 1337, BRIEF)), &wanted);
}

fn used_ports_are_reported() {
    let pod = pod();
    load(&pod, Backend::IptablesNft, &Redirect::default(), true);
    let _foreign = pod.inside(|| ["[::]:15001", "[::]:15006"].map(|address| TcpListener::bind(address).unwrap()));
    let wanted = [
        "IPv4: no listener could be opened",
        "could not listen on 127.0.0.1:15001: Address already in use",
        "could not listen on [::1]:15006: Address already in use",
    ];
    failed(finish(start(&pod, 1337, BRIEF)), &wanted);
}

fn dropped_connections_time_out() {
    let pod = pod();
    let rules = "table inet swallow { chain output { type filter hook output priority 0; tcp dport 15002 drop; }\n}";
    pod.feed("nft", &["-f", "-"], rules);
    failed(finish(start(&pod, 1337, BRIEF)), &["connection to 127.0.0.6:15002 timed out"]);
}
