//! Tests of the limits on actions: persistently broken pods, nodes that are not ready, and namespace shares.

use serde_json::{Value, json};
use serve::pods::PodEvent;

use test_node::repair::{Controller, broken};
use test_support::api::Api;

/// Returns a broken pod of the ReplicaSet whose UID is `owner`. The pod's creation timestamp has this second.
fn broken_pod(name: &str, owner: &str, second: u32) -> Value {
    let mut pod = broken(name, 0);
    pod["metadata"]["creationTimestamp"] = json!(format!("2026-01-01T00:00:{second:02}Z"));
    pod["metadata"]["ownerReferences"][0]["uid"] = json!(owner);
    pod
}

fn in_namespace(mut pod: Value, namespace: &str) -> Value {
    pod["metadata"]["namespace"] = json!(namespace);
    pod
}

/// Returns the names of the evicted pods.
fn evicted(api: &Api) -> Vec<String> {
    let name = |path: &str| path.trim_end_matches("/eviction").rsplit('/').next().unwrap_or_default().to_owned();
    api.requests_to("POST", "/eviction").iter().map(|seen| name(&seen.path)).collect()
}

/// Waits for an event about a pod with this reason, and returns the event's message.
async fn event_message(api: &Api, pod: &str, reason: &str) -> String {
    let about = |event: &Value| event["involvedObject"]["name"] == pod && event["reason"] == reason;
    let event = api.until(&format!("{reason} of {pod}"), |api| api.list("events").into_iter().find(about)).await;
    event["message"].as_str().unwrap_or_default().to_owned()
}

async fn counted(api: &Api, controller: &Controller, line: &str) {
    api.until(line, |_| controller.counts(line)).await;
}

#[tokio::test]
async fn evictions_of_a_persistently_broken_deployment_back_off() {
    let api = Api::start().await;
    for name in ["web-0", "web-1"] {
        api.put(broken_pod(name, "r", 1));
    }
    let controller = Controller::start(&api, "");
    for name in ["web-0", "web-1"] {
        assert_eq!(event_message(&api, name, "EvictBrokenPod").await, "pod detected as broken, evicted");
    }
    // The pods with which the ReplicaSet replaces the evicted pods are broken, too.
    for name in ["web-2", "web-3"] {
        api.put(broken_pod(name, "r", 9));
    }
    for name in ["web-2", "web-3"] {
        let message = event_message(&api, name, "BrokenPodLeft").await;
        let seconds = message.strip_prefix("pod detected as broken, no action for ").unwrap_or(&message);
        let (seconds, why) = seconds.split_once(" s: ").unwrap_or_else(|| panic!("{message}"));
        assert!((5..=10).contains(&seconds.parse::<u32>().unwrap()), "{message}");
        assert_eq!(why, "it replaces a pod that was evicted or deleted for the same reason");
    }
    // A broken pod of another ReplicaSet is evicted at once.
    api.put(broken_pod("other", "x", 9));
    event_message(&api, "other", "EvictBrokenPod").await;
    let mut names = evicted(&api);
    names.sort();
    assert_eq!(names, ["other", "web-0", "web-1"]);
    counted(&api, &controller, r#"istio_cni_repair_pods_left_total{reason="controller_back_off"} 2"#).await;
    // Eviction resumes after ten seconds.
    event_message(&api, "web-2", "EvictBrokenPod").await;
}

#[tokio::test]
async fn a_pod_without_a_controller_gets_an_event_and_a_metric() {
    let api = Api::start().await;
    let mut alone = broken("alone", 1);
    alone["metadata"]["ownerReferences"] = json!([]);
    api.put(alone.clone());
    let controller = Controller::start(&api, "");
    let message = event_message(&api, "alone", "BrokenPodLeft").await;
    assert_eq!(message, "pod detected as broken, no action: no controller would replace it");
    // Further failed attempts of the same pod's validation are not counted and reported again.
    alone["status"]["initContainerStatuses"][0]["restartCount"] = json!(2);
    api.put(alone);
    api.put(broken_pod("last", "x", 1));
    event_message(&api, "last", "EvictBrokenPod").await;
    counted(&api, &controller, r#"istio_cni_repair_pods_left_total{reason="standalone"} 1"#).await;
    assert_eq!(api.list("events").len(), 2);
}

#[tokio::test]
async fn no_action_starts_before_the_node_is_ready() {
    let api = Api::start().await;
    let (controller, feed, node_ready) = Controller::fed(&api, "");
    let pod = api.put(broken("web-0", 1));
    feed.events.send(PodEvent::Applied(serde_json::from_value(pod).unwrap())).await.unwrap();
    counted(&api, &controller, "istio_cni_repair_broken_pods 1").await;
    assert_eq!(evicted(&api), Vec::<String>::new());
    node_ready.send(true).unwrap();
    event_message(&api, "web-0", "EvictBrokenPod").await;
}

#[tokio::test]
async fn a_namespace_does_not_exhaust_the_budget_of_others() {
    const BUDGET: usize = 10;
    let api = Api::start().await;
    for n in 0..50 {
        api.put(in_namespace(broken_pod(&format!("loud-{n}"), &format!("r{n}"), 1), "loud"));
    }
    let controller = Controller::start(&api, &format!("--repair-budget {BUDGET}"));
    counted(&api, &controller, r#"istio_cni_repair_pods_repaired_total{type="evict",result="success"} 5"#).await;
    api.put(in_namespace(broken_pod("quiet", "q", 1), "quiet"));
    event_message(&api, "quiet", "EvictBrokenPod").await;
    assert_eq!(evicted(&api).len(), BUDGET / 2 + 1);
}

#[tokio::test]
async fn events_are_limited_for_many_pods_without_an_action() {
    const BUDGET: usize = 10;
    let api = Api::start().await;
    for n in 0..200 {
        let mut pod = broken(&format!("web-{n}"), 0);
        pod["metadata"]["ownerReferences"] = json!([]);
        api.put(pod);
    }
    let controller = Controller::start(&api, &format!("--repair-budget {BUDGET}"));
    counted(&api, &controller, r#"istio_cni_repair_pods_left_total{reason="standalone"} 200"#).await;
    let mut last = broken("last", 0);
    last["metadata"]["namespace"] = json!("quiet");
    api.put(last);
    event_message(&api, "last", "EvictBrokenPod").await;
    let reported = api.list("events").into_iter().filter(|event| event["reason"] == "BrokenPodLeft").count();
    assert!((1..=BUDGET).contains(&reported), "{reported} events");
}
