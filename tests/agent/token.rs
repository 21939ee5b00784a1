//! Tests of the token in the plugin's kubeconfig: the agent requests it for the plugin's service account, renews it,
//! and never writes its own token instead.

use serde_json::{Value, json};

use test_support::api::{Api, Fault, Seen};
use test_support::daemon::{Daemon, Node, cluster, until};

pub(crate) const VARIABLES: [(&str, &str); 1] = [("PLUGIN_SERVICE_ACCOUNT", "plugin")];
pub(crate) const PATH: &str = "/api/v1/namespaces/istio-system/serviceaccounts/plugin/token";

/// Returns the plugin's service account. The API server double limits the lifetime of its tokens to this number of
/// seconds.
pub(crate) fn account(seconds: u32) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": { "namespace": "istio-system", "name": "plugin", "annotations": { "lifetime": seconds.to_string() } },
    })
}

fn kubeconfig(node: &Node) -> String {
    std::fs::read_to_string(node.path("run/istio-cni-kubeconfig")).unwrap_or_default()
}

#[track_caller]
fn until_written(node: &Node, token: &str) {
    until(&format!("{token} in the kubeconfig"), || match kubeconfig(node) {
        text if text.contains(&format!("    token: {token}\n")) => Ok(()),
        text => Err(text),
    });
}

fn requests(api: &Api) -> Vec<Seen> {
    api.requests_to("POST", PATH)
}

/// Returns the kind of the object to which each requested token is bound; null for an unbound token.
fn bound_kinds(api: &Api) -> Vec<Value> {
    requests(api).iter().map(|seen| seen.body["spec"]["boundObjectRef"]["kind"].clone()).collect()
}

/// Starts a daemon whose plugin has its own service account. The API server fails with these faults first and then
/// grants tokens of this lifetime in seconds.
async fn started(lifetime: u32, faults: impl IntoIterator<Item = Fault>) -> (Api, Node, Daemon) {
    let api = cluster().await;
    api.put(account(lifetime));
    faults.into_iter().for_each(|fault| api.fault(fault));
    let node = Node::new();
    let daemon = Daemon::with_variables(&node, &api.url(), &VARIABLES);
    (api, node, daemon)
}

/// Returns a fault that makes requests for tokens fail.
fn failing() -> Fault {
    Fault::on("POST", PATH)
}

/// Returns the intervals between requests in milliseconds.
fn pauses(seen: &[Seen]) -> Vec<u128> {
    seen.windows(2).map(|pair| (pair[1].at - pair[0].at).as_millis()).collect()
}

/// Waits until the metrics count token errors with this reason.
#[track_caller]
fn until_counted(daemon: &Daemon, reason: &str) {
    let sample = format!("istio_cni_agent_token_errors_total{{reason=\"{reason}\"}} ");
    until(&sample, || match daemon.get("/metrics").1 {
        page if page.contains(&sample) => Ok(()),
        page => Err(page),
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kubeconfig_holds_a_token_of_the_plugin_that_is_bound_to_the_node_and_renewed() {
    let (api, node, daemon) = started(6, []).await;
    daemon.ready();
    until_written(&node, "issued-3");
    let seen = requests(&api);
    let spec = &seen[0].body["spec"];
    assert_eq!(spec["boundObjectRef"], json!({ "apiVersion": "v1", "kind": "Node", "name": "n1" }));
    assert_eq!(spec["expirationSeconds"], 604_800);
    let pauses = pauses(&seen);
    assert!(pauses.iter().all(|pause| *pause >= 3000), "renewed at half of 6 s, not before: {pauses:?}");
    // The kubeconfig keeps the former token until it expires.
    api.fault(failing().cut());
    daemon.line("no token for the plugin");
    until_counted(&daemon, "unanswered");
    assert!(kubeconfig(&node).contains("token: issued-"));
    daemon.readyz(503, "no token for the plugin's kubeconfig");
    api.heal();
    daemon.ready();
    let log = daemon.log_text();
    assert!(!log.contains("issued-"), "no log shows a token: {log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_binds_to_no_node_issues_a_token_that_is_not_bound() {
    let (api, node, daemon) = started(3600, [failing().status(400).times(1)]).await;
    daemon.ready();
    until_written(&node, "issued-2");
    // The second request is unbound, because no API server would bind the plugin's token to the agent's pod, which runs under another
    // service account.
    assert_eq!(bound_kinds(&api), [json!("Node"), Value::Null]);
    assert_eq!(requests(&api)[1].body["spec"]["expirationSeconds"], 604_800);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_is_refused_both_bound_and_not_bound_names_both_reasons() {
    let (_api, _node, daemon) = started(3600, [failing().status(400).times(1), failing().status(403)]).await;
    let line = daemon.line("no token for the plugin: ").to_string();
    for part in [
        "binds no token to a node (the test's fault)",
        "refuses one that is not bound: ",
        "the account has no role for it",
        "must allow `create` of `serviceaccounts/token` for plugin",
    ] {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_by_a_policy_is_final() {
    let (api, _node, daemon) = started(3600, [failing().status(422).times(2)]).await;
    daemon.line("an admission policy must allow it");
    daemon.ready();
    assert_eq!(bound_kinds(&api), [json!("Node"), json!("Node"), json!("Node")]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_repeated_until_the_api_server_issues_a_token() {
    let (api, _node, daemon) = started(3600, [failing().times(5)]).await;
    daemon.ready();
    let pauses = pauses(&requests(&api));
    // These are the minimum pauses; a busy machine may lengthen them.
    let least = [1000, 2000, 4000, 5000, 5000];
    assert!(pauses.len() == 5 && pauses.iter().zip(least).all(|(pause, least)| *pause >= least), "{pauses:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_token_the_node_is_not_ready_and_the_missing_right_is_named() {
    for (status, reason, remedy) in [
        (403, "forbidden", "must allow `create` of `serviceaccounts/token` for plugin"),
        (404, "not_found", "the manifests create the service account plugin in istio-system"),
    ] {
        let (api, node, daemon) = started(3600, [failing().status(status)]).await;
        daemon.readyz(503, remedy);
        until_counted(&daemon, reason);
        assert_eq!(kubeconfig(&node), "", "never the daemon's own token instead");
        api.heal();
        daemon.ready();
        assert!(kubeconfig(&node).contains("token: issued-"), "{}", kubeconfig(&node));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_account_the_plugin_has_the_daemons_token_with_a_warning() {
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    daemon.ready();
    until_written(&node, "token-1");
    daemon.line("PLUGIN_SERVICE_ACCOUNT is empty: the plugin's kubeconfig on this node holds this daemon's own token");
    assert_eq!(requests(&api).len(), 0);
}
