//! The kinds of values, and the values whose kind their defaults do not show.

use serde_json::{Map, Value, json};

use super::kubernetes::{AFFINITY, PEER, RESOURCES, SECCOMP_PROFILE, SELINUX_OPTIONS, TOLERATION, UPDATE_STRATEGY};

/// A kind of value. `null` stands for the default and is permitted for each kind. Templates also accept strings as flags, numbers and lists
/// of names, as `--set-string` passes them, and numbers and booleans as strings.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    Any,
    Flag,
    Text,
    /// A string, or an integer, as which YAML reads a tag such as 20241101. A fraction is refused, because YAML turns the tag 1.30 into
    /// 1.3.
    TextOrInteger,
    /// A number, a boolean or a string, as for an environment variable.
    Scalar,
    /// An integer that is at least the first, and at most the second number.
    Integer(u64, Option<u64>),
    /// An integer in Kubernetes' types, which do not accept it as a string.
    StrictInteger(i64, Option<i64>),
    /// A number of objects, or a percentage.
    CountOrPercent,
    /// An amount of a resource.
    Quantity,
    /// One of these words.
    Word(&'static [&'static str]),
    /// One of these words, which YAML reads as booleans or numbers if they are not quoted.
    LooseWord(&'static [&'static str]),
    /// A string that matches a pattern, and an example of it.
    Form(&'static str, &'static str),
    /// Like `Form`; numbers and booleans match, too.
    LooseForm(&'static str, &'static str),
    List(&'static Kind),
    /// A list of names that match a pattern, which is given without `^` and `$`, or a string with these names and commas; and an example.
    Names(&'static str, &'static str),
    /// A map with names of the user's choice that match a pattern.
    Map(&'static str, &'static Kind),
    /// A map with these names only.
    Object(&'static [(&'static str, Kind)]),
}

impl Kind {
    pub(super) fn schema(self) -> Value {
        match self {
            Self::Any => json!({}),
            Self::Flag => json!({ "type": ["boolean", "string", "null"], "pattern": "^(true|false)$" }),
            Self::Text => json!({ "type": ["string", "null"] }),
            Self::TextOrInteger => json!({ "type": ["string", "integer", "null"] }),
            Self::Scalar => json!({ "type": ["string", "number", "boolean", "null"] }),
            Self::Integer(least, most) => integer(least, most),
            Self::StrictInteger(least, None) => json!({ "type": ["integer", "null"], "minimum": least }),
            Self::StrictInteger(least, most) => {
                json!({ "type": ["integer", "null"], "minimum": least, "maximum": most })
            }
            Self::CountOrPercent => {
                json!({ "type": ["integer", "string", "null"], "minimum": 0, "pattern": "^(100|[1-9]?[0-9])%$" })
            }
            Self::Quantity => {
                let pattern = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$";
                json!({ "type": ["string", "number", "null"], "minimum": 0, "pattern": pattern, "examples": ["7m"] })
            }
            Self::Word(words) => worded(&["string", "null"], &json!(words)),
            Self::LooseWord(words) => {
                let numbers = words.iter().filter_map(|word| serde_json::from_str::<Value>(word).ok());
                let all: Value = words.iter().map(|word| json!(word)).chain(numbers).collect();
                worded(&["string", "number", "boolean", "null"], &all)
            }
            Self::Form(pattern, example) => {
                json!({ "type": ["string", "null"], "pattern": pattern, "examples": [example] })
            }
            Self::LooseForm(pattern, example) => {
                let types = ["string", "integer", "boolean", "null"];
                json!({ "type": types, "pattern": pattern, "examples": [example] })
            }
            Self::List(kind) => json!({ "type": ["array", "null"], "items": without_null(kind.schema()) }),
            Self::Names(name, example) => {
                let all = format!("^({name}(, *{name})*)?$");
                let items = json!({ "type": "string", "pattern": all, "examples": [example] });
                json!({ "type": ["array", "string", "null"], "items": items, "pattern": all })
            }
            Self::Map(names, kind) => json!({
                "type": ["object", "null"],
                "propertyNames": { "pattern": names },
                "additionalProperties": kind.schema(),
            }),
            Self::Object(fields) => {
                object(&fields.iter().map(|(name, kind)| ((*name).to_owned(), kind.schema())).collect())
            }
        }
    }
}

/// Returns the schema without `null`, which does not stand for a default in a list.
fn without_null(mut schema: Value) -> Value {
    if let Some(types) = schema["type"].as_array_mut() {
        types.retain(|kind| kind != "null");
    }
    schema
}

/// Returns the schema of an integer, which may also be a string.
fn integer(least: u64, most: Option<u64>) -> Value {
    let pattern = match (least, most) {
        (_, Some(most)) => {
            let all: Vec<String> = (least..=most).map(|number| number.to_string()).collect();
            format!("^({})$", all.join("|"))
        }
        (0, None) => "^(0|[1-9][0-9]{0,17})$".to_owned(),
        (_, None) => "^[1-9][0-9]{0,17}$".to_owned(),
    };
    let mut schema = json!({ "type": ["integer", "string", "null"], "minimum": least, "pattern": pattern });
    if let Some(most) = most {
        schema["maximum"] = json!(most);
    }
    schema
}

/// Returns the schema of words. helm prints the whole `enum` in an error, so `null` is not in it.
fn worded(types: &[&str], words: &Value) -> Value {
    json!({ "type": types, "if": { "not": { "type": "null" } }, "then": { "enum": words } })
}

/// Returns the schema of a map with these names only.
pub(super) fn object(properties: &Map<String, Value>) -> Value {
    json!({ "type": ["object", "null"], "additionalProperties": false, "properties": properties })
}

/// Returns the schema of a map with these names and others.
pub(super) fn open(properties: &Map<String, Value>) -> Value {
    json!({ "type": ["object", "null"], "properties": properties })
}

/// Returns the kind of a value, derived from its default.
pub(super) fn like(default: &Value) -> Kind {
    match default {
        Value::Bool(_) => Kind::Flag,
        Value::Number(_) => Kind::Integer(0, None),
        Value::Array(_) => Kind::Names(r"[^,\s]+", "name"),
        _ => Kind::Text,
    }
}

/// An absolute path below the root, without `..`.
macro_rules! path {
    () => {
        r"(/+([^/.\n][^/\n]*|\.[^/.\n][^/\n]*|\.\.[^/\n]+))+/*"
    };
}

const PATH: Kind = Kind::Form(concat!("^", path!(), "$"), "/etc/containerd");
const LEVELS: Kind =
    Kind::Form(r"^( *([^:, ]+:)?(debug|info|warn|error|fatal|none) *(,|$))*$", "default:info,cni-plugin:debug");
/// The name of a file, neither `.` nor `..` nor blank.
const FILE_NAME: Kind = Kind::Form(r"^([^/\n]*[^/.\s][^/\n]*)?$", "10-network.conflist");
/// The name of a label or an annotation.
const KEY: &str = r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$";
const LABEL_KEY: Kind = Kind::Form(KEY, "example.com/broken");
const LABEL_VALUE: &str = "^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$";
const LABEL: Kind = Kind::LooseForm(LABEL_VALUE, "canary");
const NAME: Kind = Kind::Form("^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "canary");
const NAMESPACES: Kind = Kind::Names("[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", "team-a");
/// A registry, or a repository's path in it.
const HUB: Kind = Kind::Form(r"^([^\s/]+(/[^\s/]+)*)?$", "registry.example.com/mesh");
/// The name of an image, or a whole reference.
const IMAGE: Kind = Kind::Form(r"^[^\s/]+(/[^\s/]+)*$", "registry.example.com/mesh/agent:1");
/// A Prometheus duration.
const INTERVAL: Kind = Kind::Form("^(([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?)$", "30s");
/// A Go duration.
const DURATION: Kind = Kind::Form(r"^([0-9]+(\.[0-9]+)?(ms|s|m|h))*$", "2m");
/// The URL of a page, without a fragment.
const URL: Kind = Kind::Form(r#"^(https?://[^\s#$'"{}\\]+)?$"#, "https://wiki.example.com/mesh/alerts.md");
pub(super) const CIDR: Kind = Kind::Form(
    r"^([0-9]{1,3}(\.[0-9]{1,3}){3}/([12]?[0-9]|3[0-2])|[0-9a-fA-F]*:[0-9a-fA-F:.]*/([1-9]?[0-9]|1[01][0-9]|12[0-8]))$",
    "10.0.0.1/32",
);
const LABELS: Kind = Kind::Map(KEY, &Kind::Form(LABEL_VALUE, "canary"));
const ANNOTATIONS: Kind = Kind::Map(KEY, &Kind::Text);
const VARIABLES: Kind = Kind::Map("^[-._a-zA-Z][-._a-zA-Z0-9]*$", &Kind::Scalar);

const PLATFORM: Kind = Kind::Word(&["", "gke", "openshift", "k3s", "k3d", "microk8s", "minikube"]);
/// Profiles of Istio's charts, then those of istioctl.
const PROFILES: &[&str] = &[
    "",
    "ambient",
    "demo",
    "preview",
    "remote",
    "stable",
    "default",
    "empty",
    "minimal",
    "openshift",
    "openshift-ambient",
];
const PROFILE: Kind = Kind::Word(PROFILES);
const FAILURE_POLICY: Kind = Kind::Word(&["Fail", "Ignore"]);
const PULL_POLICY: Kind = Kind::Word(&["", "Always", "IfNotPresent", "Never"]);
/// The versions for which Istio's releases have a profile.
const VERSIONS: Kind =
    Kind::LooseWord(&["", "1.20", "1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27", "1.28", "1.29", "1.30"]);
const MODES: Kind = Kind::Word(&["", "evict", "delete", "label", "repair", "repair-or-evict", "observe"]);

/// Values by their paths, in both charts.
const KINDS: &[(&[&str], Kind)] = &[
    (&["hub", "global.hub"], HUB),
    (&["image"], IMAGE),
    (&["tag", "global.tag"], Kind::TextOrInteger),
    (&["excludeNamespaces"], NAMESPACES),
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
    (&["useAppArmorAnnotation"], Kind::Flag),
    (&["updateStrategy"], UPDATE_STRATEGY),
    (&["seccompProfile"], SECCOMP_PROFILE),
    (&["seLinuxOptions"], SELINUX_OPTIONS),
    (&["resources", "global.defaultResources"], RESOURCES),
    (&["affinity"], AFFINITY),
    (&["tolerations"], Kind::List(&TOLERATION)),
    (&["env", "dapr.env"], VARIABLES),
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
    (&["nativeSidecars"], Kind::LooseWord(&["auto", "true", "false"])),
    (&["certificate.days"], Kind::Integer(1, None)),
    (&["sidecarInjectorWebhook.reinvocationPolicy"], Kind::Word(&["Never", "IfNeeded"])),
    (&["sidecarInjectorWebhook.failurePolicy", "dapr.failurePolicy"], FAILURE_POLICY),
    (&["sidecarInjectorWebhook.timeoutSeconds"], Kind::Integer(1, Some(30))),
    (&["sidecarInjectorWebhook.injectionPath"], Kind::Form("^/", "/inject/cluster/c1")),
    (&["dapr.release"], Kind::Word(&["current", "1.4"])),
    (&["dapr.watchdog.interval"], DURATION),
    (&["dapr.watchdog.podsPerMinute"], Kind::Integer(1, None)),
];

/// Returns the kind of the value at this path, if its default does not show it.
pub(super) fn of(path: &str) -> Option<Kind> {
    KINDS.iter().find(|(paths, _)| paths.contains(&path)).map(|(_, kind)| *kind)
}
