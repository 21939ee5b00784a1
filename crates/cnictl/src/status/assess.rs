//! Finds the agents' problems in their reports or, if a report is missing, in the reason for that. Pure.

use std::time::Duration;

use serde::Deserialize;

use super::Error;
use report::node::Report;

/// The maximum length of a message, in bytes; a longer message is cut.
const MAX_MESSAGE: usize = 300;

/// An agent and its report.
pub(super) struct Agent {
    pub(super) node: String,
    pub(super) namespace: String,
    /// Empty for a node without an agent.
    pub(super) pod: String,
    pub(super) report: Result<Box<Report>, Unreported>,
}

/// Why there is no report of an agent, with the remedy if there is one.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unreported {
    #[error("no report within {0:?}")]
    Late(Duration),
    /// The agent's pod was not created, or has no node yet.
    #[error(
        "the DaemonSet selects the node, and no agent runs on it; see `kubectl -n {namespace} describe daemonset {set}`"
    )]
    NoAgent { namespace: String, set: &'static str },
    #[error("the request to the API server failed: {0}")]
    Request(String),
    #[error("the report cannot be read: {0}")]
    Body(String),
    #[error("the response is not a report of this version's agent: {0}")]
    Json(String),
    #[error("the agent serves no report; set statusPage.enabled, or STATUS_PAGE=true in its environment")]
    Disabled,
    #[error("{0}; `get` of pods/proxy must be allowed")]
    Forbidden(String),
    #[error("status {status}: {message}")]
    Status { status: u16, message: String },
}

/// The part of a `Status` object that describes a failure of the API server.
#[derive(Deserialize)]
struct Failure {
    message: String,
}

impl Unreported {
    /// Returns the reason for a response whose status is not 200. The body is a `Status` object if it comes from the
    /// API server, and plain text if it comes from the agent.
    pub(super) fn of_status(status: u16, body: &str) -> Self {
        let failure = serde_json::from_str(body).map(|Failure { message }| message);
        let message = failure.as_deref().unwrap_or(body).trim();
        let message = message[..message.floor_char_boundary(MAX_MESSAGE)].to_owned();
        match status {
            404 if failure.is_err() => Self::Disabled,
            401 | 403 => Self::Forbidden(message),
            _ => Self::Status { status, message },
        }
    }
}

impl Agent {
    /// Returns the agent's problems; none if it is well.
    pub(super) fn problems(&self) -> Vec<String> {
        match &self.report {
            Ok(report) => report.problems(),
            Err(unreported) => vec![unreported.to_string()],
        }
    }

    /// Returns the latest error of the agent or the plugin, with its time.
    pub(super) fn last_error(&self) -> Option<String> {
        let line = self.report.as_ref().ok()?.errors.first()?;
        Some(format!("{} {}", line.time, line.text))
    }
}

/// Returns an error unless all agents are well.
pub(super) fn verdict(agents: &[Agent]) -> Result<(), Error> {
    let unwell = agents.iter().filter(|agent| !agent.problems().is_empty()).count();
    if unwell == 0 { Ok(()) } else { Err(Error::Unwell { unwell, agents: agents.len() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_name_their_origin_and_remedy() {
        let of = |status, body: &str| Unreported::of_status(status, body).to_string();
        assert!(of(404, "the path is /metrics\n").contains("statusPage.enabled"));
        assert_eq!(of(404, r#"{"message":"pods \"x\" not found"}"#), "status 404: pods \"x\" not found");
        let forbidden = of(403, r#"{"message":"pods \"x\" is forbidden"}"#);
        assert_eq!(forbidden, "pods \"x\" is forbidden; `get` of pods/proxy must be allowed");
        assert_eq!(of(503, &"é".repeat(MAX_MESSAGE)).len(), "status 503: ".len() + MAX_MESSAGE);
    }

    #[test]
    fn an_agent_without_a_report_is_not_well() {
        let agent = |report| Agent { node: "n".into(), namespace: "s".into(), pod: "p".into(), report };
        assert!(verdict(&[agent(Ok(Box::default()))]).is_ok());
        let unwell = verdict(&[agent(Ok(Box::default())), agent(Err(Unreported::Disabled))]);
        assert!(matches!(unwell, Err(Error::Unwell { unwell: 1, agents: 2 })), "{unwell:?}");
    }
}
