//! A trial's Kubernetes namespace: made before it, removed after it, and what then is left on the node.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_cri::v1::{PodSandbox, PodSandboxState};
use libtest_mimic::{Completion, Failed, Trial};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::objects::{is_broken, uid};
use test_support::runtime::outside;
use test_support::runtime::pod::APP_PORT;
use test_support::runtime::trace::Trace;
use test_support::tier;

/// What a trial states, the name of its namespace, and how it is shown.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    /// What it states.
    pub(crate) states: &'static str,
    /// Its namespace.
    pub(crate) namespace: &'static str,
    /// Fails where that does not hold.
    pub(crate) body: fn(&Stage<'_>) -> Result<()>,
}

/// The cluster and a namespace of it.
pub(crate) struct Stage<'c> {
    /// All of it.
    pub(crate) cluster: &'c Cluster,
    /// The trial's.
    pub(crate) namespace: &'static str,
}

/// The trial of a case in a running cluster.
pub(crate) fn trial(case: &Case, cluster: &Arc<Cluster>) -> Trial {
    let (case, cluster) = (*case, cluster.clone());
    Trial::ignorable_test(case.states, move || match perform(&case, &cluster) {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast::<Missing>() {
            Ok(Missing(reason)) => Ok(Completion::ignored_with(reason)),
            Err(error) => Err(Failed::from(format!("{error:#}"))),
        },
    })
}

/// What a trial needs beside the cluster, and is not there: the trial is ignored.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// The trial of a case where there is no cluster: ignored, unless `REQUIRE_TIERS` names `cluster`.
pub(crate) fn absent(case: &Case, reason: &str) -> Trial {
    tier::trial("cluster", case.states, Some(reason.to_owned()), || Ok(()))
}

fn perform(case: &Case, cluster: &Cluster) -> Result<()> {
    let namespace = case.namespace;
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    cluster.create("/api/v1/namespaces", &object)?;
    let path = format!("/api/v1/namespaces/{namespace}");
    // Pods need it; its controller is a moment behind.
    cluster.until("the default service account", |cluster| cluster.get(&format!("{path}/serviceaccounts/default")))?;
    let stage = Stage { cluster, namespace };
    let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (case.body)(&stage)));
    let account = if matches!(shown, Ok(Ok(()))) { String::new() } else { stage.account() };
    cluster.delete(&path)?;
    // Nobody replaces them any more, and the namespaces' controller would take seconds to come to them.
    cluster.delete(&stage.path("pods"))?;
    let removed = cluster.until("nothing of it is left", leftovers);
    match shown {
        Ok(shown) => shown.map_err(|e| e.context(account))?,
        Err(cause) => {
            let text = cause.downcast_ref::<String>().cloned();
            bail!(
                "{}\n{account}",
                text.or_else(|| cause.downcast_ref().map(|s: &&str| (*s).to_owned())).unwrap_or_default()
            );
        }
    }
    removed
}

/// Fails as long as pods, or what they have, are on the node.
fn leftovers(cluster: &Cluster) -> Result<()> {
    // The kubelet stops sandboxes at once, and removes them in the end some minute.
    let sandboxes =
        cluster.cri.sandboxes()?.into_iter().filter(|sandbox| sandbox.state() == PodSandboxState::SandboxReady);
    let mut left: Vec<String> = sandboxes.map(|sandbox| format!("sandbox {}", sandbox.id)).collect();
    let links = cluster.netns.command("ip", &["-oneline", "link", "show", "type", "veth"])?;
    left.extend(links.lines().map(|line| format!("link {line}")));
    for (what, dir) in [("network namespace", "/run/netns"), ("address", "/var/lib/cni/networks/cluster")] {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let of_pods = names.filter(|name| name != "lock" && !name.starts_with("last_reserved_ip"));
        left.extend(of_pods.map(|name| format!("{what} {name}")));
    }
    ensure!(left.is_empty(), "{left:#?}");
    Ok(())
}

impl Stage<'_> {
    /// A path in the trial's namespace.
    pub(crate) fn path(&self, collection: &str) -> String {
        let api = match collection.split('/').next() {
            Some("deployments" | "daemonsets") => "/apis/apps/v1",
            Some("jobs") => "/apis/batch/v1",
            Some("poddisruptionbudgets") => "/apis/policy/v1",
            Some("roles" | "rolebindings") => "/apis/rbac.authorization.k8s.io/v1",
            _ => "/api/v1",
        };
        format!("{api}/namespaces/{}/{collection}", self.namespace)
    }

    /// Puts an object into the trial's namespace.
    pub(crate) fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        self.cluster.create(&self.path(collection), object)
    }

    /// What is in the trial's namespace.
    pub(crate) fn get(&self, what: &str) -> Result<Value> {
        self.cluster.get(&self.path(what))
    }

    /// The pods of the trial's namespace.
    pub(crate) fn pods(&self) -> Result<Vec<Value>> {
        let list = self.get("pods")?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// The one pod of the trial's namespace for which this holds, once there is one.
    pub(crate) fn pod_that(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Result<Value> {
        self.cluster.until(what, |_| {
            let pods = self.pods()?;
            let seen: Vec<String> = pods.iter().map(|pod| pod["status"].to_string()).collect();
            match pods.into_iter().filter(|pod| holds(pod)).collect::<Vec<_>>().as_mut_slice() {
                [only] => Ok(only.take()),
                _ => bail!("{seen:#?}"),
            }
        })
    }

    /// The trial's pod once its validation has failed.
    pub(crate) fn broken(&self) -> Result<Value> {
        self.pod_that("validation has found no redirection", is_broken)
    }

    /// Asks a pod's application from the node.
    pub(crate) fn ask(&self, pod: &Value) -> Result<Trace> {
        self.ask_at(pod["status"]["podIP"].as_str().context("an address")?.parse()?)
    }

    /// Asks the application of the pod that has this address.
    pub(crate) fn ask_at(&self, address: IpAddr) -> Result<Trace> {
        outside::ask(&self.cluster.netns, SocketAddr::new(address, APP_PORT))
    }

    /// Whoever asks the pod's application meets its sidecar first. A probe is answered by the sidecar, which may be a moment
    /// earlier than the application.
    pub(crate) fn redirected(&self, pod: &Value) -> Result<()> {
        let trace = self.cluster.until("the pod's application answers", |_| self.ask(pod))?;
        let who: Vec<&str> = trace.hops().into_iter().map(|(who, _)| who).collect();
        ensure!(who == ["istio-proxy/inbound", "app"], "{trace}");
        Ok(())
    }

    /// The pod's sandbox, of which there has only been one.
    pub(crate) fn sandbox(&self, pod: &Value) -> Result<String> {
        match self.sandboxes(pod)?.as_slice() {
            [only] => Ok(only.id.clone()),
            several => bail!("sandboxes of {}: {several:?}", pod["metadata"]["name"]),
        }
    }

    /// The pod's running sandbox and its address, once that is another than it was.
    pub(crate) fn running_sandbox(&self, pod: &Value, other_than: &str) -> Result<(String, IpAddr)> {
        let all = self.sandboxes(pod)?;
        let running = all.iter().find(|s| s.id != other_than && s.state() == PodSandboxState::SandboxReady);
        let id = &running.with_context(|| format!("{all:?}"))?.id;
        let status = self.cluster.cri.sandbox_status(id)?.status.context("a status")?;
        let address = status.network.context("a network")?.ip;
        Ok((id.clone(), address.parse().with_context(|| format!("{address:?}"))?))
    }

    fn sandboxes(&self, pod: &Value) -> Result<Vec<PodSandbox>> {
        let uid = uid(pod);
        let all = self.cluster.cri.sandboxes()?.into_iter();
        Ok(all.filter(|sandbox| sandbox.labels.get("io.kubernetes.pod.uid").is_some_and(|of| of == uid)).collect())
    }

    /// What the API server knows of pods and events, for whoever must find out why a trial failed.
    fn account(&self) -> String {
        let mut account = String::from("In its namespace:\n");
        for pod in self.pods().unwrap_or_default() {
            account += &format!("pod {}: {}\n", pod["metadata"]["name"], pod["status"]);
        }
        for event in self.get("events").unwrap_or_default()["items"].as_array().into_iter().flatten() {
            let about = &event["involvedObject"]["name"];
            account += &format!("event {about} {}: {}\n", event["reason"], event["message"]);
        }
        account
    }
}
