//! Whether a node that has been installed is still as it should be: what another look says about it, what becomes of
//! readiness, and what is left when all of it is taken away.

use std::fs;
use std::time::Duration;

use istio_cni::install::plan::{self, Reason};
use istio_cni::install::settings::Mode;
use istio_cni::install::snapshot::Snapshot;
use istio_cni::install::{Scope, remove};

use super::keeping::{Kept, until};
use super::networks::{CALICO, MINIKUBE, NOT_JSON, alone, chained, value};
use super::stage::{Node, install};

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

/// What is to be done after a change of an installed node, and what stands in the way.
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

/// Nothing is to be done.
fn is_valid(mode: Mode, change: impl FnOnce(&Node)) {
    assert_eq!(after(mode, change), (Vec::new(), Vec::new()));
}

/// These steps are to be taken.
fn is_mended(mode: Mode, change: impl FnOnce(&Node), steps: &[(Reason, &str)]) {
    let steps: Vec<(Reason, String)> = steps.iter().map(|(reason, name)| (*reason, (*name).to_owned())).collect();
    assert_eq!(after(mode, change), (steps, Vec::new()));
}

/// It waits for somebody else.
fn is_waited_for(mode: Mode, change: impl FnOnce(&Node), reason: &str) {
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
fn a_network_that_comes_first_takes_the_entry_over() {
    is_mended(any(), preempt, &[(Reason::EntryMissing, EARLIER), (Reason::LeftBehind, FILE)]);
}

#[test]
fn one_that_the_operator_has_not_named_does_not() {
    is_valid(named(), preempt);
}

#[test]
fn the_named_network_is_no_json() {
    let spoil = |node: &Node| {
        preempt(node);
        node.network(FILE, NOT_JSON);
    };
    is_waited_for(named(), spoil, "nothing can be chained into");
}

#[test]
fn the_named_network_has_no_owned_copy() {
    let lose = |node: &Node| {
        preempt(node);
        fs::remove_file(node.path("net/02-istio-cni.conflist")).unwrap();
    };
    is_mended(owned_of_named("02-istio-cni.conflist"), lose, &[(Reason::EntryMissing, "02-istio-cni.conflist")]);
}

#[test]
fn the_network_has_been_removed() {
    let remove = |node: &Node| fs::remove_file(node.path("net").join(FILE)).unwrap();
    is_waited_for(any(), remove, "no network configuration yet");
    is_waited_for(named(), remove, "is not there yet");
}

#[test]
fn the_entry_is_missing() {
    is_mended(any(), overwrite, &[(Reason::EntryMissing, FILE)]);
}

#[test]
fn the_entry_is_missing_in_the_owned_copy() {
    let lose = |node: &Node| node.network("02-istio-cni.conflist", CALICO);
    is_mended(owned("02-istio-cni.conflist"), lose, &[(Reason::EntryDiffers, "02-istio-cni.conflist")]);
}

#[test]
fn the_owned_copy_is_not_there() {
    let lose = |node: &Node| fs::remove_file(node.path("net/02-istio-cni.conflist")).unwrap();
    is_mended(owned("02-istio-cni.conflist"), lose, &[(Reason::EntryMissing, "02-istio-cni.conflist")]);
}

#[test]
fn a_chain_is_as_it_should_be() {
    is_valid(any(), unchanged);
}

#[test]
fn an_owned_copy_is_as_it_should_be() {
    is_valid(owned("02-istio-cni.conflist"), unchanged);
}

#[test]
fn an_owned_copy_under_a_name_of_the_operators_is_as_it_should_be() {
    is_valid(owned("01-operators.conflist"), unchanged);
}

#[test]
fn a_file_of_its_own_has_another_type() {
    let spoil = |node: &Node| node.network("istio-cni.conf", MINIKUBE);
    is_mended(standalone(), spoil, &[(Reason::EntryDiffers, "istio-cni.conf")]);
}

#[test]
fn a_file_of_its_own_is_as_it_should_be() {
    is_valid(standalone(), unchanged);
}

/// The ways into a configuration, and the file that each of them writes.
fn ways() -> [(Mode, &'static str); 3] {
    [(any(), FILE), (owned("02-istio-cni.conflist"), "02-istio-cni.conflist"), (standalone(), "istio-cni.conf")]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_invalid_is_not_ready_and_what_is_valid_is_soon() {
    for (mode, file) in ways() {
        let node = Node::new();
        node.network(FILE, NOT_JSON);
        // Of its own file it is the only writer, and waits for nobody: there the token is still to come.
        let token = fs::read(node.path("account/token")).unwrap();
        fs::remove_file(node.path("account/token")).unwrap();
        let mut kept = Kept::start(node.settings(mode));
        kept.waits().await;
        assert!(!node.path("net").join(file).exists() || node.read(&format!("net/{file}")) == NOT_JSON, "{file}");
        fs::write(node.path("account/token"), token).unwrap();
        node.network(FILE, CALICO);
        let ready = tokio::time::timeout(Duration::from_secs(5), kept.ready()).await;
        assert!(ready.is_ok(), "{file}");
        kept.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_outlasts_a_new_token() {
    for (mode, file) in ways() {
        let node = Node::new();
        node.network(FILE, CALICO);
        let mut kept = Kept::start(node.settings(mode));
        kept.ready().await;
        node.rotate("token-2");
        until(file, || node.read("run/istio-cni-kubeconfig").contains("token-2")).await;
        assert_eq!(kept.times_ready(), 1, "{file}");
        kept.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_is_lost_with_the_entry_and_comes_back_with_it() {
    for (mode, file) in ways() {
        for remove in [false, true] {
            let node = Node::new();
            node.network(FILE, CALICO);
            let mut kept = Kept::start(node.settings(mode.clone()));
            kept.ready().await;
            if remove {
                fs::remove_file(node.path("net").join(file)).unwrap();
            } else {
                node.network(file, NOT_JSON);
            }
            if file == FILE {
                kept.waits().await;
                node.network(FILE, CALICO);
            }
            let expected = if mode == standalone() { alone() } else { chained(&value(CALICO)) };
            let back = || {
                let text = fs::read_to_string(node.path("net").join(file));
                text.is_ok_and(|text| {
                    serde_json::from_str(&text).is_ok_and(|there: serde_json::Value| there == expected)
                })
            };
            until(file, back).await;
            until("ready a second time", || kept.times_ready() == 2).await;
            kept.stop().await;
        }
    }
}

#[test]
fn a_removal_leaves_the_network_as_it_was() {
    for (mode, file) in ways() {
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
