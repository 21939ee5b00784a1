//! A request on `agent.sock` → its answer. What is asked is parsed here and nowhere else.

use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{Method, StatusCode};
use serde::Serialize;

use super::cache::{Cache, Lookup};
use super::metrics::Metrics;
use crate::install::Installation;
use crate::pod::PodName;
use crate::serve::http::{Request, Response, content, text};

/// How long a pod is waited for: half of what the plugin waits for the answer (`LookupBudget::agent`).
const PATIENCE: Duration = Duration::from_secs(1);

/// Path on `agent.sock` under which an agent tells the directories in which it has installed the plugin.
pub const DIRECTORIES: &str = "/directories";

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Question {
    /// `GET /pod?namespace=…&name=…&uid=…`, by the plugin: the facts of a pod.
    Pod { pod: PodName, uid: Option<String> },
    /// `GET /directories`, by an agent that ends: where this agent has installed the plugin.
    Directories,
}

/// Answers the plugin, and the agent that this one has superseded.
pub(super) async fn answer(
    request: Request,
    cache: &Cache,
    installation: &Installation,
    metrics: &Metrics,
) -> Response {
    let response = match question(&request) {
        Err(refusal) => refusal.say(),
        Ok(Question::Directories) => return directories(installation.clone()).await,
        Ok(Question::Pod { pod, uid }) => {
            let lookup = cache.lookup(&pod, uid.as_deref(), PATIENCE).await;
            metrics.looked_up(&lookup);
            tracing::debug!(%pod, uid, result = lookup.as_str(), "asked for a pod");
            say(&lookup)
        }
    };
    metrics.answered(response.status());
    response
}

async fn directories(installation: Installation) -> Response {
    match tokio::task::spawn_blocking(move || installation.directories()).await {
        Ok(Some(directories)) => json(&directories),
        _ => text(StatusCode::SERVICE_UNAVAILABLE, "the plugin is not installed yet\n"),
    }
}

/// Why a request is no question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refusal {
    Path,
    Method,
    Query,
}

impl Refusal {
    fn say(self) -> Response {
        match self {
            Self::Path => text(StatusCode::NOT_FOUND, "there are /pod and /directories\n"),
            Self::Method => text(StatusCode::METHOD_NOT_ALLOWED, "only GET is served\n"),
            Self::Query => text(StatusCode::BAD_REQUEST, "expected /pod?namespace=…&name=…, and perhaps &uid=…\n"),
        }
    }
}

fn question(request: &Request) -> Result<Question, Refusal> {
    let is_pod = request.uri().path() == "/pod";
    if !is_pod && request.uri().path() != DIRECTORIES {
        return Err(Refusal::Path);
    }
    if *request.method() != Method::GET {
        return Err(Refusal::Method);
    }
    if !is_pod {
        return Ok(Question::Directories);
    }
    let query = request.uri().query().unwrap_or_default();
    let value = |key: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(found, _)| *found == key).find_map(|(_, value)| decode(value)).filter(|value| !value.is_empty())
    };
    let (Some(namespace), Some(name)) = (value("namespace"), value("name")) else { return Err(Refusal::Query) };
    Ok(Question::Pod { pod: PodName { namespace, name }, uid: value("uid") })
}

fn say(lookup: &Lookup) -> Response {
    match lookup {
        // The plugin compares the UID itself, and can say which one it was told.
        Lookup::Hit(facts) | Lookup::Waited(facts) | Lookup::OtherUid(facts) => json(facts),
        Lookup::Unknown => text(StatusCode::NOT_FOUND, "no such pod on this node\n"),
        Lookup::Unfilled => text(StatusCode::SERVICE_UNAVAILABLE, "the node's pods have not been listed yet\n"),
    }
}

fn json(answer: &impl Serialize) -> Response {
    match serde_json::to_vec(answer) {
        Ok(json) => content(StatusCode::OK, HeaderValue::from_static("application/json"), json),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, format!("the answer cannot be written: {error}\n")),
    }
}

/// Undoes percent-encoding; `None` for what is none, or is no text.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push(u8::try_from(digit()? << 4 | digit()?).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use hyper::body::Bytes;

    use super::*;

    fn asked(method: Method, target: &str) -> Result<Question, Refusal> {
        let request = hyper::Request::builder().method(method).uri(target).body(Bytes::new()).unwrap();
        question(&request)
    }

    #[test]
    fn a_question_names_namespace_and_name() {
        let pod = PodName { namespace: "shop".into(), name: "web/0".into() };
        let with = asked(Method::GET, "/pod?namespace=shop&name=web%2F0&uid=u%2d1&later=x").unwrap();
        assert_eq!(with, Question::Pod { pod: pod.clone(), uid: Some("u-1".into()) });
        let without = asked(Method::GET, "/pod?name=web%2F0&namespace=shop&uid=").unwrap();
        assert_eq!(without, Question::Pod { pod, uid: None });
        assert_eq!(asked(Method::GET, "/directories").unwrap(), Question::Directories);
    }

    #[test]
    fn whatever_else_is_refused_by_kind() {
        assert_eq!(asked(Method::GET, "/pod?namespace=shop"), Err(Refusal::Query));
        assert_eq!(asked(Method::GET, "/pod?namespace=shop&name=%zz"), Err(Refusal::Query));
        assert_eq!(asked(Method::GET, "/pod?namespace=shop&name=%ff"), Err(Refusal::Query));
        assert_eq!(asked(Method::GET, "/pod"), Err(Refusal::Query));
        assert_eq!(asked(Method::POST, "/pod?namespace=shop&name=web"), Err(Refusal::Method));
        assert_eq!(asked(Method::POST, "/directories"), Err(Refusal::Method));
        assert_eq!(asked(Method::GET, "/pods?namespace=shop&name=web"), Err(Refusal::Path));
    }
}
