//! The injection's configuration: read from files or ConfigMaps, again whenever it changes; a bad one changes nothing.
//!
//! `run` starts it as a task. What the texts mean, whoever builds a profile from them knows.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::StreamExt as _;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use tokio::time::sleep;

use super::files::{parent, read_at_most};
use super::metrics::{Metrics, Reload};
use super::review::{AdmissionOutcome, Profile, Review};
use crate::serve::health::Readiness;
use crate::serve::watch::Watch;

/// The part of readiness that is kept here.
pub(super) const PART: &str = "configuration";
/// More than this is no configuration.
const MAX_SIZE: u64 = 6 << 20;
/// Between two looks at files where no event came.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// Between two looks at files that are of no use.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// Files come one after another.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// What the injection is configured by; a text that is not there leaves the defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// Policy and templates.
    pub config: Option<String>,
    /// What the templates call `Values`; JSON or YAML.
    pub values: Option<String>,
    /// The mesh's configuration.
    pub mesh: Option<String>,
}

/// Makes a profile of texts, or says what is wrong with them.
pub type Build = Arc<dyn Fn(&Texts) -> Result<Box<dyn Profile>, String> + Send + Sync>;

/// Where the texts come from.
pub enum Source {
    /// Nowhere: the defaults.
    Default,
    /// Files, such as mounted ConfigMaps.
    Files {
        /// See [`Texts`].
        config: PathBuf,
        /// Need not be there.
        values: PathBuf,
        /// Need not be there.
        mesh: PathBuf,
    },
    /// ConfigMaps, by the keys `config`, `values` and `mesh`.
    ConfigMaps {
        /// The API server that has them.
        client: Client,
        /// Their namespace.
        namespace: String,
        /// The one with `config` and `values`.
        injection: String,
        /// The one with `mesh`; need not be there.
        mesh: String,
        /// Where the former has never been there, the defaults count.
        optional: bool,
    },
}

/// The profile of the newest configuration that was good.
#[derive(Clone, Default)]
pub(super) struct Configured(Arc<ArcSwapOption<Box<dyn Profile>>>);

impl Profile for Configured {
    fn review(&self, review: &Review) -> AdmissionOutcome {
        match &*self.0.load() {
            Some(profile) => profile.review(review),
            None => AdmissionOutcome::refused("no_configuration", "the injection has no configuration yet".to_owned()),
        }
    }
}

/// Who makes profiles, and who hears of it.
pub(super) struct Loader {
    pub(super) build: Build,
    pub(super) configured: Configured,
    pub(super) metrics: Metrics,
    pub(super) readiness: Readiness,
    /// What the last attempt was about: the same is not tried again.
    pub(super) last: Option<Result<Texts, String>>,
}

impl Loader {
    fn load(&mut self, texts: Result<Texts, String>) {
        if self.last.as_ref() == Some(&texts) {
            return;
        }
        match texts.clone().and_then(|texts| (self.build)(&texts)) {
            Ok(profile) => {
                self.configured.0.store(Some(Arc::new(profile)));
                self.metrics.reloaded(Reload::Configuration, true);
                self.readiness.ready(PART);
                tracing::info!("the configuration is loaded");
            }
            Err(why) => {
                let first = self.configured.0.load().is_none();
                self.metrics.reloaded(Reload::Configuration, false);
                tracing::error!(
                    "the configuration is of no use{}: {why}",
                    if first { "" } else { " and the former is kept" }
                );
                if first {
                    self.readiness.missing(PART, why);
                }
            }
        }
        self.last = Some(texts);
    }
}

/// Never ends by itself.
pub(super) async fn watch(source: Source, mut loader: Loader) {
    match source {
        Source::Default => {
            loader.load(Ok(Texts::default()));
            std::future::pending::<()>().await;
        }
        Source::Files { config, values, mesh } => from_files(&config, &values, &mesh, &mut loader).await,
        Source::ConfigMaps { client, namespace, injection, mesh, optional } => {
            let maps = Api::<ConfigMap>::namespaced(client, &namespace);
            from_maps(&maps, [&injection, &mesh], optional, &mut loader).await;
        }
    }
}

async fn from_files(config: &PathBuf, values: &PathBuf, mesh: &PathBuf, loader: &mut Loader) {
    let mut watch = Watch::new([config, values, mesh].map(|path| parent(path)));
    loop {
        watch.renew();
        let texts = read(config, values, mesh);
        let poll = if texts.is_ok() { RESYNC_INTERVAL } else { RETRY_INTERVAL };
        loader.load(texts);
        watch.changed(poll).await;
        sleep(DEBOUNCE).await;
    }
}

fn read(config: &PathBuf, values: &PathBuf, mesh: &PathBuf) -> Result<Texts, String> {
    let text = |path: &PathBuf| {
        let bytes = match read_at_most(path, MAX_SIZE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| format!("{} cannot be read: {error}", path.display()))?,
        };
        String::from_utf8(bytes).map(Some).map_err(|_| format!("{} is no UTF-8", path.display()))
    };
    let config =
        text(config)?.ok_or_else(|| format!("{} is not there; is the ConfigMap mounted?", config.display()))?;
    Ok(Texts { config: Some(config), values: text(values)?, mesh: text(mesh)? })
}

async fn from_maps(maps: &Api<ConfigMap>, [injection, mesh]: [&str; 2], mut optional: bool, loader: &mut Loader) {
    let mut known = Maps::default();
    let mut events = stream::select(events(maps, injection), events(maps, mesh));
    while let Some((name, event)) = events.next().await {
        match event {
            Ok(event) => known.apply(&name, event),
            Err(error) => {
                tracing::warn!(%error, configmap = name, "a ConfigMap cannot be watched");
                continue;
            }
        }
        if known.are_listed([injection, mesh]) {
            // One that was there and is gone was not meant to be replaced by the defaults.
            optional &= !known.found.contains_key(injection);
            if optional {
                loader.load(Ok(Texts::default()));
                continue;
            }
            loader.load(known.texts(maps.namespace().unwrap_or_default(), injection, mesh));
        }
    }
}

fn events(maps: &Api<ConfigMap>, name: &str) -> BoxStream<'static, (String, watcher::Result<Event<ConfigMap>>)> {
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let name = name.to_owned();
    watcher(maps.clone(), config).default_backoff().map(move |event| (name.clone(), event)).boxed()
}

/// ConfigMaps as far as they are known.
#[derive(Default)]
struct Maps {
    found: BTreeMap<String, ConfigMap>,
    listed: BTreeMap<String, bool>,
}

impl Maps {
    fn apply(&mut self, name: &str, event: Event<ConfigMap>) {
        match event {
            Event::Init => {
                self.found.remove(name);
                self.listed.insert(name.to_owned(), false);
            }
            Event::InitApply(map) | Event::Apply(map) => {
                self.found.insert(name.to_owned(), map);
            }
            Event::Delete(_) => {
                self.found.remove(name);
            }
            Event::InitDone => {
                self.listed.insert(name.to_owned(), true);
            }
        }
    }

    fn are_listed(&self, names: [&str; 2]) -> bool {
        names.iter().all(|name| self.listed.get(*name) == Some(&true))
    }

    fn texts(&self, namespace: &str, injection: &str, mesh: &str) -> Result<Texts, String> {
        let text = |name: &str, key: &str| self.found.get(name)?.data.as_ref()?.get(key).cloned();
        if !self.found.contains_key(injection) {
            return Err(format!("there is no ConfigMap {injection} in namespace {namespace}"));
        }
        let config =
            text(injection, "config").ok_or_else(|| format!("missing ConfigMap key \"config\" in {injection}"))?;
        Ok(Texts { config: Some(config), values: text(injection, "values"), mesh: text(mesh, "mesh") })
    }
}
