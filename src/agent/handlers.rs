//! Decides whether a pod runs in a sandboxed runtime, that is, with a kernel of its own, which the rules in the node's kernel do
//! not reach.
//!
//! A pod names a RuntimeClass, the RuntimeClass a handler, and the runtime's configuration the handler's program. `decide` is pure;
//! [`watch()`] watches the RuntimeClasses; [`Handlers`] reads the configuration if the agent has the node's root.
#![expect(clippy::disallowed_methods, reason = "owns the clock of its cache")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use podfacts::{PodFacts, RuntimeHandler, is_sandbox};
use serve::resource::watch_list;
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::runtime_config;

/// The name of the handler that containerd uses for pods with the annotation `io.kubernetes.cri.untrusted-workload`.
const UNTRUSTED: &str = "untrusted";
/// The age at which the configuration is read again.
const MAX_AGE: Duration = Duration::from_secs(5);
/// The time that a lookup waits for the configuration, and for the list of RuntimeClasses.
const LIMIT: Duration = Duration::from_millis(200);

/// The RuntimeClasses, and the handlers in the configurations of container runtimes; clones share them.
#[derive(Clone)]
pub struct Handlers {
    classes: Store<RuntimeClass>,
    /// The directory at which the node's root is mounted, if it is.
    root: Option<PathBuf>,
    configured: Arc<Mutex<Configured>>,
    /// The handlers of the runtimes' configurations, as they were read last.
    last: watch::Sender<Option<Arc<Configurations>>>,
}

/// The handlers in the configuration of each runtime that the node may use.
#[derive(Debug)]
struct Configurations {
    by_runtime: BTreeMap<String, runtime_config::Handlers>,
    /// Why some are older than the last read, or missing.
    refused: Option<String>,
    /// Whether none is missing.
    is_complete: bool,
}

impl Configurations {
    /// No configuration at all.
    const fn none() -> Self {
        Self { by_runtime: BTreeMap::new(), refused: None, is_complete: true }
    }
}

/// Why a pod's handler is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unknown {
    #[error("the configuration of the container runtime is not known: {0}")]
    Configuration(String),
    #[error(
        "the RuntimeClasses have not been listed yet; if they never are, the agent lacks the right to list and watch them"
    )]
    Classes,
    #[error("the agent does not know the RuntimeClass {0} yet")]
    Class(String),
    #[error(
        "no configuration of the container runtime names the handler of a pod with the annotation io.kubernetes.cri.untrusted-workload"
    )]
    Untrusted,
}

/// The state of reading the runtimes' configurations.
#[derive(Default)]
struct Configured {
    read_at: Option<Instant>,
    /// A read that lookups started and stopped waiting for. There is at most one, because on a file system that hangs no read ends.
    reading: Option<JoinHandle<Vec<Result<runtime_config::Directories, runtime_config::Error>>>>,
}

impl Handlers {
    /// `root`: the directory at which the node's root is mounted, if it is. The writer is for [`watch()`].
    pub fn new(root: Option<PathBuf>) -> (Self, Writer<RuntimeClass>) {
        let (classes, writer) = reflector::store();
        (Self { classes, root, configured: Arc::default(), last: watch::Sender::default() }, writer)
    }

    /// Returns the handler of a pod; `None` for pods without a sidecar, and if neither RuntimeClass nor configuration names a handler.
    pub(super) async fn of(&self, facts: &PodFacts) -> Result<Option<RuntimeHandler>, Unknown> {
        // Redirection depends on the handler only in pods with a sidecar.
        if facts.proxy.is_none() {
            return Ok(None);
        }
        let unread = || Unknown::Configuration("it has not been read yet".to_owned());
        let configured = self.configurations().await.ok_or_else(unread)?;
        match (self.decided(facts, &configured).await, &configured.refused) {
            // The node may use the runtime whose configuration could not be read.
            (Ok(decided), Some(refused))
                if !configured.is_complete && !decided.as_ref().is_some_and(|of| of.is_sandbox) =>
            {
                Err(Unknown::Configuration(refused.clone()))
            }
            (decided, _) => decided,
        }
    }

    async fn decided(&self, facts: &PodFacts, configured: &Configurations) -> Result<Option<RuntimeHandler>, Unknown> {
        let Some(class) = facts.runtime_class.as_deref() else {
            return match decide(facts.untrusted.then_some(UNTRUSTED), None, configured) {
                None if facts.untrusted => Err(Unknown::Untrusted),
                decided => Ok(decided),
            };
        };
        let listed = timeout(LIMIT, self.classes.wait_until_ready()).await.is_ok_and(|ready| ready.is_ok());
        let known = self.classes.get(&ObjectRef::new(class));
        let decided = decide(Some(class), known.as_ref().map(|class| class.handler.as_str()), configured);
        match (known, decided) {
            (Some(_), decided) => Ok(decided),
            // The name of an unknown class is taken as its handler's only if that handler is sandboxed: the class may have any other.
            (None, Some(handler)) if handler.is_sandbox => Ok(Some(handler)),
            (None, _) if listed => Err(Unknown::Class(class.to_owned())),
            (None, _) => Err(Unknown::Classes),
        }
    }

    /// Returns the handlers in the runtimes' configurations, as they were last read if a new read takes too long; `None` if they
    /// were never read.
    async fn configurations(&self) -> Option<Arc<Configurations>> {
        let Some(root) = &self.root else { return Some(Arc::new(Configurations::none())) };
        let reading = async { self.configured.lock().await.renew(root, &self.last).await };
        let _ = timeout(LIMIT, reading).await;
        self.last.borrow().clone()
    }
}

impl Configured {
    /// Reads the configurations again if the last read is older than [`MAX_AGE`].
    async fn renew(&mut self, root: &Path, last: &watch::Sender<Option<Arc<Configurations>>>) {
        if self.read_at.is_some_and(|at| at.elapsed() < MAX_AGE) {
            return;
        }
        let root = root.to_owned();
        let reading =
            self.reading.get_or_insert_with(|| tokio::task::spawn_blocking(move || runtime_config::read(&root)));
        // A panic is logged by the panic hook.
        let read = reading.await;
        (self.reading, self.read_at) = (None, Some(Instant::now()));
        let Ok(read) = read else { return };
        let before = last.borrow().clone().unwrap_or_else(|| Arc::new(Configurations::none()));
        let current = current(read, &before);
        if let Some(refused) = current.refused.as_ref().filter(|refused| before.refused.as_ref() != Some(refused)) {
            match current.is_complete {
                true => tracing::warn!("the runtime handlers that were read before still count: {refused}"),
                false => tracing::warn!("runtime handlers are not known: {refused}"),
            }
        }
        last.send_replace(Some(Arc::new(current)));
    }
}

/// Returns the handlers that apply after a read, and why some of them are older, or missing. A runtime keeps running with a
/// configuration that was removed or made invalid, so the handlers that were read before still apply.
fn current(
    read: Vec<Result<runtime_config::Directories, runtime_config::Error>>,
    last: &Configurations,
) -> Configurations {
    let is_empty = read.is_empty() && !last.by_runtime.is_empty();
    let gone = || "the node has no configuration of a container runtime any more".to_owned();
    let mut refused = is_empty.then(gone);
    let mut by_runtime = BTreeMap::new();
    for read in read {
        match read {
            Ok(read) => drop(by_runtime.insert(read.runtime, read.handlers)),
            Err(error) => refused = Some(error.to_string()),
        }
    }
    let mut is_complete = refused.is_none();
    for (runtime, handlers) in last.by_runtime.iter().filter(|_| refused.is_some()) {
        by_runtime.entry(runtime.clone()).or_insert_with(|| {
            is_complete = true;
            handlers.clone()
        });
    }
    Configurations { by_runtime, refused, is_complete }
}

/// Decides which handler the pods with a RuntimeClass have. `known` is the handler that the RuntimeClass names; if it is missing,
/// the RuntimeClass's own name is tried, because most are named like their handler. Pods without a RuntimeClass have the default
/// handler.
fn decide(class: Option<&str>, known: Option<&str>, configured: &Configurations) -> Option<RuntimeHandler> {
    let named = known.or(class);
    let candidates = configured.by_runtime.values().filter_map(|of| {
        let name = named.or_else(|| of.default.as_ref().map(|default| default.value.as_str()))?;
        Some((name, of.by_name.get(name).filter(|handler| !handler.programs.is_empty())?))
    });
    // If it is not known which of two configurations the runtime uses, the one with a sandboxed runtime decides.
    let decided = candidates.max_by_key(|(_, handler)| handler.sandbox().is_some());
    decided
        .map(|(name, handler)| {
            let sandbox = handler.sandbox();
            let program = sandbox.map(|program| program.value.clone());
            RuntimeHandler { name: name.to_owned(), is_sandbox: sandbox.is_some(), program }
        })
        .or_else(|| {
            known.map(|name| RuntimeHandler { name: name.to_owned(), is_sandbox: is_sandbox(name), program: None })
        })
}

/// Watches the RuntimeClasses. Never returns. Without the right to, a pod's handler is known only if its RuntimeClass has a
/// sandboxed handler's name.
pub async fn watch(client: Client, writer: Writer<RuntimeClass>) {
    let events = watcher(Api::<RuntimeClass>::all(client), watcher::Config::default()).default_backoff();
    watch_list("RuntimeClasses", reflector::reflector(writer, events), drop).await;
}

#[cfg(test)]
mod tests {
    use std::fs;

    use podfacts::ProxyContainer;

    use super::*;

    const FILE: &str = "etc/containerd/config.toml";
    const TEXT: &str = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'runc'\n\
                        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n\
                        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.safe]\nruntime_type = 'io.containerd.kata.v2'\n";

    fn read(root: &Path) -> Configurations {
        current(runtime_config::read(root), &Configurations::none())
    }

    fn node(text: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("etc/containerd")).unwrap();
        fs::write(root.path().join(FILE), text).unwrap();
        root
    }

    fn handler(name: &str, is_sandbox: bool, program: Option<&str>) -> Option<RuntimeHandler> {
        Some(RuntimeHandler { name: name.into(), is_sandbox, program: program.map(Into::into) })
    }

    #[test]
    fn the_configuration_decides_before_the_name() {
        let [configured, none] = [node(TEXT), node("")].map(|root| read(root.path()));
        let kata = Some("io.containerd.kata.v2");
        for (class, known, configured, expected) in [
            (Some("secure"), Some("safe"), &configured, handler("safe", true, kata)),
            (Some("safe"), None, &configured, handler("safe", true, kata)),
            (Some("kata"), Some("runc"), &configured, handler("runc", false, None)),
            (None, None, &configured, handler("runc", false, None)),
            (Some("secure"), Some("runsc"), &configured, handler("runsc", true, None)),
            (Some("secure"), Some("nvidia"), &none, handler("nvidia", false, None)),
            (Some("kata"), None, &configured, None),
            (Some("kata"), None, &none, None),
            (None, None, &none, None),
        ] {
            assert_eq!(decide(class, known, configured), expected, "{class:?} {known:?}");
        }
        let default = read(node(&TEXT.replace("= 'runc'", "= 'safe'")).path());
        assert_eq!(decide(None, None, &default), handler("safe", true, kata));
    }

    /// Returns the facts of a pod with a proxy and this RuntimeClass.
    fn pod(class: Option<&str>) -> PodFacts {
        let proxy = Some(ProxyContainer::default());
        PodFacts { runtime_class: class.map(Into::into), proxy, ..PodFacts::default() }
    }

    fn class(name: &str, handler: &str) -> RuntimeClass {
        serde_json::from_value(serde_json::json!({ "metadata": { "name": name }, "handler": handler })).unwrap()
    }

    /// Reads the configuration again, until the read has ended: on a busy machine it takes longer than a lookup waits.
    async fn renew(handlers: &Handlers) {
        handlers.configured.lock().await.read_at = None;
        while handlers.configured.lock().await.read_at.is_none() {
            handlers.configurations().await;
        }
    }

    #[tokio::test]
    async fn only_a_pod_with_a_proxy_has_a_handler() {
        let root = node(TEXT);
        let (handlers, _writer) = Handlers::new(Some(root.path().to_owned()));
        renew(&handlers).await;
        assert_eq!(handlers.of(&PodFacts { proxy: None, ..pod(Some("safe")) }).await, Ok(None));
        assert_eq!(handlers.of(&pod(Some("safe"))).await, Ok(handler("safe", true, Some("io.containerd.kata.v2"))));
        let untrusted = node(&TEXT.replace(".safe]", ".untrusted]"));
        let (handlers, _writer) = Handlers::new(Some(untrusted.path().to_owned()));
        renew(&handlers).await;
        let facts = PodFacts { untrusted: true, ..pod(None) };
        assert_eq!(handlers.of(&facts).await.unwrap().unwrap().name, "untrusted");
        assert_eq!(handlers.of(&pod(None)).await.unwrap().unwrap().name, "runc");
        let (handlers, _writer) = Handlers::new(None);
        assert_eq!((handlers.of(&facts).await, handlers.of(&pod(None)).await), (Err(Unknown::Untrusted), Ok(None)));
    }

    #[tokio::test]
    async fn a_handler_is_not_known_before_its_class_is() {
        let root = node(TEXT);
        let (handlers, mut writer) = Handlers::new(Some(root.path().to_owned()));
        renew(&handlers).await;
        // A RuntimeClass that has not been listed may have any handler.
        assert_eq!(handlers.of(&pod(Some("runc"))).await, Err(Unknown::Classes));
        for event in
            [watcher::Event::Init, watcher::Event::InitApply(class("secure", "safe")), watcher::Event::InitDone]
        {
            writer.apply_watcher_event(&event);
        }
        assert_eq!(handlers.of(&pod(Some("secure"))).await.unwrap().unwrap().name, "safe");
        assert_eq!(handlers.of(&pod(Some("runc"))).await, Err(Unknown::Class("runc".into())));
    }

    #[tokio::test]
    async fn handlers_that_were_read_count_while_the_configuration_cannot_be_read() {
        let root = node(TEXT);
        let (handlers, _writer) = Handlers::new(Some(root.path().to_owned()));
        renew(&handlers).await;
        let safe = Ok(handler("safe", true, Some("io.containerd.kata.v2")));
        assert_eq!(handlers.of(&pod(Some("safe"))).await, safe);
        let path = root.path().join(FILE);
        let changes: [&dyn Fn(); 2] =
            [&|| fs::write(&path, "version = ").unwrap(), &|| fs::remove_file(&path).unwrap()];
        for (change, reason) in changes.into_iter().zip(["invalid TOML", "no configuration"]) {
            change();
            renew(&handlers).await;
            assert_eq!(handlers.of(&pod(Some("safe"))).await, safe);
            let refused = handlers.last.borrow().as_ref().unwrap().refused.clone();
            assert!(refused.as_ref().is_some_and(|refused| refused.contains(reason)), "{refused:?}");
        }
        fs::write(&path, TEXT.replace("kata", "runc")).unwrap();
        renew(&handlers).await;
        assert_eq!(handlers.of(&pod(Some("safe"))).await, Err(Unknown::Classes));
        assert_eq!(handlers.last.borrow().as_ref().unwrap().refused, None);
    }

    #[tokio::test]
    async fn no_handler_is_known_without_the_configuration_of_each_runtime() {
        let root = node("version = ");
        let (handlers, _writer) = Handlers::new(Some(root.path().to_owned()));
        renew(&handlers).await;
        let reason = |found| match found {
            Err(Unknown::Configuration(reason)) => reason,
            other => panic!("{other:?}"),
        };
        assert!(reason(handlers.of(&pod(None)).await).contains("invalid TOML"));
        // While CRI-O's configuration cannot be read, a handler in containerd's configuration applies only if it is sandboxed.
        fs::write(root.path().join(FILE), TEXT).unwrap();
        let drop_in = root.path().join("etc/crio/crio.conf.d/9.conf");
        fs::create_dir_all(drop_in.parent().unwrap()).unwrap();
        fs::write(&drop_in, "a = ").unwrap();
        renew(&handlers).await;
        assert!(reason(handlers.of(&pod(None)).await).contains("/etc/crio/crio.conf.d/9.conf"));
        fs::write(root.path().join(FILE), TEXT.replace("= 'runc'", "= 'safe'")).unwrap();
        renew(&handlers).await;
        assert_eq!(handlers.of(&pod(None)).await.unwrap().unwrap().name, "safe");
        fs::remove_file(&drop_in).unwrap();
        fs::write(root.path().join(FILE), TEXT).unwrap();
        renew(&handlers).await;
        assert_eq!(handlers.of(&pod(None)).await.unwrap().unwrap().name, "runc");
    }

    /// The lock stands for a read that hangs: handlers that were read before must still apply.
    #[tokio::test]
    async fn handlers_that_were_read_count_while_a_reading_hangs() {
        let root = node(TEXT);
        let (handlers, _writer) = Handlers::new(Some(root.path().to_owned()));
        let configured = Arc::clone(&handlers.configured);
        let hanging = configured.lock().await;
        assert!(matches!(handlers.of(&pod(None)).await, Err(Unknown::Configuration(_))));
        drop(hanging);
        renew(&handlers).await;
        assert_eq!(handlers.of(&pod(None)).await, Ok(handler("runc", false, None)));
        let _hanging = configured.lock().await;
        assert_eq!(handlers.of(&pod(None)).await, Ok(handler("runc", false, None)));
    }
}
