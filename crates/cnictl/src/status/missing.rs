//! Finds the nodes that the DaemonSet selects and on which no agent runs.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::timeout;

use super::assess::{Agent, Unreported};
use serve::scheduling::selects;

/// The number of objects in a page of a list.
const PAGE: u32 = 500;
/// The number of nodes at which no further page of the list is requested.
const MAX_NODES: usize = 20_000;
/// The time limit for a request.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Returns an [`Agent`] without a pod for each node that a DaemonSet selects and on which none of its agents runs.
/// `has_agent(node, namespace)`: whether an agent of this namespace runs on the node.
///
/// # Errors
/// Why DaemonSets or nodes cannot be listed.
pub(super) async fn agents(
    client: &Client,
    namespace: Option<&str>,
    has_agent: impl Fn(&str, &str) -> bool,
) -> Result<Vec<Agent>, String> {
    let sets = daemon_sets(client, namespace).await?;
    if sets.is_empty() {
        return Ok(Vec::new());
    }
    let nodes = nodes(client).await?;
    Ok(sets.iter().flat_map(|set| of_set(set, &nodes, &has_agent)).collect())
}

fn of_set(set: &DaemonSet, nodes: &[Node], has_agent: impl Fn(&str, &str) -> bool) -> Vec<Agent> {
    let namespace = set.metadata.namespace.clone().unwrap_or_default();
    let Some(pod) = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()) else { return Vec::new() };
    let names = nodes.iter().filter(|node| selects(pod, node)).filter_map(|node| node.metadata.name.clone());
    let missing = names.filter(|node| !has_agent(node, &namespace));
    let row = |node| {
        let report = Err(Unreported::NoAgent { namespace: namespace.clone(), set: contract::DAEMON_SET });
        Agent { node, namespace: namespace.clone(), pod: String::new(), report }
    };
    missing.map(row).collect()
}

async fn daemon_sets(client: &Client, namespace: Option<&str>) -> Result<Vec<DaemonSet>, String> {
    let sets: Api<DaemonSet> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let named = ListParams::default().fields(&format!("metadata.name={}", contract::DAEMON_SET)).limit(PAGE);
    let found = within(sets.list(&named)).await?.items;
    // An API server that ignores the field selector returns other DaemonSets, too.
    Ok(found.into_iter().filter(|set| set.metadata.name.as_deref() == Some(contract::DAEMON_SET)).collect())
}

async fn nodes(client: &Client) -> Result<Vec<Node>, String> {
    let nodes = Api::<Node>::all(client.clone());
    let mut params = ListParams::default().limit(PAGE);
    let mut all = Vec::new();
    loop {
        let page = within(nodes.list(&params)).await?;
        all.extend(page.items);
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) if all.len() < MAX_NODES => params = params.continue_token(&token),
            _ => return Ok(all),
        }
    }
}

/// Awaits a response for at most [`TIMEOUT`]; returns why it failed as a message.
async fn within<T>(request: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match timeout(TIMEOUT, request).await {
        Ok(response) => response.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no response within {TIMEOUT:?}")),
    }
}
