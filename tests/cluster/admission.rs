//! Random pods, injected with random configurations, and random documents, injected by `kube-inject` with random templates. The API server
//! must accept each of them in a dry run.

use std::cell::Cell;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, anyhow, ensure};
use inject::istio::Platform;
use proptest::prelude::any;
use proptest::sample::{Index, select};
use proptest::strategy::Strategy;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use serde_json::{Value, json};
use test_pods::{Configured, MESH, injected, injectors, pod, template};
use test_support::program::under_test;

use crate::figures;
use crate::stage::{Case, Scope, Stage};

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "the_api_server_accepts_every_pod_that_is_injected",
        namespace: "admission",
        scope: Scope::Gate,
        body: accepts,
    },
    Case {
        name: "the_api_server_accepts_what_kube_inject_prints",
        namespace: "kube-inject",
        scope: Scope::Gate,
        body: prints,
    },
];

/// The number of random pods. The injection refuses about half of them, because of an annotation or a container.
const PODS: u32 = 200;

fn accepts(stage: &Stage<'_>) -> Result<()> {
    let injectors = injectors(&tier::corpus_directory())?;
    let accepted = count(&(pod(), any::<[Index; 2]>(), any::<[bool; 2]>()), |(pod, which, native)| {
        check(stage, &pod, which.map(|which| which.get(&injectors)), native)
    })?;
    figures::print(&format!("injected pods that the API server has accepted: {accepted}"));
    ensure!(accepted >= PODS / 4, "only {accepted} of {PODS} pods were injected");
    Ok(())
}

/// Runs `body` for [`PODS`] random values, and returns the sum of its results.
fn count<S: Strategy>(strategy: &S, body: impl Fn(S::Value) -> Result<u32>) -> Result<u32> {
    let mut runner = TestRunner::new(Config { cases: PODS, failure_persistence: None, ..Config::default() });
    let sum = Cell::new(0_u32);
    let checked = runner.run(strategy, |value| {
        let more = body(value).map_err(|error| TestCaseError::fail(format!("{error:#}")))?;
        sum.set(sum.get() + more);
        Ok(())
    });
    checked.map_err(|error| anyhow!("{error}"))?;
    Ok(sum.get())
}

/// A kind of document with a pod: its name, its collection, and the restart policy that its pod template must have; `None` for a Pod.
type Kind = (&'static str, &'static str, Option<&'static str>);

const KINDS: [Kind; 3] =
    [("Pod", "pods", None), ("Deployment", "deployments", Some("Always")), ("Job", "jobs", Some("Never"))];

/// Parts of the errors with which `kube-inject` may refuse a random document.
const REFUSALS: [&str; 3] =
    ["the injected pod would not start: ", "annotation \"", "requested template \"absent\" not found"];

/// The RuntimeClass that some of the random templates name.
const RUNTIME_CLASS: &str = "gvisor";

fn prints(stage: &Stage<'_>) -> Result<()> {
    let classes = "/apis/node.k8s.io/v1/runtimeclasses";
    let class = json!({ "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": RUNTIME_CLASS }, "handler": "runsc" });
    // Deletes the RuntimeClass of an earlier run on this cluster.
    stage.cluster.delete_existing(&format!("{classes}/{RUNTIME_CLASS}"))?;
    stage.cluster.create(classes, &class)?;
    let result = print_random(stage);
    let deleted = stage.cluster.delete(&format!("{classes}/{RUNTIME_CLASS}"));
    result.and(deleted.map(drop))
}

fn print_random(stage: &Stage<'_>) -> Result<()> {
    let (injectors, files) = (injectors(&tier::corpus_directory())?, tempfile::tempdir()?);
    std::fs::write(files.path().join("mesh"), MESH)?;
    let defaults = select(&["random", "sidecar,random", "random,sidecar", "sidecar"][..]);
    let strategy = (pod(), template(), defaults, any::<(Index, bool)>(), select(&KINDS[..]));
    let accepted = count(&strategy, |(pod, template, defaults, (which, native), kind)| {
        let document = document(&pod, kind);
        admit(stage, kind.1, &document).map_err(|error| error.context(format!("before the injection: {document}")))?;
        let flags = flags(files.path(), which.get(&injectors), &template, defaults)?;
        let Some(printed) = kube_inject(&flags, native, &document)? else { return Ok(0) };
        let what = || format!("printed with {defaults} of {template}, native sidecars {native}: {printed}");
        admit(stage, kind.1, &printed).map_err(|error| error.context(what()))?;
        Ok(u32::from(printed.to_string().contains(contract::annotation::STATUS)))
    })?;
    figures::print(&format!("documents of kube-inject that the API server has accepted: {accepted}"));
    ensure!(accepted >= PODS / 10, "only {accepted} of {PODS} documents were injected");
    Ok(())
}

/// Returns a document of a kind with this pod.
fn document(pod: &Value, (kind, _, restart): Kind) -> Value {
    let Some(restart) = restart else { return pod.clone() };
    let mut template = json!({ "metadata": pod["metadata"], "spec": pod["spec"] });
    template["spec"]["restartPolicy"] = restart.into();
    let mut spec = json!({ "template": template });
    if kind == "Deployment" {
        spec["template"]["metadata"]["labels"]["run"] = "web".into();
        spec["selector"]["matchLabels"]["run"] = "web".into();
        // Some of the templates set this value, which no pod has before.
        spec["selector"]["matchExpressions"] = json!([{ "key": "team", "operator": "NotIn", "values": ["default"] }]);
    }
    if kind == "Job" {
        // If the pod has it, the container that some of the templates delete.
        let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
        let names: Vec<&Value> = containers.map(|container| &container["name"]).collect();
        let name = names.iter().find(|name| **name == "b").or(names.first());
        let codes = json!({ "containerName": name, "operator": "In", "values": [42] });
        spec["podFailurePolicy"]["rules"] = json!([{ "action": "FailJob", "onExitCodes": codes }]);
    }
    let api = if kind == "Job" { "batch/v1" } else { "apps/v1" };
    json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "web" }, "spec": spec })
}

/// Returns the flags for a configuration with an additional template.
fn flags(files: &Path, configured: &Configured, template: &str, defaults: &str) -> Result<Vec<String>> {
    let platform = if configured.platform == Platform::OpenShift { "openshift" } else { "kubernetes" };
    let platform = format!("--platform={platform}");
    let Some(directory) = &configured.directory else { return Ok(vec!["--builtIn".to_owned(), platform]) };
    let mut settings = inject::yaml::value(&std::fs::read_to_string(directory.join("config.yaml"))?)?;
    settings["templates"]["random"] = template.into();
    settings["defaultTemplates"] = defaults.split(',').collect();
    std::fs::write(files.join("config"), settings.to_string())?;
    let file = |flag: &str, path: &Path| format!("--{flag}={}", path.display());
    Ok(vec![
        file("injectConfigFile", &files.join("config")),
        file("valuesFile", &directory.join("values.json")),
        file("meshConfigFile", &files.join("mesh")),
        platform,
    ])
}

/// Returns what `kube-inject` prints, or `None` if it refuses the document for one of the [`REFUSALS`].
fn kube_inject(flags: &[String], native: bool, document: &Value) -> Result<Option<Value>> {
    let mut program = Command::new(under_test("istio-cnictl"))
        .args(["kube-inject", "-f", "-", &format!("--nativeSidecars={native}")])
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut input = program.stdin.take().context("no standard input")?;
    input.write_all(document.to_string().as_bytes())?;
    drop(input);
    let done = program.wait_with_output()?;
    let error = String::from_utf8_lossy(&done.stderr);
    match done.status.code() {
        Some(0) => {
            let text = String::from_utf8(done.stdout)?;
            Ok(Some(inject::yaml::value(text.trim_end().trim_end_matches("---"))?))
        }
        Some(1) if REFUSALS.iter().any(|refusal| error.contains(refusal)) => Ok(None),
        code => Err(anyhow!("kube-inject ended with {code:?}: {error}")),
    }
}

/// Injects a pod, and then once more with another configuration. Returns the number of injected pods.
fn check(stage: &Stage<'_>, pod: &Value, chosen: [&Configured; 2], native: [bool; 2]) -> Result<u32> {
    admit(stage, "pods", pod).map_err(|error| error.context(format!("before the injection: {pod}")))?;
    let (mut pod, mut count) = (pod.clone(), 0);
    for (Configured { name, injector, .. }, native) in chosen.into_iter().zip(native) {
        let Some(injected) = injected(injector, &pod, native) else { break };
        let what = || format!("after injection {} with {name}, native sidecars {native}: {injected}", count + 1);
        // A webhook's patch may have fields that the API server does not know, as one of Istio's templates has.
        admit_with("Ignore", stage, "pods", &injected).map_err(|error| error.context(what()))?;
        (pod, count) = (injected, count + 1);
    }
    Ok(count)
}

fn admit(stage: &Stage<'_>, collection: &str, object: &Value) -> Result<Value> {
    admit_with("Strict", stage, collection, object)
}

/// Creates an object in a dry run. `validation` determines how the API server treats fields that it does not know.
fn admit_with(validation: &str, stage: &Stage<'_>, collection: &str, object: &Value) -> Result<Value> {
    let path = format!("{}?dryRun=All&fieldValidation={validation}", stage.path(collection));
    stage.cluster.create(&path, object)
}
