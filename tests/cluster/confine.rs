//! Tests the admission policy that limits the requests of an agent's token to objects of the agent's own node.

use anyhow::{Result, bail, ensure};
use contract::EVICTION_LABEL;
use hyper::Request;
use hyper::http::request::Builder;
use serde_json::{Value, json};

use crate::agent::{Agent, kubectl};
use crate::cluster::{Cluster, NODE};
use crate::objects::{plain, standalone};
use crate::rights::USER;
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] = &[Case {
    name: "an_agents_token_is_limited_to_its_own_node",
    namespace: "confine",
    scope: Scope::Full,
    body: confined,
}];

/// The name of a second Node object, which has no kubelet.
const OTHER: &str = "other";
/// The name of a ClusterRole that gives the agent's account the rights of the repair modes other than the installed
/// one.
const EXTRA: &str = "confine-extra";

/// Makes a request impersonate the agent's account with a token that is bound to this node.
fn agent(request: Builder, content_type: &str) -> Builder {
    let request = request.header("Impersonate-User", USER).header("Content-Type", content_type);
    request.header("Impersonate-Extra-authentication.kubernetes.io%2Fnode-name", NODE)
}

/// A dry-run request, its body, and the expected refusal (`None`: the request is allowed).
type Attempt = (Builder, Value, Option<&'static str>);

fn confined(stage: &Stage<'_>) -> Result<()> {
    let _agent = Agent::install_chart(stage, &["taint.enabled=true", "repair.mode=evict"])?;
    let _extra = Extra::new(stage.cluster)?;
    for (name, node) in [("here", NODE), ("there", OTHER)] {
        let mut pod = standalone(name, plain());
        pod["spec"]["nodeName"] = node.into();
        // Without a kubelet on the other node, a grace period would never end.
        pod["spec"]["terminationGracePeriodSeconds"] = 0.into();
        stage.create("pods", &pod)?;
    }
    for (request, body, refusal) in of_pods(stage).into_iter().chain(of_nodes()).chain(of_tokens()) {
        attempt(stage.cluster, request, &body, refusal)?;
    }
    Ok(())
}

/// Repeats a request until it has the expected outcome, because the API server notices new policies, and the pods that they look up, with a
/// delay.
fn attempt(cluster: &Cluster, request: Builder, body: &Value, refusal: Option<&str>) -> Result<()> {
    let request = request.body(Vec::<u8>::new())?;
    let again = || {
        let mut builder = Request::builder().method(request.method()).uri(request.uri());
        for (name, value) in request.headers() {
            builder = builder.header(name, value);
        }
        builder
    };
    let description = format!("{} {} {body}", request.method(), request.uri());
    cluster.until(&description, |cluster| match (cluster.send(again(), body), refusal) {
        (Ok(_), None) => Ok(()),
        (Ok(done), Some(refusal)) => bail!("the request was allowed instead of refused with {refusal:?}: {done}"),
        (Err(error), Some(refusal)) => {
            ensure!(format!("{error:#}").contains(refusal), "{error:#}");
            Ok(())
        }
        (Err(error), None) => Err(error),
    })
}

fn of_pods(stage: &Stage<'_>) -> Vec<Attempt> {
    let evict = |pod: &str, label: &str, refusal| {
        let path = format!("{}?dryRun=All", stage.path(&format!("pods/{pod}/eviction")));
        let body = json!({ "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {
            "namespace": stage.namespace, "name": pod, "labels": { EVICTION_LABEL: label },
        } });
        (agent(Request::post(path), "application/json"), body, refusal)
    };
    let delete = |pod: &str, refusal| {
        let path = stage.path(&format!("pods/{pod}"));
        // The API server ignores the options in the query if the body has options.
        let options = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "dryRun": ["All"] });
        (agent(Request::delete(path), "application/json"), options, refusal)
    };
    let patch = |pod: &str, patch: Value, refusal| {
        let path = format!("{}?dryRun=All", stage.path(&format!("pods/{pod}/status")));
        (agent(Request::patch(path), "application/merge-patch+json"), patch, refusal)
    };
    let label = json!({ "metadata": { "labels": { "cni.istio.io/uninitialized": "true" } } });
    let [own, key] =
        ["an agent deletes and labels pods of its own node only", "an agent sets the label cni.istio.io/uninitialized"];
    vec![
        evict("there", "true", Some("an agent evicts pods of its own node only")),
        evict("here", "", Some("an eviction by an agent carries the label")),
        evict("here", "true", None),
        delete("there", Some(own)),
        delete("here", None),
        patch("there", label.clone(), Some(own)),
        patch("here", label, None),
        patch("here", json!({ "metadata": { "labels": { "app": "other" } } }), Some(key)),
        patch("here", json!({ "metadata": { "labels": { "new": "" } } }), Some(key)),
        patch("here", json!({ "metadata": { "labels": { "app": null } } }), Some(key)),
        patch("here", json!({ "metadata": { "annotations": { "a": "b" } } }), Some(key)),
        patch("here", json!({ "status": { "phase": "Failed" } }), Some(key)),
    ]
}

fn of_nodes() -> Vec<Attempt> {
    let patch = |node: &str, patch: Value, refusal| {
        let request = Request::patch(format!("/api/v1/nodes/{node}?dryRun=All"));
        (agent(request, "application/merge-patch+json"), patch, refusal)
    };
    let refusal = Some("of its own node, an agent removes the taint cni.istio.io/not-ready");
    let taints = |taints: Value| json!({ "spec": { "taints": taints } });
    let owner = json!({ "apiVersion": "v1", "kind": "Namespace", "name": "absent", "uid": "absent" });
    vec![
        patch(OTHER, taints(json!([])), refusal),
        patch(NODE, taints(json!([{ "key": "new", "effect": "NoSchedule" }])), refusal),
        patch(NODE, json!({ "metadata": { "labels": { "new": "x" } } }), refusal),
        patch(NODE, json!({ "metadata": { "finalizers": ["example.com/new"] } }), refusal),
        patch(NODE, json!({ "metadata": { "ownerReferences": [owner] } }), refusal),
        patch(NODE, json!({ "spec": { "unschedulable": true } }), refusal),
        patch(NODE, taints(json!([])), None),
    ]
}

fn of_tokens() -> Vec<Attempt> {
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/istio-cni-plugin/token";
    let request = |spec: Value, refusal| {
        let body = json!({ "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec });
        (agent(Request::post(path), "application/json"), body, refusal)
    };
    let bound =
        |kind: &str, name: &str| json!({ "boundObjectRef": { "apiVersion": "v1", "kind": kind, "name": name } });
    let refusal = Some("an agent requests tokens that are bound to its own node");
    vec![
        request(json!({}), refusal),
        request(bound("Node", OTHER), refusal),
        request(bound("Pod", NODE), refusal),
        request(bound("Node", NODE), None),
    ]
}

/// Creates the node [`OTHER`] and the ClusterRole [`EXTRA`], and deletes them when the value is dropped.
struct Extra;

impl Extra {
    fn new(cluster: &Cluster) -> Result<Self> {
        let extra = Self;
        let taints = json!([{ "key": "cni.istio.io/not-ready", "effect": "NoSchedule" }]);
        let node =
            json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": OTHER }, "spec": { "taints": taints } });
        cluster.replace("/api/v1/nodes", &node)?;
        kubectl(&["delete", "--ignore-not-found", "clusterrolebinding,clusterrole", EXTRA])?;
        kubectl(&["create", "clusterrole", EXTRA, "--verb=delete,patch", "--resource=pods,pods/status"])?;
        let (role, account) = (format!("--clusterrole={EXTRA}"), "--serviceaccount=kube-system:istio-cni");
        kubectl(&["create", "clusterrolebinding", EXTRA, &role, account])?;
        Ok(extra)
    }
}

impl Drop for Extra {
    fn drop(&mut self) {
        for object in ["clusterrolebinding/confine-extra", "clusterrole/confine-extra", "node/other"] {
            let _ = kubectl(&["delete", object]);
        }
    }
}
