//! Random pods that the API server accepts, with the annotations and containers by which their authors adjust an injection.
//!
//! What an author writes may conflict with what an injection adds; the injection may refuse such a pod. A pod that it injects must be
//! accepted by the API server, and its redirection by the plugin.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![allow(clippy::disallowed_methods, reason = "tests start processes, measure time and use files")]

mod template;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use inject::istio::{BuiltIn, Config, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};
use proptest::collection::{btree_map, vec};
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

pub use template::template;

/// Annotations that an author sets, each with valid and invalid values.
const ANNOTATIONS: &[(&str, &[&str])] = &[
    ("inject.istio.io/templates", &["sidecar", "gateway", "grpc-simple", "grpc-agent", "sidecar,gateway", "absent"]),
    ("kubectl.kubernetes.io/default-container", &["app", "istio-proxy"]),
    ("prometheus.io/path", &["/m", "metrics"]),
    ("prometheus.io/port", &["80", "15090", "15020", "abc", "0", "99999"]),
    ("prometheus.io/scrape", &["true", "false"]),
    ("proxy.istio.io/config", CONFIGURATIONS),
    ("readiness.status.sidecar.istio.io/failureThreshold", &["0", "1", "30", "-1"]),
    ("readiness.status.sidecar.istio.io/initialDelaySeconds", &["0", "5", "x"]),
    ("readiness.status.sidecar.istio.io/periodSeconds", &["0", "2"]),
    ("sidecar.istio.io/agentLogLevel", &["default:debug", "x\"y"]),
    ("sidecar.istio.io/bootstrapOverride", &["settings", "Not A Name", ""]),
    ("sidecar.istio.io/capNetBindService", &["true", "false"]),
    ("sidecar.istio.io/componentLogLevel", &["misc:error", ""]),
    ("sidecar.istio.io/interceptionMode", &["REDIRECT", "TPROXY", "NONE", "none"]),
    ("sidecar.istio.io/logLevel", &["debug", "a: b"]),
    ("sidecar.istio.io/nativeSidecar", &["true", "false"]),
    ("sidecar.istio.io/proxyCPU", &["100m", "2500m", "7", "0", "-1", "1 core"]),
    ("sidecar.istio.io/proxyCPULimit", &["50m", "4"]),
    ("sidecar.istio.io/proxyImage", &["registry.example/proxy:2", "two words", ""]),
    ("sidecar.istio.io/proxyImageType", &["distroless", ""]),
    ("sidecar.istio.io/proxyMemory", &["64Mi", "3Gi", "1e3"]),
    ("sidecar.istio.io/proxyMemoryLimit", &["32Mi", "4Gi"]),
    ("sidecar.istio.io/rewriteAppHTTPProbers", &["true", "false"]),
    ("sidecar.istio.io/statsInclusionPrefixes", &["cluster,listener", "\"'"]),
    ("sidecar.istio.io/userVolume", VOLUMES),
    ("sidecar.istio.io/userVolumeMount", MOUNTS),
    ("status.sidecar.istio.io/port", &["15099", "0", "8080"]),
    ("traffic.sidecar.istio.io/excludeInboundPorts", &["80,81", "80,", "*", ""]),
    ("traffic.sidecar.istio.io/excludeInterfaces", &["eth1", "eth1,,eth2", "a b"]),
    ("traffic.sidecar.istio.io/excludeOutboundIPRanges", &["10.0.0.0/8", "10.0.0.0/8,", "10.1.2.3/8", "::1/128", "*"]),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", &["5432", "5432,", " 80 , 81 ", "+80", "007"]),
    ("traffic.sidecar.istio.io/includeInboundPorts", &["*", "", "80", "*,80"]),
    ("traffic.sidecar.istio.io/includeOutboundIPRanges", &["*", "", "10.0.0.0/8", "10.0.0.0/33"]),
    ("traffic.sidecar.istio.io/includeOutboundPorts", &["", "*", "80,443", "0", "65536"]),
];

const CONFIGURATIONS: &[&str] = &[
    "holdApplicationUntilProxyStarts: true",
    "statusPort: 15099",
    "statusPort: 70000",
    "concurrency: 0",
    "proxyMetadata: {A_B: value, OTHER: '7'}",
    "proxyMetadata: {'A=B': value}",
    "proxyMetadata: {A: \"x\\n        y: z\"}",
    "image: {imageType: debug}",
    "interceptionMode: TPROXY",
    "terminationDrainDuration: 7s",
    "drainDuration: never",
    "serviceCluster: 'a \"b\"'",
    "readinessProbe: {httpGet: {path: /x, port: 80}}",
];
const VOLUMES: &[&str] = &[
    r#"[{"name": "extra", "emptyDir": {}}]"#,
    r#"{"extra": {"emptyDir": {}}}"#,
    r#"[{"name": "data", "emptyDir": {}}]"#,
    r#"[{"name": "istio-data", "hostPath": {"path": "/x"}}]"#,
    r#"[{"emptyDir": {}}]"#,
    "no JSON",
];
const MOUNTS: &[&str] = &[
    r#"[{"name": "extra", "mountPath": "/extra"}]"#,
    r#"{"extra": {"mountPath": "/extra"}}"#,
    r#"[{"name": "absent", "mountPath": "/absent"}]"#,
    r#"[{"name": "data", "mountPath": "/etc/istio/proxy"}]"#,
];

/// Generates pods that the API server accepts before an injection.
pub fn pod() -> impl Strategy<Value = Value> {
    let spec = (applications(), own_sidecar(), init_containers(), volumes(), settings());
    // The CPU that the pod requests as a whole in addition to its containers' requests, in thousandths: too little or enough for a sidecar.
    // The pod's memory limit, with or without a CPU request and huge pages.
    let limits = proptest::option::of((select(&["7Gi", "20Gi"][..]), any::<[bool; 2]>()));
    let spare = prop_oneof![3 => Just(None), 1 => (Just(50), limits.clone()).prop_map(Some), 1 => (Just(9000), limits).prop_map(Some)];
    (metadata(), spec, spare).prop_map(|(metadata, (mut containers, sidecar, mut inits, volumes, settings), spare)| {
        let mut spec = settings;
        match sidecar {
            Some((sidecar, false)) => containers.insert(containers.len() / 2, sidecar),
            Some((mut sidecar, true)) => {
                sidecar["restartPolicy"] = "Always".into();
                inits.push(sidecar);
            }
            None => {}
        }
        if let Some((spare, limits)) = spare {
            let cpu = containers.iter().chain(&inits).map(requested_cpu).sum::<u64>() + spare;
            // The API server rounds the request up to a thousandth.
            let mut resources = json!({ "requests": { "cpu": format!("{}u", cpu * 1000 - 500) } });
            if let Some((memory, [is_requested, is_paged])) = limits {
                resources["limits"] = json!({ "cpu": format!("{}m", cpu + 4000), "memory": memory });
                if !is_requested {
                    resources["requests"] = json!({});
                }
                if is_paged {
                    resources["limits"]["hugepages-2Mi"] = "20Mi".into();
                }
            }
            spec.insert("resources".to_owned(), resources);
        }
        spec.insert("containers".to_owned(), containers.into());
        if !inits.is_empty() {
            spec.insert("initContainers".to_owned(), inits.into());
        }
        spec.insert("volumes".to_owned(), volumes.into());
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
    })
}

fn metadata() -> impl Strategy<Value = Value> {
    let annotation = select(ANNOTATIONS).prop_flat_map(|(name, values)| (Just(name.to_owned()), select(values)));
    let label = (
        select(&["app", "app.kubernetes.io/name", "version", "service.istio.io/canonical-name", "team"][..]),
        prop_oneof![Just("web".to_owned()), Just(String::new()), Just("l".repeat(63)), Just("A_b.c-1".to_owned())],
    );
    let name = prop_oneof![
        4 => Just(json!({ "name": "web" })),
        1 => Just(json!({ "generateName": "web-7d9c5b8f6d-" })),
        1 => Just(json!({ "name": "w".repeat(253) })),
        1 => Just(json!({ "name": format!("{}.{}", "w".repeat(62), "x".repeat(60)) })),
    ];
    let owner = prop_oneof![
        Just(None),
        Just(Some(("ReplicaSet", "web-7d9c5b8f6d".to_owned()))),
        Just(Some(("StatefulSet", format!("{}-0", "s".repeat(200))))),
        Just(Some(("Job", "nightly-28000000".to_owned()))),
    ];
    (name, vec(annotation, 0..5), vec(label, 0..4), owner).prop_map(|(mut metadata, annotations, labels, owner)| {
        let map = |pairs: Vec<(String, Value)>| pairs.into_iter().collect::<Map<_, _>>();
        metadata["annotations"] =
            map(annotations.into_iter().map(|(name, value)| (name, value.into())).collect()).into();
        metadata["labels"] =
            map(labels.into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()).into();
        if let Some((kind, name)) = owner {
            let api = if kind == "Job" { "batch/v1" } else { "apps/v1" };
            let owner = json!({ "apiVersion": api, "kind": kind, "name": name, "uid": "u-1", "controller": true });
            metadata["ownerReferences"] = json!([owner]);
        }
        metadata
    })
}

/// Generates one to three containers of applications.
fn applications() -> impl Strategy<Value = Vec<Value>> {
    let names = subsequence(&["app", "b", "c"][..], 1..=3);
    names.prop_flat_map(|names| names.into_iter().map(application).collect::<Vec<_>>())
}

fn application(name: &'static str) -> impl Strategy<Value = Value> {
    let fields = (probes(), lifecycle(), ports(), resources(), security(), mounts());
    fields.prop_map(move |(probes, lifecycle, ports, resources, security, mounts)| {
        let mut container =
            Map::from_iter([("name".to_owned(), name.into()), ("image".to_owned(), "registry.example/app:1".into())]);
        container.extend(probes);
        let fields = [
            ("lifecycle", lifecycle),
            ("ports", ports),
            ("resources", resources),
            ("securityContext", security),
            ("volumeMounts", mounts),
        ];
        container.extend(fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
        container.into()
    })
}

/// Generates the pod's own `istio-proxy`, and whether it is a native sidecar.
fn own_sidecar() -> impl Strategy<Value = Option<(Value, bool)>> {
    let image = prop_oneof![Just("auto"), Just("registry.example/own:1")];
    let env = prop_oneof![
        Just(None),
        Just(Some(json!([{ "name": "POD_NAME", "value": "mine" }, { "name": "OWN", "value": "x" }]))),
        Just(Some(json!([{ "name": "PROXY_CONFIG", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]))),
    ];
    let sidecar = (image, application("istio-proxy"), env).prop_map(|(image, mut container, env)| {
        container["image"] = image.into();
        if let Some(env) = env {
            container["env"] = env;
        }
        container
    });
    prop_oneof![2 => Just(None), 1 => (sidecar, any::<bool>()).prop_map(Some)]
}

fn init_containers() -> impl Strategy<Value = Vec<Value>> {
    let plain = json!({ "name": "setup", "image": "registry.example/setup:1" });
    let logs = json!({ "name": "logs", "image": "registry.example/logs:1", "restartPolicy": "Always",
        "startupProbe": { "httpGet": { "path": "/up", "port": 9000 } } });
    let validation = json!({ "name": "istio-validation", "image": "registry.example/own:1" });
    let all = vec![plain, logs, validation];
    prop_oneof![2 => Just(Vec::new()), 1 => subsequence(all, 1..=3)]
}

/// Generates the pod's volumes: `data`, which containers mount, and volumes with the names of injected ones.
fn volumes() -> impl Strategy<Value = Vec<Value>> {
    let others = vec![
        json!({ "name": "istio-envoy", "emptyDir": { "medium": "Memory" } }),
        json!({ "name": "istio-data", "hostPath": { "path": "/data" } }),
        json!({ "name": "istio-token", "secret": { "secretName": "t" } }),
        json!({ "name": "own", "configMap": { "name": "own" } }),
    ];
    let some = prop_oneof![3 => Just(Vec::new()), 1 => subsequence(others, 1..=2)];
    some.prop_map(|others| [vec![json!({ "name": "data", "emptyDir": {} })], others].concat())
}

fn mounts() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        Just(Some(json!([{ "name": "data", "mountPath": "/data" }]))),
        Just(Some(json!([{ "name": "data", "mountPath": "/etc/istio/proxy" }]))),
    ]
}

fn probes() -> impl Strategy<Value = Map<String, Value>> {
    let handler = prop_oneof![
        Just(json!({ "httpGet": { "path": "/", "port": 80 } })),
        Just(
            json!({ "httpGet": { "path": "/", "port": "web", "scheme": "HTTPS", "httpHeaders": [{ "name": "A", "value": "b" }] } })
        ),
        Just(json!({ "tcpSocket": { "port": 81 } })),
        Just(json!({ "grpc": { "port": 82 } })),
        Just(json!({ "exec": { "command": ["true"] }, "periodSeconds": 3 })),
    ];
    let kinds = select(&["readinessProbe", "livenessProbe", "startupProbe"][..]);
    btree_map(kinds, handler, 0..3)
        .prop_map(|probes| probes.into_iter().map(|(kind, probe)| (kind.to_owned(), probe)).collect())
}

fn lifecycle() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        3 => Just(None),
        1 => Just(Some(json!({ "preStop": { "exec": { "command": ["true"] } } }))),
        1 => Just(Some(json!({ "preStop": { "sleep": { "seconds": 3 } } }))),
        1 => Just(Some(json!({ "postStart": { "httpGet": { "port": 80 } } }))),
    ]
}

fn ports() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        Just(Some(json!([{ "name": "web", "containerPort": 80 }]))),
        Just(Some(
            json!([{ "containerPort": 15020 }, { "name": "http-envoy-prom", "containerPort": 9090, "protocol": "TCP" }])
        )),
    ]
}

/// Returns the CPU that a container requests, in thousandths, rounded up. Its limit applies if it has no request.
fn requested_cpu(container: &Value) -> u64 {
    let amount = |which: &str| {
        let text = match &container["resources"][which]["cpu"] {
            Value::Null => return None,
            Value::String(text) => text.clone(),
            number => number.to_string(),
        };
        let number = |digits: &str| digits.parse::<u64>().expect("a whole number");
        Some(match (text.strip_suffix('m'), text.strip_suffix('u')) {
            (Some(milli), _) => number(milli),
            (_, Some(micro)) => number(micro).div_ceil(1000),
            _ => number(&text) * 1000,
        })
    };
    amount("requests").or_else(|| amount("limits")).unwrap_or(0)
}

fn resources() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        Just(None),
        Just(Some(json!({ "requests": { "cpu": "3", "memory": "2Gi" } }))),
        Just(Some(json!({ "limits": { "cpu": "50m", "memory": "32Mi" } }))),
        Just(Some(json!({ "requests": { "cpu": "10m" }, "limits": { "cpu": 1, "ephemeral-storage": "1Gi" } }))),
        Just(Some(json!({ "requests": { "cpu": 0 } }))),
        // The sum of several of these is the same whether they are rounded before or after the addition.
        Just(Some(json!({ "requests": { "cpu": "1999u" } }))),
        Just(Some(json!({ "requests": { "memory": "64Mi" }, "limits": { "hugepages-2Mi": "4Mi" } }))),
    ]
}

fn security() -> impl Strategy<Value = Option<Value>> {
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(json!({ "runAsUser": 1337, "runAsGroup": 1337 }))),
        1 => Just(Some(json!({ "runAsUser": 0 }))),
        1 => Just(Some(json!({ "privileged": true }))),
        1 => Just(Some(json!({ "capabilities": { "add": ["SYS_ADMIN"] } }))),
        1 => Just(Some(json!({ "runAsNonRoot": true, "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } }))),
    ]
}

/// Generates the other fields of a pod's spec.
fn settings() -> impl Strategy<Value = Map<String, Value>> {
    let all = vec![
        ("securityContext", json!({ "runAsNonRoot": true, "runAsUser": 1000, "fsGroup": 2000 })),
        ("securityContext", json!({ "runAsUser": 0, "seccompProfile": { "type": "RuntimeDefault" } })),
        ("dnsConfig", json!({ "searches": ["example.org"], "options": [{ "name": "ndots", "value": "2" }] })),
        ("terminationGracePeriodSeconds", json!(5)),
        ("shareProcessNamespace", json!(true)),
        ("automountServiceAccountToken", json!(false)),
        ("hostAliases", json!([{ "ip": "10.0.0.1", "hostnames": ["a"] }])),
        ("imagePullSecrets", json!([{ "name": "pull" }])),
        ("restartPolicy", json!("Never")),
        ("nodeSelector", json!({ "kubernetes.io/os": "linux" })),
        ("os", json!({ "name": "linux" })),
    ];
    let count = all.len();
    subsequence(all, 0..count / 2)
        .prop_map(|fields| fields.into_iter().map(|(key, value)| (key.to_owned(), value)).collect())
}

/// An injector and the name of its configuration.
pub struct Configured {
    pub name: String,
    pub injector: Injector,
    /// The directory of the configuration; `None` for the built-in one.
    pub directory: Option<PathBuf>,
    pub platform: Platform,
}

/// A mesh configuration as in most clusters.
pub const MESH: &str = "{trustDomain: cluster.local, rootNamespace: istio-system, \
                        defaultConfig: {discoveryAddress: 'istiod.istio-system.svc:15012'}}";

/// Returns injectors with the built-in configuration and with each configuration in the corpus, on each platform.
///
/// # Errors
/// If a configuration in the corpus cannot be read or parsed.
pub fn injectors(corpus: &Path) -> Result<Vec<Configured>> {
    let mut directories = vec![None];
    if let Ok(entries) = std::fs::read_dir(corpus.join("settings")) {
        directories.extend(entries.map(|entry| Ok(Some(entry?.path()))).collect::<Result<Vec<_>>>()?);
    }
    directories.sort();
    let mut all = Vec::new();
    for directory in directories {
        for (platform, suffix) in [(Platform::Kubernetes, ""), (Platform::OpenShift, " on OpenShift")] {
            let config = match &directory {
                None => BuiltIn { platform, ..BuiltIn::default() }.config()?,
                Some(directory) => config(directory, platform)?,
            };
            let name = directory.as_deref().and_then(Path::file_name).unwrap_or("built-in".as_ref());
            let name = format!("{}{suffix}", name.to_string_lossy());
            all.push(Configured { name, injector: Injector::new(config), directory: directory.clone(), platform });
        }
    }
    Ok(all)
}

/// Returns the configuration in a directory of the corpus.
fn config(directory: &Path, platform: Platform) -> Result<Config> {
    let read = |name: &str| {
        std::fs::read_to_string(directory.join(name)).with_context(|| directory.join(name).display().to_string())
    };
    let mut values: Value = serde_json::from_str(&read("values.json")?)?;
    if platform == Platform::OpenShift {
        values["global"]["platform"] = "openshift".into();
    }
    Ok(Config {
        settings: Settings::parse(&read("config.yaml")?, None)?,
        values: Values::parse(&values.to_string())?,
        mesh: Mesh::parse(MESH)?,
        revision: String::new(),
        platform,
        compliance_policy: String::new(),
    })
}

/// Returns the pod after the injection, or `None` if the injection skips or refuses it.
pub fn injected(injector: &Injector, pod: &Value, native_sidecars: bool) -> Option<Value> {
    let ranges = BTreeMap::from([("openshift.io/sa.scc.uid-range".to_owned(), "1000700000/10000".to_owned())]);
    let namespace_annotations = Some(&ranges);
    match injector.review(&Request { native_sidecars, namespace_annotations, ..Request::new(pod, "shop") }) {
        Ok(InjectionOutcome::Injected { injected, .. }) => Some(injected.pod),
        _ => None,
    }
}
