//! Runs `kube-inject` on random manifests of each kind: the output has Go's format, and differs from the input only by
//! what injection adds.

use libtest_mimic::{Failed, Trial};
use proptest::prelude::RngExt as _;
use proptest::test_runner::TestRng;
use serde_json::{Value, json};

use super::kept::changes;
use super::kube_inject::kube_inject;
use super::kubernetes::{self, written};
use super::random::Types;
use super::types::{equal, is_embedded, rng};

/// The number of random manifests.
const MANIFESTS: usize = 250;

/// One in this many pods has injection disabled.
const DECLINES: u32 = 4;

/// For each kind of manifest: the Go type, the apiVersion, the JSON pointer to the object with the pod's spec and
/// metadata, and the pointer to the object whose metadata injection changes, too.
const KINDS: [(&str, &str, &str, &str); 9] = [
    ("core.Pod", "v1", "", ""),
    ("core.ReplicationController", "v1", "/spec/template", "/spec/template"),
    ("apps.DaemonSet", "apps/v1", "/spec/template", "/spec/template"),
    ("apps.Deployment", "apps/v1", "/spec/template", "/spec/template"),
    ("apps.ReplicaSet", "apps/v1", "/spec/template", "/spec/template"),
    ("apps.StatefulSet", "apps/v1", "/spec/template", "/spec/template"),
    ("batch.CronJob", "batch/v1", "/spec/jobTemplate/spec/template", "/spec/jobTemplate"),
    ("batch.Job", "batch/v1", "/spec/template", "/spec/template"),
    ("openshift.DeploymentConfig", "apps.openshift.io/v1", "/spec/template", "/spec/template"),
];

/// Lists of a pod to which injection adds items.
const LISTS: [&str; 4] = ["containers", "initContainers", "volumes", "imagePullSecrets"];

/// Maps of metadata to which injection adds entries.
const MAPS: [&str; 2] = ["annotations", "labels"];

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 2] =
        [("are written as Go writes them", written_as_go), ("keep all values outside of what injection adds", kept)];
    let missing = kubernetes::missing();
    let trial = |(name, check): (&str, Check)| {
        tier::trial("go", format!("manifests/{name}"), missing.clone(), move || all(check))
    };
    checks.into_iter().map(trial).collect()
}

/// Fails if the output of kube-inject for a manifest is wrong.
type Check = fn(&Manifest, &Types, output: &str) -> Result<(), Failed>;

struct Manifest {
    of: &'static str,
    pod: &'static str,
    metadata: &'static str,
    declines: bool,
    document: Value,
}

fn all(check: Check) -> Result<(), Failed> {
    // Uses the table that Go prints, because the committed one may lack types.
    let (types, mut rng) = (Types::parse(kubernetes::table()?), rng());
    let mut failures = Vec::new();
    for at in 0..MANIFESTS {
        let manifest = Manifest::random(KINDS[at % KINDS.len()], &types, &mut rng);
        let output = kube_inject(&["--builtIn"], manifest.document.to_string().as_bytes());
        if let Err(failed) = output.and_then(|output| check(&manifest, &types, &output)) {
            failures.push(format!("{}\n{}", manifest.document, failed.message().unwrap_or_default()));
        }
    }
    match failures.first() {
        None => Ok(()),
        Some(first) => Err(format!("{} of {MANIFESTS} fail, the first:\n{first}", failures.len()).into()),
    }
}

impl Manifest {
    fn random(
        (of, version, pod, metadata): (&'static str, &str, &'static str, &'static str),
        types: &Types,
        rng: &mut TestRng,
    ) -> Self {
        let mut document = types.object(of, rng, None);
        document["apiVersion"] = version.into();
        document["kind"] = of.split('.').nth(1).unwrap_or_default().into();
        let declines = rng.random_ratio(1, DECLINES);
        let mut spec = types.object("core.PodSpec", rng, None);
        spec["hostNetwork"] = declines.into();
        spec["containers"] = (0..rng.random_range(1..3)).map(|_| types.object("core.Container", rng, None)).collect();
        for list in LISTS {
            for (at, item) in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().enumerate() {
                if item.is_null() {
                    *item = json!({});
                }
                item["name"] = format!("{}-{at}", list.to_lowercase()).into();
            }
        }
        put(&mut document, &format!("{pod}/spec"), spec);
        for holder in ["", pod, metadata] {
            put(&mut document, &format!("{holder}/metadata/name"), "web".into());
            put(&mut document, &format!("{holder}/metadata/namespace"), "shop".into());
        }
        let annotations = json!({"sidecar.istio.io/rewriteAppHTTPProbers": "false", "own": "", "7": "x"});
        for holder in [pod, metadata] {
            put(&mut document, &format!("{holder}/metadata/annotations"), annotations.clone());
            put(&mut document, &format!("{holder}/metadata/labels"), json!({"app": "web", "empty": ""}));
        }
        Self { of, pod, metadata, declines, document }
    }
}

/// Sets the value at a JSON pointer; creates missing parents.
fn put(document: &mut Value, pointer: &str, value: Value) {
    let mut at = document;
    for key in pointer.split('/').skip(1) {
        if !at[key].is_object() && !at[key].is_null() {
            at[key] = Value::Null;
        }
        at = &mut at[key];
    }
    *at = value;
}

/// Checks that the output has Go's format, also if injection is disabled.
fn written_as_go(manifest: &Manifest, _: &Types, output: &str) -> Result<(), Failed> {
    let text = output.strip_suffix("---\n").ok_or("there is no separator behind it")?;
    let injected = text.contains("name: istio-proxy");
    if injected == manifest.declines {
        return Err(format!("it declines: {}; it is injected: {injected}", manifest.declines).into());
    }
    let before = if manifest.declines { &manifest.document.to_string() } else { text };
    let mut response = written(manifest.of, before)?;
    if is_embedded(&response.error) {
        response = written(manifest.of, text)?;
    }
    if !response.error.is_empty() {
        return Err(format!("Go refuses it: {}", response.error).into());
    }
    equal(&response.yaml, text).map_err(|line| format!("{line}\n{text}").into())
}

/// Checks that all values are preserved and only what injection adds is new. The types under test are not used for
/// this comparison.
fn kept(manifest: &Manifest, types: &Types, output: &str) -> Result<(), Failed> {
    let text = output.strip_suffix("---\n").ok_or("there is no separator behind it")?;
    let (before, mut after) = (&manifest.document, serde_saphyr::from_str::<Value>(text)?);
    if let Some(spec) = after.pointer_mut(&format!("{}/spec", manifest.pod)) {
        let old = before.pointer(&format!("{}/spec", manifest.pod)).ok_or("it had a pod")?;
        let added = |list: &str, item: &Value| {
            old[list].as_array().is_none_or(|old| old.iter().all(|old| old["name"] != item["name"]))
        };
        for list in LISTS {
            if let Some(items) = spec.get_mut(list).and_then(Value::as_array_mut) {
                items.retain(|item| !added(list, item));
            }
        }
    }
    let holders = [manifest.pod, manifest.metadata];
    for (holder, map) in holders.iter().flat_map(|holder| MAPS.map(|map| (holder, map))) {
        let pointer = format!("{holder}/metadata/{map}");
        let old = before.pointer(&pointer).and_then(Value::as_object).ok_or("it had a map")?;
        if let Some(entries) = after.pointer_mut(&pointer).and_then(Value::as_object_mut) {
            entries.retain(|key, _| old.contains_key(key));
        }
    }
    let changes = changes(types, manifest.of, before, &after);
    changes.is_empty().then_some(()).ok_or_else(|| changes.join("\n").into())
}
