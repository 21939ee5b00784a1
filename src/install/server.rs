//! Where the API server is: what the environment says, and what the plugin's kubeconfig says of it.
//!
//! `KUBERNETES_SERVICE_HOST` is an address nearly everywhere. Where it is a name (AKS in kube-system, clusters without
//! kube-proxy), [`Resolver`] looks it up, follows its changes, and the kubeconfig gets an address and `tls-server-name`:
//! the plugin never waits for a DNS server, which may be a pod that waits for the plugin.
#![expect(clippy::disallowed_methods, reason = "owns the resolver's clock")]

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rustls::pki_types::DnsName;
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::serve::shutdown::Shutdown;

/// How often a name is looked up.
#[derive(Clone, Copy)]
struct Pace {
    /// Between two lookups of a name whose address is known.
    refresh: Duration,
    /// Between two lookups of one whose address is not.
    retry: Duration,
    /// The longest that a lookup may take.
    limit: Duration,
}

const PACE: Pace =
    Pace { refresh: Duration::from_secs(30), retry: Duration::from_secs(1), limit: Duration::from_secs(10) };
/// How long an address counts after the last lookup that gave it. The kubeconfig keeps it; the node is not ready any more.
const STALE: Duration = Duration::from_secs(120);

/// The API server, as the environment names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    protocol: String,
    host: Host,
    port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Host {
    Address(IpAddr),
    Name(String),
}

/// Neither an address nor a DNS name.
#[derive(Debug, thiserror::Error)]
#[error("KUBERNETES_SERVICE_HOST is {0:?}, neither an IP address nor a DNS name")]
pub struct InvalidHost(String);

/// The API server, as the kubeconfig names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://ADDRESS:PORT`, IPv6 addresses in brackets.
    pub url: String,
    /// The name in the server's certificate, where that is not the address.
    pub tls_server_name: Option<String>,
}

/// The name of the API server has no address, or no longer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The first lookup goes on.
    #[error("the API server's name {0} (KUBERNETES_SERVICE_HOST) is being looked up")]
    Pending(String),
    /// Lookups fail.
    #[error("the API server's name {name} (KUBERNETES_SERVICE_HOST) cannot be resolved: {reason}; check the pod's DNS policy and the cluster's DNS{}", kept.map(|kept| format!(". The kubeconfig keeps {kept}")).unwrap_or_default())]
    Failing {
        /// The name.
        name: String,
        /// What the last lookup ended with.
        reason: String,
        /// The last known address.
        kept: Option<IpAddr>,
    },
}

/// What is known of the API server's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Located {
    /// What the kubeconfig should say; none before the first successful lookup.
    pub endpoint: Option<Endpoint>,
    /// Why the node is not ready.
    pub fault: Option<Unresolved>,
}

impl Server {
    /// A host that is an address or a DNS name.
    pub fn new(protocol: &str, host: &str, port: u16) -> Result<Self, InvalidHost> {
        let host = match host.parse() {
            Ok(address) => Host::Address(address),
            // Certificates have names without the final dot.
            Err(_) => match DnsName::try_from(host.trim_end_matches('.')) {
                Ok(name) => Host::Name(name.as_ref().to_owned()),
                Err(_) => return Err(InvalidHost(host.chars().take(253).collect())),
            },
        };
        Ok(Self { protocol: protocol.to_owned(), host, port })
    }

    /// Of whom nothing is asked: a removal writes no kubeconfig.
    pub fn none() -> Self {
        Self { protocol: "https".to_owned(), host: Host::Address([0, 0, 0, 0].into()), port: 0 }
    }

    /// What is known without a lookup.
    pub fn literal(&self) -> Located {
        match &self.host {
            Host::Address(address) => Located { endpoint: Some(self.at(*address)), fault: None },
            Host::Name(name) => Located { endpoint: None, fault: Some(Unresolved::Pending(name.clone())) },
        }
    }

    fn at(&self, address: IpAddr) -> Endpoint {
        let url = format!("{}://{}", self.protocol, SocketAddr::new(address, self.port));
        let tls_server_name = match &self.host {
            Host::Address(_) => None,
            Host::Name(name) => Some(name.clone()),
        };
        Endpoint { url, tls_server_name }
    }
}

/// Follows the address of a server that is a name.
#[derive(Debug, Clone)]
pub struct Resolver(watch::Receiver<Located>);

impl Resolver {
    /// Looks the name up until the end is wished; an address needs no lookup.
    pub fn follow(server: &Server, end: Shutdown) -> Self {
        Self::with(server, PACE, end, |name, port| async move {
            Ok(lookup_host((name, port)).await?.map(|address| address.ip()).collect())
        })
    }

    fn with<F, L>(server: &Server, pace: Pace, end: Shutdown, lookup: F) -> Self
    where
        F: Fn(String, u16) -> L + Send + 'static,
        L: Future<Output = io::Result<Vec<IpAddr>>> + Send,
    {
        let (sender, receiver) = watch::channel(server.literal());
        if let Host::Name(name) = server.host.clone() {
            let server = server.clone();
            tokio::spawn(async move {
                let mut known = None;
                loop {
                    let answer = timeout(pace.limit, lookup(name.clone(), server.port)).await;
                    let answer = answer.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                    let located = learn(&server, &name, &mut known, answer, Instant::now());
                    let pause = if located.fault.is_some() { pace.retry } else { pace.refresh };
                    sender.send_if_modified(|last| {
                        let news = *last != located;
                        last.clone_from(&located);
                        news
                    });
                    tokio::select! {
                        () = sleep(pause) => {}
                        () = end.requested() => return,
                    }
                }
            });
        }
        Self(receiver)
    }

    /// What is known now.
    pub fn located(&self) -> Located {
        self.0.borrow().clone()
    }

    /// Waits for news; for ever where none can come.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// An address, and when a lookup gave it last.
type Known = (IpAddr, Instant);

/// What a lookup means. An address that is still among several is kept.
fn learn(
    server: &Server,
    name: &str,
    known: &mut Option<Known>,
    answer: io::Result<Vec<IpAddr>>,
    now: Instant,
) -> Located {
    let reason = match answer {
        Ok(addresses) if !addresses.is_empty() => {
            let kept = known.map(|(address, _)| address).filter(|address| addresses.contains(address));
            let address = kept.unwrap_or(addresses[0]);
            *known = Some((address, now));
            return Located { endpoint: Some(server.at(address)), fault: None };
        }
        Ok(_) => "it has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    let fresh = known.is_some_and(|(_, last)| now.duration_since(last) < STALE);
    let kept = known.map(|(address, _)| address);
    let fault = (!fresh).then(|| Unresolved::Failing { name: name.to_owned(), reason, kept });
    Located { endpoint: kept.map(|address| server.at(address)), fault }
}

#[cfg(test)]
mod tests;
