//! Workloads as Go's types write them: what a read and a write by Kubernetes' own tools adds to an object, and leaves out.
//!
//! The command line writes documents so, for people compare them with what Istio's tool wrote. The webhook never does:
//! its patch leaves alone what it does not mean.

use serde_json::{Map, Value, json};

use super::pod::{self, CONTAINERS, INIT_CONTAINERS};
use super::quantity;
use super::workload::Kind;

/// Fields that are pointers, or have no `omitempty`: their zeroes are written.
const KEPT: [&str; 26] = [
    "activeDeadlineSeconds",
    "allowPrivilegeEscalation",
    "automountServiceAccountToken",
    "backoffLimit",
    "completions",
    "containerPort",
    "controller",
    "defaultMode",
    "enableServiceLinks",
    "expirationSeconds",
    "fsGroup",
    "mode",
    "mountPath",
    "name",
    "number",
    "optional",
    "parallelism",
    "port",
    "privileged",
    "readOnlyRootFilesystem",
    "replicas",
    "runAsGroup",
    "runAsNonRoot",
    "runAsUser",
    "suspend",
    "terminationGracePeriodSeconds",
];

/// Maps that are left out when they are empty; other empty objects are structs, which are written.
const MAPS: [&str; 7] = ["annotations", "labels", "limits", "matchLabels", "nodeSelector", "requests", "data"];

/// A workload, or a list of them, as Go's types write it.
pub(super) fn written(mut document: Value) -> Value {
    let Some(kind) = Kind::of(&document) else { return document };
    if kind == Kind::List {
        pod::object(&mut document).entry("metadata").or_insert_with(|| json!({}));
        for item in pod::list_mut(&mut document, "items") {
            *item = written(item.take());
        }
        return document;
    }
    let mut document = without_zeroes(document);
    if let Some(spec) = document.pointer_mut(kind.pointers().1) {
        for which in [CONTAINERS, INIT_CONTAINERS] {
            for container in spec.get_mut(which).and_then(Value::as_array_mut).into_iter().flatten() {
                pod::object(container).entry("resources").or_insert_with(|| json!({}));
            }
        }
    }
    add_structs(&mut document, kind);
    document
}

/// Structs have no zero that could be left out.
fn add_structs(document: &mut Value, kind: Kind) {
    let name = pod::text(document, "kind").to_owned();
    let (strategy, status) = match name.as_str() {
        "Deployment" => (Some(("strategy", json!({}))), json!({})),
        "DaemonSet" => {
            let zeroes = ["currentNumberScheduled", "desiredNumberScheduled", "numberMisscheduled", "numberReady"];
            let status: Map<String, Value> = zeroes.into_iter().map(|field| (field.to_owned(), 0.into())).collect();
            (Some(("updateStrategy", json!({}))), status.into())
        }
        "StatefulSet" => (Some(("updateStrategy", json!({}))), json!({"availableReplicas": 0, "replicas": 0})),
        "ReplicaSet" | "ReplicationController" => (None, json!({"replicas": 0})),
        "DeploymentConfig" => {
            let zeroes = [
                "availableReplicas",
                "latestVersion",
                "observedGeneration",
                "replicas",
                "unavailableReplicas",
                "updatedReplicas",
            ];
            let status: Map<String, Value> = zeroes.into_iter().map(|field| (field.to_owned(), 0.into())).collect();
            let spec = pod::map_mut(document, "spec");
            spec.entry("test").or_insert(false.into());
            pod::map_mut(spec.entry("strategy").or_insert(Value::Null), "resources");
            (None, status.into())
        }
        _ => (None, json!({})),
    };
    if let Some((field, value)) = strategy {
        pod::map_mut(document, "spec").entry(field).or_insert(value);
    }
    pod::object(document).entry("metadata").or_insert_with(|| json!({}));
    pod::object(document).entry("status").or_insert(status);
    if kind == Kind::CronJob
        && let Some(template) = document.pointer_mut("/spec/jobTemplate/spec/template")
    {
        pod::object(template).entry("metadata").or_insert_with(|| json!({}));
    }
}

fn without_zeroes(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(key, field)| !is_omitted(key, field));
            let written = kept.map(|(key, field)| {
                let field = match key.as_str() {
                    "limits" | "requests" => canonical(field),
                    "annotations" | "labels" => field,
                    _ => without_zeroes(field),
                };
                (key, field)
            });
            Value::Object(written.collect())
        }
        Value::Array(items) => items.into_iter().map(without_zeroes).collect(),
        scalar => scalar,
    }
}

fn is_omitted(key: &str, field: &Value) -> bool {
    let kept = || KEPT.contains(&key);
    match field {
        Value::Null => true,
        Value::Bool(value) => !value && !kept(),
        Value::Number(number) => number.as_f64() == Some(0.0) && !kept(),
        Value::String(text) => text.is_empty() && !kept(),
        Value::Array(items) => items.is_empty() && key != CONTAINERS,
        Value::Object(fields) => fields.is_empty() && MAPS.contains(&key),
    }
}

/// Resource quantities in their canonical spelling.
fn canonical(resources: Value) -> Value {
    let Value::Object(resources) = resources else { return resources };
    let spelled = resources.into_iter().filter(|(_, quantity)| !quantity.is_null()).map(|(name, quantity)| {
        let text = quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned);
        (name, quantity::canonical(&text).unwrap_or(text).into())
    });
    Value::Object(spelled.collect())
}
