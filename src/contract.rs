//! Every name that another program also spells: annotations, labels, containers, ports, ids, exit codes, paths.
//!
//! All rooms read it, it knows none. A change here breaks clusters, so it holds names and numbers and no logic.

/// Annotations and labels that pods carry (Istio's `annotation` package).
pub mod annotation {
    /// Written by the injector; a pod without it has no sidecar to redirect to.
    pub const STATUS: &str = "sidecar.istio.io/status";
    /// Label, else annotation, by which a pod declines.
    pub const INJECT: &str = "sidecar.istio.io/inject";
    /// `REDIRECT`, `TPROXY` or `NONE`.
    pub const INTERCEPTION_MODE: &str = "sidecar.istio.io/interceptionMode";
    /// `*` or CIDRs whose outbound traffic is redirected.
    pub const INCLUDE_OUTBOUND_CIDRS: &str = "traffic.sidecar.istio.io/includeOutboundIPRanges";
    /// CIDRs whose outbound traffic is left alone.
    pub const EXCLUDE_OUTBOUND_CIDRS: &str = "traffic.sidecar.istio.io/excludeOutboundIPRanges";
    /// `*` or ports whose inbound traffic is redirected.
    pub const INCLUDE_INBOUND_PORTS: &str = "traffic.sidecar.istio.io/includeInboundPorts";
    /// Ports whose inbound traffic is left alone.
    pub const EXCLUDE_INBOUND_PORTS: &str = "traffic.sidecar.istio.io/excludeInboundPorts";
    /// Ports redirected whatever their destination.
    pub const INCLUDE_OUTBOUND_PORTS: &str = "traffic.sidecar.istio.io/includeOutboundPorts";
    /// Ports whose outbound traffic is left alone.
    pub const EXCLUDE_OUTBOUND_PORTS: &str = "traffic.sidecar.istio.io/excludeOutboundPorts";
    /// Interfaces whose traffic is left alone.
    pub const EXCLUDE_INTERFACES: &str = "traffic.sidecar.istio.io/excludeInterfaces";
    /// Interfaces of virtual machines, whose inbound traffic counts as outbound.
    pub const REROUTE_VIRTUAL_INTERFACES: &str = "istio.io/reroute-virtual-interfaces";
    /// The older name of the former, read only where the former is absent.
    pub const KUBEVIRT_INTERFACES: &str = "traffic.sidecar.istio.io/kubevirtInterfaces";
    /// Comma list of templates instead of the default ones.
    pub const TEMPLATES: &str = "inject.istio.io/templates";
    /// YAML over the mesh's proxy configuration.
    pub const PROXY_CONFIG: &str = "proxy.istio.io/config";
    /// What the pod itself says about injected containers, kept for injecting again.
    pub const OVERRIDES: &str = "proxy.istio.io/overrides";
    /// `true` or `false`: the sidecar is an init container that keeps running, whatever the cluster can do.
    pub const NATIVE_SIDECAR: &str = "sidecar.istio.io/nativeSidecar";
    /// Whether HTTP probes go to the agent.
    pub const REWRITE_PROBES: &str = "sidecar.istio.io/rewriteAppHTTPProbers";
    /// The agent's port for probes and metrics.
    pub const STATUS_PORT: &str = "status.sidecar.istio.io/port";
    /// Whether the agent serves the application's metrics beside its own.
    pub const MERGE_METRICS: &str = "prometheus.istio.io/merge-metrics";
    /// `port:path,…` that the agent scrapes.
    pub const SCRAPE_TARGETS: &str = "prometheus.istio.io/scrape-targets";
    /// Port of metrics over TLS.
    pub const SECURE_METRICS_PORT: &str = "prometheus.istio.io/secure-port";
    /// Variant of the proxy's image.
    pub const IMAGE_TYPE: &str = "sidecar.istio.io/proxyImageType";
    /// Label: the network that the pod is in.
    pub const NETWORK: &str = "topology.istio.io/network";
}

/// What pods of Dapr carry.
pub mod dapr {
    /// Annotation by which a pod asks for the sidecar.
    pub const ENABLED: &str = "dapr.io/enabled";
    /// The sidecar's container.
    pub const SIDECAR: &str = "daprd";
    /// Label of pods that the injector gave a sidecar.
    pub const INJECTED: &str = "dapr.io/sidecar-injected";
    /// Label of pods that Dapr's own watchdog has seen to be well.
    pub const WATCHED: &str = "dapr.io/watchdog-patched";
}

/// Container names.
pub mod container {
    /// The sidecar, as a container or as a native sidecar among the init containers.
    pub const PROXY: &str = "istio-proxy";
    /// The init container that programs the pod by itself: nothing is left to do.
    pub const INIT: &str = "istio-init";
    /// The init container that proves redirection.
    pub const VALIDATION: &str = "istio-validation";
    /// The init container that makes core dumps possible.
    pub const CORE_DUMP: &str = "enable-core-dump";
}

/// Environment variables of the `istio-proxy` container that change the rules.
pub mod proxy_env {
    /// True: DNS is captured.
    pub const DNS_CAPTURE: &str = "ISTIO_META_DNS_CAPTURE";
    /// True: the pod has both families.
    pub const DUAL_STACK: &str = "ISTIO_DUAL_STACK";
    /// True: packets that conntrack calls invalid are dropped.
    pub const INVALID_DROP: &str = "INVALID_DROP";
    /// True: there is no Envoy to redirect to.
    pub const DISABLE_ENVOY: &str = "DISABLE_ENVOY";
    /// Groups whose traffic is redirected (`*` or a list).
    pub const OWNER_GROUPS: &str = "ISTIO_OUTBOUND_OWNER_GROUPS";
    /// Groups whose traffic is left alone.
    pub const OWNER_GROUPS_EXCLUDE: &str = "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE";
    /// The part of 127.0.0.0/8 that counts as loopback.
    pub const LOOPBACK_CIDR: &str = "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR";
}

/// Ports of the sidecar.
pub mod port {
    /// Outbound traffic goes here.
    pub const OUTBOUND: u16 = 15001;
    /// Inbound traffic goes here.
    pub const INBOUND: u16 = 15006;
    /// HBONE, never redirected.
    pub const TUNNEL: u16 = 15008;
    /// The agent's DNS proxy.
    pub const DNS: u16 = 15053;
    /// Status, readiness and Prometheus ports: never redirected inbound.
    pub const NEVER_INBOUND: [u16; 3] = [15020, 15021, 15090];
    /// The agent's probes and merged metrics.
    pub const STATUS: u16 = 15020;
    /// Validation connects here.
    pub const PROBE: u16 = 15002;
}

/// uid and gid of the sidecar where the pod names none.
pub const PROXY_ID: u32 = 1337;
/// Packet mark of TPROXY.
pub const TPROXY_MARK: u32 = 1337;
/// Routing table of TPROXY.
pub const TPROXY_TABLE: u32 = 133;
/// Packet mark by which the proxy's own loopback traffic is told apart in TPROXY mode.
pub const OUTBOUND_MARK: u32 = 1338;

/// Exit code of validation; the repair controller looks for it.
pub const EXIT_VALIDATION: u8 = 126;
/// Exit code for flags that cannot be parsed.
pub const EXIT_USAGE: u8 = 255;

/// The plugin's name in a conflist, and its file name.
pub const PLUGIN_NAME: &str = "istio-cni";
/// The DaemonSet of the agent, in the agent's namespace.
pub const DAEMON_SET: &str = "istio-cni-node";
/// The agent's own pods start with this, in the agent's namespace.
pub const AGENT_POD_PREFIX: &str = "istio-cni-node-";
/// Label of the agent's evictions, by which an admission policy selects them.
pub const EVICTION_LABEL: &str = "istio-cni.io/agent";
/// Default run directory on the node.
pub const RUN_DIR: &str = "/var/run/istio-cni";
/// The agent's socket, in the run directory.
pub const AGENT_SOCKET: &str = "agent.sock";
/// Where the plugin sends its log lines, in the run directory.
pub const LOG_SOCKET: &str = "log.sock";
/// The plugin's log file, in the run directory.
pub const LOG_FILE: &str = "istio-cni.log";
/// The plugin's kubeconfig, in the run directory.
pub const KUBECONFIG: &str = "istio-cni-kubeconfig";
/// Capability by which containerd hands the pod's annotations to a plugin, and their key in `runtimeConfig`.
pub const POD_ANNOTATIONS_CAPABILITY: &str = "io.kubernetes.cri.pod-annotations";
