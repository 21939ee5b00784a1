//! Tests of the plugin's CNI protocol: the reply to every verb, and errors for invalid input.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use serde_json::json;
use test_support::plugin::{Call, conf};

const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// Returns the result of a primary plugin, with spaces and fields that only a byte-for-byte copy preserves.
fn prev_result(version: &str) -> String {
    format!(
        r#"{{ "cniVersion":"{version}",  "interfaces":[{{"name":"eth0","sandbox":"/var/run/netns/x","vendor":1.50}}],"ips":[],"dns":{{}} , "x" : null}}"#
    )
}

fn with_prev(version: &str, run_dir: &std::path::Path) -> String {
    let conf = conf(version, run_dir, &json!({"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {"a": "b"}}}));
    format!(r#"{},"prevResult":{}}}"#, &conf[..conf.len() - 1], prev_result(version))
}

#[test]
fn without_a_command_the_plugin_describes_itself() {
    let reply = Call::new("", "", "").run();
    assert_eq!((reply.code, reply.stdout.as_str()), (0, ""), "{reply:?}");
    assert!(reply.stderr.contains("CNI plugin istio-cni"), "{reply:?}");
    assert!(VERSIONS.iter().all(|v| reply.stderr.contains(v)), "{reply:?}");
}

#[test]
fn version_lists_all_versions() {
    let reply = Call::new("VERSION", "", r#"{"cniVersion":"1.0.0"}"#).run();
    assert_eq!(reply.code, 0, "{reply:?}");
    assert_eq!(reply.json()["supportedVersions"], json!(VERSIONS));
}

#[test]
fn add_echoes_the_previous_result_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    for version in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"] {
        let reply = Call::new("ADD", "/var/run/netns/none", with_prev(version, dir.path())).run();
        assert_eq!((reply.code, reply.stdout.trim_end()), (0, prev_result(version).as_str()), "{reply:?}");
        assert!(reply.stderr.contains("no_sidecar_status"), "the reason is logged: {reply:?}");
    }
}

#[test]
fn an_agent_that_reads_no_log_lines_does_not_delay_an_add() {
    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("log.sock");
    let listener = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    bind(std::os::fd::AsRawFd::as_raw_fd(&listener), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    // After this connection the socket's backlog is full.
    let _queued = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let conf = with_prev("1.0.0", dir.path());
    std::thread::spawn(move || sender.send(Call::new("ADD", "/var/run/netns/none", conf).run()));
    let reply = receiver.recv_timeout(test_support::DEADLINE).expect("a reply and the plugin's exit");
    assert_eq!((reply.code, reply.stdout.trim_end()), (0, prev_result("1.0.0").as_str()), "{reply:?}");
}

#[test]
fn the_log_of_an_error_names_its_entry_in_the_reference() {
    let nameless = Call::new("ADD", "/var/run/netns/none", r#"{"cniVersion":"1.0.0"}"#.to_owned()).run();
    assert_eq!(nameless.code, 1, "{nameless:?}");
    assert!(nameless.stderr.contains("docs/reference/errors.md#cni-error-missing-name"), "{nameless:?}");
}

#[test]
fn a_skipped_pod_without_previous_result_gets_an_empty_one() {
    let dir = tempfile::tempdir().unwrap();
    let namespace = "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=dns-0";
    for version in VERSIONS {
        let call = Call::new("ADD", "/var/run/netns/none", conf(version, dir.path(), &json!({})));
        let reply = call.env("CNI_ARGS", namespace).run();
        assert_eq!(reply.code, 0, "{reply:?}");
        assert_eq!(reply.json()["cniVersion"], version, "{reply:?}");
        assert!(reply.stderr.contains("excluded_namespace"), "the reason is logged: {reply:?}");
    }
}

#[test]
fn del_succeeds_without_output_for_any_input_of_a_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let wrong_types = json!({"exclude_namespaces": "kube-system", "prevResult": {"cniVersion": "7"}});
    for (netns, conf) in [
        ("/var/run/netns/gone", with_prev("1.0.0", dir.path())),
        ("", conf("1.0.0", dir.path(), &json!({}))),
        ("", with_prev("0.3.1", dir.path())),
        ("", conf("0.4.0", dir.path(), &wrong_types)),
        ("/proc/self/status", conf("1.1.0", dir.path(), &json!({}))),
    ] {
        let reply = Call::new("DEL", netns, conf).run();
        assert_eq!((reply.code, reply.stdout.as_str()), (0, ""), "{netns:?}: {reply:?}");
    }
    let odd_args = Call::new("DEL", "", conf("1.0.0", dir.path(), &json!({}))).env("CNI_ARGS", "what=is=this").run();
    assert_eq!(odd_args.code, 0, "{odd_args:?}");
}

/// The plugin must accept the input that Go's encoder writes for a pod whose annotations have the maximum size that the API server allows.
#[test]
fn the_annotations_of_a_pod_are_never_too_large() {
    let dir = tempfile::tempdir().unwrap();
    let annotation = format!(r#"{{"note":"{}"}}"#, r"\u003c".repeat(256 << 10));
    let conf = conf("1.0.0", dir.path(), &json!({"runtimeConfig": {"io.kubernetes.cri.pod-annotations": {}}}));
    let large = conf.replace(
        r#""io.kubernetes.cri.pod-annotations":{}"#,
        &format!(r#""io.kubernetes.cri.pod-annotations":{annotation}"#),
    );
    assert!(large.len() > 3 << 19, "{}", large.len());
    let added = Call::new("ADD", "/var/run/netns/none", large.clone()).run();
    assert_eq!((added.code, added.stderr.contains("no_sidecar_status")), (0, true), "{}", added.stdout);
    assert_eq!(Call::new("DEL", "", large).run().code, 0);
}

#[test]
fn add_takes_four_mebibytes_and_del_takes_any_size() {
    let dir = tempfile::tempdir().unwrap();
    let padded = |size: usize| conf("1.0.0", dir.path(), &json!({"pad": "y".repeat(size)}));
    let excluded = "K8S_POD_NAMESPACE=kube-system;K8S_POD_NAME=dns-0";
    let added = Call::new("ADD", "/var/run/netns/none", padded(4 << 20)).env("CNI_ARGS", excluded).run();
    assert_eq!(added.code, 0, "{}", added.stdout);
    let deleted = Call::new("DEL", "", padded(10 << 20)).run();
    assert_eq!((deleted.code, deleted.stdout.as_str()), (0, ""));
    let cut = padded(10 << 20);
    let said = Call::new("DEL", "", &cut[..cut.len() - 1]).run().error(6);
    assert!(said.contains("EOF"), "{said}");
}

#[test]
fn verbs_that_a_version_does_not_have_are_incompatible() {
    let dir = tempfile::tempdir().unwrap();
    for (verb, since) in [("CHECK", 4), ("GC", 6), ("STATUS", 6)] {
        for version in &VERSIONS[..since] {
            let said = Call::new(verb, "/var/run/netns/none", with_prev(version, dir.path())).run().error(1);
            assert!(said.contains(verb) && said.contains(version), "{verb} {version}: {said}");
        }
    }
}

#[test]
fn gc_has_nothing_to_collect() {
    let dir = tempfile::tempdir().unwrap();
    let reply = Call::new("GC", "", conf("1.1.0", dir.path(), &json!({"cni.dev/valid-attachments": []}))).run();
    assert_eq!((reply.code, reply.stdout.as_str()), (0, ""), "{reply:?}");
}

#[test]
fn invalid_configurations_are_refused_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let whole = conf("1.0.0", dir.path(), &json!({}));
    let huge = format!(r#"{{"name":"x","pad":"{}"}}"#, "y".repeat(8 << 20));
    for (stdin, code, words) in [
        (whole[..whole.len() / 2].to_owned(), 6, "EOF"),
        ("not json".to_owned(), 6, "expected"),
        (String::new(), 6, "EOF"),
        ("[]".to_owned(), 6, "expected a map"),
        (r#"{"cniVersion":"1.0.0"}"#.to_owned(), 7, "name"),
        (r#"{"cniVersion":"1.0.0","name":"../x"}"#.to_owned(), 7, "name"),
        (r#"{"cniVersion":"9.9.9","name":"x"}"#.to_owned(), 1, "9.9.9"),
        (r#"{"cniVersion":1,"name":"x"}"#.to_owned(), 6, "cniVersion"),
        (conf("1.0.0", dir.path(), &json!({"exclude_namespaces": "kube-system"})), 6, "exclude_namespaces"),
        (conf("1.0.0", dir.path(), &json!({"force_iptables_binary": "nftables"})), 7, "force_iptables_binary"),
        (huge, 6, "8388608"),
    ] {
        let reply = Call::new("ADD", "/var/run/netns/none", stdin).run();
        let said = reply.error(code);
        assert!(said.contains(words), "{words:?} is not in {said:?}");
    }
}

#[test]
fn a_call_without_its_variables_names_them() {
    let stdin = conf("1.0.0", std::path::Path::new("/nowhere"), &json!({}));
    let call = Call::new("ADD", "", stdin.clone()).env("CNI_NETNS", "").env("CNI_CONTAINERID", "");
    let said = call.run().error(4);
    assert!(said.contains("CNI_NETNS") && said.contains("CNI_CONTAINERID"), "{said}");
    let said = Call::new("PATCH", "", stdin.clone()).run().error(4);
    assert!(said.contains("PATCH"), "{said}");
    for (key, value, words) in [
        ("CNI_CONTAINERID", "../x", "containerID ../x"),
        ("CNI_IFNAME", "a/b", "CNI_IFNAME"),
        ("CNI_IFNAME", "sixteen-letters-", "at most 15"),
        ("CNI_ARGS", "a=b=c", "a=b=c"),
    ] {
        let said = Call::new("ADD", "/var/run/netns/none", stdin.clone()).env(key, value).run().error(4);
        assert!(said.contains(words), "{key}={value}: {said}");
    }
}

/// A variable that is not UTF-8 must not be taken as absent: without `CNI_ARGS`, a pod would start unredirected.
#[test]
fn a_variable_that_is_not_utf8_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let stdin = with_prev("1.1.0", dir.path());
    let odd = |verb: &str, name: &str, value: &[u8]| {
        Call::new(verb, "/var/run/netns/none", stdin.clone()).env(name, OsStr::from_bytes(value)).run()
    };
    let args = b"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;note=\xff";
    for verb in ["ADD", "CHECK"] {
        for name in ["CNI_ARGS", "CNI_NETNS", "CNI_NETNS_OVERRIDE", "CNI_CONTAINERID", "CNI_IFNAME"] {
            let value = if name == "CNI_ARGS" { &args[..] } else { b"\xff" };
            let said = odd(verb, name, value).error(4);
            assert!(said.contains(name) && said.contains("not valid UTF-8"), "{verb}: {said}");
        }
    }
    assert!(odd("ADD", "CNI_COMMAND", b"ADD\xff").error(4).contains("CNI_COMMAND"));
    // DEL and GC need only some variables, and must not leak addresses because of others.
    for (verb, name) in [("DEL", "CNI_ARGS"), ("DEL", "CNI_NETNS"), ("GC", "CNI_ARGS"), ("STATUS", "CNI_ARGS")] {
        let reply = odd(verb, name, args);
        assert!(!reply.stdout.contains(name), "{verb}: {reply:?}");
        assert!(verb == "STATUS" || reply.code == 0, "{verb}: {reply:?}");
    }
    assert!(odd("DEL", "CNI_CONTAINERID", b"\xff").error(4).contains("CNI_CONTAINERID"));
}

#[test]
fn the_agents_own_pod_starts_without_agent_and_api_server() {
    let stdin = conf("1.0.0", std::path::Path::new("/nowhere"), &json!({}));
    let agent = "K8S_POD_NAMESPACE=istio-system;K8S_POD_NAME=istio-cni-node-x7k2p";
    let reply = Call::new("ADD", "/var/run/netns/none", stdin).env("CNI_ARGS", agent).run();
    assert_eq!(reply.code, 0, "{reply:?}");
}
