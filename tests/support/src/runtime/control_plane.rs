//! An API server double in the netns of a test node. It has the node, the agent's DaemonSet, and pods with the status that a kubelet would
//! report.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};

use super::conflist::AGENT_NAMESPACE;
use super::installer::NODE_NAME;
use super::node::Node;
use super::pod::Pod;
use super::wait;
use crate::api::Api;

const DAEMON_SET: &str = "istio-cni-node";

/// An API server in the node's netns, until the value is dropped.
pub struct ControlPlane {
    runtime: Runtime,
    api: Api,
}

impl ControlPlane {
    /// Starts the API server with one node and the agent's DaemonSet.
    pub fn start(node: &Node) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = node.netns().visit(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?.context("API server")?;
        listener.set_nonblocking(true)?;
        let api = {
            let _inside = runtime.enter();
            Api::serve(tokio::net::TcpListener::from_std(listener)?)
        };
        api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": NODE_NAME } }));
        api.put(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet",
            "metadata": { "namespace": AGENT_NAMESPACE, "name": DAEMON_SET },
            "spec": { "selector": {}, "template": { "spec": { "containers": [] } } },
        }));
        Ok(Self { runtime, api })
    }

    /// Returns the address of the API server.
    pub fn address(&self) -> SocketAddr {
        self.api.address()
    }

    /// Returns the API server.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Creates a pod that is scheduled to the node.
    pub fn schedule(&self, pod: &Pod) {
        self.report(pod, json!({ "phase": "Pending" }));
    }

    /// Creates or replaces the pod with the status that a kubelet reports when `istio-validation` fails.
    pub fn report_unvalidated(&self, pod: &Pod, ip: IpAddr) {
        let status = json!({
            "phase": "Pending", "podIP": ip, "podIPs": [{ "ip": ip }],
            "initContainerStatuses": [{
                "name": "istio-validation", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": { "waiting": { "reason": "CrashLoopBackOff" } },
                "lastState": { "terminated": { "exitCode": 126, "reason": "Error" } },
            }],
        });
        self.report(pod, status);
    }

    fn report(&self, pod: &Pod, status: Value) {
        let mut object = pod.object();
        object["spec"]["nodeName"] = json!(NODE_NAME);
        object["status"] = status;
        self.api.put(object);
    }

    /// Waits for an event about a pod with this reason and returns its message.
    pub fn event(&self, pod: &Pod, reason: &str) -> Result<String> {
        wait::until(&format!("an event has the reason {reason}"), || {
            let events = self.api.list("events");
            let of_pod =
                |event: &&Value| event["regarding"]["name"] == pod.name || event["involvedObject"]["name"] == pod.name;
            let mut matching = events.iter().filter(of_pod).filter(|event| event["reason"] == reason);
            let event = matching.next().with_context(|| format!("{events:?}"))?;
            let text = [&event["note"], &event["message"]].into_iter().find_map(Value::as_str);
            text.map(str::to_owned).context("an event without a message")
        })
    }

    /// Deletes the agent's DaemonSet.
    pub fn delete_daemon_set(&self) {
        self.api.remove("daemonsets", AGENT_NAMESPACE, DAEMON_SET);
    }

    /// Stops the API server.
    pub fn end(self) {
        drop(self.api);
        self.runtime.shutdown_timeout(Duration::from_secs(1));
    }
}
