//! Tests of each mode's requests, preconditions and events.

use serde_json::{Value, json};

use test_node::repair::{Controller, broken, failing, flush, pod, recovered};
use test_support::api::{Api, Fault, Seen};

const EVICTION: &str = "/pods/web-0/eviction";
const POD: &str = "/api/v1/namespaces/shop/pods/web-0";

/// Waits for the first request with this method and path suffix.
async fn first(api: &Api, method: &str, end: &str) -> Seen {
    api.until(&format!("{method} {end}"), |api| api.requests_to(method, end).into_iter().next()).await
}

async fn event(api: &Api) -> Value {
    api.until("event", |api| api.list("events").into_iter().next()).await
}

/// Returns the requests that write objects other than events.
fn changes(api: &Api) -> Vec<String> {
    api.requests()
        .iter()
        .filter(|seen| seen.method != "GET" && !seen.path.ends_with("/events"))
        .map(Seen::line)
        .collect()
}

#[tokio::test]
async fn eviction_has_preconditions_and_is_reported_and_counted() {
    let api = Api::start().await;
    let stored = api.put(broken("web-0", 2));
    let controller = Controller::start(&api, "");
    let eviction = first(&api, "POST", EVICTION).await;
    assert_eq!(
        eviction.body,
        json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": { "namespace": "shop", "name": "web-0", "labels": { "istio-cni.io/agent": "true" } },
            "deleteOptions": { "preconditions": {
                "uid": "uid-of-web-0", "resourceVersion": stored["metadata"]["resourceVersion"],
            }},
        })
    );
    let event = event(&api).await;
    assert_eq!(event["reason"], "EvictBrokenPod");
    assert_eq!(event["message"], "pod detected as broken, evicted");
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["source"], json!({ "component": "cni-repair", "host": "n1" }));
    assert_eq!(event["involvedObject"]["uid"], "uid-of-web-0");
    let counted = r#"istio_cni_repair_pods_repaired_total{type="evict",result="success"} 1"#;
    api.until(counted, |_| controller.counts(counted)).await;
    api.until("no broken pod", |_| controller.counts("istio_cni_repair_broken_pods 0")).await;
    assert!(api.get("pods", "shop", "web-0").is_none());
    controller.end().await;
}

#[tokio::test]
async fn deletion_has_preconditions_and_the_pods_grace_period() {
    let api = Api::start().await;
    let stored = api.put(broken("web-0", 2));
    let controller = Controller::start(&api, "--repair-delete-pods");
    let deletion = first(&api, "DELETE", POD).await;
    assert_eq!(
        deletion.body,
        json!({ "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {
            "uid": "uid-of-web-0", "resourceVersion": stored["metadata"]["resourceVersion"],
        }})
    );
    let event = event(&api).await;
    assert_eq!(
        (&event["reason"], &event["message"]),
        (&json!("DeleteBrokenPod"), &json!("pod detected as broken, deleted"))
    );
    let counted = r#"istio_cni_repair_pods_repaired_total{type="delete",result="success"} 1"#;
    api.until(counted, |_| controller.counts(counted)).await;
}

#[tokio::test]
async fn a_label_is_added_once_through_the_status() {
    let api = Api::start().await;
    api.put(broken("web-0", 2));
    let controller = Controller::start(&api, "--repair-label-pods --repair-broken-pod-label-value yes");
    let patch = first(&api, "PATCH", "/pods/web-0/status").await;
    assert_eq!(patch.content_type, "application/merge-patch+json");
    assert_eq!(patch.body["metadata"]["labels"], json!({ "cni.istio.io/uninitialized": "yes" }));
    assert_eq!(patch.body["metadata"]["uid"], "uid-of-web-0");
    assert!(patch.body["metadata"]["resourceVersion"].is_string(), "{}", patch.body);
    assert_eq!(event(&api).await["reason"], "LabelBrokenPod");
    flush(&api, ("PATCH", "/last/status")).await;
    assert_eq!(api.requests_to("PATCH", "/pods/web-0/status").len(), 1);
    assert_eq!(api.get("pods", "shop", "web-0").unwrap()["metadata"]["labels"]["cni.istio.io/uninitialized"], "yes");
    // A new controller finds that the pod already has the label.
    let again = Controller::start(&api, "--repair-label-pods");
    let counted = r#"istio_cni_repair_pods_repaired_total{type="label",result="skip"} 2"#;
    api.until(counted, |_| again.counts(counted)).await;
    assert_eq!(api.requests_to("PATCH", "/pods/web-0/status").len(), 1);
    drop(controller);
}

#[tokio::test]
async fn working_deleted_standalone_and_foreign_pods_are_not_changed() {
    let api = Api::start().await;
    let mut deleting = broken("deleting", 1);
    deleting["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    let mut standalone = broken("standalone", 1);
    standalone["metadata"]["ownerReferences"] = json!([]);
    let mut elsewhere = broken("elsewhere", 1);
    elsewhere["spec"]["nodeName"] = json!("n2");
    for pod in [pod("waiting"), recovered(pod("recovered")), deleting, standalone, elsewhere] {
        api.put(pod);
    }
    let _controller = Controller::start(&api, "");
    flush(&api, ("POST", "/last/eviction")).await;
    assert_eq!(changes(&api), ["POST /api/v1/namespaces/shop/pods/last/eviction"]);
    let list = api.requests().into_iter().find(|seen| seen.path == "/api/v1/pods").unwrap();
    assert!(list.query.contains("fieldSelector=spec.nodeName%3Dn1"), "{}", list.query);
}

#[tokio::test]
async fn jobs_without_restarts_are_detected() {
    let api = Api::start().await;
    let mut job = pod("web-0");
    job["spec"]["restartPolicy"] = json!("Never");
    job["status"]["phase"] = json!("Failed");
    job["status"]["initContainerStatuses"] = json!([{
        "name": "istio-validation", "restartCount": 0, "lastState": {},
        "state": { "terminated": { "exitCode": 126, "reason": "Error" } },
    }]);
    api.put(job);
    let _controller = Controller::start(&api, "");
    first(&api, "POST", EVICTION).await;
}

#[tokio::test]
async fn a_dry_run_sends_no_changes_and_events() {
    let api = Api::start().await;
    api.put(broken("web-0", 1));
    let controller = Controller::start(&api, "--repair-dry-run");
    api.until("a broken pod", |_| controller.counts("istio_cni_repair_broken_pods 1")).await;
    api.put(broken("web-0", 2));
    api.put(broken("web-1", 0));
    api.until("two broken pods", |_| controller.counts("istio_cni_repair_broken_pods 2")).await;
    controller.end().await;
    assert!(api.requests().iter().all(|seen| seen.method == "GET"), "{:?}", api.requests());
}

#[tokio::test]
async fn a_slowly_terminating_pod_is_evicted_once() {
    let api = Api::start().await;
    let mut slow = broken("web-0", 1);
    slow["spec"]["terminationGracePeriodSeconds"] = json!(30);
    api.put(slow.clone());
    let _controller = Controller::start(&api, "");
    first(&api, "POST", EVICTION).await;
    let marked = api.get("pods", "shop", "web-0").unwrap();
    assert!(!marked["metadata"]["deletionTimestamp"].is_null());
    api.put(failing(marked, 2));
    api.break_watches();
    flush(&api, ("POST", "/last/eviction")).await;
    assert_eq!(api.requests_to("POST", EVICTION).len(), 1);
    // A pod with the same name and another UID is another pod.
    api.remove("pods", "shop", "web-0");
    let mut namesake = broken("web-0", 0);
    namesake["metadata"]["uid"] = json!("another");
    api.put(namesake);
    let second = api.until("second eviction", |api| api.requests_to("POST", EVICTION).into_iter().nth(1)).await;
    assert_eq!(second.body["deleteOptions"]["preconditions"]["uid"], "another");
}

#[tokio::test]
async fn disabled_repair_sends_no_requests() {
    let api = Api::start().await;
    api.put(broken("web-0", 1));
    api.fault(Fault::on("GET", "").silence());
    Controller::start(&api, "--repair-enabled=false").end().await;
    assert_eq!(api.requests().len(), 0);
}

#[tokio::test]
async fn linkerds_pods_are_selected_and_detected_by_name_and_code() {
    let api = Api::start().await;
    let mut linkerd = broken("web-0", 1);
    linkerd["metadata"]["annotations"] = json!({ "linkerd.io/proxy-version": "edge" });
    linkerd["metadata"]["labels"] = json!({ "linkerd.io/control-plane-ns": "linkerd" });
    let container = &mut linkerd["status"]["initContainerStatuses"][0];
    container["name"] = json!("linkerd-network-validator");
    container["lastState"]["terminated"]["exitCode"] = json!(95);
    let mut unlabelled = linkerd.clone();
    unlabelled["metadata"]["name"] = json!("web-1");
    unlabelled["metadata"]["uid"] = json!("uid-of-web-1");
    unlabelled["metadata"]["labels"] = json!({});
    api.put(unlabelled);
    api.put(broken("istios", 1));
    api.put(linkerd);
    let _controller = Controller::start(
        &api,
        "--repair-init-container-name linkerd-network-validator --repair-init-container-exit-code 95 \
         --repair-sidecar-annotation linkerd.io/proxy-version --repair-label-selectors linkerd.io/control-plane-ns \
         --repair-field-selectors status.phase!=Succeeded",
    );
    first(&api, "POST", EVICTION).await;
    let queries: Vec<String> =
        api.requests().into_iter().filter(|s| s.path == "/api/v1/pods").map(|s| s.query).collect();
    for query in &queries {
        assert!(query.contains("labelSelector=linkerd.io%2Fcontrol-plane-ns"), "{query}");
        assert!(query.contains("fieldSelector=status.phase%21%3DSucceeded%2Cspec.nodeName%3Dn1"), "{query}");
    }
    assert_eq!(changes(&api), ["POST /api/v1/namespaces/shop/pods/web-0/eviction"]);
}

#[tokio::test]
async fn a_running_validation_delays_an_action() {
    let api = Api::start().await;
    let mut running = broken("web-0", 1);
    running["status"]["initContainerStatuses"][0]["state"] = json!({ "running": {} });
    api.put(running.clone());
    let _controller = Controller::start(&api, "");
    flush(&api, ("POST", "/last/eviction")).await;
    assert_eq!(api.requests_to("POST", EVICTION).len(), 0);
    api.put(failing(running, 1));
    first(&api, "POST", EVICTION).await;
}
