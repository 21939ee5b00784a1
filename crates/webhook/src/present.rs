//! Presents the newest certificate once the API server would trust it, and manages the caBundle to that end.
//!
//! `server` starts [`present`] as a task. Only this module watches and patches webhook configurations.
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
use serde_json::Value;
use serve::health::Readiness;
use serve::tls::Tls;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::bundle::{self, BundlePatch, Hook, Selection};
use super::identity::Identity;
use super::metrics::Metrics;
use super::presentation::{Choice, Presentation};

/// The name under which this module reports its readiness.
pub(super) const PART: &str = "caBundle";
/// The interval of checks while no event arrives. Checks are needed even then, because no event reports that a
/// certificate expires.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// The interval of checks while a certificate is not presented yet, or a patch must be repeated.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);
/// The longest interval between two patches. The interval starts at [`RETRY_INTERVAL`] and doubles while patches have
/// no effect.
const MAX_PATCH_INTERVAL: Duration = Duration::from_secs(60);
/// The timeout of a patch.
const PATCH_TIMEOUT: Duration = Duration::from_secs(10);

/// The webhook configurations to manage.
pub(super) struct Managed {
    pub(super) client: Client,
    /// The selections, each of which must select a webhook.
    pub(super) selections: Vec<Selection>,
    /// The time after which API servers use a new caBundle.
    pub(super) settle: Duration,
    /// Whether certificate and authorities are read from files, so that the authorities can change while the caBundle
    /// still verifies the certificate.
    pub(super) has_own_authorities: bool,
}

/// Presents certificates from `newest`. Never returns.
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

/// Presents each new certificate at once, since another program manages the caBundle.
async fn at_once(mut newest: watch::Receiver<Option<Arc<Identity>>>, tls: &Tls, metrics: &Metrics) {
    loop {
        if let Some(identity) = &*newest.borrow_and_update() {
            tls.present(identity.certified());
            metrics.presents(identity);
        }
        if newest.changed().await.is_err() {
            return std::future::pending().await;
        }
    }
}

struct Presenter {
    client: Client,
    watched: Vec<Watched>,
    newest: watch::Receiver<Option<Arc<Identity>>>,
    tls: Tls,
    metrics: Metrics,
    readiness: Readiness,
    presentation: Presentation,
}

/// The webhook configurations of one selection, as the watch has delivered them. Each selection is patched
/// independently, so a refused patch of one selection does not delay the patches of others.
struct Watched {
    selection: Selection,
    known: BTreeMap<String, MutatingWebhookConfiguration>,
    listed: bool,
    /// See [`Managed::has_own_authorities`].
    has_own_authorities: bool,
    /// Whether the authorities of the newest certificate are written even into caBundles that already verify that
    /// certificate. Never set for certificates that this program issues: another replica may have written the caBundle
    /// for a certificate that it issued later, and that certificate would no longer be verified.
    fresh: bool,
    pace: Pace,
}

/// The intervals between patches, which increase while patches have no effect.
struct Pace {
    /// The time of the last patch.
    last: Option<Instant>,
    /// The number of patches since the last reset.
    patches: u32,
}

impl Pace {
    fn new() -> Self {
        Self { last: None, patches: 0 }
    }

    /// Resets the interval to the shortest one, which then also applies to the time since the last patch.
    fn reset(&mut self) {
        self.patches = 0;
    }

    fn take(&mut self, now: Instant) -> bool {
        let factor = 2_u32.saturating_pow(self.patches.saturating_sub(1));
        let wait = RETRY_INTERVAL.saturating_mul(factor).min(MAX_PATCH_INTERVAL);
        let may = self.last.is_none_or(|last| now >= last + wait);
        if may {
            (self.last, self.patches) = (Some(now), self.patches.saturating_add(1));
        }
        may
    }

    fn is_again(&self) -> bool {
        self.patches > 1
    }
}

impl Watched {
    fn new(selection: Selection, has_own_authorities: bool) -> Self {
        let (known, pace) = (BTreeMap::new(), Pace::new());
        Self { selection, known, listed: false, has_own_authorities, fresh: has_own_authorities, pace }
    }

    fn hooks(&self) -> Vec<Hook> {
        self.selection.hooks(self.known.values())
    }

    fn apply(&mut self, event: Event<MutatingWebhookConfiguration>) {
        let name = |object: &MutatingWebhookConfiguration| object.metadata.name.clone().unwrap_or_default();
        match event {
            Event::Init => {
                self.known.clear();
                self.listed = false;
            }
            Event::InitApply(object) | Event::Apply(object) => {
                self.known.insert(name(&object), object);
            }
            Event::Delete(object) => {
                self.known.remove(&name(&object));
            }
            Event::InitDone => self.listed = true,
        }
    }

    /// Checks that the caBundles of all selected webhooks verify `presented`. It is an error if no webhook is selected.
    fn agrees(&self, presented: &Identity, now: UnixTime) -> Result<(), String> {
        match self.hooks() {
            hooks if hooks.is_empty() => Err(self.selection.describe_absence()),
            hooks => bundle::verify(presented, &hooks, now),
        }
    }

    /// Resets the state for a new certificate, whose authorities may have to be written into the caBundles.
    fn renew(&mut self) {
        self.fresh = self.has_own_authorities;
        self.pace.reset();
    }

    /// Returns the patches that caBundles need to verify `newest`.
    fn patches(&mut self, newest: &Identity, now: UnixTime) -> Vec<BundlePatch> {
        let hooks = self.hooks();
        let patches = bundle::patches(newest, &hooks, self.fresh, now);
        if patches.is_empty() {
            // All caBundles contain the new authorities, unless no webhook exists yet into which they could be written.
            self.fresh &= hooks.is_empty();
            self.pace.reset();
        }
        patches
    }

    /// Sends the required patches. Returns whether more patches are required.
    async fn correct(&mut self, newest: &Identity, now: UnixTime, client: &Client, metrics: &Metrics) -> bool {
        let patches = self.patches(newest, now);
        if patches.is_empty() {
            return false;
        }
        if !self.pace.take(Instant::now()) {
            return true;
        }
        for BundlePatch { configuration, patch } in patches {
            metrics.patching(&configuration, self.pace.is_again());
            match send(client, &configuration, &patch).await {
                // The response replaces the configuration of the watch: otherwise the next step would send the same
                // patch again until the watch delivers the change.
                Ok(written) => {
                    tracing::info!(configuration, "the caBundle is patched");
                    self.known.insert(configuration, written);
                }
                Err(reason) => {
                    tracing::warn!(configuration, "the caBundle cannot be patched: {}", reason.text);
                    metrics.patch_failed(&configuration, reason.label);
                }
            }
        }
        true
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
        let Managed { client, selections, settle, has_own_authorities } = managed;
        let watched = selections.into_iter().map(|one| Watched::new(one, has_own_authorities)).collect();
        Self { client, watched, newest, tls, metrics, readiness, presentation: Presentation::new(settle) }
    }

    async fn follow(mut self) {
        let each = self.watched.iter().enumerate();
        let streams = each.map(|(at, one)| configurations(&self.client, &one.selection).map(move |event| (at, event)));
        let mut events = stream::select_all(streams.collect::<Vec<_>>());
        loop {
            let wait = self.step().await;
            tokio::select! {
                Some((at, event)) = events.next() => self.apply(at, event),
                changed = self.newest.changed() => match changed {
                    Ok(()) => {
                        self.presentation.renew();
                        self.watched.iter_mut().for_each(Watched::renew);
                    }
                    Err(_) => return std::future::pending().await,
                },
                () = sleep(wait) => {}
            }
        }
    }

    fn apply(&mut self, at: usize, event: watcher::Result<Event<MutatingWebhookConfiguration>>) {
        let Some(one) = self.watched.get_mut(at) else { return };
        match event {
            Ok(event) => one.apply(event),
            Err(error) => {
                tracing::warn!(%error, "webhook configurations {} cannot be watched", one.selection);
                if one.known.is_empty() {
                    let why = format!("webhook configurations {} cannot be watched: {error}", one.selection);
                    self.readiness.missing(PART, why);
                }
            }
        }
    }

    /// Patches caBundles and presents the newest certificate if this is due. Returns how long to wait for the next
    /// event.
    async fn step(&mut self) -> Duration {
        let Some(newest) = self.newest.borrow().clone() else { return RESYNC_INTERVAL };
        let (mut busy, now) = (false, UnixTime::now());
        for one in self.watched.iter_mut().filter(|one| one.listed) {
            busy |= one.correct(&newest, now, &self.client, &self.metrics).await;
        }
        let is_known = self.watched.iter().all(|one| one.listed);
        let hooks: Option<Vec<Hook>> = is_known.then(|| self.watched.iter().flat_map(Watched::hooks).collect());
        match self.presentation.choose(&newest, hooks.as_deref(), now, Instant::now()) {
            Choice::Present => {
                self.tls.present(newest.certified());
                self.metrics.presents(&newest);
                tracing::info!("the certificate is presented");
            }
            Choice::Presented => {}
            Choice::Wait => busy |= is_known,
        }
        if is_known {
            self.report(now);
        }
        if busy { RETRY_INTERVAL } else { RESYNC_INTERVAL }
    }

    /// Reports readiness: the server is ready if the caBundles of all selected webhooks verify the presented
    /// certificate.
    fn report(&self, now: UnixTime) {
        let agrees = |one: &Watched| match self.presentation.presented() {
            None => Err("no certificate is presented yet".to_owned()),
            Some(presented) => one.agrees(presented, now),
        };
        let states: Vec<_> = self.watched.iter().map(|one| (one.selection.to_string(), agrees(one))).collect();
        let agreed = states.iter().try_for_each(|(_, agreed)| agreed.clone());
        self.metrics.activity().compared(states.into_iter());
        match agreed {
            Ok(()) => self.readiness.ready(PART),
            Err(why) => self.readiness.missing(PART, why),
        }
    }
}

fn configurations(
    client: &Client,
    Selection { name, labels, .. }: &Selection,
) -> BoxStream<'static, watcher::Result<Event<MutatingWebhookConfiguration>>> {
    let config = watcher::Config::default();
    let config = if name.is_empty() { config.labels(labels) } else { config.fields(&format!("metadata.name={name}")) };
    let all = Api::<MutatingWebhookConfiguration>::all(client.clone());
    watcher(all, config).default_backoff().chain(stream::pending()).boxed()
}

struct Refused {
    label: &'static str,
    text: String,
}

async fn send(client: &Client, configuration: &str, patch: &Value) -> Result<MutatingWebhookConfiguration, Refused> {
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    let request = Request::patch(format!("{path}/{configuration}"))
        .header("content-type", "application/json-patch+json")
        .body(patch.to_string().into_bytes())
        .map_err(|error| Refused { label: "request", text: error.to_string() })?;
    let late = |_| Refused { label: "timeout", text: format!("no response within {PATCH_TIMEOUT:?}") };
    let response = timeout(PATCH_TIMEOUT, client.request(request)).await.map_err(late)?;
    response.map_err(|error| match error {
        kube::Error::Api(status) => {
            let label = match status.code {
                403 => "forbidden",
                404 => "not_found",
                409 | 422 => "conflict",
                _ => "refused",
            };
            let hint = if status.code == 403 { "; the role must allow `patch` of it" } else { "" };
            Refused { label, text: format!("{}{hint}", status.message) }
        }
        error => Refused { label: "unreachable", text: error.to_string() },
    })
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
