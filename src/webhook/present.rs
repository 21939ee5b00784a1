//! Shows the newest certificate once the API server would believe it, and sees to it that it will.
//!
//! `run` starts it as a task. Only here webhook configurations are watched and patched.
#![expect(clippy::disallowed_methods, reason = "reads the clock: certificates end, and patches must not come too fast")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::stream::BoxStream;
use futures::{StreamExt as _, stream};
use hyper::Request;
use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use rustls::pki_types::UnixTime;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::bundle::{self, Correction, Hook, Selection};
use super::identity::Identity;
use super::metrics::Metrics;
use crate::serve::health::Readiness;
use crate::serve::tls::Tls;

/// The part of readiness that is kept here.
pub(super) const PART: &str = "caBundle";
/// Between two looks where nothing happens: certificates end without an event.
const SAFETY_NET: Duration = Duration::from_secs(30);
/// While a certificate waits to be shown, or a patch to be sent again.
const IMPATIENT: Duration = Duration::from_millis(100);
/// The longest time between two patches.
const SLOWEST: Duration = Duration::from_secs(60);
/// Longer than this no patch is waited for.
const LIMIT: Duration = Duration::from_secs(10);

/// Where configurations are, and which are ours.
pub(super) struct Managed {
    pub(super) client: Client,
    pub(super) selection: Selection,
    /// API servers hear of a new caBundle a little later than whoever wrote it.
    pub(super) settle: Duration,
}

/// Never ends by itself.
pub(super) async fn present(
    managed: Option<Managed>,
    newest: watch::Receiver<Option<Arc<Identity>>>,
    tls: Tls,
    metrics: Metrics,
    readiness: Readiness,
) {
    match managed {
        None => at_once(newest, &tls, &metrics).await,
        Some(managed) => Presenter::new(managed, newest, tls, metrics, readiness).follow().await,
    }
}

/// Where nobody looks after a caBundle, whoever does is trusted to have done so.
async fn at_once(mut newest: watch::Receiver<Option<Arc<Identity>>>, tls: &Tls, metrics: &Metrics) {
    loop {
        if let Some(identity) = &*newest.borrow_and_update() {
            tls.present(identity.certified());
            metrics.presents();
        }
        if newest.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

struct Presenter {
    managed: Managed,
    newest: watch::Receiver<Option<Arc<Identity>>>,
    tls: Tls,
    metrics: Metrics,
    readiness: Readiness,
    known: BTreeMap<String, MutatingWebhookConfiguration>,
    listed: bool,
    presented: Option<Arc<Identity>>,
    /// Since when the newest one is believed.
    believed: Option<Instant>,
    /// The newest one is so new that the bundle has not been written for it.
    fresh: bool,
    pace: Pace,
}

/// When the next patch may be sent: ever later where patching does not help.
struct Pace {
    wait: Duration,
    next: Instant,
}

impl Pace {
    fn reset(&mut self) {
        self.wait = IMPATIENT;
    }

    fn take(&mut self, now: Instant) -> bool {
        let may = now >= self.next;
        if may {
            self.next = now + self.wait;
            self.wait = (self.wait * 2).min(SLOWEST);
        }
        may
    }

    fn is_again(&self) -> bool {
        self.wait > IMPATIENT * 2
    }
}

impl Presenter {
    fn new(
        managed: Managed,
        newest: watch::Receiver<Option<Arc<Identity>>>,
        tls: Tls,
        metrics: Metrics,
        readiness: Readiness,
    ) -> Self {
        let (known, presented, believed) = (BTreeMap::new(), None, None);
        let pace = Pace { wait: IMPATIENT, next: Instant::now() };
        Self { managed, newest, tls, metrics, readiness, known, listed: false, presented, believed, fresh: true, pace }
    }

    async fn follow(mut self) {
        let mut events = configurations(&self.managed);
        loop {
            let wait = self.step().await;
            tokio::select! {
                Some(event) = events.next() => self.learn(event),
                changed = self.newest.changed() => match changed {
                    Ok(()) => {
                        (self.believed, self.fresh) = (None, true);
                        self.pace.reset();
                    }
                    Err(_) => return std::future::pending().await,
                },
                () = sleep(wait) => {}
            }
        }
    }

    fn learn(&mut self, event: watcher::Result<Event<MutatingWebhookConfiguration>>) {
        let name = |object: &MutatingWebhookConfiguration| object.metadata.name.clone().unwrap_or_default();
        match event {
            Ok(Event::Init) => {
                self.known.clear();
                self.listed = false;
            }
            Ok(Event::InitApply(object) | Event::Apply(object)) => {
                self.known.insert(name(&object), object);
            }
            Ok(Event::Delete(object)) => {
                self.known.remove(&name(&object));
            }
            Ok(Event::InitDone) => self.listed = true,
            Err(error) => {
                tracing::warn!(%error, "webhook configurations cannot be watched");
                self.readiness_unless_known(&format!("webhook configurations cannot be watched: {error}"));
            }
        }
    }

    fn readiness_unless_known(&self, why: &str) {
        if self.known.is_empty() {
            self.readiness.missing(PART, why);
        }
    }

    /// Looks at everything once and does what follows; how long to wait for something to happen.
    async fn step(&mut self) -> Duration {
        let Some(newest) = self.newest.borrow().clone() else { return SAFETY_NET };
        if !self.listed {
            self.show_first(&newest);
            return SAFETY_NET;
        }
        let (hooks, now) = (self.managed.selection.hooks(self.known.values()), UnixTime::now());
        let correcting = self.correct(&newest, &hooks, now).await;
        let waiting = self.show(&newest, &hooks, now);
        self.report(&hooks, now);
        if correcting || waiting { IMPATIENT } else { SAFETY_NET }
    }

    /// Before anything is known of the API server's belief, something is better than nothing.
    fn show_first(&mut self, newest: &Arc<Identity>) {
        if self.presented.is_none() {
            self.put(newest);
        }
    }

    fn put(&mut self, identity: &Arc<Identity>) {
        self.tls.present(identity.certified());
        self.metrics.presents();
        self.presented = Some(Arc::clone(identity));
        tracing::info!("the certificate is presented");
    }

    /// Shows the newest certificate when it is believed for long enough, or when nothing is lost by it. Whether it still
    /// waits to be shown.
    fn show(&mut self, newest: &Arc<Identity>, hooks: &[Hook], now: UnixTime) -> bool {
        if self.presented.as_ref().is_some_and(|presented| presented.is_same(newest)) {
            return false;
        }
        let believed = bundle::vouched(newest, hooks, now).is_ok();
        self.believed = believed.then(|| self.believed.unwrap_or_else(Instant::now));
        let settled = self.believed.is_some_and(|since| since.elapsed() >= self.managed.settle);
        let lost = |presented: &Arc<Identity>| hooks.is_empty() || bundle::vouched(presented, hooks, now).is_err();
        if settled || self.presented.as_ref().is_none_or(lost) {
            self.put(newest);
            return false;
        }
        true
    }

    /// Patches what must be patched; whether there is more to do.
    async fn correct(&mut self, newest: &Identity, hooks: &[Hook], now: UnixTime) -> bool {
        let corrections = bundle::corrections(newest, hooks, self.fresh, now);
        if corrections.is_empty() {
            // Without a webhook nothing has been written yet.
            self.fresh &= hooks.is_empty();
            self.pace.reset();
            return false;
        }
        if !self.pace.take(Instant::now()) {
            return true;
        }
        for correction in &corrections {
            self.metrics.patching(&correction.configuration, self.pace.is_again());
            match patch(&self.managed.client, correction).await {
                // Until the watch tells of it, the next step would find the same.
                Ok(written) => {
                    tracing::info!(configuration = correction.configuration, "the caBundle is patched");
                    self.known.insert(correction.configuration.clone(), written);
                }
                Err(reason) => {
                    tracing::warn!(
                        configuration = correction.configuration,
                        "the caBundle cannot be patched: {}",
                        reason.text
                    );
                    self.metrics.patch_failed(&correction.configuration, reason.label);
                }
            }
        }
        true
    }

    /// Ready is when the API server would believe what is shown.
    fn report(&self, hooks: &[Hook], now: UnixTime) {
        let agreed = match &self.presented {
            None => Err("no certificate is presented yet".to_owned()),
            Some(_) if hooks.is_empty() => Err(self.managed.selection.nothing()),
            Some(presented) => bundle::vouched(presented, hooks, now),
        };
        match agreed {
            Ok(()) => self.readiness.ready(PART),
            Err(why) => self.readiness.missing(PART, why),
        }
    }
}

fn configurations(managed: &Managed) -> BoxStream<'static, watcher::Result<Event<MutatingWebhookConfiguration>>> {
    let Selection { name, labels, .. } = &managed.selection;
    let config = watcher::Config::default();
    let config = if name.is_empty() { config.labels(labels) } else { config.fields(&format!("metadata.name={name}")) };
    let all = Api::<MutatingWebhookConfiguration>::all(managed.client.clone());
    watcher(all, config).default_backoff().chain(stream::pending()).boxed()
}

struct Refused {
    label: &'static str,
    text: String,
}

async fn patch(client: &Client, correction: &Correction) -> Result<MutatingWebhookConfiguration, Refused> {
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let request = Request::patch(format!("{path}/{}", correction.configuration))
        .header("content-type", "application/json-patch+json")
        .body(correction.patch.to_string().into_bytes())
        .map_err(|error| Refused { label: "request", text: error.to_string() })?;
    let late = |_| Refused { label: "timeout", text: format!("no answer within {LIMIT:?}") };
    let answer = timeout(LIMIT, client.request(request)).await.map_err(late)?;
    answer.map_err(|error| match error {
        kube::Error::Api(status) => {
            let label = match status.code {
                403 => "forbidden",
                404 => "not_found",
                409 | 422 => "conflict",
                _ => "refused",
            };
            let hint = if status.code == 403 { "; the role must allow to patch it" } else { "" };
            Refused { label, text: format!("{}{hint}", status.message) }
        }
        error => Refused { label: "unreachable", text: error.to_string() },
    })
}
