//! Keeps a certificate at hand: read from files whenever they change, or issued and renewed.
//!
//! `run` starts it as a task. What is of no use is reported, and what there was before stays. It presents nothing.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use rustls::pki_types::UnixTime;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::files::CertificateFiles;
use super::identity::{self, Identity};
use super::issue::{Issued, Lifetime};
use super::metrics::{Metrics, Reload};
use super::store::{self, CertificateStore};
use crate::serve::health::Readiness;
use crate::serve::watch::Watch;

/// The part of readiness that is kept here.
pub(super) const PART: &str = "certificate";
/// Between two looks at files where no event came.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// Files come one after another.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// After an attempt in vain.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

/// Where the server's certificate comes from.
pub enum Certificates {
    /// Somebody else keeps it in files.
    Files(CertificateFiles),
    /// It is made here.
    SelfSigned {
        /// Where it is kept.
        place: CertificateStore,
        /// The names by which the API server connects.
        names: Vec<String>,
        /// How long one is good for.
        lifetime: Lifetime,
    },
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Store(#[from] store::Error),
    #[error("no certificate can be made: {0}")]
    Issue(rcgen::Error),
    #[error("the certificate that is kept is of no use: {0}")]
    Identity(identity::Error),
}

/// The newest certificate, for whoever presents it.
pub(super) type Newest = watch::Sender<Option<Arc<Identity>>>;

/// Never ends by itself.
pub(super) async fn watch(certificates: Certificates, newest: Newest, metrics: Metrics, readiness: Readiness) {
    let publisher = Publisher { newest, metrics, readiness, error: None };
    match certificates {
        Certificates::Files(files) => from_files(&files, publisher).await,
        Certificates::SelfSigned { place, names, lifetime } => issued(&place, &names, lifetime, publisher).await,
    }
}

/// Who hears of what was found.
struct Publisher {
    newest: Newest,
    metrics: Metrics,
    readiness: Readiness,
    /// What was wrong at the last look: it is said once.
    error: Option<String>,
}

impl Publisher {
    fn publish(&mut self, found: Result<Identity, String>) {
        match found {
            Ok(identity) => {
                self.error = None;
                self.readiness.ready(PART);
                let is_new = |known: &mut Option<Arc<Identity>>| {
                    let new = known.as_ref().is_none_or(|known| !known.is_same(&identity));
                    if new {
                        *known = Some(Arc::new(identity));
                    }
                    new
                };
                if self.newest.send_if_modified(is_new) {
                    self.metrics.reloaded(Reload::Certificate, true);
                    tracing::info!("there is a new certificate");
                }
            }
            Err(error) if self.error.as_ref() == Some(&error) => {}
            Err(error) => {
                self.metrics.reloaded(Reload::Certificate, false);
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

async fn issued(place: &CertificateStore, names: &[String], lifetime: Lifetime, mut publisher: Publisher) {
    let changed = Notify::new();
    let looking = async {
        loop {
            let found = current(place, names, lifetime).await;
            let pause = if found.is_ok() { lifetime.interval() } else { RETRY_INTERVAL };
            publisher.publish(found.map_err(|error| error.to_string()));
            let _ = timeout(pause, changed.notified()).await;
        }
    };
    tokio::join!(looking, listen(place, &changed));
}

/// The step from the stored certificate to one that lasts.
pub(super) enum Step {
    Use(Identity),
    /// Store this one first.
    Store(Issued),
}

/// Decides about the stored certificate.
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

/// The certificate that is kept, renewed or made where it must be.
async fn current(place: &CertificateStore, names: &[String], lifetime: Lifetime) -> Result<Identity, Error> {
    loop {
        let found = place.load().await?;
        let new = match next(found.issued.as_ref(), names, lifetime, UnixTime::now())? {
            Step::Use(identity) => return Ok(identity),
            Step::Store(new) => new,
        };
        match place.save(&new, found).await {
            Ok(()) => return new.identity().map_err(Error::Identity),
            Err(store::Error::Conflict) => tracing::debug!("another replica has made a certificate"),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Tells when another replica has written the Secret. A directory is looked at now and then.
async fn listen(place: &CertificateStore, changed: &Notify) {
    let CertificateStore::Secret { client, namespace, name } = place else { return };
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
