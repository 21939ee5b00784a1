//! The client of the API server: reads one Pod, if the agent returned no [`PodFacts`].
//!
//! Each request opens its own connection with blocking rustls, without pool or async runtime, because a plugin usually
//! sends one request and exits. The token appears only in the request.

#![expect(clippy::disallowed_methods, reason = "connects to the API server")]

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use podfacts::{ExtractError, PodFacts, PodName, requests};
use rustls::{ClientConnection, StreamOwned};

use super::deadline::{Deadline, Timed};
use super::http::{self, Limits};
use super::kubeconfig::{self, Kubeconfig};

mod tls;

/// Size limits of the API server's response; etcd stores objects of up to 1.5 MiB.
pub const LIMITS: Limits = Limits { head: 16 << 10, body: 4 << 20 };

/// Why the API server returned no [`PodFacts`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::Error),
    #[error("kubeconfig: cluster.certificate-authority-data contains no usable certificate: {0}")]
    Authorities(String),
    #[error("cannot connect to the API server at {server}: {error}")]
    Connect { server: SocketAddr, error: io::Error },
    /// The certificate is not from one of the kubeconfig's authorities, or the handshake failed otherwise.
    #[error("TLS with the API server at {server}: {error}")]
    Tls { server: SocketAddr, error: rustls::Error },
    /// The exchange failed: too slow, too large, interrupted, or not HTTP.
    #[error("the API server at {server}: {error}")]
    Exchange { server: SocketAddr, error: http::Error },
    /// The response is an error instead of a Pod.
    #[error("the API server at {server} responds with {status}: {message}{}", .refusal.advice())]
    Refused {
        server: SocketAddr,
        refusal: Refusal,
        status: u16,
        /// The `message` of the Status object, or the start of the body.
        message: String,
    },
    /// The response is not a valid Pod.
    #[error("the API server at {server}: {error}")]
    Facts { server: SocketAddr, error: ExtractError },
}

/// The class of an error response, by its HTTP status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// 401: the token is not valid, or not valid yet.
    Unauthorized,
    /// 403: the token's account may not read pods.
    Forbidden,
    /// 404: the pod does not exist.
    NotFound,
    /// 409
    Conflict,
    /// 429.
    Throttled,
    /// 5xx
    Server,
    /// Any other status, which no response to a GET should have.
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
            Self::Forbidden => "; the kubeconfig's service account must be allowed to get pods",
            _ => "",
        }
    }
}

/// Reads a pod with the credentials of a kubeconfig, within `limit` including the connection.
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
    // The handshake's last flight and the request are two writes; Nagle's algorithm would delay the second until an
    // ACK.
    stream.set_nodelay(true).map_err(connect)?;
    let mut stream = StreamOwned::new(connection, Timed { stream, deadline });
    let request = request(config, pod);
    http::exchange(&mut stream, request.as_bytes(), LIMITS).map_err(|error| classify(server, error))
}

fn request(config: &Kubeconfig, pod: &PodName) -> String {
    let target =
        format!("/api/v1/namespaces/{}/pods/{}", requests::encode(&pod.namespace), requests::encode(&pod.name));
    let headers = format!("User-Agent: istio-cni\r\nAuthorization: Bearer {}\r\n", config.token.secret());
    http::get(&target, &config.server.to_string(), &headers)
}

/// Separates TLS failures, which rustls returns inside an `io::Error`, from other failures.
fn classify(server: SocketAddr, error: http::Error) -> Error {
    let tls = match &error {
        http::Error::Io(error) => error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned(),
        _ => None,
    };
    match tls {
        Some(error) => Error::Tls { server, error },
        None => Error::Exchange { server, error },
    }
}

/// Returns the truncated `message` of a Kubernetes Status object, or the start of the body.
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
