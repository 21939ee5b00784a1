//! Lists the agents' pods and requests their reports through the API server's pod proxy.
//!
//! Responses are not trusted: their size, the time for each response and the number of simultaneous requests are
//! limited.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use http_body_util::{BodyExt as _, Limited};
use hyper::Request;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::client::Body;
use kube::{Api, Client};
use tokio::time::timeout;

use super::assess::{Agent, Unreported};
use super::{Error, missing};
use report::node::{PATH, Report, SUMMARY};

/// The label of the agents' pods, as the chart and Istio's chart set it.
const LABEL: &str = "k8s-app=istio-cni-node";
/// The name of the container port that serves reports, and its default number.
const PORT: (&str, u16) = ("metrics", 15014);
/// The number of pods in a page of the list.
const PAGE: u32 = 500;
/// The number of agents at which no further page of the list is requested.
const MAX_AGENTS: usize = 20_000;
/// The maximum number of simultaneous requests for reports.
const CONCURRENCY: usize = 64;
/// The size limit of a summary, in bytes.
const MAX_SUMMARY: usize = 256 << 10;
/// The size limit of a full report, in bytes.
const MAX_REPORT: usize = 4 << 20;
/// The time limit for a page of the list.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);

/// The agents whose reports are requested, and the limits.
pub(super) struct Fetch {
    pub(super) client: Client,
    pub(super) namespace: Option<String>,
    /// Restricts the request to this node's agents, and requests full reports instead of summaries.
    pub(super) node: Option<String>,
    /// The time limit for the report of an agent.
    pub(super) timeout: Duration,
}

/// A line on a terminal that counts the agents that have responded.
pub(super) struct Progress<'a> {
    err: &'a mut dyn Write,
    is_shown: bool,
}

impl<'a> Progress<'a> {
    pub(super) fn new(err: &'a mut dyn Write, is_shown: bool) -> Self {
        Self { err, is_shown }
    }

    fn show(&mut self, done: usize, all: usize) {
        if self.is_shown {
            // A failure to write the progress is ignored.
            let _ = write!(self.err, "\r{done} of {all} agents have responded");
            let _ = self.err.flush();
        }
    }

    fn clear(&mut self) {
        if self.is_shown {
            let _ = write!(self.err, "\r\u{1b}[K");
            let _ = self.err.flush();
        }
    }
}

impl Fetch {
    /// Requests the reports of all agents. Returns the agents by node and pod, including an entry for each node without
    /// an agent, and the reason if it is unknown which nodes have no agent.
    pub(super) async fn agents(&self, progress: &mut Progress<'_>) -> Result<(Vec<Agent>, Option<String>), Error> {
        let places = self.places().await?;
        let with_agent: BTreeSet<_> =
            places.iter().map(|place| (place.node.as_str(), place.namespace.as_str())).collect();
        let has_agent = |node: &str, namespace: &str| with_agent.contains(&(node, namespace));
        let (missing, unknown) = match missing::agents(&self.client, self.namespace.as_deref(), has_agent).await {
            Ok(missing) => (missing, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        if places.is_empty() && missing.is_empty() {
            return Err(Error::NoAgents { label: LABEL, namespace: self.namespace.clone() });
        }
        let is_wanted = |node: &str| self.node.as_ref().is_none_or(|wanted| wanted == node);
        let known = places.len();
        let places: Vec<Place> = places.into_iter().filter(|place| is_wanted(&place.node)).collect();
        let all = places.len();
        let mut reports = stream::iter(places).map(|place| self.agent(place)).buffer_unordered(CONCURRENCY);
        let mut agents: Vec<Agent> = missing.into_iter().filter(|agent| is_wanted(&agent.node)).collect();
        if let (Some(node), 0, true) = (&self.node, all, agents.is_empty()) {
            return Err(Error::NoNode { node: node.clone(), known });
        }
        let mut done = 0;
        progress.show(0, all);
        while let Some(agent) = reports.next().await {
            agents.push(agent);
            done += 1;
            progress.show(done, all);
        }
        progress.clear();
        agents.sort_unstable_by(|one, other| (&one.node, &one.pod).cmp(&(&other.node, &other.pod)));
        Ok((agents, unknown))
    }

    /// Lists the agents' pods that have a node.
    async fn places(&self) -> Result<Vec<Place>, Error> {
        let pods: Api<Pod> = match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        };
        let mut params = ListParams::default().labels(LABEL).limit(PAGE);
        let mut places = Vec::new();
        loop {
            let page = match timeout(LIST_TIMEOUT, pods.list(&params)).await {
                Ok(Ok(page)) => page,
                Ok(Err(error)) => return Err(Error::List(error.to_string())),
                Err(_) => return Err(Error::List(format!("no response within {LIST_TIMEOUT:?}"))),
            };
            places.extend(page.items.iter().filter_map(Place::of));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) if places.len() < MAX_AGENTS => params = params.continue_token(&token),
                _ => break,
            }
        }
        Ok(places)
    }

    async fn agent(&self, place: Place) -> Agent {
        let report = match timeout(self.timeout, self.report(&place)).await {
            Ok(report) => report,
            Err(_) => Err(Unreported::Late(self.timeout)),
        };
        let Place { node, namespace, pod, .. } = place;
        Agent { node, namespace, pod, report: report.map(Box::new) }
    }

    async fn report(&self, place: &Place) -> Result<Report, Unreported> {
        let (query, limit) = if self.node.is_some() { ("", MAX_REPORT) } else { (SUMMARY, MAX_SUMMARY) };
        let Place { namespace, pod, port, .. } = place;
        let separator = if query.is_empty() { "" } else { "?" };
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{PATH}{separator}{query}");
        let request = Request::get(path).body(Body::empty()).map_err(|error| Unreported::Request(error.to_string()))?;
        let response = self.client.send(request).await.map_err(|error| Unreported::Request(error.to_string()))?;
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), limit).collect().await;
        let body = body.map_err(|error| Unreported::Body(error.to_string()))?.to_bytes();
        if status != 200 {
            return Err(Unreported::of_status(status, &String::from_utf8_lossy(&body)));
        }
        let report: Report = serde_json::from_slice(&body).map_err(|error| Unreported::Json(error.to_string()))?;
        // An agent that ignores the query for a summary sends the full report.
        Ok(if self.node.is_some() { report } else { report.summary() })
    }
}

/// An agent's pod.
struct Place {
    node: String,
    namespace: String,
    pod: String,
    port: u16,
}

impl Place {
    /// Returns the place of an agent's pod; `None` if the pod has no node.
    fn of(pod: &Pod) -> Option<Self> {
        let spec = pod.spec.as_ref()?;
        let ports = spec.containers.iter().filter_map(|container| container.ports.as_ref()).flatten();
        let port = ports.filter(|port| port.name.as_deref() == Some(PORT.0)).map(|port| port.container_port);
        Some(Self {
            node: spec.node_name.clone()?,
            namespace: pod.metadata.namespace.clone()?,
            pod: pod.metadata.name.clone()?,
            port: port.filter_map(|port| u16::try_from(port).ok()).next().unwrap_or(PORT.1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_one_line_that_is_cleared_and_nothing_without_a_terminal() {
        let written = |is_shown| {
            let mut err = Vec::new();
            let mut progress = Progress::new(&mut err, is_shown);
            progress.show(1, 2);
            progress.clear();
            String::from_utf8(err).unwrap()
        };
        assert_eq!(written(true), "\r1 of 2 agents have responded\r\u{1b}[K");
        assert_eq!(written(false), "");
    }
}
