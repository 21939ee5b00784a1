//! The cluster as trials see it: the API server for its administrator, the container runtime, the node's files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use hyper::http::request::Builder;
use hyper::{Method, Request};
use kube::Client;
use kube::core::WatchEvent;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::agent::IMAGES;
use crate::injector::{PROXY, VALIDATION};
use test_support::runtime::client::Cri;
use test_support::runtime::netns::Netns;
use test_support::runtime::node::IMAGE;
use test_support::runtime::programs::{Programs, static_build};
use test_support::runtime::{image, wait};

/// The node's name.
pub(crate) const NODE: &str = "node";
/// Between two questions to the API server.
const PAUSE: Duration = Duration::from_millis(50);

/// A running cluster, seen from its node.
pub(crate) struct Cluster {
    client: Client,
    runtime: Runtime,
    /// containerd.
    pub(crate) cri: Cri,
    /// The node's.
    pub(crate) netns: Netns,
    /// The plugin, not installed yet.
    pub(crate) plugin: PathBuf,
}

impl Cluster {
    /// With all images imported.
    pub(crate) fn connect(programs: &Programs) -> Result<Self> {
        let agent = static_build("install-cni").map_err(anyhow::Error::msg)?;
        import(IMAGE, &programs.in_image(), &["pause"], "SIGKILL")?;
        let webhook = static_build("sidecar-injector").map_err(anyhow::Error::msg)?;
        let shipped = [
            ("usr/local/bin/install-cni", agent.as_path()),
            ("opt/cni/bin/istio-cni", &programs.istio_cni),
            ("usr/local/bin/sidecar-injector", &webhook),
        ];
        for image in IMAGES {
            import(image, &shipped, &[], "SIGTERM")?;
        }
        import(PROXY, &[("pod_proxy", &programs.pod_proxy)], &[], "SIGKILL")?;
        // Templates call it as they call Istio's.
        import(VALIDATION, &[("pilot-agent", &programs.istio_iptables)], &[], "SIGTERM")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(async {
            let config = kube::Config::infer().await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self {
            client,
            runtime,
            cri: Cri::connect(Path::new("/run/containerd/containerd.sock"))?,
            plugin: programs.istio_cni.clone(),
            netns: Netns::open(Path::new("/proc/self/ns/net"))?,
        })
    }

    /// What the API server has at a path.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.send(Request::get(path), &Value::Null)
    }

    /// Puts an object into the collection at a path, and returns it as it is then.
    pub(crate) fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.send(Request::post(path).header("content-type", "application/json"), object)
    }

    /// Changes fields of the object at a path.
    pub(crate) fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.send(Request::patch(path).header("content-type", "application/merge-patch+json"), patch)
    }

    /// Deletes the object at a path; its dependents follow.
    pub(crate) fn delete(&self, path: &str) -> Result<Value> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
        self.send(
            Request::builder().method(Method::DELETE).uri(path).header("content-type", "application/json"),
            &options,
        )
    }

    /// Sends a request, in the name of whom its headers say.
    pub(crate) fn send(&self, request: Builder, body: &Value) -> Result<Value> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.body(bytes)?;
        let what = format!("{} {}", request.method(), request.uri());
        self.runtime.block_on(self.client.request(request)).context(what)
    }

    /// What changes in a collection, those included that are there already.
    pub(crate) fn changes(&self, collection: &str) -> Result<Changes> {
        let request = Request::get(format!("{collection}?watch=true")).body(Vec::new())?;
        let (client, (sender, heard)) = (self.client.clone(), mpsc::channel());
        let task = self.runtime.spawn(async move {
            if let Err(error) = watch(client, request, &sender).await {
                let _ = sender.send(Err(error));
            }
        });
        Ok(Changes { heard, task })
    }

    /// What a container has said.
    pub(crate) fn log(&self, pod: &str, container: &str) -> Result<String> {
        let request = Request::get(format!("{pod}/log?container={container}")).body(Vec::new())?;
        Ok(self.runtime.block_on(self.client.request_text(request))?)
    }

    /// Asks again and again, at a pace that leaves the API server time for others.
    pub(crate) fn until<T>(&self, what: &str, probe: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        let mut probe = probe;
        wait::until_every(PAUSE, what, || probe(self))
    }
}

/// One change of an object in a collection.
pub(crate) enum Change {
    /// It is new or another than before, and when that was heard of.
    Is(Instant, Value),
    /// It was like this.
    Gone(Value),
}

/// What changes in a collection, until the value is dropped.
pub(crate) struct Changes {
    heard: Receiver<Result<Change>>,
    task: JoinHandle<()>,
}

impl Changes {
    /// The next one; nothing if it takes too long.
    pub(crate) fn next(&self, patience: Duration) -> Result<Option<Change>> {
        match self.heard.recv_timeout(patience) {
            Ok(change) => change.context("watching").map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the API server has ended a watch"),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Until the API server ends it, or nobody listens.
async fn watch(client: Client, request: Request<Vec<u8>>, changes: &Sender<Result<Change>>) -> Result<()> {
    let events = client.request_events::<Value>(request).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        let change = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Is(Instant::now(), object),
            WatchEvent::Deleted(object) => Change::Gone(object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => bail!("{status:?}"),
        };
        if changes.send(Ok(change)).is_err() {
            break;
        }
    }
    Ok(())
}

/// Makes an image of programs, by their paths in it, and gives it to containerd.
pub(crate) fn import(name: &str, programs: &[(&str, &Path)], args: &[&str], stop: &str) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let archive = dir.path().join("image.tar");
    image::write(&archive, name, programs, args, stop)?;
    let imported = Command::new("ctr").args(["--namespace", "k8s.io", "images", "import"]).arg(&archive).output()?;
    ensure!(imported.status.success(), "ctr: {}", String::from_utf8_lossy(&imported.stderr));
    Ok(())
}

/// A component that is away until the value is dropped.
pub(crate) struct Away<'c> {
    cluster: &'c Cluster,
    down: PathBuf,
}

impl Cluster {
    /// Ends a component; another is started in its place once the value is dropped.
    pub(crate) fn without(&self, component: &str) -> Result<Away<'_>> {
        let down = PathBuf::from(format!("/run/cluster/down/{component}"));
        fs::write(&down, "")?;
        let away = Away { cluster: self, down };
        let process = PathBuf::from(format!("/run/cluster/{component}.pid"));
        let pid: i32 = fs::read_to_string(&process)?.trim().parse()?;
        kill(Pid::from_raw(pid), Signal::SIGKILL)?;
        self.until("the component is away", |_| {
            ensure!(!process.exists(), "process {pid} runs");
            Ok(())
        })?;
        Ok(away)
    }
}

impl Drop for Away<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.down);
        // Whatever tidies up next asks the API server.
        let _ = self.cluster.until("the API server answers", |cluster| cluster.get("/version"));
    }
}
