//! Tests of repair in place: the controller finds a real netns by what the API server returns about the pod, and
//! validation passes afterwards.

use std::future::Future;
use std::sync::Arc;

use istio_cni::in_place::InPlace;
use libtest_mimic::Trial;
use podnet::converge::{self, OnDifference, Options, View};
use redirect::{Redirect, istio};
use repair::RepairSettings;
use serde_json::{Value, json};

use crate::find::{Node, netns};
use test_node::repair::{Controller, broken, settings};
use test_support::api::Api;
use test_support::netns::{IPV6, TestNetns, trial};
use test_support::program::{as_user, under_test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        trial("repair::validation_passes_afterwards_in_both_families", &[IPV6], || run(validation_passes_afterwards())),
        trial("repair::a_second_controller_changes_nothing", &[IPV6], || run(a_second_controller_changes_nothing())),
        trial("repair::eviction_if_validation_still_fails", &[IPV6], || run(eviction_if_it_fails_again())),
        trial("repair::a_missing_netns_is_searched_again", &[IPV6], || run(searched_again())),
        trial("repair::a_pod_that_the_plugin_refuses_is_given_up", &[IPV6], || run(refused_pods_are_given_up())),
    ]
}

fn run(body: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(body);
}

const ADDRESSES: [&str; 2] = ["10.0.0.2/24", "fd00::2/64"];
/// The UID in the cgroups of a pod's processes.
const UID: &str = "uid-of-web-0";

/// Returns a broken pod whose netns has [`ADDRESSES`].
fn pod(restarts: u32) -> Value {
    let mut pod = broken("web-0", restarts);
    pod["status"]["podIP"] = json!("10.0.0.2");
    pod["status"]["podIPs"] = json!([{ "ip": "10.0.0.2" }, { "ip": "fd00::2" }]);
    pod["spec"]["containers"][0]["env"] = json!([{ "name": "ISTIO_DUAL_STACK", "value": "true" }]);
    pod
}

/// Returns settings in this mode, with which the controller searches the namespaces of `node`.
fn on(node: &Node, mode: &str) -> RepairSettings {
    let rules =
        Options { native_nftables: false, forced: None, on_difference: OnDifference::Reconcile, owned: &istio::OWNED };
    let in_place = InPlace { places: node.places(), rules };
    RepairSettings { reprogram: Some(Arc::new(in_place)), ..settings(&format!("--repair-mode {mode}")) }
}

fn counted(result: &str, count: usize) -> String {
    format!(r#"istio_cni_repair_pods_repaired_total{{type="repair",result="{result}"}} {count}"#)
}

async fn until_counted(api: &Api, controller: &Controller, result: &str, count: usize) {
    let line = counted(result, count);
    api.until(&line, |_| controller.counts(&line)).await;
}

/// Runs validation as the pod's `istio-validation` does, for at most `time`. Validation that succeeds ends earlier.
fn validate(pod: &TestNetns, time: &str) -> (Option<i32>, String) {
    let output = pod.inside(|| {
        let mut command = as_user(&under_test("istio-iptables"), 1337, 1337);
        command.args(["--run-validation", "--skip-rule-apply", "--dual-stack", "--probe-timeout", time]);
        command.output().unwrap()
    });
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the differences between the pod's rules and those that the plugin would program.
fn differences(pod: &TestNetns) -> Vec<converge::Difference> {
    let redirect = redirect::annotations::from_pod(facts().settings()).unwrap();
    let redirect::annotations::Interception::Redirect { redirect, .. } = redirect else { panic!("no redirection") };
    let options =
        Options { native_nftables: false, forced: None, on_difference: OnDifference::Refuse, owned: &istio::OWNED };
    pod.inside(|| View::take(options).and_then(|view| view.check(&redirect.desired()))).unwrap().differences
}

fn facts() -> podfacts::PodFacts {
    podfacts::PodFacts::from_pod_json(pod(0).to_string().as_bytes()).unwrap()
}

async fn validation_passes_afterwards() {
    let netns = netns(&ADDRESSES);
    let mut node = Node::new();
    node.process(&netns, UID);
    let (code, text) = validate(&netns, "500ms");
    assert_eq!(code, Some(126), "{text}");
    let api = Api::start().await;
    api.put(pod(1));
    let controller = Controller::with(api.client(), on(&node, "repair"));
    until_counted(&api, &controller, "success", 1).await;
    let (code, text) = validate(&netns, "120s");
    assert_eq!(code, Some(0), "{text}");
    for arrival in ["127.0.0.6:15002 arrived at 127.0.0.1:15006", "[::6]:15002 arrived at [::1]:15006"] {
        assert!(text.contains(arrival), "{text}");
    }
    let event = api.until("event", |api| api.list("events").into_iter().next()).await;
    assert_eq!(event["reason"], "RepairBrokenPod");
    assert_eq!(event["message"], "pod detected as broken, redirection set up");
    assert!(api.requests().iter().all(|seen| seen.method == "GET" || seen.path.ends_with("/events")), "nothing else");
}

async fn a_second_controller_changes_nothing() {
    let netns = netns(&ADDRESSES);
    let mut node = Node::new();
    node.process(&netns, UID);
    let api = Api::start().await;
    api.put(pod(1));
    for _ in 0..2 {
        let controller = Controller::with(api.client(), on(&node, "repair"));
        until_counted(&api, &controller, "success", 1).await;
        assert_eq!(differences(&netns), []);
        controller.end().await;
    }
    // Another process flushes the rules; the next failed validation restores them.
    let controller = Controller::with(api.client(), on(&node, "repair"));
    until_counted(&api, &controller, "success", 1).await;
    netns.inside(|| converge::cleanup(&Redirect::default().desired(), &istio::OWNED)).unwrap();
    assert_ne!(differences(&netns), []);
    api.put(pod(2));
    until_counted(&api, &controller, "success", 2).await;
    assert_eq!(differences(&netns), []);
}

async fn eviction_if_it_fails_again() {
    let netns = netns(&ADDRESSES);
    let mut node = Node::new();
    node.process(&netns, UID);
    let api = Api::start().await;
    api.put(pod(1));
    let controller = Controller::with(api.client(), on(&node, "repair-or-evict"));
    until_counted(&api, &controller, "success", 1).await;
    // The API server reports the same failed attempt of validation again. It began before the repair, so the pod is not
    // evicted.
    api.put(pod(1));
    let mut other = pod(1);
    other["metadata"]["name"] = json!("web-1");
    other["metadata"]["uid"] = json!("uid-of-web-1");
    api.put(other);
    until_counted(&api, &controller, "success", 2).await;
    assert_eq!(api.requests_to("POST", "/eviction").len(), 0);
    api.put(pod(2));
    api.until("eviction", |api| api.requests_to("POST", "/web-0/eviction").into_iter().next()).await;
}

async fn searched_again() {
    let mut node = Node::new();
    let api = Api::start().await;
    api.put(pod(1));
    let controller = Controller::with(api.client(), on(&node, "repair"));
    until_counted(&api, &controller, "fail", 1).await;
    let event = api.until("event", |api| api.list("events").into_iter().next()).await;
    let message = event["message"].as_str().unwrap();
    assert!(message.contains("failed to set up redirection: none of 0 network namespaces"), "{message}");
    let netns = netns(&ADDRESSES);
    node.process(&netns, UID);
    until_counted(&api, &controller, "success", 1).await;
    assert_eq!(differences(&netns), []);
}

async fn refused_pods_are_given_up() {
    let netns = netns(&ADDRESSES);
    let mut node = Node::new();
    node.process(&netns, UID);
    for (change, expected) in [
        (json!({ "spec": { "containers": [{ "name": "web" }] } }), "the plugin skips the pod: no_proxy"),
        (
            json!({ "metadata": { "annotations": { "traffic.sidecar.istio.io/excludeInboundPorts": "x" } } }),
            "traffic.sidecar.istio.io/excludeInboundPorts",
        ),
    ] {
        let api = Api::start().await;
        let mut refused = pod(1);
        json_patch::merge(&mut refused, &change);
        api.put(refused.clone());
        let controller = Controller::with(api.client(), on(&node, "repair-or-evict"));
        let event = api.until("event", |api| api.list("events").into_iter().next()).await;
        assert!(event["message"].as_str().unwrap().contains(expected), "{event}");
        refused["status"]["initContainerStatuses"][0]["restartCount"] = json!(2);
        api.put(refused);
        let mut redirected = pod(1);
        redirected["metadata"]["name"] = json!("web-1");
        redirected["metadata"]["uid"] = json!("uid-of-web-1");
        api.put(redirected);
        until_counted(&api, &controller, "success", 1).await;
        assert!(controller.counts(&counted("fail", 1)).is_some(), "{}", controller.metrics());
        assert_eq!(api.requests_to("POST", "/eviction").len(), 0, "another sandbox would be refused, too");
        netns.inside(|| converge::cleanup(&Redirect::default().desired(), &istio::OWNED)).unwrap();
    }
}
