//! Go's structs of mesh and proxy configuration, with the field names that templates of any release use.
//!
//! Fields are in the order of protobuf's JSON.

use gotemplate::{Field, Kind, Shape};

const fn message(name: &'static str, fields: &'static [Field]) -> Shape {
    Shape { name, fields, getters: true }
}

const fn f(name: &'static str, json: &'static str, kind: Kind) -> Field {
    Field { name, json, kind }
}

static BOOL_VALUE: Shape = message("wrapperspb.BoolValue", &[f("Value", "", Kind::Bool)]);
static INT32_VALUE: Shape = message("wrapperspb.Int32Value", &[f("Value", "", Kind::Int)]);
static REMOTE_SERVICE: Shape = message(
    "meshconfig.RemoteService",
    &[f("Address", "address", Kind::Text), f("TlsSettings", "tlsSettings", Kind::Pointer(&TLS_SETTINGS))],
);
static TLS_SETTINGS: Shape = message(
    "networking.ClientTLSSettings",
    &[
        f("Mode", "mode", Kind::Enum(&[("DISABLE", 0), ("SIMPLE", 1), ("MUTUAL", 2), ("ISTIO_MUTUAL", 3)])),
        f("ClientCertificate", "clientCertificate", Kind::Text),
        f("PrivateKey", "privateKey", Kind::Text),
        f("CaCertificates", "caCertificates", Kind::Text),
        f("Sni", "sni", Kind::Text),
    ],
);
static ADDRESS: Shape = message("meshconfig.Tracing_Zipkin", &[f("Address", "address", Kind::Text)]);
static LIGHTSTEP: Shape = message(
    "meshconfig.Tracing_Lightstep",
    &[
        f("Address", "address", Kind::Text),
        f("AccessToken", "accessToken", Kind::Text),
        f("Secure", "secure", Kind::Bool),
        f("CacertPath", "cacertPath", Kind::Text),
    ],
);
static STACKDRIVER: Shape = message(
    "meshconfig.Tracing_Stackdriver",
    &[
        f("Debug", "debug", Kind::Bool),
        f("MaxNumberOfAttributes", "maxNumberOfAttributes", Kind::Pointer(&INT32_VALUE)),
        f("MaxNumberOfAnnotations", "maxNumberOfAnnotations", Kind::Pointer(&INT32_VALUE)),
        f("MaxNumberOfMessageEvents", "maxNumberOfMessageEvents", Kind::Pointer(&INT32_VALUE)),
    ],
);
static TRACING: Shape = message(
    "meshconfig.Tracing",
    &[
        f("Zipkin", "zipkin", Kind::Pointer(&ADDRESS)),
        f("Lightstep", "lightstep", Kind::Pointer(&LIGHTSTEP)),
        f("Datadog", "datadog", Kind::Pointer(&ADDRESS)),
        f("Stackdriver", "stackdriver", Kind::Pointer(&STACKDRIVER)),
        f("CustomTags", "customTags", Kind::Any),
        f("MaxPathTagLength", "maxPathTagLength", Kind::Int),
        f("Sampling", "sampling", Kind::Any),
        f("TlsSettings", "tlsSettings", Kind::Pointer(&TLS_SETTINGS)),
    ],
);
static PROXY_IMAGE: Shape = message("networking.ProxyImage", &[f("ImageType", "imageType", Kind::Text)]);

/// The merged configuration of a proxy.
pub static PROXY_CONFIG: Shape = message(
    "meshconfig.ProxyConfig",
    &[
        f("ConfigPath", "configPath", Kind::Text),
        f("BinaryPath", "binaryPath", Kind::Text),
        f("ServiceCluster", "serviceCluster", Kind::Text),
        f("TracingServiceName", "tracingServiceName", Kind::Any),
        f("DrainDuration", "drainDuration", Kind::Text),
        f("ParentShutdownDuration", "parentShutdownDuration", Kind::Text),
        f("DiscoveryAddress", "discoveryAddress", Kind::Text),
        f("DiscoveryRefreshDelay", "discoveryRefreshDelay", Kind::Text),
        f("ZipkinAddress", "zipkinAddress", Kind::Text),
        f("ConnectTimeout", "connectTimeout", Kind::Text),
        f("StatsdUdpAddress", "statsdUdpAddress", Kind::Text),
        f("EnvoyMetricsServiceAddress", "envoyMetricsServiceAddress", Kind::Text),
        f("ProxyAdminPort", "proxyAdminPort", Kind::Int),
        f("AvailabilityZone", "availabilityZone", Kind::Text),
        f(
            "ControlPlaneAuthPolicy",
            "controlPlaneAuthPolicy",
            Kind::Enum(&[("NONE", 0), ("MUTUAL_TLS", 1), ("INHERIT", 1000)]),
        ),
        f("CustomConfigFile", "customConfigFile", Kind::Text),
        f("StatNameLength", "statNameLength", Kind::Int),
        f("Concurrency", "concurrency", Kind::Pointer(&INT32_VALUE)),
        f("ProxyBootstrapTemplatePath", "proxyBootstrapTemplatePath", Kind::Text),
        f("InterceptionMode", "interceptionMode", Kind::Enum(&[("REDIRECT", 0), ("TPROXY", 1), ("NONE", 2)])),
        f("Tracing", "tracing", Kind::Pointer(&TRACING)),
        f("Sds", "sds", Kind::Any),
        f("EnvoyAccessLogService", "envoyAccessLogService", Kind::Pointer(&REMOTE_SERVICE)),
        f("EnvoyMetricsService", "envoyMetricsService", Kind::Pointer(&REMOTE_SERVICE)),
        f("ProxyMetadata", "proxyMetadata", Kind::TEXTS),
        f("RuntimeValues", "runtimeValues", Kind::TEXTS),
        f("StatusPort", "statusPort", Kind::Int),
        f("ExtraStatTags", "extraStatTags", Kind::List(&Kind::Text)),
        f("GatewayTopology", "gatewayTopology", Kind::Any),
        f("TerminationDrainDuration", "terminationDrainDuration", Kind::Text),
        f("MeshId", "meshId", Kind::Text),
        f("ReadinessProbe", "readinessProbe", Kind::Any),
        f("ProxyStatsMatcher", "proxyStatsMatcher", Kind::Any),
        f("HoldApplicationUntilProxyStarts", "holdApplicationUntilProxyStarts", Kind::Pointer(&BOOL_VALUE)),
        f("CaCertificatesPem", "caCertificatesPem", Kind::List(&Kind::Text)),
        f("Image", "image", Kind::Pointer(&PROXY_IMAGE)),
        f("PrivateKeyProvider", "privateKeyProvider", Kind::Any),
        f("ProxyHeaders", "proxyHeaders", Kind::Any),
        f("FileFlushInterval", "fileFlushInterval", Kind::Text),
        f("FileFlushMinSizeKb", "fileFlushMinSizeKb", Kind::Int),
        f("StatsCompression", "statsCompression", Kind::Pointer(&BOOL_VALUE)),
        f("ConnectionSettings", "connectionSettings", Kind::Any),
    ],
);

/// The mesh configuration.
pub static MESH_CONFIG: Shape = message(
    "meshconfig.MeshConfig",
    &[
        f("ProxyListenPort", "proxyListenPort", Kind::Int),
        f("ProxyInboundListenPort", "proxyInboundListenPort", Kind::Int),
        f("ProxyHttpPort", "proxyHttpPort", Kind::Int),
        f("ConnectTimeout", "connectTimeout", Kind::Text),
        f("IngressClass", "ingressClass", Kind::Text),
        f("IngressService", "ingressService", Kind::Text),
        f("IngressSelector", "ingressSelector", Kind::Text),
        f("EnableTracing", "enableTracing", Kind::Bool),
        f("AccessLogFile", "accessLogFile", Kind::Text),
        f("AccessLogFormat", "accessLogFormat", Kind::Text),
        f("EnableEnvoyAccessLogService", "enableEnvoyAccessLogService", Kind::Bool),
        f("DefaultConfig", "defaultConfig", Kind::Pointer(&PROXY_CONFIG)),
        f("TrustDomain", "trustDomain", Kind::Text),
        f("TrustDomainAliases", "trustDomainAliases", Kind::List(&Kind::Text)),
        f("RootNamespace", "rootNamespace", Kind::Text),
        f("EnableAutoMtls", "enableAutoMtls", Kind::Pointer(&BOOL_VALUE)),
        f("EnablePrometheusMerge", "enablePrometheusMerge", Kind::Pointer(&BOOL_VALUE)),
        f("OutboundTrafficPolicy", "outboundTrafficPolicy", Kind::Any),
        f("InboundTrafficPolicy", "inboundTrafficPolicy", Kind::Any),
        f("ExtensionProviders", "extensionProviders", Kind::Any),
        f("DefaultProviders", "defaultProviders", Kind::Any),
        f("AuthPolicy", "authPolicy", Kind::Enum(&[("NONE", 0), ("MUTUAL_TLS", 1)])),
        f("SdsUdsPath", "sdsUdsPath", Kind::Text),
        f("EnableSdsTokenMount", "enableSdsTokenMount", Kind::Bool),
    ],
);
