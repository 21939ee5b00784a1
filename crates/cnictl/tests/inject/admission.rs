//! Checks that each pod that the webhook or `kube-inject` injects can start, whatever its author wrote: no admitted pod fails because of an
//! annotation, a template or a setting. The suite `cluster` checks that the API server accepts such pods.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use inject::istio::{BuiltIn, Config, Document, Injector, Platform, Settings, with_derived_resources};
use libtest_mimic::{Failed, Trial};
use podfacts::PodFacts;
use proptest::prelude::{Strategy as _, any, prop_oneof};
use proptest::sample::{Index, select};
use serde_json::{Value, json};
use test_pods::{Configured, MESH, injected, injectors, pod, template};

use super::kube_inject::explain;
use super::property::run;

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("admission/the plugin accepts each pod that is injected", accepted),
        Trial::test("admission/a pod that a random template injects can start", templates),
    ]
}

/// The field by which a template gives a pod a sandboxed runtime.
const SANDBOX: &str = r#""runtimeClassName":"gvisor""#;

/// The kinds of documents with a pod, each with its `apiVersion` and the JSON pointer to the pod.
const KINDS: [(&str, &str, &str); 4] = [
    ("Pod", "v1", ""),
    ("Deployment", "apps/v1", "/spec/template"),
    ("StatefulSet", "apps/v1", "/spec/template"),
    ("CronJob", "batch/v1", "/spec/jobTemplate/spec/template"),
];
/// The least number of injected pods of 300, so that the properties are not about pods that are all refused.
const LEAST: usize = 45;

fn accepted() -> Result<(), Failed> {
    let injectors = injectors(&tier::corpus_directory())?;
    let mesh = mesh_file()?;
    let count = AtomicUsize::new(0);
    run(&(pod(), any::<[Index; 2]>(), any::<[bool; 2]>(), select(&KINDS[..])), |(pod, which, native, kind)| {
        let chosen = which.map(|which| which.get(&injectors));
        let mut documents: Vec<Value> = document(&chosen[0].injector, &pod, native[0], kind)?.into_iter().collect();
        // The API server passes the pod to the webhook with derived resources.
        let seen = with_derived_resources(&pod);
        let mut present = seen.clone();
        for (configured, native) in chosen.iter().zip(native) {
            let Some(injected) = injected(&configured.injector, &present, native) else { break };
            starts(&injected).map_err(|error| format!("configuration {}: {error}\n{injected}", configured.name))?;
            documents.push(injected.clone());
            present = injected;
            count.fetch_add(1, Ordering::Relaxed);
        }
        documents.extend((present != seen).then_some(seen));
        let arguments = arguments(chosen[0], &mesh, native[0]);
        explained(&documents, &arguments.iter().map(String::as_str).collect::<Vec<_>>())
            .map_err(|error| format!("configurations {:?}: {error}", chosen.map(|one| &one.name)).into())
    })?;
    let count = count.into_inner();
    (count >= LEAST).then_some(()).ok_or_else(|| format!("only {count} pods were injected").into())
}

fn templates() -> Result<(), Failed> {
    let count = AtomicUsize::new(0);
    let defaults = select(&["random", "sidecar,random", "random,sidecar", "gateway,random"][..]);
    // Most of these pods have no annotation that is refused whatever the template is.
    let simple = super::property::pod().prop_map(|mut pod| {
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        // The API server refuses a name that is in both lists.
        pod["spec"].as_object_mut().map(|spec| spec.shift_remove("initContainers"));
        pod
    });
    let strategy = (prop_oneof![pod(), simple], template(), defaults, any::<[bool; 2]>(), select(&KINDS[..]));
    run(&strategy, |(pod, text, defaults, [native, openshift], kind)| {
        let mut texts = json!(BuiltIn::templates());
        texts["random"] = text.as_str().into();
        let settings = json!({"policy": "enabled", "defaultTemplates": defaults.split(',').collect::<Vec<_>>(), "templates": texts});
        let platform = if openshift { Platform::OpenShift } else { Platform::Kubernetes };
        let config = BuiltIn { platform, ..BuiltIn::default() }.config()?;
        let injector = Injector::new(Config { settings: Settings::parse(&settings.to_string(), None)?, ..config });
        let mut documents: Vec<Value> = document(&injector, &pod, native, kind)?.into_iter().collect();
        if let Some(injected) = injected(&injector, &pod, native) {
            starts(&injected).map_err(|error| format!("{defaults} of {text}: {error}\n{injected}"))?;
            documents.push(injected);
            count.fetch_add(1, Ordering::Relaxed);
        }
        explained(&documents, &["--builtIn"]).map_err(|error| format!("{defaults} of {text}: {error}").into())
    })?;
    let count = count.into_inner();
    (count >= LEAST).then_some(()).ok_or_else(|| format!("only {count} pods were injected").into())
}

/// Returns the document of this kind that `kube-inject` makes of a pod, or `None` if it refuses or skips the pod.
fn document(
    injector: &Injector,
    pod: &Value,
    native: bool,
    (kind, version, pointer): (&str, &str, &str),
) -> Result<Option<Value>, Failed> {
    let mut document = pod.clone();
    if !pointer.is_empty() {
        let template = json!({"metadata": pod["metadata"], "spec": pod["spec"]});
        document = pointer.rsplit('/').filter(|key| !key.is_empty()).fold(template, |inside, key| json!({key: inside}));
        document["metadata"] = json!({"name": "web", "namespace": "shop"});
    }
    document["apiVersion"] = version.into();
    document["kind"] = kind.into();
    match injector.inject_document(document, &|_| native) {
        Ok(Document::Workload { document, skipped, .. }) if skipped.is_empty() => {
            let mut injected = document.pointer(pointer).cloned().ok_or("no pod")?;
            injected["kind"] = "Pod".into();
            starts(&injected).map_err(|error| format!("kube-inject: {error}\n{document}"))?;
            Ok(Some(document))
        }
        _ => Ok(None),
    }
}

/// Checks that the plugin accepts an injected pod, that names are unique, that containers have images, and that mounted
/// volumes exist.
fn starts(pod: &Value) -> Result<(), String> {
    let facts = PodFacts::from_pod_json(pod.to_string().as_bytes()).map_err(|error| error.to_string())?;
    podfacts::of_pod(&facts).map_err(|error| error.to_string())?;
    let list = |of: &Value, key: &str| of[key].as_array().cloned().unwrap_or_default();
    let spec = &pod["spec"];
    let (mut names, mut volumes) = (BTreeSet::new(), BTreeSet::new());
    for volume in list(spec, "volumes") {
        if !volumes.insert(volume["name"].to_string()) {
            return Err(format!("two volumes {}", volume["name"]));
        }
    }
    for container in list(spec, "initContainers").iter().chain(&list(spec, "containers")) {
        let name = container["name"].to_string();
        let has_image = container["image"].as_str().is_some_and(|image| !image.is_empty() && image != "auto");
        let is_absent = |mount: &&Value| !volumes.contains(&mount["name"].to_string());
        if !names.insert(name.clone()) || !has_image {
            return Err(format!(
                "container {name} has the image {}, and perhaps a second of its name",
                container["image"]
            ));
        }
        if let Some(mount) = list(container, "volumeMounts").iter().find(is_absent) {
            return Err(format!("container {name} mounts {}", mount["name"]));
        }
    }
    Ok(())
}

/// Checks that `explain` reports each of these pods as redirected or skipped, except pods to which a template gives a sandboxed runtime:
/// they are admitted with a warning, and their `istio-validation` fails.
fn explained(documents: &[Value], arguments: &[&str]) -> Result<(), String> {
    let texts = documents.iter().map(Value::to_string);
    let text = texts.filter(|text| !text.contains(SANDBOX)).map(|text| text + "\n---\n").collect::<String>();
    if text.is_empty() {
        return Ok(());
    }
    explain(arguments, text.as_bytes()).map_err(|error| format!("{}\n{text}", error.message().unwrap_or_default()))
}

/// Returns the arguments with which `explain` reads a configuration.
fn arguments(configured: &Configured, mesh: &Path, native: bool) -> Vec<String> {
    let platform = if configured.platform == Platform::OpenShift { "openshift" } else { "kubernetes" };
    let mut arguments = vec![format!("--nativeSidecars={native}"), format!("--platform={platform}")];
    match &configured.directory {
        None => arguments.push("--builtIn".to_owned()),
        Some(directory) => {
            let file = |flag: &str, path: PathBuf| format!("--{flag}={}", path.display());
            arguments.push(file("injectConfigFile", directory.join("config.yaml")));
            arguments.push(file("valuesFile", directory.join("values.json")));
            arguments.push(file("meshConfigFile", mesh.to_owned()));
        }
    }
    arguments
}

/// Writes the configuration of the mesh, and returns its path.
fn mesh_file() -> Result<PathBuf, Failed> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("admission-mesh.yaml");
    std::fs::write(&path, MESH)?;
    Ok(path)
}
