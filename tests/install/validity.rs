//! Tests of changes to a complete installation: the next plan, readiness, and the state after a removal.

use std::fs;
use std::time::Duration;

use istio_cni::install::plan::{self, Reason};
use istio_cni::install::settings::Mode;
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{Scope, remove};

use super::networks::{CALICO, MINIKUBE, NOT_JSON, alone, chained, value};
use super::node::{Node, install};
use super::reconcile::{Installer, until};

const FILE: &str = "10-net.conflist";
const EARLIER: &str = "00-earlier.conflist";

fn any() -> Mode {
    Mode::Chained { primary: None }
}

fn named() -> Mode {
    Mode::Chained { primary: Some(FILE.to_owned()) }
}

fn owned(file: &str) -> Mode {
    Mode::Owned { primary: None, file: file.to_owned() }
}

fn owned_of_named(file: &str) -> Mode {
    Mode::Owned { primary: Some(FILE.to_owned()), file: file.to_owned() }
}

fn standalone() -> Mode {
    Mode::Standalone { file: "istio-cni.conf".to_owned() }
}

/// Installs on a node, changes the node, and returns steps and obstacles of the next plan.
fn after(mode: Mode, change: impl FnOnce(&Node)) -> (Vec<(Reason, String)>, Vec<String>) {
    let node = Node::new();
    node.network(FILE, CALICO);
    let settings = node.settings(mode);
    assert!(install(&settings).is_empty());
    change(&node);
    let plan = plan::install(&settings, &Snapshot::take(&settings));
    let name = |path: &std::path::Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let steps = plan.steps.iter().map(|step| (step.reason, name(step.operation.path()))).collect();
    (steps, plan.obstacles.iter().map(ToString::to_string).collect())
}

/// Asserts that the plan after this change is empty.
fn is_valid(mode: Mode, change: impl FnOnce(&Node)) {
    assert_eq!(after(mode, change), (Vec::new(), Vec::new()));
}

/// Asserts that the plan after this change has these steps and no obstacle.
fn is_repaired(mode: Mode, change: impl FnOnce(&Node), steps: &[(Reason, &str)]) {
    let steps: Vec<(Reason, String)> = steps.iter().map(|(reason, name)| (*reason, (*name).to_owned())).collect();
    assert_eq!(after(mode, change), (steps, Vec::new()));
}

/// Asserts that the plan after this change has one obstacle, for this reason, and no step.
fn has_obstacle(mode: Mode, change: impl FnOnce(&Node), reason: &str) {
    let (steps, obstacles) = after(mode, change);
    assert!(steps.is_empty(), "{steps:?}");
    assert!(matches!(obstacles.as_slice(), [only] if only.contains(reason)), "{obstacles:?}");
}

fn unchanged(_: &Node) {}

fn preempt(node: &Node) {
    node.network(EARLIER, CALICO);
}

fn overwrite(node: &Node) {
    node.network(FILE, CALICO);
}

#[test]
fn the_entry_moves_to_a_network_that_sorts_first() {
    is_repaired(any(), preempt, &[(Reason::EntryMissing, EARLIER), (Reason::LeftBehind, FILE)]);
}

#[test]
fn the_entry_stays_in_the_network_that_the_operator_has_named() {
    is_valid(named(), preempt);
}

#[test]
fn the_named_network_is_invalid() {
    let corrupt = |node: &Node| {
        preempt(node);
        node.network(FILE, NOT_JSON);
    };
    has_obstacle(named(), corrupt, "the plugin cannot be added to");
}

#[test]
fn the_owned_copy_of_the_named_network_is_missing() {
    let remove_entry = |node: &Node| {
        preempt(node);
        fs::remove_file(node.path("net/02-istio-cni.conflist")).unwrap();
    };
    is_repaired(
        owned_of_named("02-istio-cni.conflist"),
        remove_entry,
        &[(Reason::EntryMissing, "02-istio-cni.conflist")],
    );
}

#[test]
fn the_network_is_missing() {
    let remove = |node: &Node| fs::remove_file(node.path("net").join(FILE)).unwrap();
    has_obstacle(any(), remove, "no network configuration yet");
    has_obstacle(named(), remove, "does not exist yet");
}

#[test]
fn the_entry_is_missing() {
    is_repaired(any(), overwrite, &[(Reason::EntryMissing, FILE)]);
}

#[test]
fn the_entry_is_missing_in_the_owned_copy() {
    let remove_entry = |node: &Node| node.network("02-istio-cni.conflist", CALICO);
    is_repaired(owned("02-istio-cni.conflist"), remove_entry, &[(Reason::EntryDiffers, "02-istio-cni.conflist")]);
}

#[test]
fn the_owned_copy_is_missing() {
    let remove_entry = |node: &Node| fs::remove_file(node.path("net/02-istio-cni.conflist")).unwrap();
    is_repaired(owned("02-istio-cni.conflist"), remove_entry, &[(Reason::EntryMissing, "02-istio-cni.conflist")]);
}

#[test]
fn an_unchanged_chain_is_valid() {
    is_valid(any(), unchanged);
}

#[test]
fn an_unchanged_owned_copy_is_valid() {
    is_valid(owned("02-istio-cni.conflist"), unchanged);
}

#[test]
fn an_unchanged_owned_copy_with_the_operators_name_is_valid() {
    is_valid(owned("01-operators.conflist"), unchanged);
}

#[test]
fn the_standalone_configuration_has_another_type() {
    let corrupt = |node: &Node| node.network("istio-cni.conf", MINIKUBE);
    is_repaired(standalone(), corrupt, &[(Reason::EntryDiffers, "istio-cni.conf")]);
}

#[test]
fn an_unchanged_standalone_configuration_is_valid() {
    is_valid(standalone(), unchanged);
}

/// Returns the installation modes with the file that each of them writes.
fn modes() -> [(Mode, &'static str); 3] {
    [(any(), FILE), (owned("02-istio-cni.conflist"), "02-istio-cni.conflist"), (standalone(), "istio-cni.conf")]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_node_is_not_ready_and_becomes_ready_when_it_is_valid() {
    for (mode, file) in modes() {
        let node = Node::new();
        node.network(FILE, NOT_JSON);
        // The token is removed, too, because the standalone mode is ready without a network configuration.
        let token = fs::read(node.path("account/token")).unwrap();
        fs::remove_file(node.path("account/token")).unwrap();
        let mut installer = Installer::start(node.settings(mode));
        installer.waits().await;
        assert!(!node.path("net").join(file).exists() || node.read(&format!("net/{file}")) == NOT_JSON, "{file}");
        fs::write(node.path("account/token"), token).unwrap();
        node.network(FILE, CALICO);
        installer.ready().await;
        installer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_token_does_not_affect_readiness() {
    for (mode, file) in modes() {
        let node = Node::new();
        node.network(FILE, CALICO);
        let mut installer = Installer::start(node.settings(mode));
        installer.ready().await;
        node.rotate("token-2");
        until(file, || node.read("run/istio-cni-kubeconfig").contains("token-2")).await;
        assert_eq!(installer.times_ready(), 1, "{file}");
        installer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_lost_with_the_entry_and_restored_with_it() {
    for (mode, file) in modes() {
        for remove in [false, true] {
            let node = Node::new();
            node.network(FILE, CALICO);
            let mut installer = Installer::start(node.settings(mode.clone()));
            installer.ready().await;
            if remove {
                fs::remove_file(node.path("net").join(file)).unwrap();
            } else {
                node.network(file, NOT_JSON);
            }
            if file == FILE {
                installer.waits().await;
                node.network(FILE, CALICO);
            }
            let expected = if mode == standalone() { alone() } else { chained(&value(CALICO)) };
            let is_restored = || {
                let text = fs::read_to_string(node.path("net").join(file));
                text.is_ok_and(|text| {
                    serde_json::from_str(&text).is_ok_and(|found: serde_json::Value| found == expected)
                })
            };
            until(file, is_restored).await;
            until("ready a second time", || installer.times_ready() == 2).await;
            installer.stop().await;
        }
    }
}

#[test]
fn a_removal_restores_the_network() {
    for (mode, file) in modes() {
        let node = Node::new();
        node.network(FILE, CALICO);
        let settings = node.settings(mode);
        assert!(install(&settings).is_empty());
        assert!(remove(&settings, Scope::ALL, Duration::ZERO).is_empty(), "{file}");
        assert_eq!(node.names("net"), [FILE], "{file}");
        assert_eq!(node.read(&format!("net/{FILE}")), CALICO, "{file}");
        assert_eq!((node.names("bin"), node.names("run")), (Vec::new(), Vec::new()), "{file}");
    }
}
