//! What of the cluster must be known before reviews are taken, and what of reviews the cluster is told.

use serde_json::{Value, json};

use crate::api::{Api, Fault};
use crate::client::{Connection, trusting};
use crate::program::Program;
use crate::stage::{bundles, webhook_configuration};

fn stall(api: &Api, resource: &str) {
    api.fault(Fault::on("GET", resource).status(503));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_not_ready_before_nodes_namespaces_and_proxy_configs_are_listed() {
    for resource in ["nodes", "namespaces", "proxyconfigs"] {
        let api = Api::start().await;
        api.put(webhook_configuration(""));
        stall(&api, &format!("/{resource}?"));
        let mut program = Program::start(&api, &["--platform=openshift"]);
        // Its certificate and its configuration are there, and are named no more.
        program.until_said(&format!("\r\n\r\n{resource}: they cannot be listed")).await;
        api.heal();
        program.until_ready().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_resource_that_the_cluster_does_not_have_is_an_empty_list() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    api.fault(Fault::on("GET", "/proxyconfigs").status(404));
    Program::start(&api, &[]).until_ready().await;
}

/// A pod of a ReplicaSet, whose annotation cannot be read.
fn review(owner: &str, dry_run: bool) -> Value {
    json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u-1", "namespace": "shop", "operation": "CREATE", "dryRun": dry_run,
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "object": { "apiVersion": "v1", "kind": "Pod",
                "metadata": { "generateName": format!("{owner}-"),
                    "annotations": { "sidecar.istio.io/proxyCPU": "1 core" },
                    "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner,
                        "uid": format!("{owner}-uid"), "controller": true }] },
                "spec": { "containers": [{ "name": "app", "image": "app:1" }] } },
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owners_of_refused_pods_are_told_once() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let mut program = Program::start(&api, &[]);
    program.until_ready().await;
    let mut connection = Connection::open(program.webhook, &trusting(&bundles(&api)[0])).await.unwrap();
    connection.review("/inject", &review("dry", true)).await.unwrap();
    for _ in 0..20 {
        connection.review("/inject", &review("web", false)).await.unwrap();
    }
    // Events are written in the order of the reviews.
    connection.review("/inject", &review("last", false)).await.unwrap();
    let owner = |event: &Value| event["involvedObject"]["name"].as_str().unwrap_or_default().to_owned();
    let events = api
        .until("an Event on the last owner", |api| {
            Some(api.list("events")).filter(|events| events.iter().any(|event| owner(event) == "last"))
        })
        .await;
    let mut owners: Vec<String> = events.iter().map(owner).collect();
    owners.sort();
    assert_eq!(owners, ["last", "web"]);
    let event = events.iter().find(|event| owner(event) == "web").unwrap();
    assert_eq!(event["involvedObject"]["uid"], "web-uid");
    assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("SidecarInjectionRefused")));
    let message = event["message"].as_str().unwrap();
    assert!(message.starts_with("pod shop/web-") && message.contains("sidecar.istio.io/proxyCPU"), "{message}");
}
