//! Reads the injection's configuration from files or ConfigMaps whenever they change. If a new configuration is
//! invalid, the former one stays in effect.
//!
//! `server` starts [`watch`] as a task. A [`Build`] function makes a [`Profile`], which decides about reviews, from the
//! configuration's [`Texts`].

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
use serve::health::Readiness;
use serve::watch::Watch;
use tokio::time::sleep;

use super::activity::Reload;
use super::files::{parent, read_at_most};
use super::metrics::Metrics;
use super::review::{AdmissionOutcome, Profile, Review};

/// The name under which this module reports its readiness.
pub(super) const PART: &str = "configuration";
/// The size limit of a file in bytes.
const MAX_SIZE: u64 = 6 << 20;
/// The interval at which files are read if no event reports a change.
const RESYNC_INTERVAL: Duration = Duration::from_secs(30);
/// The polling interval while files are unreadable.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// The delay after an event, because files change one after another.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The injection's configuration, not parsed yet. Defaults apply instead of absent parts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// Policy and templates.
    pub config: Option<String>,
    /// The templates' `.Values`; JSON or YAML.
    pub values: Option<String>,
    /// The mesh configuration.
    pub mesh: Option<String>,
}

/// A function that makes a profile from [`Texts`], or returns an error message.
pub type Build = Arc<dyn Fn(&Texts) -> Result<Box<dyn Profile>, String> + Send + Sync>;

/// A file of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFile {
    pub path: PathBuf,
    /// Whether the default applies while the file does not exist. A file that a flag names is required.
    pub is_optional: bool,
}

/// The source of [`Texts`].
pub enum Source {
    /// No source: the defaults.
    Default,
    /// Files, such as mounted ConfigMaps.
    Files {
        /// The file of policy and templates.
        config: PathBuf,
        /// The file of the templates' `.Values`.
        values: ConfigFile,
        /// The file of the mesh configuration.
        mesh: ConfigFile,
    },
    /// ConfigMaps, by the keys `config`, `values` and `mesh`.
    ConfigMaps {
        /// The client of the API server that has the ConfigMaps.
        client: Client,
        /// The namespace of the ConfigMaps.
        namespace: String,
        /// The name of the ConfigMap with `config` and `values`.
        injection: String,
        /// The name of the ConfigMap with `mesh`; optional.
        mesh: String,
        /// Whether the defaults apply until `injection` first exists.
        optional: bool,
    },
}

/// The profile of the newest valid configuration.
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

/// Builds profiles, and publishes the result.
pub(super) struct Loader {
    pub(super) build: Build,
    pub(super) configured: Configured,
    pub(super) metrics: Metrics,
    pub(super) readiness: Readiness,
    /// The result of the last read. An equal result is not loaded again.
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
                self.metrics.reloaded(Reload::Configuration, None);
                self.readiness.ready(PART);
                tracing::info!("the configuration is loaded");
            }
            Err(why) => {
                let first = self.configured.0.load().is_none();
                self.metrics.reloaded(Reload::Configuration, Some(&why));
                tracing::error!(
                    "the configuration is invalid{}: {why}",
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

/// Loads the configuration whenever it changes. Never returns.
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

async fn from_files(config: &PathBuf, values: &ConfigFile, mesh: &ConfigFile, loader: &mut Loader) {
    let mut watch = Watch::new([config, &values.path, &mesh.path].map(|path| parent(path)));
    loop {
        watch.renew();
        let texts = read(config, values, mesh);
        let poll = if texts.is_ok() { RESYNC_INTERVAL } else { RETRY_INTERVAL };
        loader.load(texts);
        watch.changed(poll).await;
        sleep(DEBOUNCE).await;
    }
}

fn read(config: &PathBuf, values: &ConfigFile, mesh: &ConfigFile) -> Result<Texts, String> {
    let text = |path: &PathBuf| {
        let bytes = match read_at_most(path, MAX_SIZE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|error| format!("{} cannot be read: {error}", path.display()))?,
        };
        String::from_utf8(bytes).map(Some).map_err(|_| format!("{} is no UTF-8", path.display()))
    };
    let required = |path: &PathBuf| match text(path)? {
        Some(text) => Ok(text),
        None => Err(format!("{} is not there; is the ConfigMap mounted?", path.display())),
    };
    let other = |file: &ConfigFile| if file.is_optional { text(&file.path) } else { required(&file.path).map(Some) };
    Ok(Texts { config: Some(required(config)?), values: other(values)?, mesh: other(mesh)? })
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
            // The defaults apply only until the ConfigMap first exists. After its deletion, the last configuration
            // stays in effect.
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

/// The watched ConfigMaps.
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
