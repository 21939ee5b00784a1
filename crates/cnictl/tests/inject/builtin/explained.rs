//! The intended differences of the built-in templates from Istio's, with their reasons.

use serde_json::Value;

use super::compare::Difference;

/// A pod, and the configuration with which it is injected.
pub(crate) struct Inputs {
    /// Istio's configuration.
    pub(crate) config: String,
    pub(crate) values: Value,
    pub(crate) mesh: String,
    /// The pod, or the documents.
    pub(crate) pod: String,
    pub(crate) native: bool,
    pub(crate) openshift: bool,
}

impl Inputs {
    /// Whether the pod has one of these annotations.
    fn annotated(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.pod.contains(&format!("sidecar.istio.io/{name}")))
    }

    fn uses(&self, template: &str) -> bool {
        self.pod.contains(template)
    }
}

/// An intended difference.
pub(crate) struct Explained {
    pub(crate) name: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) explains: fn(&Difference, &Inputs) -> bool,
}

/// Whether a difference is in this part of the sidecar container.
fn in_proxy(difference: &Difference, part: &str) -> bool {
    difference.path.contains(&format!("/istio-proxy/{part}"))
}

pub(crate) const EXPLAINED: &[Explained] = &[
    Explained {
        name: "resources beside an annotated one",
        reason: "an annotation replaces one request or limit; Istio drops all resources of the values, limits included",
        explains: |d, i| {
            let annotated = i.annotated(&["proxyCPU", "proxyMemory"]);
            annotated
                && ["istio-proxy", "istio-init", "istio-validation"]
                    .iter()
                    .any(|c| d.path.contains(&format!("/{c}/resources")))
        },
    },
    Explained {
        name: "readiness of a gateway",
        reason: "the documented annotations take effect with each template; Istio's template of gateways does not read them",
        explains: |d, i| in_proxy(d, "readinessProbe/") && i.uses("\"gateway\"") && i.pod.contains("readiness.status"),
    },
    Explained {
        name: "bootstrap file for gRPC",
        reason: "the kubelet puts the names into the file; Istio's script reads a namespace that ends with a line break, \
                 which makes the file invalid JSON",
        explains: |d, _| {
            ["command", "env/order"].iter().any(|part| d.path.contains(&format!("/grpc-bootstrap-init/{part}")))
        },
    },
    Explained {
        name: "lifecycle of the values",
        reason: "a hook of the values replaces the hook of that name only; Istio drops the one that applications wait for",
        explains: |d, i| in_proxy(d, "lifecycle") && i.values.pointer("/global/proxy/lifecycle").is_some(),
    },
    Explained {
        name: "port of the agent",
        reason: "the agent listens on statusPort of its configuration, which is not captured and answers probes and the \
                 request to drain; Istio uses that of the values, and with grpc-agent 15020",
        explains: |d, i| {
            let configured = i.pod.contains("statusPort") || i.mesh.contains("statusPort");
            let configured =
                configured || (i.uses("grpc-agent") && i.pod.contains("status.sidecar.istio.io/port\":\"15099"));
            let part = ["args", "lifecycle", "ports", "readinessProbe"].iter().any(|part| in_proxy(d, part));
            configured
                && (part
                    || d.path.contains("/args")
                    || d.path.ends_with("/traffic.sidecar.istio.io/excludeInboundPorts"))
        },
    },
    Explained {
        name: "user of a sidecar with low ports",
        reason: "on OpenShift the sidecar with NET_BIND_SERVICE is root in group 1337, so the rules and their validation \
                 use 1337 as in TPROXY mode; with the namespace's user, validation would end with 126",
        explains: |d, i| {
            let init = d.path.contains("/istio-validation/") || d.path.contains("/istio-init/");
            i.openshift
                && i.annotated(&["capNetBindService"])
                && init
                && (d.path.contains("/args") || d.path.contains("/runAs"))
        },
    },
    Explained {
        name: "image without a registry",
        reason: "an image in the annotation is used, even from the default registry; Istio ignores it without a slash",
        explains: |d, i| d.path.ends_with("/image") && i.annotated(&["proxyImage\""]),
    },
    Explained {
        name: "address of istiod in an annotation",
        reason: "the documented annotation takes effect; Istio's templates no longer read it",
        explains: |d, i| in_proxy(d, "env/PROXY_CONFIG/") && i.annotated(&["discoveryAddress"]),
    },
    Explained {
        name: "agent for gRPC without a port",
        reason: "without a status port only the probe is left out; Istio leaves out resources and mounts with it",
        explains: |d, i| {
            let off = i.pod.contains("status.sidecar.istio.io/port\":\"0\"")
                || i.values["global"]["proxy"]["statusPort"] == 0;
            i.uses("grpc-agent")
                && off
                && ["resources", "volumeMounts", "ports", "lifecycle"].iter().any(|part| in_proxy(d, part))
        },
    },
    Explained {
        name: "port 0 of the values",
        reason: "port 0 of the values leaves out the probes, and the agent listens on the default port, which is not captured and answers \
                 the request to drain; Istio excludes no port and asks port 0",
        explains: |d, i| {
            let off = matches!(i.values["global"]["proxy"]["statusPort"].to_string().trim_matches('"'), "0");
            let excluded =
                d.path.contains("/args") || d.path.ends_with("/traffic.sidecar.istio.io/excludeInboundPorts");
            off && (in_proxy(d, "lifecycle/preStop") || excluded)
        },
    },
    Explained {
        name: "port that nobody serves",
        reason: "without a status port, the agent answers neither probes nor hooks of a sidecar or a gateway",
        explains: |d, i| {
            let off = i.pod.contains("status.sidecar.istio.io/port\":\"0\"");
            off && !i.uses("grpc-agent") && ["lifecycle", "readinessProbe"].iter().any(|part| in_proxy(d, part))
        },
    },
    Explained {
        name: "ports that variables move",
        reason: "probes, hooks, declared ports and exclusions follow ENVOY_STATUS_PORT and ENVOY_PROMETHEUS_PORT, by which the proxy \
                 listens elsewhere; those of Istio's templates do not",
        explains: |d, i| {
            let part = ["ports", "readinessProbe", "startupProbe", "lifecycle"].iter().any(|part| in_proxy(d, part));
            i.pod.contains("ENVOY_STATUS_PORT")
                && (part
                    || d.path.contains("/args")
                    || d.path.ends_with("/traffic.sidecar.istio.io/excludeInboundPorts"))
        },
    },
];
