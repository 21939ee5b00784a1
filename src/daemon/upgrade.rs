//! Asks the API server whether the DaemonSet still wants this node, within the little time that an ending process has.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod, PodSpec};
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::ending::Answer;
use super::selection::selects;
use crate::agent::Cache;
use crate::contract;
use crate::pod::PodName;

/// One question.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two questions: an API server that starts refuses those whom it does not know yet.
const PAUSE: Duration = Duration::from_secs(1);
/// Questions before a refusal or a failure is taken for an answer.
const ATTEMPTS: usize = 3;
/// All of it, a client included: a third of a pod's grace period.
const LIMIT: Duration = Duration::from_secs(10);

/// Who asks: the daemon's pod.
#[derive(Debug, Clone)]
pub(super) struct Asker {
    /// Namespace of pod and DaemonSet; empty: that of the account.
    pub(super) namespace: String,
    /// The pod's name; empty: unknown.
    pub(super) pod: String,
    /// The node's name.
    pub(super) node: String,
    /// The node's pods, as they were watched.
    pub(super) pods: Cache,
}

/// The answer about the asker's DaemonSet and node.
pub(super) async fn ask(client: impl Future<Output = Client>, mut asker: Asker) -> Answer {
    let answer = async {
        let client = client.await;
        if asker.namespace.is_empty() {
            client.default_namespace().clone_into(&mut asker.namespace);
        }
        persist(&client, &asker).await
    };
    timeout(LIMIT, answer).await.unwrap_or_else(|_| Answer::Unanswered(format!("no answer within {LIMIT:?}")))
}

/// Whoever deletes everything deletes one role after the other: only the last answer of several tells what is left.
async fn persist(client: &Client, asker: &Asker) -> Answer {
    let mut answer = ask_once(client, asker).await;
    for _ in 1..ATTEMPTS {
        if matches!(answer, Answer::Found { .. } | Answer::NotFound) {
            break;
        }
        sleep(PAUSE).await;
        answer = ask_once(client, asker).await;
    }
    answer
}

async fn ask_once(client: &Client, asker: &Asker) -> Answer {
    let Asker { namespace, node, .. } = asker;
    let daemon_sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    let found = match timeout(PATIENCE, daemon_sets.get(contract::DAEMON_SET)).await {
        Err(_) => return Answer::Unanswered(format!("no answer within {PATIENCE:?}")),
        Ok(Err(error)) => match of_error(&error) {
            Answer::Refused(code) => return refused(client, asker, code).await,
            answer => return answer,
        },
        Ok(Ok(found)) => found,
    };
    let deleting = found.metadata.deletion_timestamp.is_some();
    let pod = found.spec.and_then(|spec| spec.template.spec);
    let unmounted = match &pod {
        Some(pod) if !deleting => unmounted_by(client, asker, pod).await,
        _ => Vec::new(),
    };
    let node = timeout(PATIENCE, Api::<Node>::all(client.clone()).get(node)).await;
    let selects_node = match (&pod, &node) {
        (Some(pod), Ok(Ok(node))) => selects(pod, node),
        // A node that nobody can describe is no reason to leave it.
        _ => true,
    };
    Answer::Found { deleting, selects_node, unmounted }
}

/// The directories of the node that the own pod mounts for plugin and configuration, and pods of the template do not; none
/// where the own pod cannot be read.
async fn unmounted_by(client: &Client, Asker { namespace, pod, .. }: &Asker, template: &PodSpec) -> Vec<PathBuf> {
    if pod.is_empty() {
        return Vec::new();
    }
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    match timeout(PATIENCE, pods.get(pod)).await {
        Ok(Ok(Pod { spec: Some(own), .. })) => unmounted(&own, template),
        _ => Vec::new(),
    }
}

fn unmounted(own: &PodSpec, template: &PodSpec) -> Vec<PathBuf> {
    let volumes = [contract::NET_DIR_VOLUME, contract::BIN_DIR_VOLUME];
    let each = volumes.map(|volume| (host_path(own, volume), host_path(template, volume)));
    each.into_iter().filter(|(own, template)| own != template).filter_map(|(own, _)| own).collect()
}

/// Paths compare by their components.
fn host_path(pod: &PodSpec, volume: &str) -> Option<PathBuf> {
    let volume = pod.volumes.iter().flatten().find(|found| found.name == volume)?;
    volume.host_path.as_ref().map(|found| PathBuf::from(&found.path))
}

/// Whether a refusal is about the DaemonSet alone, or about all that the account could ask for.
async fn refused(client: &Client, asker: &Asker, code: u16) -> Answer {
    let pod = PodName { namespace: asker.namespace.clone(), name: asker.pod.clone() };
    if pod.name.is_empty() {
        return Answer::Refused(code);
    }
    // A token is bound to its pod: where the pod was deleted by force, the token ends with it, and tells nothing.
    if code == 401 && asker.pods.read(|pods| pods.is_filled() && !pods.has(&pod)) {
        return Answer::Unanswered(format!("pod {pod} was deleted by force, and its token with it"));
    }
    let pods = Api::<Pod>::namespaced(client.clone(), &pod.namespace);
    match timeout(PATIENCE, pods.get_metadata(&pod.name)).await {
        Err(_) => Answer::Unanswered(format!("no answer within {PATIENCE:?}")),
        Ok(Ok(_)) => Answer::RightMissing(code),
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Answer::RightMissing(code),
        Ok(Err(error)) => of_error(&error),
    }
}

fn of_error(error: &kube::Error) -> Answer {
    match error {
        // A path that nobody serves is not found, either, and says nothing about the DaemonSet.
        kube::Error::Api(status)
            if status.code == 404 && status.details.as_ref().is_some_and(|of| of.name == contract::DAEMON_SET) =>
        {
            Answer::NotFound
        }
        kube::Error::Api(status) if matches!(status.code, 401 | 403) => Answer::Refused(status.code),
        error => Answer::Unanswered(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(net: &str, bin: &str) -> PodSpec {
        let volume = |name: &str, path: &str| json!({ "name": name, "hostPath": { "path": path } });
        let volumes = [volume("cni-net-dir", net), volume("cni-bin-dir", bin), volume("cni-socket-dir", "/run/x")];
        serde_json::from_value(json!({ "containers": [], "volumes": volumes })).unwrap()
    }

    #[test]
    fn directories_that_the_template_mounts_elsewhere_are_unmounted() {
        let own = pod("/etc/cni/net.d", "/opt/cni/bin");
        for (net, bin, expected) in [
            ("/etc/cni/net.d/", "/opt//cni/bin", &[][..]),
            ("/etc/other", "/opt/cni/bin", &["/etc/cni/net.d"]),
            ("/etc/cni/net.d", "/opt/other", &["/opt/cni/bin"]),
            ("/etc/other", "/opt/other", &["/etc/cni/net.d", "/opt/cni/bin"]),
        ] {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(unmounted(&own, &pod(net, bin)), expected, "{net} {bin}");
        }
        let none = serde_json::from_value(json!({ "containers": [] })).unwrap();
        assert_eq!(unmounted(&own, &none).len(), 2);
        assert!(unmounted(&none, &own).is_empty());
    }
}
