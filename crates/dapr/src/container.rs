//! Builds the sidecar's container.

use std::collections::HashSet;

use gocompat::quantity;
use serde_json::{Map, Value, json};

use super::annotations::{Options, Probe, Resources, shown};
use super::args::{self, HTTP_PORT, PUBLIC_PORT, SOCKETS};
use super::components::SOCKETS_VARIABLE;
use super::env::{self, Variables, from_field, from_secret, variable};
use super::mounts::{self, mount};
use super::pod::{Pod, SIDECAR};
use super::settings::{Security, Settings};
use super::trust::Trust;

/// The volume of the sockets that the sidecar shares with the application.
pub(super) const SOCKET_VOLUME: &str = "dapr-unix-domain-socket";
/// The volume with the sidecar's token.
pub(super) const TOKEN_VOLUME: &str = "dapr-identity-token";
const TOKEN_PATH: &str = "/var/run/secrets/dapr.io/sentrytoken";

/// The environment variable that names a directory of certificates. On Windows, a sidecar with this variable installs
/// these certificates.
const CERTIFICATES: &str = "SSL_CERT_DIR";

/// The input from which the sidecar's container is built.
pub(super) struct Parts<'a> {
    pub(super) id: &'a str,
    pub(super) namespace: &'a str,
    pub(super) pod: &'a Pod<'a>,
    pub(super) options: &'a Options<'a>,
    pub(super) settings: &'a Settings,
    pub(super) trust: &'a Trust,
    /// The trust anchors in PEM.
    pub(super) anchors: &'a str,
    /// The directory of component sockets, if the pod has or gets components.
    pub(super) components: Option<&'a str>,
    pub(super) native: bool,
}

/// Returns the container, with fields in the order of the API.
pub(super) fn sidecar(parts: &Parts<'_>, warnings: &mut Vec<String>) -> Value {
    let (command, args) = command(parts);
    let mut container = Map::new();
    container.insert("name".into(), SIDECAR.into());
    container.insert("image".into(), parts.options.image.unwrap_or(&parts.settings.image).into());
    if let Some(command) = command {
        container.insert("command".into(), json!([command]));
    }
    container.insert("args".into(), args.into());
    container.insert("ports".into(), ports(parts.options));
    let env = variables(parts);
    let security = security(parts, &env);
    container.insert("env".into(), env.into());
    container.insert("resources".into(), resources(parts.options.resources, warnings));
    if parts.native {
        container.insert("restartPolicy".into(), "Always".into());
    }
    let mounts = volume_mounts(parts, warnings);
    if !mounts.is_empty() {
        container.insert("volumeMounts".into(), mounts.into());
    }
    let alive = ("tcpSocket", json!({"port": PUBLIC_PORT}));
    let ready = ("httpGet", json!({"path": "/v1.0/healthz", "port": PUBLIC_PORT}));
    container.insert("livenessProbe".into(), probe(alive, parts.options.liveness));
    container.insert("readinessProbe".into(), probe(ready, parts.options.readiness));
    container.insert("imagePullPolicy".into(), parts.settings.pull_policy.as_str().into());
    container.insert("securityContext".into(), security);
    container.into()
}

/// Returns the container's command and arguments. The program is the first argument, so that the image's entry point
/// can wrap it, or the command if the pod tolerates nodes that ignore entry points.
fn command(parts: &Parts<'_>) -> (Option<&'static str>, Vec<String>) {
    let args = args::of(parts.id, parts.options, parts.settings, parts.trust.mtls);
    let (program, args) = match parts.options.ports.debug {
        None => ("/daprd", args),
        Some(port) => {
            let mut debugger = args::debugger(vec!["--listen".to_owned(), format!(":{port}")]);
            debugger.extend(args);
            ("/dlv", debugger)
        }
    };
    let tolerated = &parts.pod.spec.tolerations;
    if parts.settings.ignore_entrypoint.iter().any(|listed| tolerated.iter().any(|one| listed.is(one))) {
        return (Some(program), args);
    }
    (None, std::iter::once(program.to_owned()).chain(args).collect())
}

pub(super) fn ports(options: &Options<'_>) -> Value {
    let port = |name: &str, number: i32| json!({"name": name, "containerPort": number});
    let mut ports = vec![
        port("dapr-http", HTTP_PORT),
        port("dapr-grpc", options.ports.grpc),
        port("dapr-internal", options.ports.internal),
        port("dapr-metrics", options.ports.metrics),
    ];
    ports.extend(options.ports.debug.map(|number| port("dapr-debug", number)));
    ports.into()
}

fn variables(parts: &Parts<'_>) -> Vec<Value> {
    let (options, control_plane) = (parts.options, &parts.settings.control_plane);
    let mut env = vec![
        variable("NAMESPACE", parts.namespace),
        variable("DAPR_TRUST_ANCHORS", parts.anchors),
        from_field("POD_NAME", "metadata.name"),
        variable("DAPR_CONTROLPLANE_NAMESPACE", &control_plane.namespace),
        variable("DAPR_CONTROLPLANE_TRUST_DOMAIN", &control_plane.trust_domain),
    ];
    if parts.settings.host_ip {
        env.push(from_field("DAPR_HOST_IP", "status.podIP"));
    }
    let mut keys = Vec::new();
    for Variables { keys: more, list } in [env::parse(options.env), env::parse_from_secret(options.env_from_secret)] {
        keys.extend(more);
        env.extend(list);
    }
    if !keys.is_empty() {
        env.push(variable("DAPR_ENV_KEYS", &keys.join(" ")));
    }
    env.extend(parts.components.map(|folder| variable(SOCKETS_VARIABLE, folder)));
    env.extend(tokens(options));
    env
}

/// Returns the variables with the tokens with which application and sidecar authenticate to each other.
pub(super) fn tokens(options: &Options<'_>) -> impl Iterator<Item = Value> {
    [("DAPR_API_TOKEN", options.api_token_secret), ("APP_API_TOKEN", options.app.token_secret)]
        .into_iter()
        .filter(|(_, secret)| !secret.is_empty())
        .map(|(name, secret)| from_secret(name, secret, "token"))
}

fn volume_mounts(parts: &Parts<'_>, warnings: &mut Vec<String>) -> Vec<Value> {
    let wanted = mounts::parse(parts.options.mounts, true).chain(mounts::parse(parts.options.mounts_rw, false));
    let volumes: HashSet<&str> = parts.pod.spec.volumes.iter().map(|volume| volume.name).collect();
    let mut mounts = Vec::new();
    for wanted in wanted {
        if volumes.contains(wanted.volume) {
            mounts.push(wanted.value());
        } else {
            warnings.push(format!("volume {} is not in the pod, so daprd does not mount it", shown(wanted.volume)));
        }
    }
    if !parts.options.socket_path.is_empty() {
        mounts.push(mount(SOCKET_VOLUME, SOCKETS, false));
    }
    if parts.settings.identity_token {
        mounts.push(mount(TOKEN_VOLUME, TOKEN_PATH, true));
    }
    mounts.extend(parts.components.map(|folder| mount(super::components::VOLUME, folder, false)));
    mounts
}

/// Returns the container's resource requests and limits, or neither if a quantity is invalid.
pub(super) fn resources(wanted: Resources<'_>, warnings: &mut Vec<String>) -> Value {
    let lists = [
        ("limits", [("cpu", wanted.cpu_limit), ("memory", wanted.memory_limit)]),
        ("requests", [("cpu", wanted.cpu_request), ("memory", wanted.memory_request)]),
    ];
    let mut resources = Map::new();
    for (list, entries) in lists {
        let mut amounts = Map::new();
        for (resource, text) in entries.into_iter().filter(|(_, text)| !text.is_empty()) {
            let Some(amount) = quantity::canonical(text) else {
                let text = shown(text);
                warnings
                    .push(format!("{resource} of daprd: {text} is not a quantity, so the container gets no {list}"));
                return json!({});
            };
            amounts.insert(resource.to_owned(), amount.into());
        }
        if !amounts.is_empty() {
            resources.insert(list.to_owned(), amounts.into());
        }
    }
    resources.into()
}

/// Returns a probe. Zeros are omitted, so that the API server sets its defaults.
pub(super) fn probe((handler, target): (&str, Value), probe: Probe) -> Value {
    let mut value = Map::from_iter([(handler.to_owned(), target)]);
    let numbers = [
        ("initialDelaySeconds", probe.delay),
        ("timeoutSeconds", probe.timeout),
        ("periodSeconds", probe.period),
        ("failureThreshold", probe.threshold),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, number)| *number != 0) {
        value.insert(name.to_owned(), number.into());
    }
    value.into()
}

/// Returns the security context. On Windows, a sidecar that installs certificates must run as administrator. The node,
/// and so its operating system, is not yet known: each sidecar that would install certificates gets this setting.
fn security(parts: &Parts<'_>, env: &[Value]) -> Value {
    let installs = env.iter().any(|variable| variable["name"] == CERTIFICATES);
    let Security { run_as_non_root, run_as_user, run_as_group, read_only_root, drop_all } = parts.settings.security;
    let mut context = Map::new();
    if drop_all {
        context.insert("capabilities".into(), json!({"drop": ["ALL"]}));
    }
    if installs {
        context.insert("windowsOptions".into(), json!({"runAsUserName": "ContainerAdministrator"}));
    }
    for (name, id) in [("runAsUser", run_as_user), ("runAsGroup", run_as_group)] {
        if let Some(id) = id.filter(|_| !installs) {
            context.insert(name.into(), id.into());
        }
    }
    context.insert("runAsNonRoot".into(), (run_as_non_root && !installs).into());
    context.insert("readOnlyRootFilesystem".into(), (read_only_root && !installs).into());
    context.insert("allowPrivilegeEscalation".into(), false.into());
    if !parts.options.seccomp.is_empty() {
        context.insert("seccompProfile".into(), json!({"type": parts.options.seccomp}));
    }
    context.into()
}
