//! The runtime handlers of the node's pods: which of them rules of the node's kernel do not reach.
//!
//! A pod names a RuntimeClass, the RuntimeClass a handler, and the runtime's configuration the handler's program. `decide` is pure;
//! [`Handlers`] watches the RuntimeClasses, and reads the configuration where the agent has the node's root.
#![expect(clippy::disallowed_methods, reason = "owns the clock of its cache")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, ObjectRef, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::pod::{PodFacts, RuntimeHandler, is_sandbox};
use crate::runtime_config;
use crate::serve::resource::watch_list;

/// The age at which the configuration is read again.
const MAX_AGE: Duration = Duration::from_secs(5);
/// The time that a lookup waits for the configuration.
const READ_LIMIT: Duration = Duration::from_millis(200);

/// What is known about handlers; clones share it.
#[derive(Clone)]
pub struct Handlers {
    classes: Store<RuntimeClass>,
    /// The directory at which the node's root is mounted, if it is.
    root: Option<PathBuf>,
    configured: Arc<Mutex<Configured>>,
}

/// The handlers of the runtimes' configurations.
#[derive(Default)]
struct Configured {
    handlers: Arc<Vec<runtime_config::Handlers>>,
    read_at: Option<Instant>,
    /// A reading that no lookup has waited for to its end. There is at most one, because a file system that hangs ends none.
    reading: Option<JoinHandle<Vec<runtime_config::Handlers>>>,
}

impl Handlers {
    /// `root`: the directory at which the node's root is mounted, if it is. The writer is for [`watch`].
    pub fn new(root: Option<PathBuf>) -> (Self, Writer<RuntimeClass>) {
        let (classes, writer) = reflector::store();
        (Self { classes, root, configured: Arc::default() }, writer)
    }

    /// Returns the handler of a pod, as far as it is known.
    pub(super) async fn of(&self, facts: &PodFacts) -> Option<RuntimeHandler> {
        // Only the redirection of a sidecar's pod depends on it.
        facts.proxy.as_ref()?;
        let class = facts.runtime_class.as_deref();
        let known = class.and_then(|class| self.classes.get(&ObjectRef::new(class)));
        let configured = match &self.root {
            Some(root) => timeout(READ_LIMIT, async { self.configured.lock().await.current(root).await }).await,
            None => Ok(Arc::default()),
        };
        let configured = configured.unwrap_or_default();
        decide(class, known.as_ref().map(|class| class.handler.as_str()), &configured)
    }
}

impl Configured {
    async fn current(&mut self, root: &Path) -> Arc<Vec<runtime_config::Handlers>> {
        if self.read_at.is_none_or(|at| at.elapsed() >= MAX_AGE) {
            let root = root.to_owned();
            let reading = self.reading.get_or_insert_with(|| tokio::task::spawn_blocking(move || read(&root)));
            // A panic is logged by the panic hook.
            self.handlers = reading.await.map(Arc::new).unwrap_or_default();
            (self.reading, self.read_at) = (None, Some(Instant::now()));
        }
        Arc::clone(&self.handlers)
    }
}

/// A configuration that cannot be read counts as none here: `install` and `check` name it.
fn read(root: &Path) -> Vec<runtime_config::Handlers> {
    runtime_config::read(root).into_iter().flatten().map(|read| read.handlers).collect()
}

/// Decides which handler the pods of a class have. `known` is the handler of its RuntimeClass; without one the class counts as the
/// name of its handler, because most are named alike. Pods without a class have the default handler.
fn decide(class: Option<&str>, known: Option<&str>, configured: &[runtime_config::Handlers]) -> Option<RuntimeHandler> {
    let named = known.or(class);
    let candidates = configured.iter().filter_map(|of| {
        let name = named.or_else(|| of.default.as_ref().map(|default| default.value.as_str()))?;
        Some((name, of.by_name.get(name).filter(|handler| !handler.programs.is_empty())?))
    });
    // Two configurations count where it is not known which of them the runtime uses: one with a sandbox decides.
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

/// Watches the RuntimeClasses. Never returns. Without the right to, the names of classes decide.
pub async fn watch(client: Client, writer: Writer<RuntimeClass>) {
    let events = watcher(Api::<RuntimeClass>::all(client), watcher::Config::default()).default_backoff();
    watch_list("RuntimeClasses", reflector::reflector(writer, events), drop).await;
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::pod::ProxyContainer;

    const FILE: &str = "etc/containerd/config.toml";
    const TEXT: &str = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd]\ndefault_runtime_name = 'runc'\n\
                        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n\
                        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.safe]\nruntime_type = 'io.containerd.kata.v2'\n";

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

    #[tokio::test]
    async fn only_a_pod_with_a_proxy_has_a_handler() {
        let root = node(TEXT);
        let (handlers, _writer) = Handlers::new(Some(root.path().to_owned()));
        let facts = PodFacts { runtime_class: Some("safe".into()), ..PodFacts::default() };
        assert_eq!(handlers.of(&facts).await, None);
        let facts = PodFacts { proxy: Some(ProxyContainer::default()), ..facts };
        assert_eq!(handlers.of(&facts).await, handler("safe", true, Some("io.containerd.kata.v2")));
    }

    #[tokio::test]
    async fn the_class_names_the_handler() {
        let root = node(TEXT);
        let (handlers, mut writer) = Handlers::new(Some(root.path().to_owned()));
        let class = serde_json::json!({ "metadata": { "name": "secure" }, "handler": "safe" });
        writer.apply_watcher_event(&watcher::Event::Apply(serde_json::from_value(class).unwrap()));
        let proxy = Some(ProxyContainer::default());
        let facts = PodFacts { runtime_class: Some("secure".into()), proxy, ..PodFacts::default() };
        assert_eq!(handlers.of(&facts).await.map(|found| found.name).as_deref(), Some("safe"));
    }
}
