//! Parses requests on `agent.sock` and responds to them.

use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use podfacts::{PodName, requests};
use serde::Serialize;
use serve::http::{Request, Response, content, text};
use serve::log::Log;
use serve::shutdown::Shutdown;
use tokio::sync::mpsc::Sender;

use super::cache::{Cache, Lookup};
use super::events::Notice;
use super::handlers::Handlers;
use super::handover::Handover;
use super::metrics::Metrics;
use super::verdicts::Verdicts;
use crate::install::Installation;

/// The time limit of a lookup: half of the plugin's time limit for the response (`LookupBudget::agent`).
const LOOKUP_LIMIT: Duration = Duration::from_secs(1);

/// The state that the handlers of both sockets read and write; clones share it.
#[derive(Clone)]
pub struct Sources {
    /// This node's pods.
    pub cache: Cache,
    /// The installation of this agent.
    pub installation: Installation,
    pub metrics: Metrics,
    pub verdicts: Verdicts,
    /// The runtime handlers of the pods.
    pub handlers: Handlers,
    /// The channel to the writer of Events.
    pub notices: Sender<Notice>,
    /// The offer of the sockets to an agent that stands by.
    pub handover: Handover,
    /// The log to which the plugin's lines are written.
    pub log: Log,
}

/// A valid request.
#[derive(Debug, PartialEq, Eq)]
enum Query {
    /// `GET /pod?namespace=…&name=…&uid=…`: the plugin requests the fields of a pod on which redirection depends.
    Pod { pod: PodName, uid: Option<String> },
    /// `GET /directories`: an agent that shuts down requests the directories of this agent's installation.
    Directories,
    /// `GET /handover`: an agent that stands by waits for the offer of the sockets.
    Handover,
}

/// Responds to a request of the plugin, or of another agent.
pub(super) async fn respond(request: Request, sources: &Sources, shutdown: &Shutdown) -> Response {
    let Sources { cache, installation, metrics, handlers, handover, .. } = sources;
    let response = match parse(&request) {
        Err(invalid) => invalid.response(),
        Ok(Query::Directories) => return directories(installation.clone()).await,
        Ok(Query::Handover) => return handover.respond(shutdown).await,
        Ok(Query::Pod { pod, uid }) => {
            let mut lookup = cache.lookup(&pod, uid.as_deref(), LOOKUP_LIMIT).await;
            if let Lookup::Hit(facts) | Lookup::Waited(facts) = &mut lookup {
                match handlers.of(facts).await {
                    Ok(handler) => facts.handler = handler,
                    Err(unknown) => facts.unknown_handler = Some(unknown.to_string()),
                }
            }
            metrics.looked_up(&lookup);
            tracing::debug!(%pod, uid, result = lookup.as_str(), "pod looked up");
            of_lookup(&lookup)
        }
    };
    metrics.responded(response.status());
    response
}

async fn directories(installation: Installation) -> Response {
    match tokio::task::spawn_blocking(move || installation.directories()).await {
        Ok(Some(directories)) => json(&directories),
        _ => text(StatusCode::SERVICE_UNAVAILABLE, "the plugin is not installed yet\n"),
    }
}

/// The invalid part of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Path,
    Method,
    Query,
}

impl Invalid {
    fn response(self) -> Response {
        match self {
            Self::Path => text(StatusCode::NOT_FOUND, "paths are /pod, /directories and /handover\n"),
            Self::Method => text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served\n"),
            Self::Query => text(StatusCode::BAD_REQUEST, "expected /pod?namespace=…&name=…, and perhaps &uid=…\n"),
        }
    }
}

fn parse(request: &Request) -> Result<Query, Invalid> {
    let path = request.uri().path();
    if ![requests::POD, requests::DIRECTORIES, requests::HANDOVER].contains(&path) {
        return Err(Invalid::Path);
    }
    if *request.method() != Method::GET {
        return Err(Invalid::Method);
    }
    match path {
        requests::DIRECTORIES => Ok(Query::Directories),
        requests::HANDOVER => Ok(Query::Handover),
        _ => parse_pod(request),
    }
}

fn parse_pod(request: &Request) -> Result<Query, Invalid> {
    let (pod, uid) = requests::parse_pod(request.uri().query().unwrap_or_default()).ok_or(Invalid::Query)?;
    Ok(Query::Pod { pod, uid })
}

fn of_lookup(lookup: &Lookup) -> Response {
    match lookup {
        // A pod with another UID is returned, too: the plugin compares the UIDs itself, and its error names both.
        Lookup::Hit(facts) | Lookup::Waited(facts) | Lookup::OtherUid(facts) => json(facts),
        Lookup::Unknown => text(StatusCode::NOT_FOUND, "no such pod on this node\n"),
        Lookup::NotSynced => text(StatusCode::SERVICE_UNAVAILABLE, "the node's pods have not been listed yet\n"),
    }
}

fn json(body: &impl Serialize) -> Response {
    match serde_json::to_vec(body) {
        Ok(json) => content(StatusCode::OK, HeaderValue::from_static("application/json"), json),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("the response cannot be encoded: {error}\n")),
    }
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;

    fn query(method: Method, target: &str) -> Result<Query, Invalid> {
        let request = hyper::Request::builder().method(method).uri(target).body(Bytes::new()).unwrap();
        parse(&request)
    }

    #[test]
    fn a_query_has_namespace_and_name() {
        let pod = PodName { namespace: "shop".into(), name: "web/0".into() };
        let with = query(Method::GET, "/pod?namespace=shop&name=web%2F0&uid=u%2d1&later=x").unwrap();
        assert_eq!(with, Query::Pod { pod: pod.clone(), uid: Some("u-1".into()) });
        let without = query(Method::GET, "/pod?name=web%2F0&namespace=shop&uid=").unwrap();
        assert_eq!(without, Query::Pod { pod, uid: None });
        assert_eq!(query(Method::GET, "/directories").unwrap(), Query::Directories);
        assert_eq!(query(Method::GET, "/handover").unwrap(), Query::Handover);
    }

    #[test]
    fn an_invalid_request_is_refused_by_kind() {
        assert_eq!(query(Method::GET, "/pod?namespace=shop"), Err(Invalid::Query));
        assert_eq!(query(Method::GET, "/pod?namespace=shop&name=%zz"), Err(Invalid::Query));
        assert_eq!(query(Method::GET, "/pod?namespace=shop&name=%ff"), Err(Invalid::Query));
        assert_eq!(query(Method::GET, "/pod"), Err(Invalid::Query));
        assert_eq!(query(Method::POST, "/pod?namespace=shop&name=web"), Err(Invalid::Method));
        assert_eq!(query(Method::POST, "/directories"), Err(Invalid::Method));
        assert_eq!(query(Method::GET, "/pods?namespace=shop&name=web"), Err(Invalid::Path));
    }
}
