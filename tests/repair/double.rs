//! Tests of the API server double: its responses must equal those of the real API server.

use std::time::Duration;

use futures::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api as KubeApi;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::runtime::watcher::{self, Event, watcher};
use serde_json::{Value, json};

use test_support::DEADLINE;
use test_support::api::{Api, Fault};

fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "namespace": "shop", "name": name, "labels": { "app": name } },
        "spec": { "nodeName": node, "containers": [] },
    })
}

fn pods(api: &Api) -> KubeApi<Pod> {
    KubeApi::namespaced(api.client(), "shop")
}

#[track_caller]
fn code<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> u16 {
    match result {
        Err(kube::Error::Api(status)) => status.code,
        other => panic!("no refusal but {other:?}"),
    }
}

#[tokio::test]
async fn lists_by_selectors_and_in_pages() {
    let api = Api::start().await;
    for (name, node) in [("a", "n1"), ("b", "n2"), ("c", "n1"), ("d", "n1")] {
        api.put(pod(name, node));
    }
    let names = |list: kube::core::ObjectList<Pod>| {
        list.items.into_iter().filter_map(|pod| pod.metadata.name).collect::<Vec<_>>()
    };
    let all = ListParams::default();
    let of_node = pods(&api).list(&all.clone().fields("spec.nodeName=n1")).await.unwrap();
    assert_eq!(names(of_node), ["a", "c", "d"]);
    let labelled = pods(&api).list(&all.clone().fields("spec.nodeName=n1").labels("app!=c")).await.unwrap();
    assert_eq!(names(labelled), ["a", "d"]);
    let first = pods(&api).list(&all.clone().limit(3)).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    assert_eq!(names(first), ["a", "b", "c"]);
    assert_eq!(names(pods(&api).list(&all.limit(3).continue_token(&token)).await.unwrap()), ["d"]);
    let elsewhere: KubeApi<Pod> = KubeApi::namespaced(api.client(), "other");
    assert_eq!(names(elsewhere.list(&ListParams::default()).await.unwrap()), Vec::<String>::new());
}

#[tokio::test]
async fn checks_preconditions_of_requests() {
    let api = Api::start().await;
    let stored = api.put(pod("a", "n1"));
    let with = |uid: &str, version: &str| DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: Some(version.to_owned()) }),
        ..DeleteParams::default()
    };
    let uid = stored["metadata"]["uid"].as_str().unwrap();
    assert_eq!(code(pods(&api).delete("a", &with("another", "1")).await), 409);
    assert_eq!(code(pods(&api).delete("a", &with(uid, "77")).await), 409);
    assert_eq!(code(pods(&api).delete("b", &with(uid, "1")).await), 404);
    let patch = Patch::Merge(json!({ "metadata": { "resourceVersion": "77", "labels": { "x": "y" } } }));
    assert_eq!(code(pods(&api).patch_status("a", &PatchParams::default(), &patch).await), 409);
    pods(&api).delete("a", &with(uid, "1")).await.unwrap();
    assert!(api.get("pods", "shop", "a").is_none());
}

#[tokio::test]
async fn patches_nodes_and_marks_pods_with_a_grace_period() {
    let api = Api::start().await;
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1" }, "spec": { "taints": [{ "key": "k" }] } }));
    let nodes: KubeApi<Node> = KubeApi::all(api.client());
    let patch: json_patch::Patch = serde_json::from_value(json!([
        { "op": "test", "path": "/spec/taints", "value": [{ "key": "k" }] },
        { "op": "replace", "path": "/spec/taints", "value": [] },
    ]))
    .unwrap();
    nodes.patch("n1", &PatchParams::default(), &Patch::<Node>::Json(patch.clone())).await.unwrap();
    assert_eq!(api.get("nodes", "", "n1").unwrap()["spec"]["taints"], json!([]));
    assert_eq!(code(nodes.patch("n1", &PatchParams::default(), &Patch::<Node>::Json(patch)).await), 422);

    let mut graceful = pod("a", "n1");
    graceful["spec"]["terminationGracePeriodSeconds"] = json!(30);
    api.put(graceful);
    pods(&api).delete("a", &DeleteParams::default()).await.unwrap();
    assert!(!api.get("pods", "shop", "a").unwrap()["metadata"]["deletionTimestamp"].is_null());
}

/// Reads events from a stream up to the one whose text starts with `last`, and returns their texts.
async fn events(stream: &mut (impl Stream<Item = watcher::Result<Event<Pod>>> + Unpin), last: &str) -> Vec<String> {
    let mut seen = Vec::new();
    loop {
        let next = tokio::time::timeout(DEADLINE, stream.next()).await;
        let text = match next.unwrap_or_else(|_| panic!("no {last} after {seen:?}")).unwrap() {
            Ok(event) => event.to_string(),
            Err(error) => format!("Error({error})"),
        };
        let done = text.starts_with(last);
        seen.push(text);
        if done {
            return seen;
        }
    }
}

#[tokio::test]
async fn watches_go_on_after_a_break_and_start_over_after_410() {
    for streaming in [false, true] {
        let api = Api::start().await;
        api.put(pod("a", "n1"));
        api.put(pod("b", "n2"));
        let config = watcher::Config::default().fields("spec.nodeName=n1");
        let config = if streaming { config.streaming_lists() } else { config };
        let mut stream = std::pin::pin!(watcher(KubeApi::<Pod>::all(api.client()), config));
        assert_eq!(events(&mut stream, "InitDone").await, ["Init", "InitApply(a)", "InitDone"], "{streaming}");
        api.put(pod("c", "n1"));
        assert_eq!(events(&mut stream, "Apply(c)").await, ["Apply(c)"]);
        api.break_watches();
        api.remove("pods", "shop", "a");
        assert_eq!(events(&mut stream, "Delete(a)").await, ["Delete(a)"]);
        // The selector no longer matches the pod, so the watch reports its deletion.
        api.put(pod("c", "n2"));
        assert_eq!(events(&mut stream, "Delete(c)").await, ["Delete(c)"]);
        api.bookmark();
        api.expire_watches();
        api.put(pod("d", "n1"));
        let seen = events(&mut stream, "InitDone").await;
        assert!(seen[0].starts_with("Error(") && seen[0].contains("too old"), "{seen:?}");
        assert_eq!(seen[1..], ["Init", "InitApply(d)", "InitDone"]);
    }
}

#[tokio::test]
async fn faults_have_a_count_and_requests_are_recorded() {
    let api = Api::start().await;
    api.put(pod("a", "n1"));
    api.fault(Fault::on("GET", "/pods/a").too_many(7).times(1));
    api.fault(Fault::on("GET", "/pods/a").cut().times(1));
    let refused = pods(&api).get("a").await;
    assert!(
        matches!(&refused, Err(kube::Error::Api(s)) if s.code == 429 && s.details.as_ref().unwrap().retry_after_seconds == 7),
        "{refused:?}"
    );
    let cut = pods(&api).get("a").await;
    assert!(matches!(cut, Err(kube::Error::HyperError(_) | kube::Error::Service(_))), "{cut:?}");
    api.fault(Fault::on("GET", "/pods/a").silence());
    assert!(tokio::time::timeout(Duration::from_millis(50), pods(&api).get("a")).await.is_err());
    api.heal();
    pods(&api).get("a").await.unwrap();
    let lines: Vec<String> = api.requests().iter().map(test_support::api::Seen::line).collect();
    assert_eq!(lines, vec!["GET /api/v1/namespaces/shop/pods/a"; 4]);
}
