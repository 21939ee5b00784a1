//! Tests of retries with API servers that refuse requests, lose history, hang or are unavailable.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::{Value, json};

use test_node::repair::{Controller, broken, failing, flush};
use test_servers::port;
use test_support::DEADLINE;
use test_support::api::{Api, Fault, Seen};

const EVICTION: &str = "/pods/web-0/eviction";

/// Waits for `count` requests to evict the pod, and returns all of them so far.
async fn evictions(api: &Api, count: usize) -> Vec<Seen> {
    let what = format!("{count} evictions");
    api.until(&what, |api| Some(api.requests_to("POST", EVICTION)).filter(|seen| seen.len() >= count)).await
}

fn counted(result: &str, count: usize) -> String {
    format!(r#"istio_cni_repair_pods_repaired_total{{type="evict",result="{result}"}} {count}"#)
}

async fn until_counted(api: &Api, controller: &Controller, result: &str, count: usize) {
    let line = counted(result, count);
    api.until(&line, |_| controller.counts(&line)).await;
}

async fn events(api: &Api, count: usize) -> Vec<(Value, String)> {
    let reported = |event: Value| (event["reason"].clone(), event["message"].as_str().unwrap_or_default().to_owned());
    let what = format!("{count} events");
    let events = api.until(&what, |api| Some(api.list("events")).filter(|events| events.len() >= count)).await;
    events.into_iter().map(reported).collect()
}

#[tokio::test]
async fn a_disruption_budgets_retry_delay_applies() {
    let api = Api::start().await;
    api.put(broken("web-0", 1));
    api.fault(Fault::on("POST", EVICTION).too_many(1).times(2));
    let controller = Controller::start(&api, "");
    let seen = evictions(&api, 3).await;
    for pair in seen.windows(2) {
        let waited = pair[1].at - pair[0].at;
        assert!(waited >= Duration::from_secs(1), "asked for a second, waited {waited:?}");
    }
    until_counted(&api, &controller, "success", 1).await;
    assert!(controller.counts(&counted("fail", 2)).is_some(), "{}", controller.metrics());
    let reported = events(&api, 2).await;
    assert_eq!(reported.len(), 2, "the same refusal is reported once: {reported:?}");
    assert!(reported[0].1.contains("429") && reported[0].1.contains("disruption budget"), "{reported:?}");
    assert_eq!(reported[1].1, "pod detected as broken, evicted");
}

#[tokio::test]
async fn failures_are_retried_with_back_off() {
    for fault in [Fault::on("POST", EVICTION).status(500), Fault::on("POST", EVICTION).cut()] {
        let api = Api::start().await;
        api.put(broken("web-0", 1));
        api.fault(fault.times(2));
        let controller = Controller::start(&api, "");
        let seen = evictions(&api, 3).await;
        let waits: Vec<Duration> = seen.windows(2).map(|pair| pair[1].at - pair[0].at).collect();
        assert!(waits[0] >= Duration::from_millis(500) && waits[1] >= Duration::from_secs(1), "{waits:?}");
        until_counted(&api, &controller, "success", 1).await;
    }
}

#[tokio::test]
async fn a_missing_permission_is_logged_with_its_name() {
    let api = Api::start().await;
    api.put(broken("web-0", 1));
    api.fault(Fault::on("POST", EVICTION).status(403));
    let _controller = Controller::start(&api, "");
    evictions(&api, 2).await;
    let reported = events(&api, 1).await;
    assert_eq!(reported[0].0, "EvictBrokenPod");
    assert!(reported[0].1.contains("its role must allow `create pods/eviction`"), "{reported:?}");
    assert_eq!(api.list("events").len(), 1);
}

#[tokio::test]
async fn a_deleted_pod_is_not_retried() {
    let api = Api::start().await;
    api.put(broken("web-0", 1));
    api.fault(Fault::on("POST", EVICTION).status(404));
    let controller = Controller::start(&api, "");
    until_counted(&api, &controller, "skip", 1).await;
    flush(&api, ("POST", "/last/eviction")).await;
    assert_eq!(api.requests_to("POST", EVICTION).len(), 1);
    assert_eq!(api.list("events").iter().filter(|e| e["involvedObject"]["name"] == "web-0").count(), 0);
}

#[tokio::test]
async fn a_changed_pod_is_checked_again_before_an_action() {
    let api = Api::start().await;
    let pod = api.put(broken("web-0", 1));
    // The kubelet updates the pod's status while the eviction is in progress.
    api.fault(Fault::on("POST", EVICTION).held().times(1));
    let controller = Controller::start(&api, "");
    evictions(&api, 1).await;
    let newer = api.put(failing(pod.clone(), 2));
    api.release();
    let seen = evictions(&api, 2).await;
    let version = |seen: &Seen| seen.body["deleteOptions"]["preconditions"]["resourceVersion"].clone();
    assert_eq!(version(&seen[0]), pod["metadata"]["resourceVersion"]);
    assert_eq!(version(&seen[1]), newer["metadata"]["resourceVersion"]);
    until_counted(&api, &controller, "skip", 1).await;
    until_counted(&api, &controller, "success", 1).await;
}

#[tokio::test]
async fn another_pod_with_the_same_name_is_not_evicted() {
    let api = Api::start().await;
    api.put(broken("web-0", 1));
    api.fault(Fault::on("POST", EVICTION).held().times(1));
    let controller = Controller::start(&api, "");
    evictions(&api, 1).await;
    api.remove("pods", "shop", "web-0");
    let mut namesake = test_node::repair::pod("web-0");
    namesake["metadata"]["uid"] = json!("another");
    api.put(namesake);
    api.release();
    until_counted(&api, &controller, "skip", 1).await;
    flush(&api, ("POST", "/last/eviction")).await;
    assert!(api.get("pods", "shop", "web-0").is_some());
    assert_eq!(api.requests_to("POST", EVICTION).len(), 1);
}

#[tokio::test]
async fn a_hanging_server_blocks_a_limited_number_of_actions() {
    const AT_ONCE: usize = 16;
    let api = Api::start().await;
    for n in 0..40 {
        api.put(broken(&format!("web-{n}"), 1));
    }
    api.fault(Fault::on("POST", "/eviction").silence().times(AT_ONCE));
    let controller = Controller::start(&api, "");
    api.until("a full house", |api| (api.requests_to("POST", "/eviction").len() >= AT_ONCE).then_some(())).await;
    // The controller still receives events about broken pods, and these pods wait.
    api.put(broken("last", 0));
    api.until("all pods", |_| controller.counts("istio_cni_repair_broken_pods 41")).await;
    assert_eq!(api.requests_to("POST", "/eviction").len(), AT_ONCE);
    // When the hanging requests time out, the controller handles the other pods and retries the failed requests.
    until_counted(&api, &controller, "fail", AT_ONCE).await;
    until_counted(&api, &controller, "success", 41).await;
}

#[tokio::test]
async fn a_failed_event_does_not_affect_the_action() {
    let api = Api::start().await;
    api.put(broken("web-0", 1));
    api.fault(Fault::on("POST", "/events").status(403));
    let controller = Controller::start(&api, "");
    until_counted(&api, &controller, "success", 1).await;
    flush(&api, ("POST", "/last/eviction")).await;
    assert_eq!(api.requests_to("POST", EVICTION).len(), 1);
}

#[tokio::test]
async fn failed_lists_and_watches_are_retried() {
    for fault in [
        Fault::on("GET", "/api/v1/pods?").status(403).times(1),
        Fault::on("GET", "/api/v1/pods?").status(503).times(1),
        Fault::on("GET", "/api/v1/pods?").cut().times(1),
        Fault::on("GET", "watch=").status(410).times(1),
        Fault::on("GET", "watch=").status(403).times(1),
        Fault::on("GET", "watch=").cut().times(1),
    ] {
        let api = Api::start().await;
        api.fault(fault);
        let controller = Controller::start(&api, "");
        api.until("an error", |_| controller.counts("istio_cni_repair_watch_errors_total 1")).await;
        api.until("a watch", |api| (api.watches("pods") == 1).then_some(())).await;
        api.put(broken("web-0", 1));
        evictions(&api, 1).await;
    }
}

#[tokio::test]
async fn no_pod_is_missed_if_a_watch_breaks_or_expires() {
    let api = Api::start().await;
    let _controller = Controller::start(&api, "");
    api.until("a watch", |api| (api.watches("pods") == 1).then_some(())).await;
    api.bookmark();
    api.break_watches();
    api.put(broken("web-0", 1));
    evictions(&api, 1).await;
    api.until("a watch again", |api| (api.watches("pods") == 1).then_some(())).await;
    api.put(broken("web-1", 1));
    api.expire_watches();
    api.until("eviction of web-1", |api| api.requests_to("POST", "/web-1/eviction").into_iter().next()).await;
}

#[tokio::test]
async fn broken_pods_are_found_after_an_outage() {
    let address = (Ipv4Addr::LOCALHOST, port::free()).into();
    let api = Api::listen(address).await;
    let client = api.client();
    let controller = Controller::with(client, test_node::repair::settings(""));
    api.until("a watch", |api| (api.watches("pods") == 1).then_some(())).await;
    drop(api);
    let line =
        |text: &str| text.lines().any(|l| l.starts_with("istio_cni_repair_watch_errors_total") && !l.ends_with(" 0"));
    let counted = async {
        while !line(&controller.metrics()) {
            tokio::task::yield_now().await;
        }
    };
    let is_counted = tokio::time::timeout(DEADLINE, counted).await.is_ok();
    assert!(is_counted, "no error was counted: {}", controller.metrics());
    let api = Api::listen(address).await;
    api.put(broken("web-0", 1));
    evictions(&api, 1).await;
    controller.end().await;
}

#[tokio::test]
async fn another_pod_with_the_same_name_is_not_reprogrammed() {
    let api = Api::start().await;
    api.put(broken("web-0", 1));
    api.fault(Fault::on("GET", "/pods/web-0").held().times(1));
    let controller =
        Controller::start(&api, "--repair-mode repair --repair-proc /nowhere --repair-netns-dirs /nowhere");
    let count = |result: &str| format!(r#"istio_cni_repair_pods_repaired_total{{type="repair",result="{result}"}} 1"#);
    api.until("a read of the pod", |api| api.requests_to("GET", "/pods/web-0").into_iter().next()).await;
    api.remove("pods", "shop", "web-0");
    let mut namesake = broken("web-0", 1);
    namesake["metadata"]["uid"] = json!("another");
    api.put(namesake);
    api.release();
    api.until("the first is gone", |_| controller.counts(&count("skip"))).await;
    // The other pod is also broken. It is handled separately: no netns is found for it.
    api.until("the second is looked for", |_| controller.counts(&count("fail"))).await;
    let reported = events(&api, 1).await;
    assert!(reported[0].1.contains("none of 0 network namespaces"), "{reported:?}");
    assert_eq!(api.list("events")[0]["involvedObject"]["uid"], "another");
}
