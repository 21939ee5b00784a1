//! Tests of the watchdog for pods that request Dapr's sidecar but lack it.

use serde_json::{Value, json};

use test_node::repair::Controller;
use test_support::api::{Api, Fault};

/// Returns a pod of a ReplicaSet that requests Dapr's sidecar but lacks it, and whose creation timestamp has this
/// second.
fn pod_without_sidecar(name: &str, second: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": name, "uid": format!("uid-of-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
            "annotations": { "dapr.io/enabled": "true", "dapr.io/app-id": "web" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true }],
        },
        "spec": { "nodeName": "n1", "restartPolicy": "Always", "containers": [{ "name": "app" }] },
        "status": { "phase": "Running" },
    })
}

fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key] = value;
    pod
}

fn deletions(api: &Api) -> Vec<String> {
    api.requests_to("DELETE", "").into_iter().map(|seen| seen.path).collect()
}

/// Returns the recorded events: pod, reason and message.
fn recorded_events(api: &Api) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |event: Value| (text(&event["involvedObject"]["name"]), text(&event["reason"]), text(&event["message"]));
    api.list("events").into_iter().map(of).collect()
}

async fn until_reported(api: &Api, pod: &str) -> (String, String) {
    let about = |api: &Api| recorded_events(api).into_iter().find(|(about, ..)| about == pod);
    let (_, reason, message) = api.until(&format!("an event about {pod}"), about).await;
    (reason, message)
}

#[tokio::test]
async fn pods_without_a_sidecar_are_reported_and_counted() {
    let api = Api::start().await;
    api.put(pod_without_sidecar("bare", 1));
    let controller = Controller::of_dapr_watchdog(&api, false, 20);
    let (reason, message) = until_reported(&api, "bare").await;
    assert_eq!(reason, "PodWithoutSidecar");
    assert_eq!(message, "pod requests Dapr's sidecar but lacks it, no action");
    assert_eq!(api.list("events")[0]["source"]["component"], "dapr-watchdog");
    for line in
        [r#"dapr_watchdog_actions_total{type="report",result="success"} 1"#, "dapr_watchdog_pods_without_sidecar 1"]
    {
        api.until(line, |_| controller.counts(line)).await;
    }
    // A status update by the kubelet causes no further event.
    api.put(with(pod_without_sidecar("bare", 1), "/status/phase", json!("Pending")));
    api.put(pod_without_sidecar("last", 2));
    until_reported(&api, "last").await;
    assert_eq!((recorded_events(&api).len(), deletions(&api)), (2, vec![]));
    api.remove("pods", "shop", "bare");
    let one = "dapr_watchdog_pods_without_sidecar 1";
    api.until(one, |_| controller.counts(one)).await;
}

#[tokio::test]
async fn deletion_has_preconditions_and_is_reported() {
    let api = Api::start().await;
    let stored = api.put(pod_without_sidecar("bare", 1));
    let controller = Controller::of_dapr_watchdog(&api, true, 20);
    let (reason, message) = until_reported(&api, "bare").await;
    assert_eq!(reason, "DeletePodWithoutSidecar");
    assert_eq!(message, "pod requests Dapr's sidecar but lacks it, deleted");
    let seen = &api.requests_to("DELETE", "/pods/bare")[0];
    let version = &stored["metadata"]["resourceVersion"];
    assert_eq!(seen.body["preconditions"], json!({ "uid": "uid-of-bare", "resourceVersion": version }));
    let line = r#"dapr_watchdog_actions_total{type="delete",result="success"} 1"#;
    api.until(line, |_| controller.counts(line)).await;
}

#[tokio::test]
async fn pods_with_a_sidecar_or_without_a_request_are_ignored() {
    let api = Api::start().await;
    let daprd = json!([{ "name": "daprd" }]);
    let label = json!({ "dapr.io/sidecar-injected": "true" });
    for (name, pointer, value) in [
        ("sidecar", "/spec/containers", daprd.clone()),
        ("native", "/spec/initContainers", daprd),
        ("labelled", "/metadata/labels", label),
        ("seen", "/metadata/labels", json!({ "dapr.io/watchdog-patched": "true" })),
        ("silent", "/metadata/annotations", json!({})),
        ("null", "/metadata/annotations", Value::Null),
        ("declining", "/metadata/annotations", json!({ "dapr.io/enabled": "false" })),
        // The watchdog takes no action on these pods, because the injector would not inject their replacements either,
        // or because they have ended.
        ("truthy", "/metadata/annotations", json!({ "dapr.io/enabled": "yes" })),
        ("heavy", "/metadata/annotations", json!({ "dapr.io/enabled": "true".repeat(9999) })),
        ("over", "/status/phase", json!("Succeeded")),
        ("going", "/metadata/deletionTimestamp", json!("2026-01-01T00:00:09Z")),
    ] {
        api.put(with(pod_without_sidecar(name, 1), pointer, value));
    }
    let _controller = Controller::of_dapr_watchdog(&api, true, 20);
    api.put(with(pod_without_sidecar("last", 2), "/metadata/annotations", json!({ "dapr.io/enabled": "TRUE" })));
    until_reported(&api, "last").await;
    assert_eq!(deletions(&api), ["/api/v1/namespaces/shop/pods/last"]);
    assert_eq!(recorded_events(&api).len(), 1);
}

#[tokio::test]
async fn pods_without_a_controller_are_reported_and_not_deleted() {
    let api = Api::start().await;
    api.put(with(pod_without_sidecar("alone", 1), "/metadata/ownerReferences", json!([])));
    let node = json!([{ "apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "n", "controller": true }]);
    api.put(with(pod_without_sidecar("static", 1), "/metadata/ownerReferences", node));
    let _controller = Controller::of_dapr_watchdog(&api, true, 20);
    assert!(until_reported(&api, "alone").await.1.ends_with("no controller would replace it"));
    assert!(until_reported(&api, "static").await.1.ends_with("a static pod is not restarted by a deletion in the API"));
    assert_eq!(deletions(&api), Vec::<String>::new());
}

#[tokio::test]
async fn a_broken_replacement_is_reported_and_not_deleted() {
    let api = Api::start().await;
    api.put(pod_without_sidecar("first", 1));
    api.put(pod_without_sidecar("sibling", 5));
    let _controller = Controller::of_dapr_watchdog(&api, true, 20);
    until_reported(&api, "first").await;
    until_reported(&api, "sibling").await;
    assert_eq!(deletions(&api).len(), 2, "both were there from the start");
    api.put(pod_without_sidecar("replacement", 9));
    let (reason, message) = until_reported(&api, "replacement").await;
    assert_eq!(reason, "PodWithoutSidecar");
    assert!(message.contains("it replaces a pod that was deleted for the same reason"), "{message}");
    let other = json!([{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "x", "controller": true }]);
    api.put(with(pod_without_sidecar("other", 9), "/metadata/ownerReferences", other));
    until_reported(&api, "other").await;
    assert_eq!(deletions(&api).len(), 3);
}

#[tokio::test]
async fn actions_on_many_pods_are_limited_by_the_budget() {
    let api = Api::start().await;
    for n in 0..40 {
        let owner =
            json!([{ "apiVersion": "v1", "kind": "X", "name": "x", "uid": format!("x{n}"), "controller": true }]);
        api.put(with(pod_without_sidecar(&format!("bare-{n}"), 1), "/metadata/ownerReferences", owner));
    }
    let controller = Controller::of_dapr_watchdog(&api, true, 5);
    api.until("the budget's deletions", |api| (deletions(api).len() >= 5).then_some(())).await;
    api.put(pod_without_sidecar("last", 1));
    let all = "dapr_watchdog_pods_without_sidecar 36";
    api.until(all, |_| controller.counts(all)).await;
    assert_eq!((deletions(&api).len(), recorded_events(&api).len()), (5, 5));
    assert!(api.requests_to("GET", "/api/v1/pods")[0].query.contains("limit="), "all nodes' pods come in pages");
}

#[tokio::test]
async fn failing_servers_are_retried() {
    for fault in [
        Fault::on("DELETE", "/pods/bare").too_many(1).times(1),
        Fault::on("DELETE", "/pods/bare").status(500).times(1),
        Fault::on("DELETE", "/pods/bare").cut().times(1),
        Fault::on("GET", "/api/v1/pods?").status(403).times(1),
        Fault::on("GET", "watch=").status(410).times(1),
    ] {
        let api = Api::start().await;
        api.fault(fault);
        api.put(pod_without_sidecar("bare", 1));
        let controller = Controller::of_dapr_watchdog(&api, true, 20);
        let line = r#"dapr_watchdog_actions_total{type="delete",result="success"} 1"#;
        api.until(line, |_| controller.counts(line)).await;
        assert!(api.get("pods", "shop", "bare").is_none());
    }
}

#[tokio::test]
async fn a_missing_permission_is_logged_with_its_name() {
    let api = Api::start().await;
    api.put(pod_without_sidecar("bare", 1));
    api.fault(Fault::on("DELETE", "/pods/bare").status(403));
    let controller = Controller::of_dapr_watchdog(&api, true, 20);
    let (_, message) = until_reported(&api, "bare").await;
    assert!(message.contains("its role must allow `delete pods`"), "{message}");
    let line = r#"dapr_watchdog_actions_total{type="delete",result="fail"} 1"#;
    api.until(line, |_| controller.counts(line)).await;
}

#[tokio::test]
async fn another_pod_with_the_same_name_is_not_deleted() {
    let api = Api::start().await;
    api.put(pod_without_sidecar("bare", 1));
    api.fault(Fault::on("DELETE", "/pods/bare").held().times(1));
    let controller = Controller::of_dapr_watchdog(&api, true, 20);
    api.until("a deletion", |api| (deletions(api).len() == 1).then_some(())).await;
    api.remove("pods", "shop", "bare");
    let namesake = with(pod_without_sidecar("bare", 2), "/metadata/uid", json!("another"));
    api.put(with(namesake, "/spec/containers", json!([{ "name": "app" }, { "name": "daprd" }])));
    api.release();
    let line = r#"dapr_watchdog_actions_total{type="delete",result="skip"} 1"#;
    api.until(line, |_| controller.counts(line)).await;
    assert!(api.get("pods", "shop", "bare").is_some());
}
