//! The Kubernetes namespace of a trial: created before the trial and deleted after it, with a check for leftovers on
//! the node.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use k8s_cri::v1::{PodSandbox, PodSandboxState};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::enter::logs;
use crate::objects::{is_broken, uid};
use test_support::outcome;
use test_support::runtime::outside;
use test_support::runtime::pod::APP_PORT;
use test_support::runtime::trace::Trace;

/// A trial: its name, its namespace, when it runs, and its body.
#[derive(Clone, Copy)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) namespace: &'static str,
    pub(crate) scope: Scope,
    /// Runs the trial; returns an error unless the behaviour that the name states is observed.
    pub(crate) body: fn(&Stage<'_>) -> Result<()>,
}

/// Which runs of the suite include a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every run: the trial guards an invariant, such as that every pod is redirected or repaired.
    Gate,
    /// Only a run with `FULL=1`, or one that filters by the trial's whole name.
    Full,
}

impl Case {
    /// Whether the trial runs with these arguments. Otherwise it is ignored.
    pub(crate) fn runs(&self, arguments: &Arguments) -> bool {
        let is_full = std::env::var_os("FULL").is_some_and(|value| value == "1");
        self.scope == Scope::Gate || is_full || arguments.filter.as_deref() == Some(self.name)
    }
}

/// Returns the trial of a case that does not run with these arguments: ignored, even if `REQUIRE_TIERS` names `cluster`.
pub(crate) fn postponed(case: &Case) -> Trial {
    Trial::ignorable_test(case.name, || Ok(Completion::ignored_with("runs in `make full`")))
}

/// The cluster and the trial's namespace.
pub(crate) struct Stage<'c> {
    pub(crate) cluster: &'c Cluster,
    pub(crate) namespace: &'static str,
}

/// Returns the trial of a case in a running cluster.
pub(crate) fn trial(case: &Case, cluster: &Arc<Cluster>) -> Trial {
    let (case, cluster) = (*case, cluster.clone());
    Trial::ignorable_test(case.name, move || match run(&case, &cluster) {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast::<Missing>() {
            Ok(Missing(reason)) => Ok(Completion::ignored_with(reason)),
            Err(error) => Err(Failed::from(format!("{error:#}\nThe logs: {}", logs().display()))),
        },
    })
}

/// The directory in which the kubelet keeps the logs of containers.
pub(crate) const PODS_LOGS: &str = "/var/log/pods";

/// The error of a trial that is ignored because a file or program that it needs is missing.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) String);

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Missing {}

/// Returns the trial of a case without a cluster: ignored with a reason, unless `REQUIRE_TIERS` names `cluster`.
pub(crate) fn absent(case: &Case, reason: &str) -> Trial {
    tier::trial("cluster", case.name, Some(reason.to_owned()), || Ok(()))
}

/// Runs a trial in its namespace, and cleans up even if it fails. If both fail, the trial's own error is the first one.
fn run(case: &Case, cluster: &Cluster) -> Result<()> {
    let namespace = case.namespace;
    let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } });
    cluster.replace("/api/v1/namespaces", &object)?;
    let stage = Stage { cluster, namespace };
    let outcome = outcome::caught(|| {
        // Pods need the default service account, which a controller creates after the namespace.
        cluster.until("the default service account", |_| stage.get("serviceaccounts/default"))?;
        (case.body)(&stage)
    });
    let reported = outcome.map_err(|error| match error.is::<Missing>() {
        true => error,
        false => anyhow!("{error:#}\n{}{}", stage.report(), stage.save_logs()),
    });
    outcome::after_cleanup(reported, clean(&stage))
}

/// Deletes the trial's namespace and checks that nothing of its pods is left on the node.
fn clean(stage: &Stage<'_>) -> Result<()> {
    let cluster = stage.cluster;
    let deleted = |path: &str| cluster.until(&format!("{path} is deleted"), |cluster| cluster.delete_existing(path));
    deleted(&format!("/api/v1/namespaces/{}", stage.namespace))?;
    // Deletes the pods at once; the namespace controller would delete them seconds later. The API server creates no new
    // pods in a namespace that is being deleted.
    deleted(&stage.path("pods"))?;
    cluster.until("no sandbox, link, netns or address of a pod is left", leftovers)
}

/// Fails if running sandboxes, links, network namespaces or addresses of pods are on the node.
fn leftovers(cluster: &Cluster) -> Result<()> {
    // The kubelet stops sandboxes at once and removes them up to a minute later.
    let sandboxes =
        cluster.cri.sandboxes()?.into_iter().filter(|sandbox| sandbox.state() == PodSandboxState::SandboxReady);
    let mut left: Vec<String> = sandboxes.map(|sandbox| format!("sandbox {}", sandbox.id)).collect();
    let links = cluster.netns.command("ip", &["-oneline", "link", "show", "type", "veth"])?;
    left.extend(links.lines().map(|line| format!("link {line}")));
    for (kind, dir) in [("network namespace", "/run/netns"), ("address", "/var/lib/cni/networks/cluster")] {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let of_pods = names.filter(|name| name != "lock" && !name.starts_with("last_reserved_ip"));
        left.extend(of_pods.map(|name| format!("{kind} {name}")));
    }
    ensure!(left.is_empty(), "{left:#?}");
    Ok(())
}

impl Stage<'_> {
    /// Returns the API path of a collection, or of an object, in the trial's namespace.
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

    /// Creates an object in the trial's namespace.
    pub(crate) fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        self.cluster.create(&self.path(collection), object)
    }

    /// Gets an object or a collection in the trial's namespace.
    pub(crate) fn get(&self, path: &str) -> Result<Value> {
        self.cluster.get(&self.path(path))
    }

    /// Returns the pods in the trial's namespace.
    pub(crate) fn pods(&self) -> Result<Vec<Value>> {
        let list = self.get("pods")?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until exactly one pod in the trial's namespace satisfies the predicate, and returns it.
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

    /// Waits until validation has failed in the trial's only pod, and returns the pod.
    pub(crate) fn broken(&self) -> Result<Value> {
        self.pod_that("validation has failed", is_broken)
    }

    /// Sends a request from the node to a pod's application.
    pub(crate) fn connect(&self, pod: &Value) -> Result<Trace> {
        self.ask_at(pod["status"]["podIP"].as_str().context("an address")?.parse()?)
    }

    /// Sends a request from the node to the application of the pod with this address.
    pub(crate) fn ask_at(&self, address: IpAddr) -> Result<Trace> {
        outside::connect(&self.cluster.netns, SocketAddr::new(address, APP_PORT))
    }

    /// Waits until a request to the pod's application passes the sidecar first. The sidecar also responds to the
    /// readiness probe, possibly before the application listens.
    pub(crate) fn redirected(&self, pod: &Value) -> Result<()> {
        let trace = self.cluster.until("the pod's application responds", |_| self.connect(pod))?;
        let hops: Vec<&str> = trace.hops().into_iter().map(|(program, _)| program).collect();
        ensure!(hops == ["istio-proxy/inbound", "app"], "{trace}");
        Ok(())
    }

    /// Returns the pod's only sandbox; fails if it has had several.
    pub(crate) fn sandbox(&self, pod: &Value) -> Result<String> {
        match self.sandboxes(pod)?.as_slice() {
            [only] => Ok(only.id.clone()),
            several => bail!("sandboxes of {}: {several:?}", pod["metadata"]["name"]),
        }
    }

    /// Returns the pod's running sandbox, other than `other_than`, and its address.
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

    /// Returns the pods and events of the namespace, for the report of a failure.
    fn report(&self) -> String {
        let mut report = String::from("In the trial's namespace:\n");
        for pod in self.pods().unwrap_or_default() {
            report += &format!("pod {}: {}\n", pod["metadata"]["name"], pod["status"]);
        }
        for event in self.get("events").unwrap_or_default()["items"].as_array().into_iter().flatten() {
            let about = &event["involvedObject"]["name"];
            report += &format!("event {about} {}: {}\n", event["reason"], event["message"]);
        }
        report
    }

    /// Copies the logs of all containers to a directory next to the components' logs. Returns why that failed, or an empty string.
    fn save_logs(&self) -> String {
        let to = logs().join(format!("pods-{}", self.namespace));
        match Command::new("cp").args(["--recursive", PODS_LOGS]).arg(&to).output() {
            Ok(output) if output.status.success() => String::new(),
            Ok(output) => format!("The logs of containers are not saved: {}", String::from_utf8_lossy(&output.stderr)),
            Err(error) => format!("The logs of containers are not saved: cp: {error}"),
        }
    }
}
