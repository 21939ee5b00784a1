//! Compares the pods that result from the webhook's patches with the pods that result from Istio's, and checks
//! properties of every patch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use inject::istio::{Injected, InjectionOutcome, Request};
use libtest_mimic::Failed;
use serde_json::Value;

use super::case::{Case, read};
use super::equal::same;
use super::on_purpose;

const STATUS: &str = "sidecar.istio.io/status";

type Annotations = BTreeMap<String, String>;

pub(crate) fn check(dir: &Path) -> Result<(), Failed> {
    let case = Case::read(dir)?;
    let pod: Value = serde_json::from_str(&read(dir, "pod.json")?)?;
    let annotations = case.namespace_annotations();
    let outcome = review(&case, &annotations, &pod);
    if dir.join("error.txt").exists() {
        let (error, expected) = (outcome.err().ok_or("was injected")?, read(dir, "error.txt")?);
        let named = error.message().unwrap_or_default().to_lowercase().contains(&expected.trim().to_lowercase());
        return named.then_some(()).ok_or_else(|| format!("expected {expected:?}, got {error:?}").into());
    }
    let mut want: Value = serde_json::from_str(&read(dir, "want.json")?)?;
    on_purpose::one_sidecar(&mut want)?;
    let injected = match outcome? {
        InjectionOutcome::Skipped(_) => return same(&want, &pod),
        InjectionOutcome::Injected { injected, .. } => {
            patched(&pod, &injected)?;
            injected.pod
        }
    };
    status(&pod, &injected)?;
    same(&want, &without_status(injected.clone()))?;
    match review(&case, &annotations, &injected)? {
        InjectionOutcome::Injected { injected: again, .. } => same(&injected, &again.pod)
            .map_err(|failed| format!("the second time: {}", failed.message().unwrap_or_default()).into()),
        InjectionOutcome::Skipped(decision) => Err(format!("was skipped the second time: {}", decision.reason).into()),
    }
}

fn review<'a>(case: &'a Case, annotations: &'a Annotations, pod: &'a Value) -> Result<InjectionOutcome<'a>, Failed> {
    let request = Request {
        namespace_annotations: Some(annotations),
        native_sidecars: case.native_sidecars(),
        ..Request::new(pod, case.json["request_namespace"].as_str().unwrap_or_default())
    };
    Ok(case.injector.review(&request)?)
}

/// Checks that the patch, applied by an independent implementation of JSON Patch, results in the same pod.
fn patched(pod: &Value, injected: &Injected<'_>) -> Result<(), Failed> {
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(injected.patch())?)?;
    let injected = &injected.pod;
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch)?;
    if patched == *injected {
        return Ok(());
    }
    same(injected, &patched)?;
    Err("the patch makes another pod, though an equal one".into())
}

/// Checks the status annotation, which the expected pods lack: it names exactly the containers, volumes and pull
/// secrets that were added.
fn status(before: &Value, after: &Value) -> Result<(), Failed> {
    let text = after["metadata"]["annotations"][STATUS].as_str().ok_or("there is no status")?;
    let status: Value = serde_json::from_str(text)?;
    for list in ["initContainers", "containers", "volumes", "imagePullSecrets"] {
        let names = |items: &Value| -> BTreeSet<String> {
            items.as_array().into_iter().flatten().filter_map(|item| Some(item["name"].as_str()?.to_owned())).collect()
        };
        let (before, after) = (names(&before["spec"][list]), names(&after["spec"][list]));
        let recorded: BTreeSet<String> = serde_json::from_value::<Option<_>>(status[list].clone())?.unwrap_or_default();
        let missing: Vec<_> = after.difference(&before).filter(|name| !recorded.contains(*name)).collect();
        let surplus: Vec<_> = recorded.difference(&after).collect();
        if !missing.is_empty() || !surplus.is_empty() {
            return Err(format!("the status lacks {missing:?} of {list}, and names {surplus:?}: {text}").into());
        }
    }
    Ok(())
}

fn without_status(mut pod: Value) -> Value {
    if let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove(STATUS);
    }
    pod
}
