//! Istio's expected outputs, changed where this project's injection differs on purpose; docs/webhook.md states the reasons.

use gotemplate::Budget;
use inject::{documents, merge_pod, read, write};
use libtest_mimic::Failed;
use serde_json::{Value, json};

const STATUS: &str = "sidecar.istio.io/status";
const SIDECAR: &str = "istio-proxy";

/// Returns the documents that are expected for `input`, for which Istio's `kube-inject` prints `want`.
pub(crate) fn expected(input: &str, want: &str) -> Result<String, Failed> {
    let mut text = String::new();
    for (input, want) in documents(input)?.into_iter().zip(documents(want)?) {
        let mut document = read(want)?;
        let is_cron_job = document["kind"] == "CronJob" && cron_job(&read(input)?, &mut document);
        let template =
            if document["kind"] == "Pod" { Some(&mut document) } else { document.pointer_mut("/spec/template") };
        let is_merged = template.is_some_and(|pod| matches!(one_sidecar(pod), Ok(true)));
        if is_cron_job || is_merged {
            text += &write(document)?;
        } else {
            text.extend([want, "---\n"]);
        }
    }
    // A document that is passed through unchanged may lack the final newline.
    Ok(if text == format!("{want}\n---\n") { want.to_owned() } else { text })
}

/// Adds to the metadata of a cron job's pod template what Istio adds to the metadata of the job template. Returns
/// whether the document has a pod template.
fn cron_job(input: &Value, document: &mut Value) -> bool {
    let job = "/spec/jobTemplate/metadata";
    let pod = input.pointer("/spec/jobTemplate/spec/template/metadata").cloned();
    let mut pod = pod.filter(Value::is_object).unwrap_or_else(|| json!({}));
    for map in ["labels", "annotations"] {
        let added = document.pointer(job).and_then(|job| job[map].as_object()).cloned().unwrap_or_default();
        let before = |key: &str| input.pointer(job)?.get(map)?.get(key);
        for (key, value) in added.iter().filter(|(key, value)| before(key) != Some(*value)) {
            pod[map][key] = value.clone();
        }
    }
    let metadata = document.pointer_mut("/spec/jobTemplate/spec/template/metadata");
    metadata.map(|metadata| *metadata = pod).is_some()
}

/// Merges a sidecar without an image among the containers into the native sidecar. Istio adds the former if a template
/// names the sidecar among the containers although it is native. Returns whether there were two.
pub(crate) fn one_sidecar(pod: &mut Value) -> Result<bool, Failed> {
    let is = |container: &Value, image: bool| container["name"] == SIDECAR && container.get("image").is_some() == image;
    let native = pod["spec"]["initContainers"].as_array().is_some_and(|list| list.iter().any(|c| is(c, true)));
    let Some(containers) = pod["spec"]["containers"].as_array_mut().filter(|_| native) else { return Ok(false) };
    let Some(at) = containers.iter().position(|container| is(container, false)) else { return Ok(false) };
    let overlay = json!({"spec": {"initContainers": [containers.remove(at)]}});
    let order: Vec<Value> =
        pod["spec"]["initContainers"].as_array().into_iter().flatten().map(|c| c["name"].clone()).collect();
    merge_pod(pod, overlay, &mut Budget::default())?;
    if let Some(inits) = pod["spec"]["initContainers"].as_array_mut() {
        inits.sort_by_key(|container| order.iter().position(|name| *name == container["name"]));
    }
    if let Some(text) = pod["metadata"]["annotations"].get(STATUS).and_then(Value::as_str) {
        let mut status: Value = serde_json::from_str(text)?;
        let names = status["containers"].as_array().cloned().unwrap_or_default();
        let names: Vec<Value> = names.into_iter().filter(|name| name != SIDECAR).collect();
        status["containers"] = if names.is_empty() { Value::Null } else { names.into() };
        pod["metadata"]["annotations"][STATUS] = status.to_string().into();
    }
    Ok(true)
}
