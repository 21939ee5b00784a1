//! Obtains the server's newest certificate: reads it from files whenever they change, or issues and renews it.
//!
//! `server` starts [`watch`] as a task; `present` presents the certificate to API servers. If a new certificate is
//! invalid, the former one stays in use.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use rustls::pki_types::UnixTime;
use serve::health::Readiness;
use serve::watch::Watch;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::activity::Reload;
use super::files::CertificateFiles;
use super::identity::{self, Identity};
use super::issue::{Issued, Lifetime};
use super::metrics::Metrics;
use super::store::{self, CertificateStore};

/// The name under which this module reports its readiness.
pub(super) const PART: &str = "certificate";
/// The interval at which files are read if no event reports a change.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// The delay after an event, because files change one after another.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The delay after a failed attempt.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The number of attempts to store a certificate. An attempt fails if another replica writes to the store at the same
/// time; after the last attempt, this failure is an error.
const ATTEMPTS: u32 = 5;
/// The pause after an attempt that failed because another replica wrote to the store.
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);

/// The source of the server's certificate.
pub enum Certificates {
    /// Files that another program maintains.
    Files(CertificateFiles),
    /// Certificates that this program issues.
    SelfSigned {
        /// The store of the certificate.
        store: CertificateStore,
        /// The names by which the API server connects.
        names: Vec<String>,
        /// The validity of a certificate.
        lifetime: Lifetime,
    },
}

/// No certificate can be obtained.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("the webhook's certificate cannot be created: {0}")]
    Issue(rcgen::Error),
    #[error("the stored certificate is invalid: {0}")]
    Identity(identity::Error),
}

/// The channel through which `watch` publishes the newest certificate.
pub(super) type Newest = watch::Sender<Option<Arc<Identity>>>;

/// Keeps `newest` current. Never returns.
pub(super) async fn watch(certificates: Certificates, newest: Newest, metrics: Metrics, readiness: Readiness) {
    let publisher = Publisher { newest, metrics, readiness, error: None };
    match certificates {
        Certificates::Files(files) => from_files(&files, publisher).await,
        Certificates::SelfSigned { store, names, lifetime } => issued(&store, &names, lifetime, publisher).await,
    }
}

/// Publishes certificates and errors: to `present`, metrics, readiness and log.
struct Publisher {
    newest: Newest,
    metrics: Metrics,
    readiness: Readiness,
    /// The last error, which is logged once.
    error: Option<String>,
}

impl Publisher {
    fn publish(&mut self, found: Result<Identity, String>) {
        match found {
            Ok(identity) => {
                if self.error.take().is_some() {
                    self.metrics.activity().recovered(Reload::Certificate);
                }
                self.readiness.ready(PART);
                let is_new = |known: &mut Option<Arc<Identity>>| {
                    let new = known.as_ref().is_none_or(|known| !known.is_same(&identity));
                    if new {
                        *known = Some(Arc::new(identity));
                    }
                    new
                };
                if self.newest.send_if_modified(is_new) {
                    self.metrics.reloaded(Reload::Certificate, None);
                    tracing::info!("there is a new certificate");
                }
            }
            Err(error) if self.error.as_ref() == Some(&error) => {}
            Err(error) => {
                self.metrics.reloaded(Reload::Certificate, Some(&error));
                tracing::warn!("{error}");
                if self.newest.borrow().is_none() {
                    self.readiness.missing(PART, error.clone());
                }
                self.error = Some(error);
            }
        }
    }
}

async fn from_files(files: &CertificateFiles, mut publisher: Publisher) {
    let mut watch = Watch::new(files.directories());
    loop {
        watch.renew();
        let found = files.load().map_err(|error| error.to_string());
        let poll = if found.is_ok() { RESYNC_INTERVAL } else { RETRY_INTERVAL };
        publisher.publish(found);
        watch.changed(poll).await;
        sleep(DEBOUNCE).await;
    }
}

async fn issued(store: &CertificateStore, names: &[String], lifetime: Lifetime, mut publisher: Publisher) {
    let changed = Notify::new();
    let looking = async {
        loop {
            let found = current(store, names, lifetime).await;
            let pause = if found.is_ok() { lifetime.interval() } else { RETRY_INTERVAL };
            publisher.publish(found.map_err(|error| error.to_string()));
            let _ = timeout(pause, changed.notified()).await;
        }
    };
    tokio::join!(looking, listen(store, &changed));
}

/// The next step towards a certificate that is stored and does not expire soon.
pub(super) enum Step {
    Use(Identity),
    /// No usable certificate is stored: store this new one before it is used.
    Store(Issued),
}

/// Decides whether the stored certificate can be used or a new one must be stored.
pub(super) fn next(
    stored: Option<&Issued>,
    names: &[String],
    lifetime: Lifetime,
    now: UnixTime,
) -> Result<Step, Error> {
    if let Some(issued) = stored {
        match issued.lasts(names, lifetime, now) {
            Ok(()) => return issued.identity().map(Step::Use).map_err(Error::Identity),
            Err(reason) => tracing::info!(%reason, "the certificate is renewed"),
        }
    }
    Issued::new(names, lifetime, now, stored).map(Step::Store).map_err(Error::Issue)
}

/// Returns the stored certificate, or a new one if it is absent or must be renewed.
///
/// # Errors
/// No certificate can be issued or parsed, the store cannot be read or written, or all [`ATTEMPTS`] conflicted with
/// other replicas' writes.
async fn current(store: &CertificateStore, names: &[String], lifetime: Lifetime) -> Result<Identity, Error> {
    for _ in 1..ATTEMPTS {
        match attempt(store, names, lifetime).await {
            Err(Error::Store(store::Error::Conflict)) => tracing::debug!("another replica has made a certificate"),
            result => return result,
        }
        sleep(CONFLICT_PAUSE).await;
    }
    attempt(store, names, lifetime).await
}

async fn attempt(store: &CertificateStore, names: &[String], lifetime: Lifetime) -> Result<Identity, Error> {
    let found = store.load().await?;
    match next(found.issued.as_ref(), names, lifetime, UnixTime::now())? {
        Step::Use(identity) => Ok(identity),
        Step::Store(new) => {
            store.save(&new, found).await?;
            new.identity().map_err(Error::Identity)
        }
    }
}

/// Notifies `changed` when the Secret is written or deleted. Returns at once for a directory, which is only polled.
async fn listen(store: &CertificateStore, changed: &Notify) {
    let CertificateStore::Secret { client, namespace, name } = store else { return };
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher(Api::<Secret>::namespaced(client.clone(), namespace), config).default_backoff());
    while let Some(event) = events.next().await {
        match event {
            Ok(watcher::Event::Apply(_) | watcher::Event::Delete(_)) => changed.notify_one(),
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "the watch of the certificate's secret"),
        }
    }
}
