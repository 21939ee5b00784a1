//! Tests of pods that Istio's and Dapr's injection both review, called as by an API server: in either order, and the
//! first one again after the second has changed the pod.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use dapr::{Era, Settings};
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use podfacts::PodFacts;
use podfacts::{Verdict, of_pod};
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use serve::http::Handler as _;
use webhook::dapr::{Mesh, route};
use webhook::{ClusterState, Endpoint, Metrics, Native, Route, Texts, istio};

const ISTIO: &str = "/inject";
const DAPR: &str = "/mutate";

fn endpoint(native: &str) -> Endpoint {
    let sidecars = if native == "true" { Native::On } else { Native::Off };
    let profile = istio::build(istio::Options::default(), ClusterState::new(sidecars))(&Texts::default()).unwrap();
    let env = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd:1"), ("NATIVE_SIDECAR_ENABLED", native)];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let settings = Arc::new(Settings::from_env(&env, "", Era::Current).unwrap());
    let istio = Route { path: ISTIO, below: true, profile: Arc::from(profile) };
    let routes = vec![istio, route(settings, Mesh::trusting("PEM".to_owned()))];
    Endpoint::new(routes, Metrics::new(&mut Registry::default()), Duration::from_secs(5)).unwrap()
}

fn pod(annotations: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "web", "namespace": "shop", "annotations": { "dapr.io/enabled": "true", "dapr.io/app-id": "web" } },
        "spec": { "containers": [{ "name": "app", "image": "app:1",
            "readinessProbe": { "httpGet": { "path": "/ready", "port": 8080 } } }] },
    });
    for (key, value) in annotations.as_object().unwrap() {
        pod["metadata"]["annotations"][key] = value.clone();
    }
    pod
}

/// Returns the pod after a review by one webhook.
async fn reviewed(endpoint: &Endpoint, path: &str, pod: &Value) -> Value {
    let review = json!({
        "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "u", "namespace": "shop", "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "userInfo": { "username": "admin", "groups": ["system:masters"] }, "object": pod,
        },
    });
    let request = hyper::Request::post(path).header("content-type", "application/json");
    let response = endpoint.handle(request.body(Bytes::from(review.to_string())).unwrap()).await;
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let response: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(response["response"]["allowed"], true, "{response}");
    let mut pod = pod.clone();
    if let Some(patch) = response["response"]["patch"].as_str() {
        let patch = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, patch).unwrap();
        json_patch::patch(&mut pod, &serde_json::from_slice::<json_patch::Patch>(&patch).unwrap()).unwrap();
    }
    pod
}

fn names(pod: &Value) -> BTreeSet<String> {
    let lists = ["containers", "initContainers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
    let names: Vec<String> = lists.flatten().map(|container| container["name"].as_str().unwrap().to_owned()).collect();
    let unique: BTreeSet<String> = names.iter().cloned().collect();
    assert_eq!(unique.len(), names.len(), "{names:?}");
    unique
}

/// Returns the pod after reviews by both webhooks, and another one by the first, because the second has changed the pod.
async fn injected(endpoint: &Endpoint, order: [&str; 2], pod: &Value) -> Value {
    let mut pod = pod.clone();
    for path in [order[0], order[1], order[0]] {
        pod = reviewed(endpoint, path, &pod).await;
    }
    pod
}

#[tokio::test]
async fn both_sidecars_are_injected_in_either_order_and_only_once() {
    for native in ["false", "true"] {
        let endpoint = endpoint(native);
        for order in [[ISTIO, DAPR], [DAPR, ISTIO]] {
            let both = injected(&endpoint, order, &pod(&json!({}))).await;
            let expected = ["app", "daprd", "istio-proxy", "istio-validation"].map(str::to_owned).into();
            assert_eq!(names(&both), expected, "{order:?}");
            assert_eq!(both["spec"]["containers"].as_array().unwrap().len(), if native == "true" { 1 } else { 3 });
            for again in order {
                let after = reviewed(&endpoint, again, &both).await;
                assert_eq!(after, both, "{again} after {order:?}");
            }
        }
    }
}

#[tokio::test]
async fn ports_of_dapr_are_redirected_unless_the_pod_says_otherwise() {
    let endpoint = endpoint("false");
    let ours = ["3500", "50001", "50002", "9090", "3501"];
    for (annotations, excluded) in [
        (json!({}), false),
        (json!({ "dapr.io/exclude-ports-from-redirection": "true" }), true),
        (
            json!({ "dapr.io/exclude-ports-from-redirection": "true",
                "traffic.sidecar.istio.io/excludeInboundPorts": "8080", "traffic.sidecar.istio.io/excludeOutboundPorts": "5432" }),
            true,
        ),
    ] {
        for order in [[ISTIO, DAPR], [DAPR, ISTIO]] {
            let both = injected(&endpoint, order, &pod(&annotations)).await;
            let facts = PodFacts::from_pod_json(both.to_string().as_bytes()).unwrap();
            let Ok(Verdict::Redirect { redirect, .. }) = of_pod(&facts) else { panic!("no redirection of {both}") };
            let inbound: Vec<String> = redirect.inbound_ports_exclude.iter().map(ToString::to_string).collect();
            let outbound: Vec<String> = redirect.outbound_ports_exclude.iter().map(ToString::to_string).collect();
            for port in ours {
                assert_eq!(inbound.iter().any(|one| one == port), excluded, "{port} in {inbound:?} after {order:?}");
            }
            assert_eq!(outbound.iter().any(|one| one == "50002"), excluded, "{outbound:?}");
            let own = annotations.get("traffic.sidecar.istio.io/excludeInboundPorts").is_some();
            assert_eq!(inbound.iter().any(|one| one == "8080"), own, "{inbound:?}");
            assert_eq!(outbound.iter().any(|one| one == "5432"), own, "{outbound:?}");
        }
    }
}
