//! The output of a chart as paths with values, from the corpus's format or from rendered objects.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::objects::of_kind;

/// The output of a chart as a map from paths such as `daemonset/container/image` to values. The variables of ConfigMap
/// and container are merged into `environment`.
pub(super) struct Shape(BTreeMap<String, Value>);

impl Shape {
    /// Flattens an output in the corpus's format.
    pub(super) fn of_corpus(makes: &Value) -> Self {
        let mut makes = makes.clone();
        let mut environment = Map::new();
        if let Some(Value::Object(config)) = makes.get_mut("config").map(Value::take) {
            environment.extend(config);
        }
        if let Some(Value::Array(own)) = makes.pointer_mut("/daemonset/container/env").map(Value::take) {
            // The `apiVersion` of a field reference has a default and is omitted.
            let of = |variable: Value| match &variable["valueFrom"]["fieldRef"]["fieldPath"] {
                Value::Null => (name(&variable), variable.get("value").unwrap_or(&variable["valueFrom"]).clone()),
                field => (name(&variable), json!(format!("field {}", field.as_str().unwrap()))),
            };
            environment.extend(own.into_iter().map(of));
        }
        makes["environment"] = environment.into();
        let mut paths = BTreeMap::new();
        flatten("", &makes, &mut paths);
        Self(paths)
    }

    /// Flattens rendered objects.
    pub(super) fn of_objects(objects: &[Value]) -> Self {
        let key = |object: &Value| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}/{}", object["kind"].as_str().unwrap(), text("namespace"), text("name"))
        };
        let mut makes = json!({ "objects": objects.iter().map(key).collect::<Vec<_>>() });
        let roles = ["ClusterRole", "Role"].into_iter().flat_map(|kind| of_kind(objects, kind));
        makes["rights"] = roles.map(|role| (key(role), role["rules"].clone())).collect::<Map<_, _>>().into();
        let mut put = |kind: &str, part: &str, of: fn(&Value) -> Value| {
            if let [object] = of_kind(objects, kind)[..] {
                makes[part] = of(object);
            }
        };
        put("ConfigMap", "config", |map| map["data"].clone());
        put("ResourceQuota", "quota", |quota| quota["spec"].clone());
        put("NetworkAttachmentDefinition", "attachment", Value::clone);
        put("DaemonSet", "daemonset", daemonset);
        Self::of_corpus(&makes)
    }

    /// Returns all paths.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Returns the value at this path.
    pub(super) fn get(&self, path: &str) -> Option<&Value> {
        self.0.get(path)
    }

    /// Returns the agent's repair mode that is equivalent to the switches in Istio's output. If `set`, the values in
    /// the format of `--set`, contains no switch, this is the default mode of this chart. Returns `None` if repair is
    /// disabled.
    pub(super) fn repair_mode(&self, set: &str) -> Option<Value> {
        let is = |variable: &str| self.get(&format!("environment/{variable}")).map(|value| value == "true");
        if !is("REPAIR_ENABLED")? {
            return None;
        }
        let given = ["repair.repairPods", "repair.deletePods", "repair.labelPods"];
        let switches =
            [("REPAIR_REPAIR_PODS", "repair"), ("REPAIR_DELETE_PODS", "delete"), ("REPAIR_LABEL_PODS", "label")];
        let first = switches.into_iter().find(|(variable, _)| is(variable) == Some(true));
        let mode = first.map_or("observe", |(_, mode)| mode);
        Some(json!(if given.iter().any(|key| set.contains(key)) { mode } else { "evict" }))
    }
}

/// Returns the parts of a DaemonSet by the names that the corpus uses.
fn daemonset(object: &Value) -> Value {
    let template = &object["spec"]["template"];
    let mut pod = template["spec"].clone();
    let mut take = |field: &str| pod.as_object_mut().unwrap().remove(field).unwrap();
    let (mut containers, volumes) = (take("containers"), take("volumes"));
    let container = containers.as_array_mut().unwrap().remove(0);
    json!({
        "container": container, "others": containers, "volumes": volumes, "pod": pod,
        "labels": object["metadata"]["labels"], "selector": object["spec"]["selector"],
        "strategy": object["spec"]["updateStrategy"],
        "podAnnotations": template["metadata"]["annotations"], "podLabels": template["metadata"]["labels"],
    })
}

fn name(value: &Value) -> String {
    value["name"].as_str().unwrap_or_default().to_owned()
}

/// Adds the paths of a value and of all values in it. The path of an item in a list of named objects ends with the
/// item's name, and the path of a set's member ends with the member itself. Any other list is one value, because its
/// order is significant.
fn flatten(path: &str, value: &Value, paths: &mut BTreeMap<String, Value>) {
    let at = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}/{key}") };
    match value {
        Value::Object(map) if !map.is_empty() => map.iter().for_each(|(key, value)| flatten(&at(key), value, paths)),
        Value::Array(list) if path.starts_with("rights/") => list.iter().for_each(|rule| {
            for resource in rule["resources"].as_array().unwrap() {
                for verb in rule["verbs"].as_array().unwrap() {
                    let right = format!("{} {}", resource.as_str().unwrap(), verb.as_str().unwrap());
                    paths.insert(at(&right), rule.get("resourceNames").unwrap_or(&json!([])).clone());
                }
            }
        }),
        Value::Array(list) if path == "objects" || path.ends_with("/capabilities/add") => {
            list.iter().for_each(|member| _ = paths.insert(at(member.as_str().unwrap()), json!(true)));
        }
        Value::Array(list) if list.iter().all(|member| !name(member).is_empty()) && !list.is_empty() => {
            list.iter().for_each(|member| flatten(&at(&name(member)), member, paths));
        }
        Value::Null => {}
        other => _ = paths.insert(path.to_owned(), other.clone()),
    }
}
