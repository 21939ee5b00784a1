//! Names and numbers shared with other programs: annotations, labels, containers, ports, ids, exit codes, paths.
//!
//! Every crate may depend on this one, which depends on no other crate of the workspace. Apart from [`diagnostics`],
//! which formats levels and errors, it contains no logic. A changed value breaks running clusters.

pub mod diagnostics;

/// Defines string constants, and `ALL`, which lists each value with its doc comment. The reference documentation is
/// generated from `ALL`.
macro_rules! documented {
    ($($(#[doc = $line:literal])+ pub const $name:ident = $text:literal;)+) => {
        $($(#[doc = $line])+ pub const $name: &str = $text;)+

        /// The value and the doc comment of each constant.
        pub const ALL: &[(&str, &str)] = &[$(($text, concat!($($line),+))),+];
    };
}

/// The implementation of iptables that `FORCE_IPTABLES_BINARY` or the plugin's chain entry requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IptablesBinary {
    /// `iptables-legacy`, over x_tables.
    Legacy,
    /// `iptables-nft`, over nf_tables.
    Nft,
}

impl IptablesBinary {
    /// Returns the implementation with this name; `None` for any other name.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "legacy" => Some(Self::Legacy),
            "nft" => Some(Self::Nft),
            _ => None,
        }
    }
}

/// Annotations and labels that pods carry (Istio's `annotation` package).
pub mod annotation {
    documented! {
        /// Set by the injector; a pod without it has no sidecar and is not redirected.
        pub const STATUS = "sidecar.istio.io/status";
        /// Label, or else annotation, that disables injection for a pod.
        pub const INJECT = "sidecar.istio.io/inject";
        /// `REDIRECT`, `TPROXY` or `NONE`.
        pub const INTERCEPTION_MODE = "sidecar.istio.io/interceptionMode";
        /// `*` or CIDRs whose outbound traffic is redirected.
        pub const INCLUDE_OUTBOUND_CIDRS = "traffic.sidecar.istio.io/includeOutboundIPRanges";
        /// CIDRs whose outbound traffic is not redirected.
        pub const EXCLUDE_OUTBOUND_CIDRS = "traffic.sidecar.istio.io/excludeOutboundIPRanges";
        /// `*` or ports whose inbound traffic is redirected.
        pub const INCLUDE_INBOUND_PORTS = "traffic.sidecar.istio.io/includeInboundPorts";
        /// Ports whose inbound traffic is not redirected.
        pub const EXCLUDE_INBOUND_PORTS = "traffic.sidecar.istio.io/excludeInboundPorts";
        /// Ports whose outbound traffic is redirected whatever its destination.
        pub const INCLUDE_OUTBOUND_PORTS = "traffic.sidecar.istio.io/includeOutboundPorts";
        /// Ports whose outbound traffic is not redirected.
        pub const EXCLUDE_OUTBOUND_PORTS = "traffic.sidecar.istio.io/excludeOutboundPorts";
        /// Interfaces whose traffic is not redirected.
        pub const EXCLUDE_INTERFACES = "traffic.sidecar.istio.io/excludeInterfaces";
        /// Interfaces of virtual machines; their inbound traffic is handled as outbound traffic.
        pub const REROUTE_VIRTUAL_INTERFACES = "istio.io/reroute-virtual-interfaces";
        /// The former name of `istio.io/reroute-virtual-interfaces`, read only if that one is absent.
        pub const KUBEVIRT_INTERFACES = "traffic.sidecar.istio.io/kubevirtInterfaces";
        /// Comma-separated list of templates that replace the default ones.
        pub const TEMPLATES = "inject.istio.io/templates";
        /// YAML merged over the mesh's proxy configuration.
        pub const PROXY_CONFIG = "proxy.istio.io/config";
        /// The pod's own definition of injected containers, saved so that the pod can be injected again.
        pub const OVERRIDES = "proxy.istio.io/overrides";
        /// `true` or `false`: overrides whether the sidecar is an init container with `restartPolicy: Always`.
        pub const NATIVE_SIDECAR = "sidecar.istio.io/nativeSidecar";
        /// Whether the agent takes over the pod's HTTP probes.
        pub const REWRITE_PROBES = "sidecar.istio.io/rewriteAppHTTPProbers";
        /// The agent's port for probes and metrics.
        pub const STATUS_PORT = "status.sidecar.istio.io/port";
        /// Whether the agent serves the application's metrics beside its own.
        pub const MERGE_METRICS = "prometheus.istio.io/merge-metrics";
        /// `port:path,…` list of targets that the agent scrapes.
        pub const SCRAPE_TARGETS = "prometheus.istio.io/scrape-targets";
        /// Port that serves metrics over TLS.
        pub const SECURE_METRICS_PORT = "prometheus.istio.io/secure-port";
        /// Variant of the proxy image.
        pub const IMAGE_TYPE = "sidecar.istio.io/proxyImageType";
        /// Label that names the pod's network.
        pub const NETWORK = "topology.istio.io/network";
        /// Initial delay of the sidecar's readiness probe, in seconds.
        pub const READINESS_DELAY = "readiness.status.sidecar.istio.io/initialDelaySeconds";
        /// Period of the sidecar's readiness probe, in seconds.
        pub const READINESS_PERIOD = "readiness.status.sidecar.istio.io/periodSeconds";
        /// Failures in a row after which the sidecar is not ready.
        pub const READINESS_FAILURES = "readiness.status.sidecar.istio.io/failureThreshold";
        /// CPU request of the sidecar.
        pub const PROXY_CPU = "sidecar.istio.io/proxyCPU";
        /// CPU limit of the sidecar.
        pub const PROXY_CPU_LIMIT = "sidecar.istio.io/proxyCPULimit";
        /// Memory request of the sidecar.
        pub const PROXY_MEMORY = "sidecar.istio.io/proxyMemory";
        /// Memory limit of the sidecar.
        pub const PROXY_MEMORY_LIMIT = "sidecar.istio.io/proxyMemoryLimit";
        /// Image of the sidecar.
        pub const PROXY_IMAGE = "sidecar.istio.io/proxyImage";
        /// Log level of Envoy.
        pub const LOG_LEVEL = "sidecar.istio.io/logLevel";
        /// Log levels of Envoy's components, such as `upstream:debug,http:info`.
        pub const COMPONENT_LOG_LEVEL = "sidecar.istio.io/componentLogLevel";
        /// Log levels of the agent in the sidecar, by scope.
        pub const AGENT_LOG_LEVEL = "sidecar.istio.io/agentLogLevel";
        /// Name of a ConfigMap with a bootstrap configuration of Envoy that replaces Istio's.
        pub const BOOTSTRAP_OVERRIDE = "sidecar.istio.io/bootstrapOverride";
        /// `true`: the sidecar has the capability `NET_BIND_SERVICE`, which ports below 1024 require.
        pub const CAP_NET_BIND_SERVICE = "sidecar.istio.io/capNetBindService";
        /// host:port of istiod for this sidecar.
        pub const DISCOVERY_ADDRESS = "sidecar.istio.io/discoveryAddress";
        /// Volumes that the pod gets for the sidecar.
        pub const USER_VOLUME = "sidecar.istio.io/userVolume";
        /// Mounts of volumes that the sidecar gets.
        pub const USER_VOLUME_MOUNT = "sidecar.istio.io/userVolumeMount";
        /// Additional networks of the pod, read by Multus; a template may append the plugin's.
        pub const NETWORKS = "k8s.v1.cni.cncf.io/networks";
    }
}

/// Keys of the plugin's entry in a conflist: the keys of Istio's `PluginConfig`, `force_iptables_binary` and
/// `refuse_sandboxes`.
pub mod config_key {
    documented! {
        /// Level of the plugin's log; an unknown one means `info`, because a log level must not fail a pod.
        pub const LOG_LEVEL = "plugin_log_level";
        /// Directory of the agent's sockets, the log file and the kubeconfig; by default /var/run/istio-cni.
        pub const RUN_DIR = "cni_agent_run_dir";
        /// List of namespaces whose pods are not redirected.
        pub const EXCLUDE_NAMESPACES = "exclude_namespaces";
        /// Namespace of the agent, whose own pods are not looked up.
        pub const AGENT_NAMESPACE = "pod_namespace";
        /// `true`: program native nftables tables instead of iptables' tables.
        pub const NATIVE_NFTABLES = "native_nftables";
        /// Accepted and logged: ambient mode is not supported.
        pub const AMBIENT_ENABLED = "ambient_enabled";
        /// `legacy` or `nft`: use this implementation of iptables whatever rules the netns has; empty: detect it.
        pub const IPTABLES_BINARY = "force_iptables_binary";
        /// `true`: ADD fails for pods in sandboxes that rules of the node's kernel do not reach (gVisor, Kata Containers).
        pub const REFUSE_SANDBOXES = "refuse_sandboxes";
    }
}

/// Names of Istio's ambient mode.
pub mod ambient {
    /// Label that enrols a pod, or the pods of a namespace, in ambient mode (`ambient`) or not (`none`).
    pub const DATAPLANE_MODE: &str = "istio.io/dataplane-mode";
    /// Value of the label `app` of ztunnel's pods.
    pub const ZTUNNEL: &str = "ztunnel";
    /// Annotation that overrides whether the pod's DNS is captured; a boolean.
    pub const DNS_CAPTURE: &str = "ambient.istio.io/dns-capture";
    /// Annotation of a pod whose inbound traffic is not captured, such as a gateway; a boolean.
    pub const BYPASS_INBOUND_CAPTURE: &str = "ambient.istio.io/bypass-inbound-capture";
    /// Mark on the packets that ztunnel sends.
    pub const PROXY_MARK: u32 = 0x539;
    /// Mark on ztunnel's connections to the application, and on the packets that reply to ztunnel.
    pub const CONN_MARK: u32 = 0x111;
    /// The bits of a mark that Istio uses.
    pub const MARK_MASK: u32 = 0xfff;
    /// Routing table that delivers replies to ztunnel within the pod.
    pub const TABLE: u32 = 100;
    /// Priority of the routing rule for that table.
    pub const RULE_PRIORITY: u32 = 32764;
    /// Chain of the `nat` table in the node's netns, in which Istio's agent rewrites the source address of the
    /// kubelet's probes.
    pub const NODE_CHAIN: &str = "ISTIO_POSTRT";
    /// Source address of the kubelet's IPv4 probes after that rewrite.
    pub const PROBE_V4: std::net::Ipv4Addr = std::net::Ipv4Addr::new(169, 254, 7, 127);
    /// Source address of the kubelet's IPv6 probes after that rewrite.
    pub const PROBE_V6: std::net::Ipv6Addr =
        std::net::Ipv6Addr::new(0xfd16, 0x9254, 0x7127, 0x1337, 0xffff, 0xffff, 0xffff, 0xffff);
}

/// Names that Dapr's injector uses in pods.
pub mod dapr {
    /// Annotation that enables the sidecar.
    pub const ENABLED: &str = "dapr.io/enabled";
    /// Name of the sidecar container.
    pub const SIDECAR: &str = "daprd";
    /// Label that the injector sets on pods with a sidecar.
    pub const INJECTED: &str = "dapr.io/sidecar-injected";
    /// Label that Dapr's own watchdog sets on pods that it found healthy.
    pub const WATCHED: &str = "dapr.io/watchdog-patched";
}

/// Container names.
pub mod container {
    /// The sidecar, as a container or as a native sidecar among the init containers.
    pub const PROXY: &str = "istio-proxy";
    /// The init container that programs the rules itself; the plugin skips pods with such a container.
    pub const INIT: &str = "istio-init";
    /// The init container that verifies redirection.
    pub const VALIDATION: &str = "istio-validation";
    /// The init container that enables core dumps.
    pub const CORE_DUMP: &str = "enable-core-dump";
    /// The containers that Istio's templates may add to any pod.
    pub const INJECTED: [&str; 3] = [PROXY, VALIDATION, INIT];
}

/// Environment variables of the `istio-proxy` container that change the rules.
pub mod proxy_env {
    documented! {
        /// True: DNS is captured.
        pub const DNS_CAPTURE = "ISTIO_META_DNS_CAPTURE";
        /// True: the pod is redirected in both families.
        pub const DUAL_STACK = "ISTIO_DUAL_STACK";
        /// True: packets in conntrack state INVALID are dropped.
        pub const INVALID_DROP = "INVALID_DROP";
        /// True: the pod runs no Envoy, so nothing is redirected.
        pub const DISABLE_ENVOY = "DISABLE_ENVOY";
        /// Groups whose traffic is redirected (`*` or a list).
        pub const OWNER_GROUPS = "ISTIO_OUTBOUND_OWNER_GROUPS";
        /// Groups whose traffic is not redirected.
        pub const OWNER_GROUPS_EXCLUDE = "ISTIO_OUTBOUND_OWNER_GROUPS_EXCLUDE";
        /// The range within 127.0.0.0/8 that is treated as loopback.
        pub const LOOPBACK_CIDR = "ISTIO_OUTBOUND_IPV4_LOOPBACK_CIDR";
    }
}

/// Environment variables of `istio-iptables` that have no equivalent flag.
pub mod iptables_env {
    documented! {
        /// User whose uid is the default of --proxy-uid, by default istio-proxy.
        pub const PROXY_USER = "ENVOY_USER";
        /// File that --dry-run writes the rules to.
        pub const DRY_RUN_FILE = "DRY_RUN_FILE_PATH";
    }
}

/// Ports of the sidecar.
pub mod port {
    /// Outbound traffic is redirected to this port.
    pub const OUTBOUND: u16 = 15001;
    /// Inbound traffic is redirected to this port.
    pub const INBOUND: u16 = 15006;
    /// HBONE, never redirected.
    pub const TUNNEL: u16 = 15008;
    /// The agent's DNS proxy.
    pub const DNS: u16 = 15053;
    /// The agent's probes and merged metrics.
    pub const STATUS: u16 = 15020;
    /// The proxy's readiness endpoint, unless a variable sets another port.
    pub const READINESS: u16 = 15021;
    /// The proxy's own metrics, unless a variable sets another port.
    pub const PROMETHEUS: u16 = 15090;
    /// The proxy's admin interface, unless the proxy configuration sets another port.
    pub const ADMIN: u16 = 15000;
    /// Ports whose inbound traffic is never redirected.
    pub const NEVER_INBOUND: [u16; 3] = [STATUS, READINESS, PROMETHEUS];
    /// Validation connects to this port.
    pub const PROBE: u16 = 15002;
}

/// uid and gid of the sidecar if the pod sets none.
pub const PROXY_ID: u32 = 1337;
/// Packet mark of TPROXY.
pub const TPROXY_MARK: u32 = 1337;
/// Routing table of TPROXY.
pub const TPROXY_TABLE: u32 = 133;
/// Packet mark of the proxy's own loopback traffic in TPROXY mode.
pub const OUTBOUND_MARK: u32 = 1338;

/// Exit code of a failed validation, by which repair recognizes such a pod.
pub const EXIT_VALIDATION: u8 = 126;
/// Exit code for flags that cannot be parsed.
pub const EXIT_USAGE: u8 = 255;

/// The plugin's name in a conflist, and its file name.
pub const PLUGIN_NAME: &str = "istio-cni";
/// File in the directory of the plugin's binary that turns the plugin into a stub after a removal.
pub const REMOVED_MARKER: &str = ".istio-cni.removed";
/// Line in that file if a CNI configuration file may still name the plugin: the stub then stays even if no cached chain
/// names it any longer.
pub const STUB_STAYS: &str = "It stays until `install-cni uninstall` removes it.\n";
/// The agent's DaemonSet, in the agent's namespace.
pub const DAEMON_SET: &str = "istio-cni-node";
/// The DaemonSet's volume with the node's root, in which the agent finds the directories of the next two volumes.
pub const ROOT_VOLUME: &str = "host-root";
/// The DaemonSet's volume with the node's CNI configuration directory, as in Istio's chart.
pub const NET_DIR_VOLUME: &str = "cni-net-dir";
/// The DaemonSet's volume with the node's plugin directory, as in Istio's chart.
pub const BIN_DIR_VOLUME: &str = "cni-bin-dir";
/// Name prefix of the agent's own pods, in the agent's namespace.
pub const AGENT_POD_PREFIX: &str = "istio-cni-node-";
/// Label on the agent's evictions, for admission policies to select.
pub const EVICTION_LABEL: &str = "istio-cni.io/agent";
/// Default run directory on the node.
pub const RUN_DIR: &str = "/var/run/istio-cni";
/// File name, in the run directory, of the socket on which the agent responds to lookups of pods, to queries for its directories and
/// to agents that stand by.
pub const AGENT_SOCKET: &str = "agent.sock";
/// Socket that receives the plugin's log lines, in the run directory.
pub const LOG_SOCKET: &str = "log.sock";
/// Field of a log line that is below the plugin's log level and is sent only for its verdict: the agent records the
/// verdict and does not log the line.
pub const UNLOGGED: &str = "unlogged";
/// `reason` in the plugin's log lines: no backend can program rules on this node.
pub const NO_BACKEND: &str = "no_backend";
/// `reason` in the plugin's log lines: CHECK found redirection missing.
pub const NOT_REDIRECTED: &str = "not_redirected";
/// `reason` in the plugin's log lines: CHECK found rules that differ from the intended ones; the message names them.
pub const DIFFERS: &str = "differs";
/// `reason` in the plugin's log lines: the pod runs in a sandboxed runtime, which rules do not reach. The field with
/// this name describes the runtime.
pub const SANDBOX: &str = "sandbox";
/// Field of a log line with the reason [`NO_BACKEND`]: what the node lacks, without the pod's name.
pub const LACK: &str = "lack";
/// The plugin's log file, in the run directory.
pub const LOG_FILE: &str = "istio-cni.log";
/// The plugin's kubeconfig, in the run directory.
pub const KUBECONFIG: &str = "istio-cni-kubeconfig";
/// Capability with which containerd passes the pod's annotations to a plugin, and their key in `runtimeConfig`.
pub const POD_ANNOTATIONS_CAPABILITY: &str = "io.kubernetes.cri.pod-annotations";
