//! Parses a pod's `dapr.io/…` annotations into typed options.
//!
//! An invalid annotation is ignored with a warning for the pod's creator.

use std::collections::{BTreeMap, HashSet};

use super::era::{Era, truthy, truthy_1_4_2};

/// The prefix of Dapr's annotations.
const PREFIX: &str = "dapr.io/";

/// A pod's Dapr annotations, and the warnings from parsing them.
pub(super) struct Annotations<'a> {
    /// The values by key without the prefix.
    map: BTreeMap<&'a str, &'a str>,
    era: Era,
    pub(super) warnings: Vec<String>,
}

impl<'a> Annotations<'a> {
    pub(super) fn new(all: &BTreeMap<&'a str, Option<&'a str>>, era: Era) -> Self {
        let own =
            |(key, value): (&&'a str, &Option<&'a str>)| Some((key.strip_prefix(PREFIX)?, value.unwrap_or_default()));
        Self { map: all.iter().filter_map(own).collect(), era, warnings: Vec::new() }
    }

    /// Returns the annotation if it is set; in release 1.4.2 an empty one is treated as absent.
    pub(super) fn given(&self, key: &str) -> Option<&'a str> {
        let value = self.map.get(key).copied()?;
        (self.era == Era::Current || !value.is_empty()).then_some(value)
    }

    pub(super) fn text(&self, key: &str, default: &'a str) -> &'a str {
        self.given(key).unwrap_or(default)
    }

    pub(super) fn flag(&self, key: &str, default: bool) -> bool {
        let truthy = if self.era == Era::Current { truthy } else { truthy_1_4_2 };
        self.given(key).map_or(default, truthy)
    }

    /// Parses an integer; an invalid one is ignored with a warning.
    pub(super) fn number<T: TryFrom<i64>>(&mut self, key: &str) -> Option<T> {
        let value = self.given(key)?;
        let number = value.parse::<i64>().ok().and_then(|number| T::try_from(number).ok());
        if number.is_none() {
            let value = shown(value);
            self.warnings.push(format!("{PREFIX}{key}: {value} is not a whole number in range and is ignored"));
        }
        number
    }

    /// Returns an annotation that is an address, without surrounding quotes and without white space inside them.
    fn address(&self, key: &str) -> Option<&'a str> {
        self.given(key).map(|value| value.trim_matches(['"', '\'']).trim())
    }

    fn probe(&mut self, which: &str, default: Probe) -> Probe {
        let mut number = |name: &str, default| self.number(&format!("sidecar-{which}-probe-{name}")).unwrap_or(default);
        Probe {
            delay: number("delay-seconds", default.delay),
            timeout: number("timeout-seconds", default.timeout),
            period: number("period-seconds", default.period),
            threshold: number("threshold", default.threshold),
        }
    }
}

/// The maximum number of characters of a value that a warning quotes. Reasons in logs and responses have the same
/// limit.
const LONGEST_SHOWN: usize = 2048;

/// Quotes a value for a warning, truncated if it is long.
pub(super) fn shown(value: &str) -> String {
    match value.char_indices().nth(LONGEST_SHOWN) {
        None => format!("{value:?}"),
        Some((end, _)) => format!("{:?}…", &value[..end]),
    }
}

/// A health probe of the sidecar: durations in seconds, and the failure threshold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) delay: i32,
    pub(super) timeout: i32,
    pub(super) period: i32,
    pub(super) threshold: i32,
}

/// Health checks of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Health<'a> {
    pub(super) path: &'a str,
    /// Seconds.
    pub(super) interval: i32,
    /// Milliseconds.
    pub(super) timeout: i32,
    pub(super) threshold: i32,
}

/// Options of the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct App<'a> {
    pub(super) port: i32,
    pub(super) protocol: &'a str,
    pub(super) ssl: bool,
    pub(super) max_concurrency: Option<i64>,
    pub(super) channel_address: &'a str,
    pub(super) token_secret: &'a str,
    pub(super) binding_timeout: Option<&'a str>,
    pub(super) health: Option<Health<'a>>,
}

/// The sidecar's ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) grpc: i32,
    pub(super) internal: i32,
    pub(super) metrics: i32,
    /// The debugger's port.
    pub(super) debug: Option<i32>,
}

/// The sidecar's resource requests and limits, as quantities that are not parsed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resources<'a> {
    pub(super) cpu_request: &'a str,
    pub(super) memory_request: &'a str,
    pub(super) cpu_limit: &'a str,
    pub(super) memory_limit: &'a str,
}

/// Message size limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sizes<'a> {
    pub(super) http_max_request: Option<i64>,
    pub(super) max_body: &'a str,
    pub(super) http_read_buffer: Option<i64>,
    pub(super) read_buffer: &'a str,
}

/// The options of pluggable components, which are containers of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pluggable<'a> {
    /// The names of the component containers; whitespace is part of a name.
    names: HashSet<&'a str>,
    pub(super) folder: &'a str,
    pub(super) inject: bool,
}

/// The options that a pod's annotations set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Options<'a> {
    pub(super) app: App<'a>,
    pub(super) ports: Ports,
    pub(super) liveness: Probe,
    pub(super) readiness: Probe,
    pub(super) resources: Resources<'a>,
    pub(super) sizes: Sizes<'a>,
    pub(super) pluggable: Pluggable<'a>,
    pub(super) metrics: bool,
    pub(super) image: Option<&'a str>,
    pub(super) config: &'a str,
    pub(super) log_level: &'a str,
    pub(super) log_as_json: bool,
    pub(super) profiling: bool,
    pub(super) api_logging: Option<bool>,
    pub(super) api_token_secret: &'a str,
    pub(super) env: &'a str,
    pub(super) env_from_secret: &'a str,
    pub(super) listen_addresses: &'a str,
    pub(super) seccomp: &'a str,
    pub(super) graceful_seconds: i64,
    pub(super) block_shutdown: Option<&'a str>,
    pub(super) disseminate_timeout: Option<&'a str>,
    pub(super) socket_path: &'a str,
    pub(super) mounts: &'a str,
    pub(super) mounts_rw: &'a str,
    pub(super) no_secret_store: bool,
    pub(super) placement: Option<&'a str>,
    pub(super) scheduler: Option<&'a str>,
    pub(super) jwt_audiences: &'a str,
    pub(super) disable_init_endpoints: Option<&'a str>,
    pub(super) native: Option<bool>,
    /// Whether to exclude the sidecar's ports from Istio's redirection. The annotation is this project's, not Dapr's.
    pub(super) exclude_ports: bool,
}

impl<'a> Options<'a> {
    /// Parses all annotations except the app id.
    pub(super) fn read(from: &mut Annotations<'a>) -> Self {
        let (liveness, readiness) = probes(from);
        Self {
            app: App::read(from),
            ports: Ports::read(from),
            liveness,
            readiness,
            resources: Resources::read(from),
            sizes: Sizes::read(from),
            pluggable: Pluggable::read(from),
            metrics: from.flag("enable-metrics", true),
            image: from.given("sidecar-image"),
            config: from.text("config", ""),
            log_level: from.text("log-level", "info"),
            log_as_json: from.flag("log-as-json", false),
            profiling: from.flag("enable-profiling", false),
            api_logging: from.given("enable-api-logging").map(truthy),
            api_token_secret: from.text("api-token-secret", ""),
            env: from.text("env", ""),
            env_from_secret: from.text("env-from-secret", ""),
            listen_addresses: from.text("sidecar-listen-addresses", "[::1],127.0.0.1"),
            seccomp: from.text("sidecar-seccomp-profile-type", ""),
            graceful_seconds: from.number("graceful-shutdown-seconds").unwrap_or(-1),
            block_shutdown: from.given("block-shutdown-duration"),
            disseminate_timeout: from.given("actors-disseminate-timeout"),
            socket_path: from.text("unix-domain-socket-path", ""),
            mounts: from.text("volume-mounts", ""),
            mounts_rw: from.text("volume-mounts-rw", ""),
            no_secret_store: from.flag("disable-builtin-k8s-secret-store", false),
            placement: from.address("placement-host-address"),
            scheduler: from.address("scheduler-host-address"),
            jwt_audiences: from.text("sentry-request-jwt-audiences", ""),
            disable_init_endpoints: from.given("disable-init-endpoints"),
            native: from.given("enable-native-sidecar").map(truthy),
            exclude_ports: from.flag("exclude-ports-from-redirection", false),
        }
    }

    /// Returns the value of the variable `APP_PROTOCOL`; empty for an unknown protocol.
    pub(super) fn app_protocol(&self) -> &'static str {
        let protocol = self.app.protocol.to_ascii_lowercase();
        match (protocol.as_str(), self.app.ssl) {
            ("grpcs", _) | ("grpc", true) => "grpcs",
            ("https", _) | ("http", true) => "https",
            ("h2c", _) => "h2c",
            ("http", false) | ("", _) => "http",
            ("grpc", false) => "grpc",
            _ => "",
        }
    }
}

/// Parses the liveness and readiness probes. The defaults for current releases are the defaults of Dapr 1.18.
fn probes(from: &mut Annotations<'_>) -> (Probe, Probe) {
    let old = Probe { delay: 3, timeout: 3, period: 6, threshold: 3 };
    let (liveness, readiness) = match from.era {
        Era::V1_4_2 => (old, old),
        Era::Current => (
            Probe { delay: 180, timeout: 3, period: 10, threshold: 5 },
            Probe { delay: 1, timeout: 1, period: 1, threshold: 5 },
        ),
    };
    (from.probe("liveness", liveness), from.probe("readiness", readiness))
}

impl<'a> App<'a> {
    fn read(from: &mut Annotations<'a>) -> Self {
        Self {
            port: from.number("app-port").unwrap_or(0),
            protocol: from.text("app-protocol", "http"),
            ssl: from.flag("app-ssl", false),
            max_concurrency: from.number("app-max-concurrency"),
            channel_address: from.text("app-channel-address", ""),
            token_secret: from.text("app-token-secret", ""),
            binding_timeout: from.given("app-binding-options-timeout"),
            health: from.flag("enable-app-health-check", false).then(|| Health::read(from)),
        }
    }
}

impl<'a> Health<'a> {
    fn read(from: &mut Annotations<'a>) -> Self {
        Self {
            path: from.text("app-health-check-path", "/healthz"),
            interval: from.number("app-health-probe-interval").unwrap_or(5),
            timeout: from.number("app-health-probe-timeout").unwrap_or(500),
            threshold: from.number("app-health-threshold").unwrap_or(3),
        }
    }
}

impl Ports {
    fn read(from: &mut Annotations<'_>) -> Self {
        Self {
            grpc: from.number("grpc-port").unwrap_or(50001),
            internal: from.number("internal-grpc-port").unwrap_or(50002),
            metrics: from.number("metrics-port").unwrap_or(9090),
            debug: from.flag("enable-debug", false).then(|| from.number("debug-port").unwrap_or(40000)),
        }
    }
}

impl<'a> Resources<'a> {
    fn read(from: &Annotations<'a>) -> Self {
        Self {
            cpu_request: from.text("sidecar-cpu-request", ""),
            memory_request: from.text("sidecar-memory-request", ""),
            cpu_limit: from.text("sidecar-cpu-limit", ""),
            memory_limit: from.text("sidecar-memory-limit", ""),
        }
    }
}

impl<'a> Sizes<'a> {
    fn read(from: &mut Annotations<'a>) -> Self {
        Self {
            http_max_request: from.number("http-max-request-size"),
            max_body: from.text("max-body-size", ""),
            http_read_buffer: from.number("http-read-buffer-size"),
            read_buffer: from.text("read-buffer-size", ""),
        }
    }
}

impl<'a> Pluggable<'a> {
    fn read(from: &Annotations<'a>) -> Self {
        Self {
            names: from.text("pluggable-components", "").split(',').collect(),
            folder: from.text("pluggable-components-sockets-folder", ""),
            inject: from.flag("inject-pluggable-components", false),
        }
    }

    pub(super) fn contains(&self, container: &str) -> bool {
        self.names.contains(container)
    }
}
