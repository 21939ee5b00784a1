//! Access to the cluster: requests to the API server as an administrator, imports of images into the container runtime, and
//! interruptions of Kubernetes' components such as kube-apiserver.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use futures::TryStreamExt as _;
use hyper::http::request::Builder;
use hyper::{Method, Request, StatusCode};
use kube::Client;
use kube::core::WatchEvent;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::agent::IMAGES;
use crate::chain::NETWORK;
use crate::enter;
use crate::injector::{PROXY, VALIDATION};
use test_support::runtime::client::Cri;
use test_support::runtime::netns::Netns;
use test_support::runtime::node::IMAGE;
use test_support::runtime::programs::{Programs, static_build};
use test_support::runtime::{conflist, crio, image, wait};

pub(crate) const NODE: &str = "node";
/// The pause between two requests to the API server.
const PAUSE: Duration = Duration::from_millis(50);

/// A running cluster of one node.
pub(crate) struct Cluster {
    client: Client,
    runtime: Runtime,
    pub(crate) cri: Cri,
    /// The node's netns.
    pub(crate) netns: Netns,
    /// The plugin's binary, which is not installed yet.
    pub(crate) plugin: PathBuf,
}

impl Cluster {
    /// Imports all images and connects to the API server and the container runtime.
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
        // The injection templates start validation by the name of Istio's program, `pilot-agent`.
        import(VALIDATION, &[("pilot-agent", &programs.istio_iptables)], &[], "SIGTERM")?;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(async {
            let config = kube::Config::infer().await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self {
            client,
            runtime,
            cri: Cri::connect(enter::Runtime::here().context("this program runs outside of a cluster")?.socket())?,
            plugin: programs.istio_cni.clone(),
            netns: Netns::open(Path::new("/proc/self/ns/net"))?,
        })
    }

    /// Replaces the node's network and waits until the container runtime has loaded it.
    pub(crate) fn load_network(&self, text: &str) -> Result<()> {
        let network = Path::new(NETWORK);
        if enter::Runtime::here() != Some(enter::Runtime::Crio) {
            return conflist::load(&self.cri, network, text);
        }
        conflist::replace(network, text)?;
        let networks = network.parent().context("the directory of networks")?;
        crio::synced(networks, &enter::logs().join("crio.log"))
    }

    /// Gets the object or collection at a path.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.send(Request::get(path), &Value::Null)
    }

    /// Creates an object in the collection at a path and returns the created object.
    pub(crate) fn create(&self, path: &str, object: &Value) -> Result<Value> {
        self.send(Request::post(path).header("content-type", "application/json"), object)
    }

    /// Applies a merge patch to the object at a path.
    pub(crate) fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.send(Request::patch(path).header("content-type", "application/merge-patch+json"), patch)
    }

    /// Deletes the object at a path; the garbage collector deletes its dependents.
    pub(crate) fn delete(&self, path: &str) -> Result<Value> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
        self.send(
            Request::builder().method(Method::DELETE).uri(path).header("content-type", "application/json"),
            &options,
        )
    }

    /// Deletes the object at a path, unless it does not exist.
    pub(crate) fn delete_existing(&self, path: &str) -> Result<()> {
        match self.delete(path) {
            Err(error) if code(&error) != Some(StatusCode::NOT_FOUND) => Err(error),
            _ => Ok(()),
        }
    }

    /// Creates an object. If an earlier trial left one with the same name, deletes it and waits until it is gone.
    pub(crate) fn replace(&self, collection: &str, object: &Value) -> Result<Value> {
        let path = format!("{collection}/{}", object["metadata"]["name"].as_str().context("a name")?);
        self.until(&format!("a former {path} is gone"), |cluster| match cluster.create(collection, object) {
            Err(error) if code(&error) == Some(StatusCode::CONFLICT) => {
                cluster.delete_existing(&path)?;
                Err(error)
            }
            created => Ok(created),
        })?
    }

    /// Sends a request with a JSON body. Headers may impersonate a user.
    pub(crate) fn send(&self, request: Builder, body: &Value) -> Result<Value> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.body(bytes)?;
        let line = format!("{} {}", request.method(), request.uri());
        self.runtime.block_on(self.client.request(request)).context(line)
    }

    /// Watches a collection. The first events are its existing objects.
    pub(crate) fn changes(&self, collection: &str) -> Result<Changes> {
        let request = Request::get(format!("{collection}?watch=true")).body(Vec::new())?;
        let (client, (sender, receiver)) = (self.client.clone(), mpsc::channel());
        let task = self.runtime.spawn(async move {
            if let Err(error) = watch(client, request, &sender).await {
                let _ = sender.send(Err(error));
            }
        });
        Ok(Changes { receiver, task })
    }

    /// Returns a container's log.
    pub(crate) fn log(&self, pod: &str, container: &str) -> Result<String> {
        let request = Request::get(format!("{pod}/log?container={container}")).body(Vec::new())?;
        Ok(self.runtime.block_on(self.client.request_text(request))?)
    }

    /// Repeats a probe until it succeeds, with pauses that limit the load on the API server.
    pub(crate) fn until<T>(&self, what: &str, probe: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        let mut probe = probe;
        wait::until_every(PAUSE, what, || probe(self))
    }
}

/// Returns the status code of the API server's response, if the error is such a response.
fn code(error: &anyhow::Error) -> Option<StatusCode> {
    match error.downcast_ref::<kube::Error>() {
        Some(kube::Error::Api(status)) => StatusCode::from_u16(status.code).ok(),
        _ => None,
    }
}

/// An event of a watched collection.
pub(crate) enum Change {
    /// The object was created or changed; the event was received at this instant.
    Applied(Instant, Value),
    /// The object was deleted; this was its last state.
    Deleted(Value),
}

/// A watch of a collection, until the value is dropped.
pub(crate) struct Changes {
    receiver: Receiver<Result<Change>>,
    task: JoinHandle<()>,
}

impl Changes {
    /// Returns the next event, or `None` if there is none within the timeout.
    pub(crate) fn next(&self, timeout: Duration) -> Result<Option<Change>> {
        match self.receiver.recv_timeout(timeout) {
            Ok(change) => change.context("watching").map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("the API server has closed the watch"),
        }
    }
}

impl Drop for Changes {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Sends the events of a watch until the API server closes it or the receiver is dropped.
async fn watch(client: Client, request: Request<Vec<u8>>, changes: &Sender<Result<Change>>) -> Result<()> {
    let events = client.request_events::<Value>(request).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.try_next().await? {
        let change = match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => Change::Applied(Instant::now(), object),
            WatchEvent::Deleted(object) => Change::Deleted(object),
            WatchEvent::Bookmark(_) => continue,
            WatchEvent::Error(status) => bail!("{status:?}"),
        };
        if changes.send(Ok(change)).is_err() {
            break;
        }
    }
    Ok(())
}

/// CRI-O's image storage, which CRI-O's configuration names as well.
const CRIO_STORAGE: &str = "[vfs@/run/cluster/crio+/run/containers/storage]";

/// Builds an image from programs, which are given with their paths in the image, and imports it into the container runtime.
pub(crate) fn import(name: &str, programs: &[(&str, &Path)], args: &[&str], stop: &str) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let archive = dir.path().join("image.tar");
    image::write(&archive, name, programs, args, stop)?;
    if enter::Runtime::here() == Some(enter::Runtime::Crio) {
        return crio::import(Command::new("skopeo"), &archive, CRIO_STORAGE, name);
    }
    let imported = Command::new("ctr").args(["--namespace", "k8s.io", "images", "import"]).arg(&archive).output()?;
    ensure!(imported.status.success(), "ctr: {}", String::from_utf8_lossy(&imported.stderr));
    Ok(())
}

/// A stopped component of the cluster, which is started again when the value is dropped.
pub(crate) struct Stopped<'c> {
    cluster: &'c Cluster,
    down: PathBuf,
}

impl Cluster {
    /// Kills a component. It is started again when the returned value is dropped.
    pub(crate) fn stop(&self, component: &str) -> Result<Stopped<'_>> {
        let down = PathBuf::from(format!("/run/cluster/down/{component}"));
        fs::write(&down, "")?;
        let stopped = Stopped { cluster: self, down };
        let process = PathBuf::from(format!("/run/cluster/{component}.pid"));
        let pid: i32 = fs::read_to_string(&process)?.trim().parse()?;
        kill(Pid::from_raw(pid), Signal::SIGKILL)?;
        self.until("the component has stopped", |_| {
            ensure!(!process.exists(), "process {pid} runs");
            Ok(())
        })?;
        Ok(stopped)
    }
}

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.down);
        // The cleanup after the trial needs the API server.
        let _ = self.cluster.until("the API server responds", |cluster| cluster.get("/version"));
    }
}
