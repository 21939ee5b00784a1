//! Mesh and proxy configuration as protobuf's Go types name them: `.MeshConfig` and `.ProxyConfig` of templates of
//! every release that is known.

use crate::inject::template::{Field, Kind, Shape};

const fn field(name: &'static str, json: &'static str, kind: Kind) -> Field {
    Field::new(name, json, kind)
}

const fn message(name: &'static str, fields: &'static [Field]) -> Shape {
    Shape { name, fields, getters: true }
}

/// How a wrapper of a scalar is asked: absent it is nothing, and its getter is the scalar's zero.
macro_rules! wrapper {
    ($name:ident, $go:literal, $kind:expr) => {
        static $name: Shape = message($go, &[field("Value", "", $kind)]);
    };
}

wrapper!(BOOL_VALUE, "wrapperspb.BoolValue", Kind::Bool);
wrapper!(INT32_VALUE, "wrapperspb.Int32Value", Kind::Int);

/// The mesh's configuration.
pub(super) static MESH_CONFIG: Shape = message(
    "v1alpha1.MeshConfig",
    &[
        field("ProxyListenPort", "proxyListenPort", Kind::Int),
        field("ProxyInboundListenPort", "proxyInboundListenPort", Kind::Int),
        field("ProxyHttpPort", "proxyHttpPort", Kind::Int),
        field("ConnectTimeout", "connectTimeout", Kind::Text),
        field("IngressClass", "ingressClass", Kind::Text),
        field("IngressService", "ingressService", Kind::Text),
        field("EnableTracing", "enableTracing", Kind::Bool),
        field("AccessLogFile", "accessLogFile", Kind::Text),
        field("AccessLogFormat", "accessLogFormat", Kind::Text),
        field("AccessLogEncoding", "accessLogEncoding", Kind::Enum(&[("TEXT", 0), ("JSON", 1)])),
        field("EnableEnvoyAccessLogService", "enableEnvoyAccessLogService", Kind::Bool),
        field("DisableMixerHttpReports", "disableMixerHttpReports", Kind::Bool),
        field("DefaultConfig", "defaultConfig", Kind::Pointer(&PROXY_CONFIG)),
        field("OutboundTrafficPolicy", "outboundTrafficPolicy", Kind::Any),
        field("InboundTrafficPolicy", "inboundTrafficPolicy", Kind::Any),
        field("TrustDomain", "trustDomain", Kind::Text),
        field("TrustDomainAliases", "trustDomainAliases", Kind::List(&Kind::Text)),
        field("RootNamespace", "rootNamespace", Kind::Text),
        field("EnableAutoMtls", "enableAutoMtls", Kind::Pointer(&BOOL_VALUE)),
        field("EnablePrometheusMerge", "enablePrometheusMerge", Kind::Pointer(&BOOL_VALUE)),
        field("VerifyCertificateAtClient", "verifyCertificateAtClient", Kind::Pointer(&BOOL_VALUE)),
        field("SdsUdsPath", "sdsUdsPath", Kind::Text),
        field("EnableSdsTokenMount", "enableSdsTokenMount", Kind::Bool),
        field("SdsUseK8sSaJwt", "sdsUseK8sSaJwt", Kind::Bool),
        field("ExtensionProviders", "extensionProviders", Kind::List(&Kind::Any)),
        field("DefaultProviders", "defaultProviders", Kind::Any),
        field("MeshMTLS", "meshMTLS", Kind::Any),
    ],
);

/// The configuration of a proxy, in the order in which protobuf's JSON has its fields.
pub(super) static PROXY_CONFIG: Shape = message(
    "v1alpha1.ProxyConfig",
    &[
        field("ConfigPath", "configPath", Kind::Text),
        field("BinaryPath", "binaryPath", Kind::Text),
        field("ServiceCluster", "serviceCluster", Kind::Text),
        field("TracingServiceName", "tracingServiceName", Kind::Any),
        field("DrainDuration", "drainDuration", Kind::Text),
        field("ParentShutdownDuration", "parentShutdownDuration", Kind::Text),
        field("DiscoveryAddress", "discoveryAddress", Kind::Text),
        field("DiscoveryRefreshDelay", "discoveryRefreshDelay", Kind::Text),
        field("ZipkinAddress", "zipkinAddress", Kind::Text),
        field("ConnectTimeout", "connectTimeout", Kind::Text),
        field("StatsdUdpAddress", "statsdUdpAddress", Kind::Text),
        field("EnvoyMetricsServiceAddress", "envoyMetricsServiceAddress", Kind::Text),
        field("ProxyAdminPort", "proxyAdminPort", Kind::Int),
        field("AvailabilityZone", "availabilityZone", Kind::Text),
        field("ControlPlaneAuthPolicy", "controlPlaneAuthPolicy", Kind::Enum(&[("NONE", 0), ("MUTUAL_TLS", 1)])),
        field("CustomConfigFile", "customConfigFile", Kind::Text),
        field("StatNameLength", "statNameLength", Kind::Int),
        field("Concurrency", "concurrency", Kind::Pointer(&INT32_VALUE)),
        field("ProxyBootstrapTemplatePath", "proxyBootstrapTemplatePath", Kind::Text),
        field("InterceptionMode", "interceptionMode", Kind::Enum(&[("REDIRECT", 0), ("TPROXY", 1), ("NONE", 2)])),
        field("Tracing", "tracing", Kind::Pointer(&TRACING)),
        field("Sds", "sds", Kind::Any),
        field("EnvoyAccessLogService", "envoyAccessLogService", Kind::Pointer(&REMOTE_SERVICE)),
        field("EnvoyMetricsService", "envoyMetricsService", Kind::Pointer(&REMOTE_SERVICE)),
        field("ProxyMetadata", "proxyMetadata", Kind::TEXTS),
        field("StatusPort", "statusPort", Kind::Int),
        field("ExtraStatTags", "extraStatTags", Kind::List(&Kind::Text)),
        field("GatewayTopology", "gatewayTopology", Kind::Any),
        field("TerminationDrainDuration", "terminationDrainDuration", Kind::Text),
        field("MeshId", "meshId", Kind::Text),
        field("ReadinessProbe", "readinessProbe", Kind::Any),
        field("ProxyStatsMatcher", "proxyStatsMatcher", Kind::Any),
        field("HoldApplicationUntilProxyStarts", "holdApplicationUntilProxyStarts", Kind::Pointer(&BOOL_VALUE)),
        field("CaCertificatesPem", "caCertificatesPem", Kind::List(&Kind::Text)),
        field("Image", "image", Kind::Pointer(&IMAGE)),
        field("PrivateKeyProvider", "privateKeyProvider", Kind::Any),
        field("ProxyHeaders", "proxyHeaders", Kind::Any),
        field("FileFlushInterval", "fileFlushInterval", Kind::Any),
        field("FileFlushMinSizeKb", "fileFlushMinSizeKb", Kind::Any),
        field("StatsEvictionInterval", "statsEvictionInterval", Kind::Any),
    ],
);

static IMAGE: Shape = message("v1beta1.ProxyImage", &[field("ImageType", "imageType", Kind::Text)]);

static REMOTE_SERVICE: Shape = message(
    "v1alpha1.RemoteService",
    &[
        field("Address", "address", Kind::Text),
        field("TlsSettings", "tlsSettings", Kind::Pointer(&TLS_SETTINGS)),
        field("TcpKeepalive", "tcpKeepalive", Kind::Any),
    ],
);

static TRACING: Shape = message(
    "v1alpha1.Tracing",
    &[
        field("Zipkin", "zipkin", Kind::Pointer(&ADDRESS)),
        field("Lightstep", "lightstep", Kind::Pointer(&LIGHTSTEP)),
        field("Datadog", "datadog", Kind::Pointer(&ADDRESS)),
        field("Stackdriver", "stackdriver", Kind::Pointer(&STACKDRIVER)),
        field("OpenCensusAgent", "openCensusAgent", Kind::Any),
        field("CustomTags", "customTags", Kind::Map(&Kind::Any)),
        field("MaxPathTagLength", "maxPathTagLength", Kind::Int),
        field("Sampling", "sampling", Kind::Any),
        field("TlsSettings", "tlsSettings", Kind::Pointer(&TLS_SETTINGS)),
    ],
);

static ADDRESS: Shape = message("v1alpha1.Tracing_Collector", &[field("Address", "address", Kind::Text)]);

static LIGHTSTEP: Shape = message(
    "v1alpha1.Tracing_Lightstep",
    &[
        field("Address", "address", Kind::Text),
        field("AccessToken", "accessToken", Kind::Text),
        field("Secure", "secure", Kind::Bool),
        field("CacertPath", "cacertPath", Kind::Text),
    ],
);

static STACKDRIVER: Shape = message(
    "v1alpha1.Tracing_Stackdriver",
    &[
        field("Debug", "debug", Kind::Bool),
        field("MaxNumberOfAttributes", "maxNumberOfAttributes", Kind::Pointer(&INT32_VALUE)),
        field("MaxNumberOfAnnotations", "maxNumberOfAnnotations", Kind::Pointer(&INT32_VALUE)),
        field("MaxNumberOfMessageEvents", "maxNumberOfMessageEvents", Kind::Pointer(&INT32_VALUE)),
    ],
);

static TLS_SETTINGS: Shape = message(
    "v1alpha3.ClientTLSSettings",
    &[
        field("Mode", "mode", Kind::Enum(&[("DISABLE", 0), ("SIMPLE", 1), ("MUTUAL", 2), ("ISTIO_MUTUAL", 3)])),
        field("ClientCertificate", "clientCertificate", Kind::Text),
        field("PrivateKey", "privateKey", Kind::Text),
        field("CaCertificates", "caCertificates", Kind::Text),
        field("CredentialName", "credentialName", Kind::Text),
        field("SubjectAltNames", "subjectAltNames", Kind::List(&Kind::Text)),
        field("Sni", "sni", Kind::Text),
    ],
);
