//! The webhook: pods against the pods that Istio's patch makes, and what must hold of every patch.

use std::path::Path;

use istio_cni::inject::istio::{Outcome, Request};
use libtest_mimic::Failed;
use serde_json::Value;

use super::case::{Case, read};
use super::equal::same;

pub(crate) fn check(dir: &Path) -> Result<(), Failed> {
    let case = Case::read(dir)?;
    let pod: Value = serde_json::from_str(&read(dir, "pod.json")?)?;
    let outcome = review(&case, &pod);
    if dir.join("error.txt").exists() {
        let (error, expected) = (outcome.err().ok_or("was injected")?, read(dir, "error.txt")?);
        let named = error.message().unwrap_or_default().to_lowercase().contains(&expected.trim().to_lowercase());
        return named.then_some(()).ok_or_else(|| format!("expected {expected:?}, got {error:?}").into());
    }
    let want: Value = serde_json::from_str(&read(dir, "want.json")?)?;
    let injected = match outcome? {
        Outcome::Skipped(_) => return same(&want, &pod),
        Outcome::Injected { pod: injected, patch, .. } => {
            patched(&pod, &injected, &patch)?;
            injected
        }
    };
    same(&want, &without_status(injected.clone()))?;
    match review(&case, &injected)? {
        Outcome::Injected { pod: again, .. } => same(&injected, &again)
            .map_err(|failed| format!("the second time: {}", failed.message().unwrap_or_default()).into()),
        Outcome::Skipped(decision) => Err(format!("was skipped the second time: {}", decision.reason).into()),
    }
}

fn review(case: &Case, pod: &Value) -> Result<Outcome, Failed> {
    let annotations = case.namespace_annotations();
    let request = Request {
        pod: Some(pod),
        namespace: case.json["request_namespace"].as_str().unwrap_or_default(),
        namespace_annotations: Some(&annotations),
        native_sidecars: case.native_sidecars(),
        ..Request::default()
    };
    Ok(case.injector.review(&request)?)
}

/// Another implementation carries out the patch, and gets the pod that injection says.
fn patched(pod: &Value, injected: &Value, patch: &[istio_cni::inject::Operation]) -> Result<(), Failed> {
    let patch: json_patch::Patch = serde_json::from_value(serde_json::to_value(patch)?)?;
    let mut patched = pod.clone();
    json_patch::patch(&mut patched, &patch)?;
    if patched == *injected {
        return Ok(());
    }
    same(injected, &patched)?;
    Err("the patch makes another pod, though an equal one".into())
}

fn without_status(mut pod: Value) -> Value {
    if let Some(annotations) = pod.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.shift_remove("sidecar.istio.io/status");
    }
    pod
}
