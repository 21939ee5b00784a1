//! Tests of the status page and its JSON document: what they report about a server, their size and response time, and
//! that they are off by default.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use webhook::{AdmissionOutcome, ConfigFile, Issued, Review, Route, Source, StatusPage, Verdict};

use crate::stage::{Plan, Simple, get, mount, review, webhook_configuration};
use test_support::DEADLINE;
use test_support::api::Api;

/// The number of refusals that the server keeps.
const REFUSALS: usize = 200;
/// The number of slow reviews that the server keeps.
const SLOWEST: usize = 50;
/// The size limit of a page with that many entries, in bytes.
const PAGE: usize = 100_000;

fn paged(plan: Plan) -> Plan {
    Plan { status_page: Some(StatusPage { revision: "canary".to_owned() }), ..plan }
}

async fn report(simple: &Simple) -> Value {
    let response = simple.server.get("/status.json").await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200"), "{response}");
    serde_json::from_str(body).unwrap()
}

/// Waits until a report fulfils a condition.
async fn reported(simple: &Simple, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let report = report(simple).await;
        if is(&report) {
            return report;
        }
        assert!(Instant::now() < deadline, "no {what} in {report:#}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn the_page_is_off_by_default() {
    let simple = Simple::start().await;
    for path in ["/status", "/status.json"] {
        let response = simple.server.get(path).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 404"), "{response}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_has_outcomes_refusals_configuration_and_certificates() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name);
    std::fs::write(file("config"), "v1").unwrap();
    let other = |name: &str| ConfigFile { path: file(name), is_optional: true };
    let source = Source::Files { config: file("config"), values: other("values"), mesh: other("mesh") };
    let simple = Simple::planned(|plan| paged(Plan { source, ..plan })).await;
    let mut connection = simple.connect().await;
    let mut hostile = review("v1", "u3", "broken");
    hostile["request"]["object"]["metadata"]["generateName"] = "<script>alert(1)</script>".into();
    for wanted in [review("v1", "u1", "true"), review("v1", "u2", "false"), hostile] {
        connection.review("/inject", &wanted).await.unwrap();
    }
    let all =
        reported(&simple, "all reviews", |report| report["reviews"]["slowest"].as_array().unwrap().len() == 3).await;
    let counts = json!([
        { "decision": "inject", "rule": "policy", "number": 1 },
        { "decision": "refuse", "rule": "error", "number": 1 },
        { "decision": "skip", "rule": "annotated", "number": 1 },
    ]);
    assert_eq!((&all["reviews"]["counts"], &all["reviews"]["refused"]), (&counts, &json!(1)));
    let refusal = &all["reviews"]["refusals"][0];
    assert_eq!(refusal["pod"], "shop/<script>alert(1)</script>", "{all:#}");
    assert_eq!((&refusal["rule"], &refusal["reason"]), (&json!("error"), &json!("by error")));
    assert_eq!(
        (&all["revision"], &all["paths"], &all["notReady"]),
        (&json!("canary"), &json!(["/inject"]), &json!([]))
    );
    assert_eq!(all["configuration"]["sources"][0], format!("file {}", file("config").display()));
    assert!(all["configuration"]["loaded"].is_string() && all["configuration"]["fault"].is_null(), "{all:#}");
    let certificates = &all["certificates"];
    assert!(certificates["presented"]["ends"].is_string() && certificates["next"].is_null(), "{all:#}");
    assert_eq!(certificates["presented"]["authorities"].as_array().unwrap().len(), 1, "{all:#}");
    assert!(certificates["bundles"].is_null() && certificates["callers"].is_null(), "{all:#}");

    std::fs::write(file("config"), "bad <text>").unwrap();
    mount(simple.dir.path(), &Issued { key: "no key".to_owned(), ..simple.issued.clone() });
    let faulty = reported(&simple, "faults", |report| {
        report["configuration"]["fault"].is_object() && report["certificates"]["fault"].is_object()
    })
    .await;
    assert_eq!(faulty["configuration"]["fault"]["text"], "bad <text> is not a configuration");
    let page = simple.server.get("/status").await.unwrap();
    assert!(page.to_ascii_lowercase().contains("content-security-policy: default-src 'none'"), "{page}");
    for part in ["✗ Not all is well.", "shop/&lt;script&gt;alert(1)", "bad &lt;text&gt; is not a configuration"] {
        assert!(page.contains(part), "{part:?} in\n{page}");
    }
    assert!(!page.contains("<script>alert"), "{page}");
    for text in [page, faulty.to_string()] {
        assert!(!text.contains("BEGIN") && !text.contains(simple.issued.key.lines().nth(1).unwrap()), "{text}");
    }
    // The former files are valid again.
    std::fs::write(file("config"), "v1").unwrap();
    mount(simple.dir.path(), &simple.issued);
    reported(&simple, "no fault", |report| {
        report["configuration"]["fault"].is_null() && report["certificates"]["fault"].is_null()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_report_says_whether_the_ca_bundles_trust_the_certificate() {
    let api = Api::start().await;
    api.put(webhook_configuration(""));
    let simple = Simple::planned(|plan| paged(plan.with(&api))).await;
    let trusted = json!([{ "selection": "named istio-sidecar-injector", "fault": null }]);
    let found = reported(&simple, "a caBundle", |report| report["certificates"]["bundles"] == trusted).await;
    assert!(found["certificates"]["presented"].is_object(), "{found:#}");
    api.remove("mutatingwebhookconfigurations", "", "istio-sidecar-injector");
    let gone = reported(&simple, "a fault", |report| report["certificates"]["bundles"] != trusted).await;
    let fault = gone["certificates"]["bundles"][0]["fault"].as_str().unwrap();
    assert!(fault.contains("there is no MutatingWebhookConfiguration named istio-sidecar-injector"), "{fault}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_of_250_entries_is_small_and_fast() {
    let refuse = |review: &Review| {
        let reason = format!("{}: {}", review.uid, "the value of the annotation is invalid ".repeat(20));
        AdmissionOutcome { verdict: Verdict::Refuse, rule: "error", reason, warnings: Vec::new() }
    };
    let route = Route { path: "/refuse", below: false, profile: Arc::new(refuse) };
    let simple = Simple::planned(|plan| paged(Plan { routes: vec![route], ..plan })).await;
    let mut connection = simple.connect().await;
    for number in 0..REFUSALS + 10 {
        let mut wanted = review("v1", &format!("u{number}"), "");
        let name = format!("recommendations-{:08x}-{number:05}", 0x5bd1_e995_u32);
        wanted["request"]["object"]["metadata"]["name"] = name.into();
        connection.review("/refuse", &wanted).await.unwrap();
    }
    let report = reported(&simple, "all refusals", |report| report["reviews"]["refused"] == REFUSALS + 10).await;
    let kept = ["refusals", "slowest"].map(|list| report["reviews"][list].as_array().unwrap().len());
    assert_eq!(kept, [REFUSALS, SLOWEST]);
    let (mut fastest, mut size) = (Duration::MAX, 0);
    for _ in 0..20 {
        let begin = Instant::now();
        let page = get(simple.server.monitoring, "/status").await.unwrap();
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        (fastest, size) = (fastest.min(begin.elapsed()), page.len());
    }
    println!("a page of 250 entries: {size} bytes, {fastest:?} in this build");
    assert!(size < PAGE, "{size} bytes");
}
