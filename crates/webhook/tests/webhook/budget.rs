//! Tests of reviews whose patch exceeds its length limit.

use serde_json::json;
use webhook::{ClusterState, Native, Route, Texts, istio};

use crate::stage::{Plan, Simple, review};
use test_support::api::Api;

#[tokio::test]
async fn a_patch_that_is_too_long_is_refused_like_what_exceeds_the_budget() {
    let api = Api::start().await;
    let template = "spec:\n  containers:\n  - name: istio-proxy\n    image: proxy:1\n    args: ['{{ index (index .Spec.Containers 0).Args 0 }}']\n";
    let config = json!({ "policy": "enabled", "templates": { "sidecar": template } }).to_string();
    let texts = Texts { config: Some(config), ..Texts::default() };
    let profile = istio::build(istio::Options::default(), ClusterState::new(Native::Off))(&texts).unwrap();
    let route = Route { path: "/escaped", below: false, profile: profile.into() };
    let stage = Simple::planned(|plan| Plan { routes: vec![route], events: Some(api.client()), ..plan }).await;
    let mut connection = stage.connect().await;
    // Each character is an escape of two bytes in the patch.
    for (length, inside) in [(100_000, true), (1_600_000, false)] {
        let mut pod = review("v1", "escaped", "");
        pod["request"]["namespace"] = "shop".into();
        pod["request"]["object"]["metadata"]["ownerReferences"] = json!([
            { "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web-uid", "controller": true },
        ]);
        pod["request"]["object"]["spec"] =
            json!({ "containers": [{ "name": "a", "image": "a", "args": ["\"".repeat(length)] }] });
        let response = connection.review("/escaped", &pod).await.unwrap();
        let response = &response["response"];
        assert_eq!(response["allowed"], inside, "{:.300}", response.to_string());
        if inside {
            assert!(response["patch"].as_str().unwrap().len() > length * 2 * 4 / 3);
            continue;
        }
        let reason = response["status"]["message"].as_str().unwrap();
        assert!(reason.contains("its patch takes more than 4194304 bytes"), "{reason}");
        assert_eq!(response["auditAnnotations"], json!({ "decision": "refuse", "reason": reason }));
    }
    stage.server.until("/metrics", r#"decisions_total{decision="refuse",reason="budget"} 1"#).await;
    let event = api.until("an Event", |api| api.list("events").into_iter().next()).await;
    assert_eq!(
        (&event["reason"], &event["involvedObject"]["name"]),
        (&"SidecarInjectionRefused".into(), &"web".into())
    );
    assert!(event["message"].as_str().unwrap().contains("its patch takes more than"), "{event}");
}
