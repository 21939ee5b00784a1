//! The cluster as trials see it: the API server for its administrator, the container runtime, the node's files.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use hyper::http::request::Builder;
use hyper::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::runtime::client::Cri;
use crate::runtime::netns::Netns;
use crate::runtime::programs::{Programs, static_build};
use crate::runtime::{image, wait};

/// The image of every container: the programs lie in its `/`.
pub(crate) const IMAGE: &str = "test.local/pod:1";
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
}

impl Cluster {
    /// With the pods' image imported.
    pub(crate) fn connect(programs: &Programs) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let archive = dir.path().join("image.tar");
        let validation = static_build("istio-iptables").map_err(anyhow::Error::msg)?;
        image::write(&archive, IMAGE, &[&programs.pod_app, &programs.pod_proxy, &validation], &["pause"])?;
        let imported =
            Command::new("ctr").args(["--namespace", "k8s.io", "images", "import"]).arg(&archive).output()?;
        ensure!(imported.status.success(), "ctr: {}", String::from_utf8_lossy(&imported.stderr));
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let client = runtime.block_on(async {
            let config = kube::Config::infer().await?;
            anyhow::Ok(Client::try_from(config)?)
        })?;
        Ok(Self {
            client,
            runtime,
            cri: Cri::connect(Path::new("/run/containerd/containerd.sock"))?,
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

    /// Deletes the object at a path; its dependents follow.
    pub(crate) fn delete(&self, path: &str) -> Result<Value> {
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
        self.send(
            Request::builder().method(Method::DELETE).uri(path).header("content-type", "application/json"),
            &options,
        )
    }

    fn send(&self, request: Builder, body: &Value) -> Result<Value> {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let request = request.body(bytes)?;
        let what = format!("{} {}", request.method(), request.uri());
        self.runtime.block_on(self.client.request(request)).context(what)
    }

    /// Asks again and again, at a pace that leaves the API server time for others.
    pub(crate) fn until<T>(&self, what: &str, probe: impl FnMut(&Self) -> Result<T>) -> Result<T> {
        let mut probe = probe;
        wait::until_every(PAUSE, what, || probe(self))
    }
}
