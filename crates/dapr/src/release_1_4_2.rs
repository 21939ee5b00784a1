//! Builds the sidecar of release 1.4.2, which holds the issuer's certificate and key. The application's containers get
//! the variables `DAPR_HTTP_PORT` and `DAPR_GRPC_PORT`.

use serde_json::{Map, Value, json};

use super::Refusal;
use super::annotations::{Annotations, Options};
use super::args::{self, Args, HTTP_PORT, PUBLIC_PORT};
use super::container::{Parts, ports, probe, resources, tokens};
use super::edits::{add, add_env, append};
use super::env::{self, variable};
use super::pod::{Pod, SIDECAR};
use super::settings::{Actors, Settings};
use super::trust::{Issuer, Trust};
use inject::Operation;

/// The mount path of the service account token.
const ACCOUNT_TOKEN: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Checks the application's port: release 1.4.2 denies pods whose port is not a number.
pub(super) fn check_app_port(annotations: &Annotations<'_>) -> Result<(), Refusal> {
    match annotations.given("app-port") {
        Some(port) if port.parse::<i32>().is_err() => Err(Refusal::AppPort(port.to_owned())),
        _ => Ok(()),
    }
}

/// Returns the patch.
pub(super) fn operations(pod: &Pod<'_>, sidecar: Value) -> Vec<Operation> {
    if pod.spec.containers.is_empty() {
        return vec![add("/spec/containers", json!([sidecar]))];
    }
    let (http, grpc) = (HTTP_PORT.to_string(), DEFAULT_GRPC_PORT.to_string());
    let variables = [("DAPR_HTTP_PORT", http.as_str()), ("DAPR_GRPC_PORT", grpc.as_str())];
    let mut operations = vec![append("/spec/containers", sidecar)];
    for (index, container) in pod.spec.containers.iter().enumerate() {
        operations.extend(add_env(index, &container.env, &variables));
    }
    operations
}

const DEFAULT_GRPC_PORT: i32 = 50001;

/// Returns the sidecar's container. The sidecar also gets the mount of the service account token in `object`, the pod.
pub(super) fn sidecar(parts: &Parts<'_>, object: &Value, issuer: &Issuer, warnings: &mut Vec<String>) -> Value {
    let (command, args) = command(parts);
    let mut container = Map::new();
    container.insert("name".into(), SIDECAR.into());
    container.insert("image".into(), parts.settings.image.as_str().into());
    container.insert("command".into(), json!([command]));
    container.insert("args".into(), args.into());
    container.insert("ports".into(), ports(parts.options));
    container.insert("env".into(), variables(parts, issuer).into());
    container.insert("resources".into(), resources(parts.options.resources, warnings));
    if let Some(mount) = token_mount(object) {
        container.insert("volumeMounts".into(), json!([mount]));
    }
    let health = || ("httpGet", json!({"path": "/v1.0/healthz", "port": PUBLIC_PORT}));
    container.insert("livenessProbe".into(), probe(health(), parts.options.liveness));
    container.insert("readinessProbe".into(), probe(health(), parts.options.readiness));
    container.insert("imagePullPolicy".into(), parts.settings.pull_policy.as_str().into());
    container.insert("securityContext".into(), json!({"allowPrivilegeEscalation": false}));
    container.into()
}

fn command(parts: &Parts<'_>) -> (&'static str, Vec<String>) {
    let args = arguments(parts.id, parts.options, parts.settings, parts.trust);
    match parts.options.ports.debug {
        None => ("/daprd", args),
        Some(port) => {
            let mut debugger = args::debugger(vec![format!("--listen=:{port}")]);
            debugger.extend(args);
            ("/dlv", debugger)
        }
    }
}

fn arguments(id: &str, options: &Options<'_>, settings: &Settings, trust: &Trust) -> Vec<String> {
    let address = |service, port| settings.control_plane.address(service, port);
    let mut args = Args(Vec::with_capacity(48));
    args.option("--mode", "kubernetes");
    args.number("--dapr-http-port", HTTP_PORT);
    args.number("--dapr-grpc-port", options.ports.grpc);
    args.number("--dapr-internal-grpc-port", options.ports.internal);
    args.option("--dapr-listen-addresses", options.listen_addresses);
    args.number("--dapr-public-port", PUBLIC_PORT);
    args.option("--app-port", if options.app.port > 0 { options.app.port.to_string() } else { String::new() });
    args.option("--app-id", id);
    args.option("--control-plane-address", address("dapr-api", 80));
    args.option("--app-protocol", options.app.protocol);
    args.option(
        "--placement-host-address",
        match &settings.actors {
            Actors::Placement(address) => address.clone(),
            Actors::Off | Actors::Service(_) => String::new(),
        },
    );
    args.option("--config", options.config);
    args.option("--log-level", options.log_level);
    args.number("--app-max-concurrency", options.app.max_concurrency.unwrap_or(-1));
    args.option("--sentry-address", address("dapr-sentry", 80));
    args.flag(&format!("--enable-metrics={}", options.metrics));
    args.number("--metrics-port", options.ports.metrics);
    args.number("--dapr-http-max-request-size", options.sizes.http_max_request.unwrap_or(-1));
    args.flag_if("--log-as-json", options.log_as_json);
    args.flag_if("--enable-profiling", options.profiling);
    args.flag_if("--enable-mtls", trust.mtls);
    args.flag_if("--app-ssl", options.app.ssl);
    args.0
}

fn variables(parts: &Parts<'_>, issuer: &Issuer) -> Vec<Value> {
    let identity = format!("{}:{}", parts.namespace, parts.pod.spec.service_account_name);
    let mut env = vec![variable("NAMESPACE", parts.namespace)];
    env.extend(env::parse_1_4_2(parts.options.env));
    env.extend([
        variable("DAPR_TRUST_ANCHORS", parts.anchors),
        variable("DAPR_CERT_CHAIN", &issuer.chain),
        variable("DAPR_CERT_KEY", &issuer.key),
        variable("SENTRY_LOCAL_IDENTITY", &identity),
    ]);
    env.extend(tokens(parts.options));
    env
}

/// Returns the first mount of the service account token in the pod's containers.
fn token_mount(object: &Value) -> Option<&Value> {
    let containers = object.pointer("/spec/containers")?.as_array()?;
    let mounts = containers.iter().filter_map(|container| container.get("volumeMounts")?.as_array()).flatten();
    mounts.into_iter().find(|mount| mount.get("mountPath").is_some_and(|path| path == ACCOUNT_TOKEN))
}
