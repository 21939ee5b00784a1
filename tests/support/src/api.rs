//! An API server double for tests: real HTTP over TCP, a store with versions and watches, and faults on demand.
//!
//! Daemons under test connect with `kube::Client`. The double stores any resource by its path, checks preconditions as
//! the real API server does, and records each request.

mod fault;
mod response;
mod route;
mod select;
mod store;
mod watch;
mod write;

pub use fault::Fault;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine as _;
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::sync::watch::Sender;
use tokio::task::{AbortHandle, JoinSet};

use crate::DEADLINE;
use fault::{Faults, Injected};
use response::{Body, Failure};
use store::{Key, Store};

/// A received request.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub path: String,
    pub query: String,
    pub content_type: String,
    pub authorization: String,
    /// `null` without a body.
    pub body: Value,
    pub at: Instant,
}

impl Seen {
    /// Returns method and path, as in `GET /api/v1/pods`.
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A server that runs until it is dropped, on the runtime that started it.
pub struct Api {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

/// The state that connections share.
struct Shared {
    store: Mutex<Store>,
    faults: Mutex<Faults>,
    /// Resources for which the response to a SelfSubjectAccessReview is a denial.
    denied: Mutex<Vec<String>>,
    /// Fixed responses by path, such as those of pods that the API server proxies requests to.
    responses: Mutex<BTreeMap<String, (u16, Bytes)>>,
    seen: Mutex<Vec<Seen>>,
    changed: Notify,
    /// Changes when the held requests are released.
    releases: Sender<()>,
}

impl Shared {
    fn store(&self) -> MutexGuard<'_, Store> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Api {
    /// Listens on a free loopback port.
    pub async fn start() -> Self {
        Self::listen((Ipv4Addr::LOCALHOST, 0).into()).await
    }

    /// Listens on an address, for example on the address of a stopped server to end an outage.
    pub async fn listen(address: SocketAddr) -> Self {
        Self::serve(TcpListener::bind(address).await.expect("an address to listen on"))
    }

    /// Serves a listener, for example one in another network namespace.
    pub fn serve(listener: TcpListener) -> Self {
        let address = listener.local_addr().expect("its address");
        let shared = Arc::new(Shared {
            store: Mutex::default(),
            faults: Mutex::default(),
            denied: Mutex::default(),
            responses: Mutex::default(),
            seen: Mutex::default(),
            changed: Notify::new(),
            releases: Sender::default(),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone())).abort_handle();
        Self { address, shared, accepting }
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the server's URL, for configurations.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a client with its own connections that does not retry after 429, 503 or 504.
    pub fn client(&self) -> kube::Client {
        let mut config = kube::Config::new(self.url().parse().expect("a URL"));
        config.default_retry = false;
        kube::Client::try_from(config).expect("a client")
    }

    /// Creates or replaces an object as another client would. Its `kind` determines the resource.
    pub fn put(&self, object: Value) -> Value {
        let key = Key::of(&object);
        let stored = self.shared.store().put(key, object);
        self.shared.changed.notify_waiters();
        stored
    }

    /// Removes an object immediately, regardless of its grace period.
    pub fn remove(&self, resource: &str, namespace: &str, name: &str) {
        self.shared.store().remove(&Key::new(resource, namespace, name));
        self.shared.changed.notify_waiters();
    }

    /// Returns the current object. The namespace of cluster-scoped objects is `""`.
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        self.shared.store().get(&Key::new(resource, namespace, name)).cloned()
    }

    /// Returns all objects of a resource.
    pub fn list(&self, resource: &str) -> Vec<Value> {
        self.shared
            .store()
            .list(resource, None, &select::Query::default())
            .into_iter()
            .map(|stored| stored.object.clone())
            .collect()
    }

    /// Responds to requests for a path with this status and body.
    pub fn respond(&self, path: &str, status: u16, body: impl Into<Bytes>) {
        let mut responses = self.shared.responses.lock().unwrap_or_else(PoisonError::into_inner);
        responses.insert(path.to_owned(), (status, body.into()));
    }

    /// Adds a fault; the first matching fault applies.
    pub fn fault(&self, fault: Fault) {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
    }

    /// Makes SelfSubjectAccessReviews deny this resource. The double still allows requests for it.
    pub fn deny(&self, resource: &str) {
        self.shared.denied.lock().unwrap_or_else(PoisonError::into_inner).push(resource.to_owned());
    }

    /// Removes all faults.
    pub fn heal(&self) {
        self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Responds to all requests that [`Fault::held`] has stopped.
    pub fn release(&self) {
        self.shared.releases.send_replace(());
    }

    /// Closes all watches without an event, as a load balancer does.
    pub fn break_watches(&self) {
        self.shared.store().break_watches();
    }

    /// Discards the history, as compaction does: open watches and those that resume from an earlier version end with
    /// 410.
    pub fn expire_watches(&self) {
        self.shared.store().expire();
    }

    /// Sends a bookmark with the current version to watches that allow bookmarks.
    pub fn bookmark(&self) {
        self.shared.store().bookmark();
    }

    /// Returns the number of open watches of a resource.
    pub fn watches(&self, resource: &str) -> usize {
        self.shared.store().watches(resource)
    }

    /// Returns all requests so far.
    pub fn requests(&self) -> Vec<Seen> {
        self.shared.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the requests with this method and path suffix.
    pub fn requests_to(&self, method: &str, end: &str) -> Vec<Seen> {
        self.requests().into_iter().filter(|seen| seen.method == method && seen.path.ends_with(end)).collect()
    }

    /// Waits until `look` returns a value. Panics with `what` and the received requests after a time limit.
    pub async fn until<T>(&self, what: &str, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let changed = self.shared.changed.notified();
            if let Some(found) = look(self) {
                return found;
            }
            // Also polls, because a watch or a metric may change without a request.
            let _ = tokio::time::timeout(Duration::from_millis(5), changed).await;
            let lines = || self.requests().iter().map(Seen::line).collect::<Vec<_>>().join("\n");
            assert!(
                tokio::time::Instant::now() < deadline,
                "timed out after {DEADLINE:?} waiting for: {what}; requests:\n{}",
                lines()
            );
        }
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// Accepts connections and serves each on a task. These tasks end with this one, because it owns their `JoinSet`.
async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                let _ = stream.set_nodelay(true);
                connections.spawn(connection(stream, shared.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let service = service_fn(|request| serve(request, shared.clone()));
    // Clients may disconnect at any time.
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Handles a request. An error closes the connection without a response.
async fn serve(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, fault::Cut> {
    let seen = record(request).await;
    // Subscribes before the test can see the request and release it.
    let mut releases = shared.releases.subscribe();
    let injected = shared.faults.lock().unwrap_or_else(PoisonError::into_inner).find(&seen);
    shared.seen.lock().unwrap_or_else(PoisonError::into_inner).push(seen.clone());
    let respond = || Ok(respond(&seen, &shared).unwrap_or_else(|failure| failure.response()));
    let response = match injected {
        Some(Injected::Response(failure)) => Ok(failure.response()),
        Some(Injected::Silence) => std::future::pending().await,
        Some(Injected::Cut) => Err(fault::Cut),
        Some(Injected::Held) => {
            // An error means that the double is about to end.
            let _ = releases.changed().await;
            respond()
        }
        None => respond(),
    };
    shared.changed.notify_waiters();
    response
}

async fn record(request: Request<Incoming>) -> Seen {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let header = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    Seen {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        content_type: header("content-type"),
        authorization: header("authorization"),
        body: serde_json::from_slice(&bytes).unwrap_or_default(),
        at: Instant::now(),
    }
}

fn respond(seen: &Seen, shared: &Shared) -> Result<Response<Body>, Failure> {
    if let Some((status, body)) = shared.responses.lock().unwrap_or_else(PoisonError::into_inner).get(&seen.path) {
        return Ok(response::raw(*status, body.clone()));
    }
    let target = route::parse(&seen.path).ok_or_else(|| Failure::not_found(&seen.path))?;
    let query = select::Query::parse(&seen.query);
    let mut store = shared.store();
    match (seen.method.as_str(), target.key(), target.subresource.as_deref()) {
        ("GET", None, None) if query.is("watch") => watch::open(&mut store, &target, &query),
        ("GET", None, None) => Ok(response::list(&store, &target, &query)),
        ("GET", Some(key), None | Some("status")) => Ok(response::object(200, store.known(&key)?)),
        ("POST", None, None) if target.resource == "selfsubjectaccessreviews" => {
            let denied = shared.denied.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(write::review(&denied, seen))
        }
        ("POST", None, None) => write::create(&mut store, &target, seen),
        ("POST", Some(key), Some("eviction")) => write::evict(&mut store, &key, seen),
        ("POST", Some(key), Some("token")) => {
            let seen_so_far = shared.seen.lock().unwrap_or_else(PoisonError::into_inner);
            let number = seen_so_far.iter().filter(|other| other.path == seen.path).count();
            write::issue(&store, &key, seen, number)
        }
        ("PATCH", Some(key), subresource) => write::patch(&mut store, &key, subresource, seen),
        ("PUT", Some(key), subresource) => write::replace(&mut store, &key, subresource, seen),
        ("DELETE", Some(key), None) => write::delete(&mut store, &key, &seen.body),
        _ => Err(Failure::status(405, "MethodNotAllowed", &seen.line())),
    }
}

/// The error type of response bodies, which never fail.
type Never = Infallible;

/// Writes a kubeconfig for the server at `url`. It contains a CA, as a cluster's kubeconfig does: without one, the
/// client would read all CAs of the machine.
pub fn kubeconfig(path: &Path, url: &str) {
    let authority = rcgen::generate_simple_self_signed(["kubernetes".to_owned()]).expect("a certificate");
    let authority = base64::engine::general_purpose::STANDARD.encode(authority.cert.pem());
    let cluster = format!("{{server: '{url}', certificate-authority-data: {authority}}}");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {cluster}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n"
    );
    std::fs::write(path, text).expect("a kubeconfig is written");
}
