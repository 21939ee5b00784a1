//! Tests of the requests and the memory for hundreds of broken pods.

use test_node::repair::{Controller, broken};
use test_support::api::Api;

const PODS: usize = 500;
const BUDGET: usize = 60;
/// The number of evictions that the budget allows: all pods are in one namespace, whose share is half of the budget.
const SHARE: usize = BUDGET / 2;

/// Returns a broken pod that is as large as real ones. The controller does not decode most of it.
fn heavy(name: &str) -> serde_json::Value {
    let mut pod = broken(name, 1);
    pod["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"] = "x".repeat(20_000).into();
    pod
}

/// Waits for all evictions within the budget, and checks that another pod's event causes no more.
async fn assert_actions_within_budget(api: &Api, controller: &Controller) {
    let evictions = |api: &Api| api.requests_to("POST", "/eviction").len();
    api.until("the budget's evictions", |api| (evictions(api) >= SHARE).then_some(())).await;
    api.put(broken("last", 0));
    api.until("all that are left", |api| {
        let left = format!("istio_cni_repair_broken_pods {}", api.list("pods").len());
        controller.counts(&left)
    })
    .await;
    assert_eq!(evictions(api), SHARE);
    let events = api.requests_to("POST", "/events").len();
    assert!(events <= SHARE, "{events} events");
}

#[tokio::test]
async fn actions_on_a_list_are_limited_by_the_budget() {
    let api = Api::start().await;
    for n in 0..PODS {
        api.put(heavy(&format!("web-{n}")));
    }
    let controller = Controller::start(&api, &format!("--repair-budget {BUDGET}"));
    assert_actions_within_budget(&api, &controller).await;
    let reads: Vec<String> = api.requests().into_iter().filter(|s| s.method == "GET").map(|s| s.query).collect();
    assert_eq!(reads.len(), 2, "one list, one watch: {reads:?}");
    assert!(reads[0].contains("resourceVersion=0"), "from the watch cache: {reads:?}");
}

#[tokio::test]
async fn actions_on_many_events_are_limited_by_the_budget() {
    let api = Api::start().await;
    let controller = Controller::start(&api, &format!("--repair-budget {BUDGET}"));
    api.until("a watch", |api| (api.watches("pods") == 1).then_some(())).await;
    // The status of each pod is updated three times, as in a crash loop.
    for restarts in 0..3 {
        for n in 0..PODS {
            api.put(broken(&format!("web-{n}"), restarts));
        }
    }
    assert_actions_within_budget(&api, &controller).await;
}

#[tokio::test]
async fn pods_of_all_nodes_are_listed_in_pages() {
    let api = Api::start().await;
    for n in 0..PODS {
        api.put(broken(&format!("web-{n}"), 0));
    }
    let controller = Controller::start(&api, "--repair-node-name= --repair-mode observe");
    let all = format!("istio_cni_repair_broken_pods {PODS}");
    api.until(&all, |_| controller.counts(&all)).await;
    let lists: Vec<String> = api.requests().into_iter().map(|s| s.query).filter(|q| !q.contains("watch=")).collect();
    assert!(lists.len() > 1 && lists.iter().all(|query| query.contains("limit=")), "{lists:?}");
    assert!(lists.iter().all(|query| !query.contains("spec.nodeName")), "{lists:?}");
}
