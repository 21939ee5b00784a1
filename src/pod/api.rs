//! Reads one Pod from the API server: the way to a pod's facts where no agent answers.
//!
//! Blocking rustls over one connection, no pool, no runtime: a plugin asks once and ends. The token appears in the
//! request and nowhere else.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};

use super::deadline::{Deadline, Timed};
use super::http::{self, Limits};
use super::kubeconfig::{self, Kubeconfig};
use super::{ExtractError, PodFacts, PodName};

mod tls;

/// The most that the API server may answer; etcd holds objects of 1.5 MiB.
pub const LIMITS: Limits = Limits { head: 16 << 10, body: 4 << 20 };

/// Why the API server gives no facts.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The plugin does not know how to reach it.
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    /// The kubeconfig's authorities are no certificates.
    #[error("kubeconfig: cluster.certificate-authority-data holds no usable certificate: {0}")]
    Authorities(String),
    /// No connection.
    #[error("cannot connect to the API server at {server}: {error}")]
    Connect {
        /// Its address.
        server: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// A connection, but not to whom the kubeconfig's authorities have certified.
    #[error("TLS with the API server at {server}: {error}")]
    Tls {
        /// Its address.
        server: SocketAddr,
        /// Why.
        error: rustls::Error,
    },
    /// The exchange failed: slow, oversized, broken off or no HTTP.
    #[error("the API server at {server}: {error}")]
    Exchange {
        /// Its address.
        server: SocketAddr,
        /// How.
        error: http::Error,
    },
    /// It answers, but not with a Pod.
    #[error("the API server at {server} answers {status}: {message}{}", .refusal.advice())]
    Refused {
        /// Its address.
        server: SocketAddr,
        /// What that means.
        refusal: Refusal,
        /// The HTTP status.
        status: u16,
        /// The `message` of its Status, or the start of what it sends.
        message: String,
    },
    /// It answers with a Pod that gives no facts.
    #[error("the API server at {server}: {error}")]
    Facts {
        /// Its address.
        server: SocketAddr,
        /// Why.
        error: ExtractError,
    },
}

/// What a status means for the pod that is waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 401: the token is not valid, or not yet.
    Unauthorized,
    /// 403: the token's owner may not read pods.
    Forbidden,
    /// 404: there is no such pod.
    NotFound,
    /// 409
    Conflict,
    /// 429: come back later.
    Throttled,
    /// 5xx
    Server,
    /// Nothing that a GET should be answered.
    Other,
}

impl Refusal {
    fn of(status: u16) -> Self {
        match status {
            401 => Self::Unauthorized,
            403 => Self::Forbidden,
            404 => Self::NotFound,
            409 => Self::Conflict,
            429 => Self::Throttled,
            500..=599 => Self::Server,
            _ => Self::Other,
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::Unauthorized => "; is the node agent running, which keeps the kubeconfig's token fresh?",
            Self::Forbidden => "; check that the service account istio-cni may get pods",
            _ => "",
        }
    }
}

/// Reads a pod with what a kubeconfig says. Takes at most `limit`, connecting included.
pub fn get(kubeconfig: &Path, pod: &PodName, limit: Duration) -> Result<PodFacts, Error> {
    let config = kubeconfig::load(kubeconfig)?;
    let server = config.server;
    let response = fetch(&config, pod, limit)?;
    match response.status {
        200 => PodFacts::from_pod_json(&response.body).map_err(|error| Error::Facts { server, error }),
        status => {
            let message = status_message(&response.body);
            Err(Error::Refused { server, refusal: Refusal::of(status), status, message })
        }
    }
}

fn fetch(config: &Kubeconfig, pod: &PodName, limit: Duration) -> Result<http::Response, Error> {
    let server = config.server;
    let deadline = Deadline::after(limit);
    let tls = tls::client_config(&config.trust)?;
    let connection =
        ClientConnection::new(tls, config.server_name.clone()).map_err(|error| Error::Tls { server, error })?;

    let connect = |error| Error::Connect { server, error };
    let stream = deadline.left().and_then(|left| TcpStream::connect_timeout(&server, left)).map_err(connect)?;
    // The handshake's last flight and the request are two writes: Nagle's algorithm would wait for an ACK in between.
    stream.set_nodelay(true).map_err(connect)?;
    let mut stream = StreamOwned::new(connection, Timed { stream, deadline });
    let request = request(config, pod);
    http::exchange(&mut stream, request.as_bytes(), LIMITS).map_err(|error| tell_apart(server, error))
}

fn request(config: &Kubeconfig, pod: &PodName) -> String {
    let target = format!("/api/v1/namespaces/{}/pods/{}", http::encode(&pod.namespace), http::encode(&pod.name));
    let headers = format!("User-Agent: istio-cni\r\nAuthorization: Bearer {}\r\n", config.token.secret());
    http::get(&target, &config.server.to_string(), &headers)
}

/// rustls hands its errors through `io::Error`.
fn tell_apart(server: SocketAddr, error: http::Error) -> Error {
    let tls = match &error {
        http::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned(),
        _ => None,
    };
    match tls {
        Some(error) => Error::Tls { server, error },
        None => Error::Exchange { server, error },
    }
}

/// The `message` of a Kubernetes Status object, cut; else the start of the body.
fn status_message(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Status {
        message: String,
    }
    match serde_json::from_slice::<Status>(body) {
        Ok(status) => http::excerpt(status.message.as_bytes()),
        Err(_) => http::excerpt(body),
    }
}
