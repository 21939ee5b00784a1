//! Compares installed network configurations with Istio's expected files, as JSON values, and verdicts about
//! configurations with those of the runtimes' libraries.

#![expect(clippy::disallowed_methods, reason = "reads the corpus and the directories of a node")]
#![expect(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod libcni;
#[expect(dead_code, reason = "the suite install uses the rest")]
mod node;

use std::fs;
use std::time::Duration;

use istio_cni::install::server::Server;
use istio_cni::install::settings::{KubeconfigSettings, Mode};
use istio_cni::install::{Scope, remove};
use libtest_mimic::Arguments;
use serde_json::{Value, json};

use node::{LIST, Node, install};

fn main() {
    let trials: [(&str, fn()); 6] = [
        ("entries_in_chains_are_istios", entries_in_chains_are_istios),
        ("an_owned_copy_is_istios", an_owned_copy_is_istios),
        ("standalone_configurations_are_istios", standalone_configurations_are_istios),
        (
            "a_single_plugin_of_minikube_is_converted_to_istios_list_and_put_back",
            a_single_plugin_of_minikube_is_converted_to_istios_list_and_put_back,
        ),
        ("files_that_no_runtime_loads_are_named_and_stay", files_that_no_runtime_loads_are_named_and_stay),
        ("kubeconfigs_are_istios", kubeconfigs_are_istios),
    ];
    let corpus = tier::corpus_directory();
    let missing = (!corpus.is_dir()).then(|| format!("{} does not exist", corpus.display()));
    let trial = |(name, body): (&'static str, fn())| {
        tier::trial("corpus", name, missing.clone(), move || {
            body();
            Ok(())
        })
    };
    let trials = trials.into_iter().map(trial).chain(libcni::trials()).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn corpus(file: &str) -> String {
    let path = tier::corpus_directory().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Removes the intended differences from Istio, which README.md lists, from an installed file.
fn without_intended_differences(mut installed: Value, converted: bool) -> Value {
    let entry = installed["plugins"].as_array_mut().and_then(|plugins| plugins.last_mut());
    if let Some(Value::Object(entry)) = entry.filter(|entry| entry["type"] == "istio-cni") {
        assert_eq!(entry.remove("capabilities"), Some(json!({"io.kubernetes.cri.pod-annotations": true})));
    }
    if converted {
        installed["name"] = json!("k8s-pod-network");
        installed["cniVersion"] = json!("0.3.1");
    }
    installed
}

fn primary(name: &str) -> Mode {
    Mode::Chained { primary: Some(name.to_owned()) }
}

fn entries_in_chains_are_istios() {
    for (file, target, golden) in [
        ("list.conflist", "list.conflist", "list.conflist.golden"),
        ("list-with-istio.conflist", "list-with-istio.conflist", "list-with-istio.conflist.golden"),
        ("bridge.conf", "bridge.conflist", "bridge.conf.golden"),
    ] {
        let content = corpus(&format!("conflist/{file}"));
        let node = Node::new();
        node.network(file, &content);
        let plan = install(&node.settings(primary(file)));
        assert!(plan.is_empty(), "{file}: {plan:?}");
        let installed =
            without_intended_differences(value(&node.read(&format!("net/{target}"))), file.ends_with(".conf"));
        let expected = value(&corpus(&format!("conflist/{golden}")));
        assert_eq!(installed, expected, "{file}");
    }
}

fn an_owned_copy_is_istios() {
    let content = corpus("conflist/bridge.conf");
    let node = Node::new();
    node.network("bridge.conf", &content);
    let owned = "02-istio-conf.conflist";
    let mut settings = node.settings(Mode::Owned { primary: None, file: owned.to_owned() });
    settings.entry.ambient_enabled = true;
    assert!(install(&settings).is_empty());
    let installed = without_intended_differences(value(&node.read(&format!("net/{owned}"))), true);
    assert_eq!(installed, value(&corpus("conflist/istio-owned-bridge.conflist.golden")));
    assert_eq!(node.read("net/bridge.conf"), content);
    assert_eq!(node.mode(&format!("net/{owned}")), 0o600);
}

fn standalone_configurations_are_istios() {
    let expected = corpus("conflist-e2e/expected/YYY-istio-cni.conf");
    for file in ["YYY-istio-cni.conf", "user-defined.conf"] {
        let node = Node::new();
        let mut settings = node.settings(Mode::Standalone { file: file.to_owned() });
        settings.entry.run_dir = "/tmp".into();
        settings.entry.pod_namespace = String::new();
        settings.entry.exclude_namespaces = vec!["istio-system".to_owned()];
        assert!(install(&settings).is_empty());
        let mut installed = value(&node.read(&format!("net/{file}")));
        assert!(installed.as_object_mut().unwrap().remove("capabilities").is_some());
        assert_eq!(installed, value(&expected));
        assert!(remove(&settings, Scope::ALL, Duration::ZERO).is_empty());
        assert_eq!(node.names("net"), [""; 0]);
    }
}

/// The removal must restore the original file, unlike Istio's, which leaves the list without its entry.
fn a_single_plugin_of_minikube_is_converted_to_istios_list_and_put_back() {
    let clean = corpus("conflist-e2e/expected/minikube_cni.conflist.clean");
    let mut single = value(&clean)["plugins"][0].clone();
    single["cniVersion"] = json!("0.3.0");
    let node = Node::new();
    node.network("00-minikube_cni.conf", &single.to_string());
    let mut settings = node.chained();
    settings.entry.run_dir = "/tmp".into();
    settings.entry.pod_namespace = String::new();
    settings.entry.exclude_namespaces = vec!["istio-system".to_owned()];
    assert!(install(&settings).is_empty());
    assert_eq!(node.names("net"), ["00-minikube_cni.conflist"]);
    let installed = value(&node.read("net/00-minikube_cni.conflist"));
    assert_eq!((&installed["name"], &installed["cniVersion"]), (&json!("rkt.kubernetes.io"), &json!("0.3.0")));
    let expected = corpus("conflist-e2e/expected/minikube_cni.conflist.expected");
    assert_eq!(without_intended_differences(installed, true), value(&expected));
    assert!(remove(&settings, Scope::ALL, Duration::ZERO).is_empty());
    assert_eq!((node.names("net"), node.names("bin")), (vec!["00-minikube_cni.conf".to_owned()], Vec::new()));
    assert_eq!(node.read("net/00-minikube_cni.conf"), single.to_string(), "byte for byte");
    assert_eq!(node.names("run"), [""; 0]);
}

/// Istio's node is ready with such a file. Ours must not be ready, because containerd loads no network after a file that it refuses.
fn files_that_no_runtime_loads_are_named_and_stay() {
    let non_json = corpus("conflist-e2e/pre/non_json.conf");
    let noname = corpus("conflist-e2e/pre/noname_calico.conflist");
    let nover = corpus("conflist-e2e/pre/nover_calico.conflist");
    let nameless_type = r#"{"cniVersion": "0.3.0", "name": "x"}"#;
    let typo = nover.replace("\"plugins\"", "\"pugins\"");
    for bad in [
        &[("00-bad.conf", &*non_json)][..],
        &[("00-bad.conf", nameless_type)],
        &[("00-n.conflist", &noname), ("01-t.conflist", &typo)],
    ] {
        let node = Node::new();
        for (name, content) in bad {
            node.network(name, content);
        }
        node.network("02-calico.conflist", &nover);
        node.network("03-other.conflist", LIST);
        let obstacles: Vec<String> = install(&node.chained()).obstacles.iter().map(ToString::to_string).collect();
        assert_eq!(obstacles.len(), bad.len(), "{obstacles:?}");
        for ((name, content), obstacle) in bad.iter().zip(&obstacles) {
            assert!(obstacle.contains(&format!("{name}: ")), "{obstacle}");
            assert_eq!(node.read(&format!("net/{name}")), *content);
        }
        assert_eq!(node.read("net/03-other.conflist"), LIST);
        let installed = value(&node.read("net/02-calico.conflist"));
        assert_eq!(installed["plugins"][2]["type"], "istio-cni", "{installed}");
        assert!(remove(&node.chained(), Scope::ALL, Duration::ZERO).is_empty());
        assert_eq!(node.read("net/02-calico.conflist"), nover, "byte for byte");
    }
}

fn kubeconfigs_are_istios() {
    let newhost = corpus("conflist/kubeconfig-newhost");
    let skip = corpus("conflist/kubeconfig-skip-tls");
    let ca = newhost.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).unwrap();
    for (expected, skip_verify) in [(newhost.as_str(), false), (skip.as_str(), true)] {
        let server = expected.lines().find_map(|line| line.trim().strip_prefix("server: ")).unwrap();
        let node = Node::new();
        fs::write(node.path("account/token"), "service_account_token_string\n").unwrap();
        fs::write(node.path("account/ca.crt"), decoded(ca)).unwrap();
        let mut settings = node.chained();
        let host = server.trim_start_matches("https://").trim_end_matches(":443");
        let server = Server::new("https", host, 443).unwrap();
        settings.kubeconfig = KubeconfigSettings { server, ca_file: None, skip_verify, mode: 0o600 };
        install(&settings);
        assert_eq!(node.read("run/istio-cni-kubeconfig"), expected);
        assert_eq!(node.mode("run/istio-cni-kubeconfig"), 0o600);
    }
}

fn decoded(base64: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(base64).unwrap()
}
