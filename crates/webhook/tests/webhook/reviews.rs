//! Tests of reviews as an API server sends them, and of invalid requests.

use serde_json::Value;

use crate::stage::{Simple, review, stamp_of};
use test_support::client::NAME;

#[tokio::test]
async fn both_versions_get_a_patch_a_skip_or_a_refusal() {
    let stage = Simple::start().await;
    let mut connection = stage.connect().await;
    for version in ["v1", "v1beta1"] {
        let response = connection.review("/inject", &review(version, "u-1", "true")).await.unwrap();
        assert_eq!(response["apiVersion"], format!("admission.k8s.io/{version}"));
        assert_eq!((&response["response"]["uid"], &response["response"]["allowed"]), (&"u-1".into(), &true.into()));
        assert_eq!(response["response"]["patchType"], "JSONPatch");
        assert_eq!(stamp_of(&response)["stamp"], "");
        let skipped = connection.review("/inject", &review(version, "u-2", "false")).await.unwrap();
        assert_eq!(skipped["response"]["allowed"], true);
        assert_eq!(skipped["response"].get("patch"), None);
        assert_eq!(skipped["response"]["auditAnnotations"]["reason"], "by annotated");
        let refused = connection.review("/inject", &review(version, "u-3", "broken")).await.unwrap();
        assert_eq!(refused["response"]["allowed"], false);
        assert_eq!(refused["response"]["status"]["message"], "by error");
    }
    let metrics = stage.server.get("/metrics").await.unwrap();
    for line in [
        "sidecar_injection_requests_total 6",
        "sidecar_injection_success_total 2",
        "sidecar_injection_skip_total 2",
        "sidecar_injection_failure_total 2",
        "sidecar_injection_time_seconds_count 6",
        r#"sidecar_injection_decisions_total{decision="skip",reason="annotated"} 2"#,
    ] {
        assert!(metrics.lines().any(|present| present == line), "no {line} in:\n{metrics}");
    }
}

#[tokio::test]
async fn the_path_sets_variables() {
    let stage = Simple::start().await;
    let mut connection = stage.connect().await;
    let response =
        connection.review("/inject/cluster/c1/net/n--slash--1?timeout=10s", &review("v1", "u", "")).await.unwrap();
    let variables = &stamp_of(&response)["variables"];
    assert_eq!((&variables["ISTIO_META_CLUSTER_ID"], &variables["ISTIO_META_NETWORK"]), (&"c1".into(), &"n/1".into()));
}

#[tokio::test]
async fn invalid_reviews_get_the_reason() {
    let stage = Simple::start().await;
    let request =
        |head: &str, body: &str| format!("{head}\r\nhost: {NAME}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    let json = "content-type: application/json";
    for (head, body, status, said) in [
        ("GET /inject HTTP/1.1".to_owned(), "", 405, "the method must be POST"),
        (format!("POST /inject HTTP/1.1\r\n{json}"), "", 400, "no body found"),
        ("POST /inject HTTP/1.1".to_owned(), "{}", 415, "want `application/json`"),
        (format!("POST /inject HTTP/1.1\r\n{json}; charset=utf-8"), "{}", 415, "want `application/json`"),
        (format!("POST /injection HTTP/1.1\r\n{json}"), "{}", 404, "no injection is served at this path"),
        ("GET /ready HTTP/1.1".to_owned(), "", 200, ""),
        (format!("POST /inject HTTP/1.1\r\n{json}"), "{", 200, "the body is not an AdmissionReview"),
        (format!("POST /inject HTTP/1.1\r\n{json}"), r#"{"kind":"Pod","apiVersion":"v1"}"#, 200, "no kind"),
    ] {
        let mut connection = stage.connect().await;
        connection.send(request(&head, body).as_bytes()).await.unwrap();
        let (found, text) = connection.read().await.unwrap();
        assert_eq!(found, status, "{head}: {text}");
        assert!(text.contains(said), "{head}: {text}");
        if said.starts_with("no kind") {
            let response: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(response["response"]["allowed"], false);
        }
    }
}
