//! Pods, values and meshes of our own, on which the built-in templates and Istio's are compared in addition to the
//! corpus.

use std::path::Path;

use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::explained::Inputs;
use crate::case::read;

/// The templates, and for each whether it injects a sidecar that may be native.
const TEMPLATES: [(&str, bool); 4] =
    [("sidecar", true), ("gateway", false), ("grpc-agent", false), ("grpc-simple", false)];

/// Annotations with values, one pod for each.
const ANNOTATIONS: &[(&str, &str)] = &[
    ("sidecar.istio.io/proxyCPU", "250m"),
    ("sidecar.istio.io/proxyCPULimit", "50m"),
    ("sidecar.istio.io/proxyMemory", "2Gi"),
    ("sidecar.istio.io/proxyMemoryLimit", "3Gi"),
    ("sidecar.istio.io/proxyImage", "registry.example/proxy:1"),
    ("sidecar.istio.io/proxyImage", "proxy:2"),
    ("sidecar.istio.io/proxyImageType", "distroless"),
    ("sidecar.istio.io/logLevel", "debug"),
    ("sidecar.istio.io/componentLogLevel", "upstream:debug,http:info"),
    ("sidecar.istio.io/agentLogLevel", "ca:debug"),
    ("sidecar.istio.io/bootstrapOverride", "my-bootstrap"),
    ("sidecar.istio.io/capNetBindService", "true"),
    ("sidecar.istio.io/discoveryAddress", "istiod.other.svc:15012"),
    ("sidecar.istio.io/interceptionMode", "TPROXY"),
    ("sidecar.istio.io/interceptionMode", "NONE"),
    ("sidecar.istio.io/nativeSidecar", "false"),
    ("sidecar.istio.io/rewriteAppHTTPProbers", "false"),
    ("sidecar.istio.io/userVolume", r#"{"b": {"secret": {"secretName": "s"}}, "a": {"emptyDir": {}}}"#),
    ("sidecar.istio.io/userVolumeMount", r#"{"a": {"mountPath": "/a", "readOnly": true}}"#),
    ("status.sidecar.istio.io/port", "15099"),
    ("status.sidecar.istio.io/port", "0"),
    ("readiness.status.sidecar.istio.io/initialDelaySeconds", "3"),
    ("readiness.status.sidecar.istio.io/periodSeconds", "4"),
    ("readiness.status.sidecar.istio.io/failureThreshold", "5"),
    ("traffic.sidecar.istio.io/includeOutboundIPRanges", "10.0.0.0/8"),
    ("traffic.sidecar.istio.io/excludeOutboundIPRanges", "10.1.0.0/16,10.2.0.0/16"),
    ("traffic.sidecar.istio.io/includeInboundPorts", "80,443"),
    ("traffic.sidecar.istio.io/includeInboundPorts", ""),
    ("traffic.sidecar.istio.io/excludeInboundPorts", "22,15020"),
    ("traffic.sidecar.istio.io/includeOutboundPorts", "5432"),
    ("traffic.sidecar.istio.io/excludeOutboundPorts", "3306"),
    ("traffic.sidecar.istio.io/excludeInterfaces", "eth1"),
    ("traffic.sidecar.istio.io/kubevirtInterfaces", "net0"),
    ("istio.io/reroute-virtual-interfaces", "net1,net2"),
    ("k8s.v1.cni.cncf.io/networks", "mine"),
    ("k8s.v1.cni.cncf.io/networks", r#"[{"name": "mine"}]"#),
    ("kubectl.kubernetes.io/default-container", "second"),
    ("apm.datadoghq.com/env", r#"{"DD_SERVICE": "web", "DD_N": "1"}"#),
    ("resource.opentelemetry.io/service.version", "7"),
    ("proxy.istio.io/config", "holdApplicationUntilProxyStarts: true"),
    ("proxy.istio.io/config", "statusPort: 15099"),
    ("proxy.istio.io/config", "interceptionMode: TPROXY"),
    ("proxy.istio.io/config", "concurrency: 3\nproxyMetadata: {A: b, ISTIO_META_ENABLE_HBONE: 'true'}"),
    ("proxy.istio.io/config", "proxyMetadata: {IPTABLES_TRACE_LOGGING: 'true'}"),
    ("proxy.istio.io/config", "tracing: {tlsSettings: {caCertificates: /etc/lightstep/ca.pem}}"),
    ("proxy.istio.io/config", "image: {imageType: debug}"),
    ("proxy.istio.io/config", "proxyMetadata: {ENVOY_STATUS_PORT: '15031', ENVOY_PROMETHEUS_PORT: '15091'}"),
];

/// Changes of Istio's values, each with one or more JSON pointers and the new values.
const VALUES: &[&[(&str, &str)]] = &[
    &[("/pilot/cni/enabled", "true")],
    &[("/pilot/cni/enabled", "true"), ("/pilot/cni/provider", r#""multus""#)],
    &[("/global/proxy/holdApplicationUntilProxyStarts", "true")],
    &[
        ("/global/proxy/holdApplicationUntilProxyStarts", "true"),
        ("/global/proxy/lifecycle", r#"{"preStop": {"exec": {"command": ["sleep", "5"]}}}"#),
    ],
    &[("/global/proxy/lifecycle", r#"{"postStart": {"exec": {"command": ["echo"]}}}"#)],
    &[("/global/proxy/statusPort", "0")],
    &[("/global/proxy/statusPort", "123")],
    &[("/global/proxy/privileged", "true")],
    &[("/global/proxy/seccompProfile", r#"{"type": "RuntimeDefault"}"#)],
    &[("/global/proxy/startupProbe/enabled", "false")],
    &[("/global/proxy/startupProbe/failureThreshold", "7")],
    &[("/global/proxy/readinessInitialDelaySeconds", "1"), ("/global/proxy/readinessPeriodSeconds", "2")],
    &[("/global/proxy/outlierLogPath", r#""/dev/stdout""#)],
    &[("/global/proxy/tracer", r#""datadog""#)],
    &[("/global/proxy/tracer", r#""lightstep""#)],
    &[("/global/proxy/image", r#""registry.example/other:3""#)],
    &[("/global/proxy/resources", "{}")],
    &[("/global/proxy/resources", r#"{"limits": {"cpu": null, "memory": "1Gi"}, "requests": null}"#)],
    &[
        ("/global/proxy/includeInboundPorts", r#""80""#),
        ("/global/proxy/excludeInboundPorts", r#""81""#),
        ("/global/proxy/includeOutboundPorts", r#""82""#),
        ("/global/proxy/excludeOutboundPorts", r#""83""#),
        ("/global/proxy/includeIPRanges", r#""10.0.0.0/8""#),
        ("/global/proxy/excludeIPRanges", r#""10.1.0.0/16""#),
        ("/pilot/cni/enabled", "true"),
    ],
    &[("/global/proxy_init/forceApplyIptables", "true"), ("/global/nativeNftables", "true")],
    &[("/global/logAsJson", "true"), ("/global/sts/servicePort", "15463"), ("/global/logging/level", r#""all:debug""#)],
    &[("/global/caAddress", r#""ca.example:443""#), ("/global/pilotCertProvider", r#""kubernetes""#)],
    &[("/global/caName", r#""GkeWorkloadCertificate""#)],
    &[("/global/mountMtlsCerts", "true"), ("/global/imagePullPolicy", r#""Always""#)],
    &[("/global/imagePullSecrets", r#"["a", "b"]"#)],
    &[
        ("/global/meshID", r#""mesh1""#),
        ("/global/network", r#""net1""#),
        ("/global/multiCluster/clusterName", r#""c1""#),
    ],
    &[("/global/trustBundleName", r#""bundle""#), ("/pilot/crlConfigMapName", r#""crl""#)],
    &[("/pilot/env/ENABLE_CLUSTER_TRUST_BUNDLE_API", "true")],
    &[("/revision", r#""canary""#), ("/global/istioNamespace", r#""mesh-system""#)],
    &[("/global/variant", r#""debug""#), ("/global/sds/token/aud", r#""other""#)],
    &[("/gateways/securityContext", r#"{"runAsNonRoot": true}"#)],
];

const MESHES: &[&str] = &[
    "defaultConfig: {statusPort: 15077, holdApplicationUntilProxyStarts: true}",
    "defaultConfig: {interceptionMode: TPROXY}",
    "{proxyListenPort: 25001, proxyInboundListenPort: 25006, trustDomain: td}",
    "inboundTrafficPolicy: {mode: LOCALHOST}",
    "extensionProviders: [{name: otel, opentelemetry: {service: otel, port: 4317, resourceDetectors: {}, serviceAttributeEnrichment: OTEL_SEMANTIC_CONVENTIONS}}]",
];

/// Returns all pods with their configurations, under names that state what is special about each.
pub(crate) fn all(corpus: &Path) -> Result<Vec<(String, Inputs)>, Failed> {
    let (config, values) = settings(corpus)?;
    let mut all = Vec::new();
    for (template, may_be_native) in TEMPLATES {
        for native in [false, true].into_iter().filter(|native| !native || may_be_native) {
            let mut add = |what: String, pod: Value, values: &Value, mesh: &str, openshift: bool| {
                let inputs = Inputs {
                    config: config.clone(),
                    values: values.clone(),
                    mesh: mesh.to_owned(),
                    pod: pod.to_string(),
                    native,
                    openshift,
                };
                all.push((format!("{template}, {}native: {what}", if native { "" } else { "not " }), inputs));
            };
            let plain = || pod(template, &[]);
            for (name, value) in ANNOTATIONS {
                for cni in [false, true] {
                    let mut values = values.clone();
                    set(&mut values, "/pilot/cni/enabled", cni.into())?;
                    set(&mut values, "/global/proxy/tracer", "datadog".into())?;
                    // The plugin is used on OpenShift, and istio-init on other platforms.
                    let (pod, openshift) = (pod(template, &[(name, value)]), cni);
                    add(format!("{name}: {value}, cni and openshift {cni}"), pod, &values, "{}", openshift);
                }
            }
            for changes in VALUES {
                let mut values = values.clone();
                for (pointer, value) in *changes {
                    set(&mut values, pointer, serde_json::from_str(value)?)?;
                }
                let pod =
                    pod(template, &[("proxy.istio.io/config", "tracing: {tlsSettings: {caCertificates: /a/b.pem}}")]);
                add(format!("{changes:?}"), pod, &values, "{}", false);
            }
            for mesh in MESHES {
                add((*mesh).to_owned(), plain(), &values, mesh, false);
            }
            // Istio shortens the canonical name with `sidecar` only; with other templates the injection refuses Istio's label.
            if template == "sidecar" {
                let mut long = plain();
                long["metadata"]["labels"]["app"] = "n".repeat(64).into();
                add("a long name".to_owned(), long, &values, "{}", false);
            }
            let mut own = plain();
            // The template has no container, so that nothing replaces `auto`.
            let image = if template == "grpc-simple" { "own" } else { "auto" };
            own["spec"]["containers"][0] = json!({
                "name": "istio-proxy", "image": image, "lifecycle": {"preStop": {"exec": {"command": ["own"]}}},
                "securityContext": {"runAsUser": 5000}, "resources": {"requests": {"cpu": "7m"}},
            });
            add("a sidecar of its own".to_owned(), own, &values, "{}", false);
        }
    }
    Ok(all)
}

/// Returns Istio's configuration and values, from the first settings of the corpus.
fn settings(corpus: &Path) -> Result<(String, Value), Failed> {
    let mut all: Vec<_> = std::fs::read_dir(corpus.join("settings"))?.filter_map(|e| Some(e.ok()?.path())).collect();
    all.sort();
    let first = all.first().ok_or("the corpus has no settings")?;
    let mut values: Value = serde_json::from_str(&read(first, "values.json")?)?;
    // Values that only some settings change are as in the others.
    set(&mut values, "/pilot/cni/enabled", false.into())?;
    set(&mut values, "/global/imagePullPolicy", "".into())?;
    Ok((read(first, "config.yaml")?, values))
}

/// Sets the value at a pointer, and the maps above it.
fn set(values: &mut Value, pointer: &str, value: Value) -> Result<(), Failed> {
    let mut at = values;
    for key in pointer.split('/').skip(1) {
        at = at.as_object_mut().ok_or("a pointer into a scalar")?.entry(key).or_insert_with(|| json!({}));
    }
    *at = value;
    Ok(())
}

fn pod(template: &str, annotations: &[(&str, &str)]) -> Value {
    let mut all = json!({"inject.istio.io/templates": template});
    annotations.iter().for_each(|(name, value)| all[*name] = Value::from(*value));
    let ports = json!([{"name": "http", "containerPort": 80}, {"containerPort": 81, "protocol": "UDP"}]);
    let probe = json!({"httpGet": {"path": "/", "port": "http"}});
    json!({
        "metadata": {"name": "web-0", "labels": {"app": "web", "version": "v2"}, "annotations": all},
        "spec": {
            "serviceAccountName": "shop",
            "volumes": [{"name": "a", "emptyDir": {}}],
            "containers": [
                {"name": "first", "image": "i", "ports": ports, "readinessProbe": probe},
                {"name": "second", "image": "i", "ports": [{"containerPort": 82}]},
            ],
        },
    })
}
