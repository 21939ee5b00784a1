//! The state of a running pod, as its node's agent reports it.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};

use super::status;
use report::node::{Pod, PodState};

/// The time limit of the agent's response.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The state of a running pod.
pub(super) struct Live {
    node: String,
    /// The agent's entry for the pod, or why there is none.
    state: Result<Pod, String>,
}

impl Live {
    /// Requests the state of a pod, `namespace/name`, from the agent of its node.
    pub(super) async fn request(client: Client, node: &str, pod: &str) -> Self {
        let report = status::report_of(client, node, TIMEOUT).await;
        let state = report.and_then(|report| {
            let entry = report.pods.into_iter().find(|entry| entry.name == pod);
            entry.ok_or_else(|| "the agent has no entry for the pod".to_owned())
        });
        Self { node: node.to_owned(), state }
    }

    /// Describes the state in a sentence.
    pub(super) fn sentence(&self) -> String {
        let Self { node, state } = self;
        match state {
            Err(reason) => format!("unknown, from the agent of node {node}: {reason}"),
            Ok(pod) => {
                let mut text = format!("{}, from the agent of node {node}", pod.verdict.as_str());
                if !pod.reason.is_empty() {
                    text += &format!(": {}", pod.reason);
                }
                let backend = pod.backend.iter().map(|backend| format!("by {backend}"));
                let added = pod.added.iter().map(|time| format!("at {time}"));
                let seconds = pod.seconds.iter().map(|seconds| format!("in {:.1} ms", seconds * 1e3));
                backend.chain(added).chain(seconds).fold(text, |text, part| text + " " + &part)
            }
        }
    }

    /// Returns the difference between the state and the decision that ADD would make on the pod as it is now. The
    /// plugin reads a pod's annotations only at ADD, and they can change later.
    pub(super) fn difference(&self, is_redirected: bool) -> Option<String> {
        let pod = self.state.as_ref().ok()?;
        let problem = || pod.problem.as_deref().unwrap_or(&pod.reason);
        match (pod.verdict, is_redirected) {
            (PodState::Skipped, true) => {
                Some(format!("ADD skipped the pod, and today would redirect it: {}", pod.reason))
            }
            (PodState::Redirected, false) => Some("ADD redirected the pod, and today would not".to_owned()),
            (PodState::Failed, true) => Some(format!("ADD failed: {}", problem())),
            (PodState::Drifted, _) => Some(format!("its rules are not the intended ones: {}", problem())),
            (PodState::Redirected | PodState::Unknown, true)
            | (PodState::Skipped | PodState::Failed | PodState::Unknown, false) => None,
        }
    }

    /// Formats as JSON.
    pub(super) fn json(&self) -> Value {
        match &self.state {
            Ok(pod) => json!({ "node": self.node, "state": pod }),
            Err(reason) => json!({ "node": self.node, "unknown": reason }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_differs_where_add_decided_otherwise_or_the_rules_are_not_the_intended_ones() {
        let live = |verdict, problem: Option<&str>| {
            let pod = Pod { verdict, reason: "r".into(), problem: problem.map(str::to_owned), ..Pod::default() };
            Live { node: "n1".into(), state: Ok(pod) }
        };
        for (verdict, is_redirected, expected) in [
            (PodState::Redirected, true, None),
            (PodState::Redirected, false, Some("ADD redirected the pod")),
            (PodState::Skipped, true, Some("ADD skipped the pod, and today would redirect it: r")),
            (PodState::Skipped, false, None),
            (PodState::Failed, true, Some("ADD failed: p")),
            (PodState::Failed, false, None),
            (PodState::Drifted, true, Some("its rules are not the intended ones: p")),
            (PodState::Drifted, false, Some("its rules are not the intended ones: p")),
            (PodState::Unknown, true, None),
            (PodState::Unknown, false, None),
        ] {
            let found = live(verdict, Some("p")).difference(is_redirected);
            assert_eq!(found.is_some(), expected.is_some(), "{verdict:?} {is_redirected}: {found:?}");
            assert!(found.unwrap_or_default().starts_with(expected.unwrap_or_default()), "{verdict:?}");
        }
        let unknown = Live { node: "n1".into(), state: Err("away".into()) };
        assert_eq!(
            (unknown.difference(true), unknown.sentence()),
            (None, "unknown, from the agent of node n1: away".into())
        );
    }
}
