//! `istio-cnictl check` against an API server, and `install-cni check` on directories.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use test_support::api::Api;
use test_support::program::under_test;

use super::cnictl::{cnictl, kubeconfig, text};

/// Returns result and text of each finding of a check.
fn findings(done: &Output, check: &str) -> Vec<(String, String)> {
    let report: Value = serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    let all = report["findings"].as_array().unwrap().iter().filter(|finding| finding["check"] == check);
    all.map(|finding| (finding["result"].as_str().unwrap().into(), finding["text"].as_str().unwrap().into())).collect()
}

/// Asserts that one finding of a check has this result, and that its text contains `said`.
#[track_caller]
fn expect(done: &Output, check: &str, result: &str, said: &str) {
    let found = findings(done, check);
    assert!(found.iter().any(|(is, text)| is == result && text.contains(said)), "{check}: {found:?}");
}

/// Creates the objects of a cluster in which agent and webhook are installed. The webhook's CA certificate expires in `days` days and
/// twelve hours.
fn install(api: &Api, days: u64) {
    let mut authority = rcgen::CertificateParams::new(["authority".to_owned()]).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    authority.not_after = rcgen::date_time_ymd(1970, 1, 1) + now + Duration::from_secs(days * 86_400 + 43_200);
    let bundle = authority.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem();
    api.put(json!({ "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "namespace": "kube-system", "name": "istio-cni-node" },
        "spec": { "selector": {}, "template": {} },
        "status": { "currentNumberScheduled": 2, "desiredNumberScheduled": 2, "numberMisscheduled": 0, "numberReady": 2,
            "updatedNumberScheduled": 2 } }));
    api.put(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system" } }));
    api.put(json!({ "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "injector" },
        "webhooks": [{ "name": "namespace.sidecar-injector.istio.io", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": { "caBundle": STANDARD.encode(bundle),
                "service": { "namespace": "istio-system", "name": "injector" } } }] }));
    api.put(json!({ "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": { "namespace": "istio-system", "name": "injector-1",
            "labels": { "kubernetes.io/service-name": "injector" } },
        "endpoints": [{ "addresses": ["10.0.0.1"], "conditions": { "ready": true } }] }));
}

fn check(api: &Api, dir: &Path) -> Output {
    let path = kubeconfig(dir, &api.url());
    cnictl(&["check", "-o", "json"], "", Some(&path))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_installed_cluster_passes_and_what_breaks_it_is_found() {
    let (api, dir) = (Api::start().await, tempfile::tempdir().unwrap());
    install(&api, 90);
    let done = check(&api, dir.path());
    assert!(done.status.success(), "{done:?}");
    expect(&done, "agents", "ok", "all 2 nodes are ready");
    expect(&done, "caBundle", "ok", "ends in 90 days");
    expect(&done, "webhook", "ok", "1 endpoints of service istio-system/injector are ready");
    expect(&done, "rights", "ok", "may install");
    install(&api, 3);
    expect(&check(&api, dir.path()), "caBundle", "warning", "ends in 3 days");
    api.remove("endpointslices", "istio-system", "injector-1");
    api.deny("clusterroles");
    api.put(json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "kube-system",
        "labels": { "pod-security.kubernetes.io/enforce": "baseline" } } }));
    let done = check(&api, dir.path());
    assert_eq!((done.status.code(), text(&done.stderr).as_str()), (Some(1), "Error: checks failed: 2\n"));
    expect(&done, "webhook", "failed", "has no endpoint that is ready");
    expect(&done, "PodSecurity", "failed", "enforces baseline");
    expect(&done, "rights", "warning", "may not create clusterroles");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_cluster_is_ready_for_an_installation_unless_a_right_is_missing() {
    let (api, dir) = (Api::start().await, tempfile::tempdir().unwrap());
    let done = check(&api, dir.path());
    assert!(done.status.success(), "{done:?}");
    expect(&done, "agents", "warning", "there is no DaemonSet");
    api.deny("daemonsets");
    let path = kubeconfig(dir.path(), &api.url());
    let done = cnictl(&["check"], "", Some(&path));
    assert_eq!(done.status.code(), Some(1));
    let said = text(&done.stdout);
    assert!(said.contains("✗ rights       this user may not create daemonsets, get daemonsets\n"), "{said}");
    assert!(said.contains("docs/troubleshooting.md#rights\n") && !said.contains('\u{1b}'), "{said}");
}

/// Creates a node's root directory, with a CNI chain of `plugins` and the binaries `files`, and an image directory with
/// the plugin.
fn node(dir: &Path, plugins: &[&str], files: &[&str]) {
    for sub in ["etc/cni/net.d", "opt/cni/bin", "run/containerd", "sys/fs/cgroup", "image"] {
        fs::create_dir_all(dir.join(sub)).unwrap();
    }
    let entries: Vec<Value> = plugins.iter().map(|kind| json!({ "type": kind })).collect();
    let list = json!({ "cniVersion": "1.0.0", "name": "pods", "plugins": entries });
    fs::write(dir.join("etc/cni/net.d/10-pods.conflist"), list.to_string()).unwrap();
    let files = files.iter().map(|name| format!("opt/cni/bin/{name}"));
    for file in files.chain(["run/containerd/containerd.sock", "sys/fs/cgroup/cgroup.controllers"].map(str::to_owned)) {
        fs::write(dir.join(file), "").unwrap();
    }
}

fn check_node(dir: &Path) -> Output {
    let flag = |name: &str, path: &str| format!("--{name}={}", dir.join(path).display());
    let flags = [
        flag("host-root", ""),
        flag("mounted-cni-net-dir", "etc/cni/net.d"),
        flag("mounted-cni-bin-dir", "opt/cni/bin"),
        flag("cni-bin-source-dir", "image"),
        flag("cni-agent-run-dir", "run/istio-cni"),
    ];
    Command::new(under_test("install-cni")).args(["check", "-o", "json"]).args(flags).env_clear().output().unwrap()
}

#[test]
fn a_nodes_directories_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    node(dir.path(), &["bridge", "portmap"], &["bridge", "portmap"]);
    let done = check_node(dir.path());
    expect(&done, "runtime", "ok", "containerd");
    expect(&done, "network", "ok", "10-pods.conflist: bridge, portmap");
    expect(&done, "chain", "warning", "no configuration names istio-cni");
    expect(&done, "cgroups", "ok", "version 2");
    node(dir.path(), &["bridge", "cilium-cni", "istio-cni"], &["bridge", "cilium-cni"]);
    let done = check_node(dir.path());
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    expect(&done, "plugins", "failed", "istio-cni, which is not in");
    expect(&done, "other plugins", "warning", "cilium-cni: ");
    fs::write(dir.path().join("opt/cni/bin/istio-cni"), "").unwrap();
    let done = check_node(dir.path());
    assert_eq!(findings(&done, "plugins"), []);
    expect(&done, "chain", "ok", "it names istio-cni");
    fs::remove_file(dir.path().join("etc/cni/net.d/10-pods.conflist")).unwrap();
    expect(&check_node(dir.path()), "network", "failed", "has no network configuration yet");
}

#[test]
fn directories_are_found_and_further_settings_of_the_runtime_are_named() {
    let dir = tempfile::tempdir().unwrap();
    node(dir.path(), &["bridge"], &["bridge"]);
    let containerd = dir.path().join("etc/containerd/config.toml");
    fs::create_dir_all(containerd.parent().unwrap()).unwrap();
    let config = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nconf_dir = '/link'\nmax_conf_num = 0\n\
                [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata]\ncni_conf_dir = '/etc/kata'\n";
    fs::write(&containerd, config).unwrap();
    std::os::unix::fs::symlink("/etc/cni/net.d", dir.path().join("link")).unwrap();
    let auto = ["--mounted-cni-net-dir=auto", "--mounted-cni-bin-dir=auto"];
    let found = || {
        let mut command = Command::new(under_test("install-cni"));
        command.args(["check", "-o", "json"]).arg(format!("--host-root={}", dir.path().display())).args(auto);
        command
            .arg(format!("--cni-bin-source-dir={}", dir.path().join("image").display()))
            .env_clear()
            .output()
            .unwrap()
    };
    let done = found();
    expect(
        &done,
        "directories",
        "ok",
        "containerd reads /link (/etc/containerd/config.toml) and runs plugins of /opt/cni/bin (default)",
    );
    expect(&done, "directories", "ok", "given: /etc/cni/net.d and /opt/cni/bin");
    expect(&done, "network", "ok", "/etc/cni/net.d/10-pods.conflist: bridge");
    expect(&done, "networks", "warning", "pods of containerd get every network");
    expect(&done, "networks", "warning", "pods of the runtime handler kata get the network of /etc/kata");
    assert!(!text(&done.stdout).contains(&dir.path().display().to_string()), "{done:?}");
    fs::write(&containerd, "version = ").unwrap();
    let done = found();
    assert_eq!(done.status.code(), Some(1), "{done:?}");
    expect(&done, "directories", "failed", "/etc/containerd/config.toml: invalid TOML");
}

/// As root, the check tries the rules in new network namespaces. Without the capabilities for that, it must give one warning that the rules
/// were not tried.
#[test]
fn the_kernel_is_checked_or_the_missing_capability_is_named() {
    let dir = tempfile::tempdir().unwrap();
    node(dir.path(), &["bridge"], &["bridge"]);
    let done = check_node(dir.path());
    match findings(&done, "rules").as_slice() {
        [] => expect(&done, "REDIRECT", "ok", "rules are accepted, by "),
        [(result, said)] => assert!(result == "warning" && said.contains("not tried"), "{said}"),
        several => panic!("{several:?}"),
    }
}
