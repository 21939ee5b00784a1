//! The kinds of values, and the values whose kind their defaults do not show.

use serde_json::{Map, Value, json};

use super::kubernetes::{AFFINITY, PEER, RESOURCES, SECCOMP_PROFILE, SELINUX_OPTIONS, TOLERATION, UPDATE_STRATEGY};

/// A kind of value. `null` stands for the default and is of each kind.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Any,
    Flag,
    Text,
    /// Text, or a number that YAML makes of it, such as a tag 1.30.
    TextOrNumber,
    /// A number, a boolean or a text, as for a variable of the environment.
    Scalar,
    /// An integer that is at least the first, and at most the second number.
    Integer(i64, Option<i64>),
    /// A number of objects, also as text.
    Count,
    /// A number of objects, or a percentage.
    CountOrPercent,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words; `true` and `false` also as booleans.
    WordOrFlag(&'static [&'static str]),
    /// Text that matches a pattern, and an example of it.
    Form(&'static str, &'static str),
    List(&'static Kind),
    /// A map with names of the user's choice.
    Map(&'static Kind),
    /// A map with these names only.
    Object(&'static [(&'static str, Kind)]),
}

impl Kind {
    pub(super) fn schema(self) -> Value {
        let digits = "^[0-9]+$";
        match self {
            Self::Any => json!({}),
            Self::Flag => json!({ "type": ["boolean", "null"] }),
            Self::Text => json!({ "type": ["string", "null"] }),
            Self::TextOrNumber => json!({ "type": ["string", "number", "null"] }),
            Self::Scalar => json!({ "type": ["string", "number", "boolean", "null"] }),
            Self::Integer(least, None) => json!({ "type": ["integer", "null"], "minimum": least }),
            Self::Integer(least, most) => {
                json!({ "type": ["integer", "null"], "minimum": least, "maximum": most })
            }
            Self::Count => json!({ "type": ["integer", "string", "null"], "minimum": 0, "pattern": digits }),
            Self::CountOrPercent => {
                json!({ "type": ["integer", "string", "null"], "minimum": 0, "pattern": "^[0-9]+%?$" })
            }
            Self::Word(words) => json!({ "enum": all(words, &[Value::Null]) }),
            Self::WordOrFlag(words) => json!({ "enum": all(words, &[json!(true), json!(false), Value::Null]) }),
            Self::Form(pattern, example) => {
                json!({ "type": ["string", "null"], "pattern": pattern, "examples": [example] })
            }
            Self::List(kind) => json!({ "type": ["array", "null"], "items": kind.schema() }),
            Self::Map(kind) => json!({ "type": ["object", "null"], "additionalProperties": kind.schema() }),
            Self::Object(fields) => {
                object(&fields.iter().map(|(name, kind)| ((*name).to_owned(), kind.schema())).collect())
            }
        }
    }
}

/// Words and further values.
fn all(words: &[&str], further: &[Value]) -> Vec<Value> {
    words.iter().map(|word| json!(word)).chain(further.iter().cloned()).collect()
}

/// The schema of a map with these names only.
pub(super) fn object(properties: &Map<String, Value>) -> Value {
    json!({ "type": ["object", "null"], "additionalProperties": false, "properties": properties })
}

/// The schema of a map with these names and others.
pub(super) fn open(properties: &Map<String, Value>) -> Value {
    json!({ "type": ["object", "null"], "properties": properties })
}

/// The kind of a value by its default.
pub(super) fn like(default: &Value) -> Kind {
    match default {
        Value::Bool(_) => Kind::Flag,
        Value::Number(_) => Kind::Integer(0, None),
        Value::Array(_) => Kind::List(&Kind::Text),
        _ => Kind::Text,
    }
}

/// An absolute path below the root, without `..`.
macro_rules! path {
    () => {
        r"(/+([^/.][^/]*|\.[^/.][^/]*|\.\.[^/]+))+/*"
    };
}

const PATH: Kind = Kind::Form(concat!("^", path!(), "$"), "/etc/containerd");
const LEVELS: Kind =
    Kind::Form(r"^( *([^:, ]+:)?(debug|info|warn|error|fatal|none) *(,|$))*$", "default:info,cni-plugin:debug");
const FILE_NAME: Kind = Kind::Form("^[^/]*$", "10-network.conflist");
const LABEL_KEY: Kind =
    Kind::Form(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", "example.com/broken");
const LABEL: Kind = Kind::Form("^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", "canary");
const NAME: Kind = Kind::Form("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "canary");
/// A duration of Prometheus.
const INTERVAL: Kind = Kind::Form("^([0-9]+(ms|s|m|h|d))*$", "30s");
/// A duration of Go.
const DURATION: Kind = Kind::Form(r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))*$", "2m");
/// The URL of a page, without a section.
const URL: Kind = Kind::Form(r#"^(https?://[^\s#$'"]+)?$"#, "https://wiki.example.com/mesh/alerts.md");
const CIDR: Kind = Kind::Form("^[0-9a-fA-F.:]+/[0-9]+$", "10.0.0.1/32");
const LABELS: Kind = Kind::Map(&LABEL);
const ANNOTATIONS: Kind = Kind::Map(&Kind::Text);

const PLATFORM: Kind = Kind::Word(&["", "gke", "openshift", "k3s", "k3d", "microk8s", "minikube"]);
const PROFILE: Kind = Kind::Word(&["", "ambient", "demo", "preview", "remote", "stable"]);
const FAILURE_POLICY: Kind = Kind::Word(&["Fail", "Ignore"]);
const PULL_POLICY: Kind = Kind::Word(&["", "Always", "IfNotPresent", "Never"]);
/// The versions for which Istio's releases have a profile.
const VERSIONS: Kind =
    Kind::Word(&["", "1.20", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27", "1.28", "1.29", "1.30"]);
const MODES: Kind = Kind::Word(&["", "evict", "delete", "label", "repair", "repair-or-evict", "observe"]);

/// Values by their paths, in both charts.
const KINDS: &[(&[&str], Kind)] = &[
    (&["tag", "global.tag"], Kind::TextOrNumber),
    (&["pullPolicy", "global.imagePullPolicy"], PULL_POLICY),
    (&["logging.level", "global.logging.level", "logLevel"], LEVELS),
    (&["cniBinDir"], Kind::Form(concat!("^(|auto|", path!(), ")$"), "/usr/libexec/cni")),
    (&["cniConfDir"], Kind::Form(concat!("^(auto|", path!(), ")$"), "/etc/cni/multus/net.d")),
    (&["cniNetnsDir"], PATH),
    (&["runtimeConfigDirs"], Kind::List(&PATH)),
    (&["cniConfFileName", "istioOwnedCNIConfigFileName"], FILE_NAME),
    (&["provider"], Kind::Word(&["default", "multus"])),
    (&["repair.mode"], MODES),
    (&["repair.brokenPodLabelKey", "taint.name"], LABEL_KEY),
    (&["repair.brokenPodLabelValue", "revision", "ownerName"], LABEL),
    (&["resourceQuotas.pods"], Kind::Count),
    (&["useAppArmorAnnotation"], Kind::Flag),
    (&["updateStrategy"], UPDATE_STRATEGY),
    (&["seccompProfile"], SECCOMP_PROFILE),
    (&["seLinuxOptions"], SELINUX_OPTIONS),
    (&["resources", "global.defaultResources"], RESOURCES),
    (&["affinity"], AFFINITY),
    (&["tolerations"], Kind::List(&TOLERATION)),
    (&["env", "dapr.env"], Kind::Map(&Kind::Scalar)),
    (&["daemonSetLabels", "podLabels", "nodeSelector"], LABELS),
    (&["monitoring.podMonitor.labels", "monitoring.serviceMonitor.labels"], LABELS),
    (&["monitoring.rules.labels", "monitoring.dashboards.labels"], LABELS),
    (&["podAnnotations", "serviceAnnotations", "monitoring.dashboards.annotations"], ANNOTATIONS),
    (&["monitoring.podMonitor.interval", "monitoring.serviceMonitor.interval"], INTERVAL),
    (&["monitoring.rules.runbook"], URL),
    (&["global.networkPolicy.scrapers"], Kind::List(&PEER)),
    (&["global.networkPolicy.apiServers"], Kind::List(&CIDR)),
    (&["global.resourceScope"], Kind::Word(&["all", "cluster", "namespace"])),
    (&["platform", "global.platform"], PLATFORM),
    (&["profile", "global.profile"], PROFILE),
    (&["compatibilityVersion"], VERSIONS),
    (&["revisionTags"], Kind::List(&NAME)),
    (&["istioNamespace"], NAME),
    (&["nativeSidecars"], Kind::WordOrFlag(&["auto", "true", "false"])),
    (&["certificate.days"], Kind::Integer(1, None)),
    (&["sidecarInjectorWebhook.reinvocationPolicy"], Kind::Word(&["Never", "IfNeeded"])),
    (&["sidecarInjectorWebhook.failurePolicy", "dapr.failurePolicy"], FAILURE_POLICY),
    (&["sidecarInjectorWebhook.timeoutSeconds"], Kind::Integer(1, Some(30))),
    (&["sidecarInjectorWebhook.injectionPath"], Kind::Form("^/", "/inject/cluster/c1")),
    (&["dapr.release"], Kind::Word(&["current", "1.4"])),
    (&["dapr.watchdog.interval"], DURATION),
    (&["dapr.watchdog.podsPerMinute"], Kind::Integer(1, None)),
];

/// The kind of the value with this path, if its default does not show it.
pub(super) fn of(path: &str) -> Option<Kind> {
    KINDS.iter().find(|(paths, _)| paths.contains(&path)).map(|(_, kind)| *kind)
}
