//! Injects pluggable components: containers that serve the sidecar through sockets in a shared volume.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::annotations::Options;
use super::edits::{Volumes, add_env, append};
use super::env::variable;
use super::mounts::{self, mount};
use super::pod::Pod;
use inject::Operation;

pub(super) const VOLUME: &str = "dapr-components-unix-domain-socket";
/// The environment variable that holds the directory of the component sockets.
pub(super) const SOCKETS_VARIABLE: &str = "DAPR_COMPONENT_SOCKETS_FOLDER";

/// The annotation of a Component that contains a container.
const CONTAINER: &str = "dapr.io/component-container";

/// A Component with a container, from the pod's namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Component {
    pub name: String,
    /// The container as JSON.
    pub container: String,
    /// The app ids that may use the Component; empty: all.
    pub scopes: Vec<String>,
}

impl Component {
    /// Parses a Component; returns `None` if it has no container.
    pub fn read(object: &Value) -> Option<Self> {
        let metadata = object.get("metadata")?;
        let container = metadata.get("annotations")?.get(CONTAINER)?.as_str().filter(|text| !text.is_empty())?;
        let scopes = object.get("scopes").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Some(Self {
            name: metadata.get("name").and_then(Value::as_str).unwrap_or_default().to_owned(),
            container: container.to_owned(),
            scopes: scopes.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    pub(super) fn serves(&self, id: &str) -> bool {
        self.scopes.is_empty() || self.scopes.iter().any(|scope| scope == id)
    }
}

pub(super) type Container = Map<String, Value>;

/// Returns the component containers to inject: one for each image of the Components that the app id may use.
pub(super) fn injectable(id: &str, components: &[Component], warnings: &mut Vec<String>) -> Vec<Container> {
    let mut containers: Vec<Container> = Vec::new();
    let mut images = HashSet::new();
    for component in components.iter().filter(|component| component.serves(id)) {
        let mut container = match parse(&component.container) {
            Ok(container) => container,
            Err(error) => {
                warnings.push(format!(
                    "component {:?}: its container is invalid and not injected: {error}",
                    component.name
                ));
                continue;
            }
        };
        let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
        if !images.insert(image.to_owned()) {
            continue;
        }
        if container.get("name").is_none_or(|name| name == "") {
            container.insert("name".to_owned(), component.name.clone().into());
        }
        containers.push(container);
    }
    containers
}

fn parse(text: &str) -> Result<Container, String> {
    let mut container: Container = serde_json::from_str(text).map_err(|error| error.to_string())?;
    for list in ["env", "volumeMounts"] {
        match container.get(list) {
            None | Some(Value::Array(_)) => {}
            Some(Value::Null) => drop(container.remove(list)),
            Some(_) => return Err(format!("{list} is not a list")),
        }
    }
    Ok(container)
}

/// Returns the patch for components: the shared volume, then a variable and a mount for each component container of the
/// pod, then the injected containers, with an empty directory for each of their volumes that the pod lacks.
pub(super) fn operations(
    pod: &Pod<'_>,
    options: &Options<'_>,
    injected: Vec<Container>,
    folder: &str,
    volumes: &mut Volumes<'_>,
) -> Vec<Operation> {
    let mut operations: Vec<Operation> = volumes.add(vec![empty_directory(VOLUME)]);
    for (index, container) in pod.spec.containers.iter().enumerate() {
        if options.pluggable.contains(container.name) {
            operations.extend(add_env(index, &container.env, &[(SOCKETS_VARIABLE, folder)]));
            operations.extend(mounts::add(index, &container.volume_mounts, VOLUME, folder));
        }
    }
    for container in injected {
        let mounted = container.get("volumeMounts").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for mount in mounted {
            let name = mount.get("name").and_then(Value::as_str).unwrap_or_default();
            operations.extend(volumes.add(vec![empty_directory(name)]));
        }
        operations.push(append("/spec/containers", with_sockets(container, folder)));
    }
    operations
}

fn empty_directory(name: &str) -> Value {
    json!({"name": name, "emptyDir": {}})
}

fn with_sockets(mut container: Container, folder: &str) -> Value {
    for (list, item) in [("env", variable(SOCKETS_VARIABLE, folder)), ("volumeMounts", mount(VOLUME, folder, false))] {
        if let Value::Array(items) = container.entry(list).or_insert_with(|| Value::Array(Vec::new())) {
            items.push(item);
        }
    }
    container.into()
}
