//! Tests of Dapr's injection, and the settings, pods and reviews that they share.

mod accounts;
mod budget;
mod components;
mod container;
mod meshes;
mod options;
mod parsers;
mod patch;
mod properties;
mod release_1_4_2;
mod review;
mod settings;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::{Component, Decision, Era, Facts, InjectionOutcome, Issuer, Request, Settings, Trust, User, review};

/// Returns the chart's settings with added or replaced variables.
fn settings(env: &[(&str, &str)]) -> Settings {
    parse_settings(env, Era::Current).expect("settings")
}

fn parse_settings(env: &[(&str, &str)], era: Era) -> Result<Settings, super::SettingsError> {
    let chart =
        [("SIDECAR_IMAGE", "daprd:1"), ("NAMESPACE", "example"), ("DAPR_CONTROL_PLANE_TRUST_DOMAIN", "foo.bar")];
    let all: BTreeMap<String, String> =
        chart.iter().chain(env).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Settings::from_env(&all, "", era)
}

fn trust() -> Trust {
    let issuer = Issuer { chain: "CHAIN".into(), key: "KEY".into() };
    Trust { anchors: Some("ANCHORS".into()), issuer: Some(issuer), mtls: true }
}

/// Returns a pod with one container, the annotations `dapr.io/enabled` and `dapr.io/app-id`, and these annotations,
/// whose names are given without `dapr.io/`.
fn pod(annotations: &[(&str, &str)]) -> Value {
    let mut pod = json!({
        "metadata": {"name": "app-0", "annotations": {"dapr.io/enabled": "true", "dapr.io/app-id": "app"}},
        "spec": {"containers": [{"name": "app", "image": "app:1"}]},
    });
    for (name, value) in annotations {
        pod["metadata"]["annotations"][format!("dapr.io/{name}")] = (*value).into();
    }
    pod
}

const CONTROLLER: User<'static> =
    User { username: "system:serviceaccount:kube-system:replicaset-controller", uid: "", groups: &[] };

/// Reviews a ReplicaSet's pod.
fn reviewed(pod: &Value, settings: &Settings) -> InjectionOutcome {
    reviewed_with(pod, settings, &trust(), Some(&[]))
}

fn reviewed_with(
    pod: &Value,
    settings: &Settings,
    trust: &Trust,
    components: Option<&[Component]>,
) -> InjectionOutcome {
    let request = Request { kind: "Pod", namespace: "testns", user: CONTROLLER, object: Some(pod) };
    // The empty UID of `CONTROLLER` is in the list of allowed UIDs, because release 1.4.2 allows no controller by name.
    let accounts = BTreeSet::from([String::new()]);
    review(&request, settings, &Facts { accounts: &accounts, trust, components })
}

/// Applies the patch with an independent implementation of JSON patch.
fn apply(pod: &Value, outcome: &InjectionOutcome) -> Value {
    let patch: json_patch::Patch =
        serde_json::from_value(serde_json::to_value(&outcome.patch).expect("a patch")).expect("a JSON patch");
    let mut pod = pod.clone();
    json_patch::patch(&mut pod, &patch).expect("the patch applies");
    pod
}

/// Returns the pod with its sidecar.
fn injected(pod: &Value, settings: &Settings) -> Value {
    let outcome = reviewed(pod, settings);
    assert!(matches!(outcome.decision, Decision::Inject { .. }), "{outcome:?}");
    apply(pod, &outcome)
}

/// Returns the sidecar of a pod with these annotations.
fn sidecar(annotations: &[(&str, &str)], settings: &Settings) -> Value {
    daprd(&injected(&pod(annotations), settings)).clone()
}

fn daprd(pod: &Value) -> &Value {
    let lists = ["containers", "initContainers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
    lists.flatten().find(|container| container["name"] == "daprd").expect("daprd")
}

/// Returns the paths of a patch, in order, and checks that all operations are `add`.
fn paths(outcome: &InjectionOutcome) -> Vec<String> {
    let path = |operation: &Value| {
        assert_eq!(operation["op"], "add");
        operation["path"].as_str().expect("a path").to_owned()
    };
    serde_json::to_value(&outcome.patch).expect("a patch").as_array().expect("operations").iter().map(path).collect()
}

fn args(container: &Value) -> Vec<&str> {
    container["args"].as_array().expect("args").iter().map(|arg| arg.as_str().expect("text")).collect()
}

/// Returns the value that follows the argument `name`.
fn option<'a>(container: &'a Value, name: &str) -> Option<&'a str> {
    let args = args(container);
    args.iter().position(|arg| *arg == name).map(|at| args[at + 1])
}

/// Returns a variable of a container.
fn variable<'a>(container: &'a Value, name: &str) -> Option<&'a Value> {
    container["env"].as_array()?.iter().find(|variable| variable["name"] == name)
}
