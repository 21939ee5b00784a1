//! Builds the patch that injects a sidecar, in the order of Dapr's injector.
//!
//! Each operation depends on the earlier ones: later operations append to a list that an earlier one created.

use serde_json::{Value, json};

use super::annotations::Options;
use super::app_id::{AppId, Source};
use super::args::HTTP_PORT;
use super::components::{self, Container};
use super::container::{SOCKET_VOLUME, TOKEN_VOLUME};
use super::edits::{Volumes, add, add_env, append};
use super::mounts;
use super::pod::Pod;
use super::redirection;
use super::settings::Settings;
use inject::Operation;

/// The input from which a patch is built.
pub(super) struct Injection<'a> {
    pub(super) pod: &'a Pod<'a>,
    pub(super) options: &'a Options<'a>,
    pub(super) settings: &'a Settings,
    pub(super) app_id: &'a AppId,
    pub(super) sidecar: Value,
    pub(super) native: bool,
    /// Component containers to inject.
    pub(super) components: Vec<Container>,
    /// The directory of component sockets, if the pod has or gets components.
    pub(super) folder: Option<&'a str>,
}

/// Returns the patch.
pub(super) fn of(injection: Injection<'_>) -> Vec<Operation> {
    let Injection { pod, options, settings, app_id, .. } = injection;
    let mut operations = Vec::with_capacity(16);
    if pod.spec.containers.is_empty() {
        operations.push(add("/spec/containers", json!([])));
    }
    if pod.metadata.labels.is_empty() {
        operations.push(add("/metadata/labels", json!({})));
    }
    let mut volumes = Volumes::of(pod);
    operations.extend(volumes.add(own_volumes(options, settings)));
    operations.extend(sidecar(pod, injection.sidecar, injection.native, settings.native_first));
    operations.extend(labels(app_id, options.metrics));
    operations.extend(redirection::operations(pod, options));
    operations.extend(application(pod, options));
    if let Some(folder) = injection.folder {
        operations.extend(components::operations(pod, options, injection.components, folder, &mut volumes));
    }
    operations
}

fn own_volumes(options: &Options<'_>, settings: &Settings) -> Vec<Value> {
    let mut volumes = Vec::new();
    if !options.socket_path.is_empty() {
        volumes.push(json!({"name": SOCKET_VOLUME, "emptyDir": {"medium": "Memory"}}));
    }
    if settings.identity_token {
        let control_plane = &settings.control_plane;
        let audience = format!("spiffe://{}/ns/{}/dapr-sentry", control_plane.trust_domain, control_plane.namespace);
        let token = json!({"audience": audience, "expirationSeconds": 7200, "path": "token"});
        let projected = json!({"sources": [{"serviceAccountToken": token}], "defaultMode": 420});
        volumes.push(json!({"name": TOKEN_VOLUME, "projected": projected}));
    }
    volumes
}

/// Adds the sidecar after the pod's containers or, if it is native, before or after the pod's init containers.
fn sidecar(pod: &Pod<'_>, container: Value, native: bool, first: bool) -> Vec<Operation> {
    if !native {
        return vec![append("/spec/containers", container)];
    }
    let mut operations = Vec::new();
    if pod.spec.init_containers.is_empty() {
        operations.push(add("/spec/initContainers", json!([])));
    }
    operations.push(match first && !pod.spec.init_containers.is_empty() {
        true => add("/spec/initContainers/0", container),
        false => append("/spec/initContainers", container),
    });
    operations
}

/// Adds the labels of injected pods. A derived app id is also written to the annotation that the control plane reads.
fn labels(app_id: &AppId, metrics: bool) -> Vec<Operation> {
    let mut operations = vec![
        add("/metadata/labels/dapr.io~1sidecar-injected", "true".into()),
        add("/metadata/labels/dapr.io~1app-id", app_id.id.as_str().into()),
        add("/metadata/labels/dapr.io~1metrics-enabled", metrics.to_string().into()),
    ];
    if app_id.source == Source::GenerateName {
        operations.push(add("/metadata/annotations/dapr.io~1app-id", app_id.id.as_str().into()));
    }
    operations
}

/// Adds the variables with the sidecar's ports and the application's protocol, and the socket mount, to the
/// application's containers.
fn application(pod: &Pod<'_>, options: &Options<'_>) -> Vec<Operation> {
    let (http, grpc) = (HTTP_PORT.to_string(), options.ports.grpc.to_string());
    let mut variables = vec![("DAPR_HTTP_PORT", http.as_str()), ("DAPR_GRPC_PORT", grpc.as_str())];
    let protocol = options.app_protocol();
    if !protocol.is_empty() {
        variables.push(("APP_PROTOCOL", protocol));
    }
    let containers = || {
        let all = pod.spec.containers.iter().enumerate();
        all.filter(|(_, container)| !options.pluggable.contains(container.name))
    };
    let env = containers().flat_map(|(index, container)| add_env(index, &container.env, &variables));
    let sockets = containers().filter(|_| !options.socket_path.is_empty()).filter_map(|(index, container)| {
        mounts::add(index, &container.volume_mounts, SOCKET_VOLUME, options.socket_path)
    });
    env.chain(sockets).collect()
}
