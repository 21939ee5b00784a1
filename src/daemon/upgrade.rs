//! Asks the API server whether the DaemonSet still wants this node, within the little time that an ending process has.

use std::time::Duration;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client};
use tokio::time::{sleep, timeout};

use super::ending::Answer;
use super::selection::selects;
use crate::contract;

/// One question.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two questions: an API server that starts refuses those whom it does not know yet.
const PAUSE: Duration = Duration::from_secs(1);
/// Questions before a refusal or a failure is taken for an answer.
const ATTEMPTS: usize = 3;
/// All of it, a client included: a third of a pod's grace period.
const LIMIT: Duration = Duration::from_secs(10);

/// The answer about the DaemonSet in `namespace`, for this node. Without a namespace, it is that of the account.
pub(super) async fn ask(client: impl Future<Output = Client>, namespace: &str, node: &str) -> Answer {
    let answer = async { persist(&client.await, namespace, node).await };
    timeout(LIMIT, answer).await.unwrap_or_else(|_| Answer::Unanswered(format!("no answer within {LIMIT:?}")))
}

async fn persist(client: &Client, namespace: &str, node: &str) -> Answer {
    let namespace = if namespace.is_empty() { client.default_namespace() } else { namespace };
    let mut answer = ask_once(client, namespace, node).await;
    for _ in 1..ATTEMPTS {
        if !matches!(answer, Answer::Refused(_) | Answer::Unanswered(_)) {
            break;
        }
        sleep(PAUSE).await;
        answer = ask_once(client, namespace, node).await;
    }
    answer
}

async fn ask_once(client: &Client, namespace: &str, node: &str) -> Answer {
    let daemon_sets = Api::<DaemonSet>::namespaced(client.clone(), namespace);
    let found = match timeout(PATIENCE, daemon_sets.get(contract::DAEMON_SET)).await {
        Err(_) => return Answer::Unanswered(format!("no answer within {PATIENCE:?}")),
        Ok(Err(error)) => return of_error(&error),
        Ok(Ok(found)) => found,
    };
    let deleting = found.metadata.deletion_timestamp.is_some();
    let pod = found.spec.and_then(|spec| spec.template.spec);
    let node = timeout(PATIENCE, Api::<Node>::all(client.clone()).get(node)).await;
    let selects_node = match (&pod, &node) {
        (Some(pod), Ok(Ok(node))) => selects(pod, node),
        // A node that nobody can describe is no reason to leave it.
        _ => true,
    };
    Answer::Found { deleting, selects_node }
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
