//! The address of the API server, from the environment, for the plugin's kubeconfig.
//!
//! `KUBERNETES_SERVICE_HOST` is usually an address. If it is a name (AKS in kube-system, clusters without kube-proxy),
//! [`Resolver`] looks it up repeatedly, and the kubeconfig gets the address and `tls-server-name`. The plugin itself never
//! depends on a DNS server, which may be a pod that cannot start before the plugin has run.
#![expect(clippy::disallowed_methods, reason = "owns the resolver's clock")]

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use rustls::pki_types::DnsName;
use serve::shutdown::Shutdown;
use serve::tasks::Supervisor;
use tokio::net::lookup_host;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

/// The intervals and the time limit of lookups.
#[derive(Clone, Copy)]
struct Intervals {
    /// The interval after a successful lookup, or after a failed one while the last known address is not outdated.
    refresh: Duration,
    /// The interval after a failed lookup that makes the node unready.
    retry: Duration,
    /// The time limit of a lookup.
    limit: Duration,
}

const INTERVALS: Intervals =
    Intervals { refresh: Duration::from_secs(30), retry: Duration::from_secs(1), limit: Duration::from_secs(10) };
/// The time after the last successful lookup during which failed lookups do not affect readiness. The kubeconfig keeps
/// the address even longer.
const ADDRESS_LIFETIME: Duration = Duration::from_secs(120);

/// The API server as the environment of a pod names it: protocol, host and port.
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

/// The host is neither an IP address nor a DNS name.
#[derive(Debug, thiserror::Error)]
#[error("KUBERNETES_SERVICE_HOST is {0:?}, neither an IP address nor a DNS name")]
pub struct InvalidHost(String);

/// The API server as the kubeconfig names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `https://ADDRESS:PORT`, IPv6 addresses in brackets.
    pub url: String,
    /// The name in the server's certificate, unless it is the address.
    pub tls_server_name: Option<String>,
}

/// The address of the API server is unknown or outdated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unresolved {
    /// The first lookup has not ended.
    #[error("the API server's name {0} (KUBERNETES_SERVICE_HOST) is being looked up")]
    Pending(String),
    /// Lookups fail.
    #[error("the API server's name {name} (KUBERNETES_SERVICE_HOST) cannot be resolved: {reason}; check the pod's DNS policy and the cluster's DNS{}", kept.map(|kept| format!(". The kubeconfig keeps {kept}")).unwrap_or_default())]
    Failing {
        name: String,
        /// The result of the last lookup.
        reason: String,
        /// The last known address.
        kept: Option<IpAddr>,
    },
}

/// The result of the lookups of the API server's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The kubeconfig's endpoint; `None` before the first successful lookup.
    pub endpoint: Option<Endpoint>,
    /// Why the node is not ready, if the lookups are the cause.
    pub unresolved: Option<Unresolved>,
}

impl Server {
    /// Creates the value; fails if `host` is neither an address nor a DNS name.
    pub fn new(protocol: &str, host: &str, port: u16) -> Result<Self, InvalidHost> {
        let host = match host.parse() {
            Ok(address) => Host::Address(address),
            // Names in certificates have no final dot.
            Err(_) => match DnsName::try_from(host.trim_end_matches('.')) {
                Ok(name) => Host::Name(name.as_ref().to_owned()),
                Err(_) => return Err(InvalidHost(host.chars().take(253).collect())),
            },
        };
        Ok(Self { protocol: protocol.to_owned(), host, port })
    }

    /// Returns a placeholder for removals, which write no kubeconfig.
    pub fn unspecified() -> Self {
        Self { protocol: "https".to_owned(), host: Host::Address([0, 0, 0, 0].into()), port: 0 }
    }

    /// Returns the result before any lookup, which is final if the host is an address.
    pub fn without_lookup(&self) -> Resolution {
        match &self.host {
            Host::Address(address) => Resolution { endpoint: Some(self.at(*address)), unresolved: None },
            Host::Name(name) => Resolution { endpoint: None, unresolved: Some(Unresolved::Pending(name.clone())) },
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

/// Looks up the API server's name repeatedly and provides the result.
#[derive(Debug, Clone)]
pub struct Resolver(watch::Receiver<Resolution>);

impl Resolver {
    /// Starts the lookups, which end when shutdown is requested. An address needs no lookup.
    pub fn start(server: &Server, supervisor: &Supervisor, shutdown: &Shutdown) -> Self {
        let (resolver, lookups) = Self::new(server, INTERVALS, |name, port| async move {
            Ok(lookup_host((name, port)).await?.map(|address| address.ip()).collect())
        });
        if let Some(lookups) = lookups {
            tokio::spawn(supervisor.run("resolver", shutdown, lookups));
        }
        resolver
    }

    /// Creates the resolver, and the lookups, which never end; none of an address.
    fn new<F, L>(
        server: &Server,
        intervals: Intervals,
        lookup: F,
    ) -> (Self, Option<impl Future<Output = ()> + Send + use<F, L>>)
    where
        F: Fn(String, u16) -> L + Send + Sync + 'static,
        L: Future<Output = io::Result<Vec<IpAddr>>> + Send + 'static,
    {
        let (sender, receiver) = watch::channel(server.without_lookup());
        let Host::Name(name) = server.host.clone() else { return (Self(receiver), None) };
        let server = server.clone();
        let lookups = async move {
            let mut known = None;
            loop {
                let addresses = timeout(intervals.limit, lookup(name.clone(), server.port)).await;
                let addresses = addresses.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                let resolution = evaluate(&server, &name, &mut known, addresses, Instant::now());
                let pause = if resolution.unresolved.is_some() { intervals.retry } else { intervals.refresh };
                sender.send_if_modified(|last| {
                    let is_changed = *last != resolution;
                    last.clone_from(&resolution);
                    is_changed
                });
                sleep(pause).await;
            }
        };
        (Self(receiver), Some(lookups))
    }

    /// Returns the current result.
    pub fn resolution(&self) -> Resolution {
        self.0.borrow().clone()
    }

    /// Returns after the result has changed; never if it cannot change.
    pub async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// An address and the time of the last lookup that returned it.
type Known = (IpAddr, Instant);

/// Returns the result after a lookup. The known address is kept if the lookup returned it, so that round-robin DNS changes nothing.
fn evaluate(
    server: &Server,
    name: &str,
    known: &mut Option<Known>,
    addresses: io::Result<Vec<IpAddr>>,
    now: Instant,
) -> Resolution {
    let reason = match addresses {
        Ok(addresses) if !addresses.is_empty() => {
            let kept = known.map(|(address, _)| address).filter(|address| addresses.contains(address));
            let address = kept.unwrap_or(addresses[0]);
            *known = Some((address, now));
            return Resolution { endpoint: Some(server.at(address)), unresolved: None };
        }
        Ok(_) => "it has no address".to_owned(),
        Err(error) => error.to_string(),
    };
    let fresh = known.is_some_and(|(_, last)| now.duration_since(last) < ADDRESS_LIFETIME);
    let kept = known.map(|(address, _)| address);
    let unresolved = (!fresh).then(|| Unresolved::Failing { name: name.to_owned(), reason, kept });
    Resolution { endpoint: kept.map(|address| server.at(address)), unresolved }
}

#[cfg(test)]
mod tests;
