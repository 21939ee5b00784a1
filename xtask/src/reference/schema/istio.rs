//! Names in Istio's charts that `values.yaml` does not have.
//!
//! One file may have the values of a whole mesh, so each chart accepts the names in all of Istio's charts. Names that nothing here reads
//! may have any value. Names that the charts' templates refuse are also listed here, because the templates give a reason.

use super::kinds::{self, Kind};

/// Names under which Istio's charts, or this one, keep their defaults. They are in the values if an upgrade reuses the values of an earlier
/// release.
pub(super) const UNREAD_DEFAULTS: [(&str, &str); 2] = [
    ("defaults", "The defaults, as documentation; to change one, write it without this name."),
    ("_internal_defaults_do_not_set", "The defaults of Istio's charts, which are not read."),
];

/// Names in Istio's other charts, and in the file for a whole mesh.
const OTHERS: &[&str] = &[
    "base",
    "configMap",
    "defaultRevision",
    "experimental",
    "gatewayClasses",
    "gateways",
    "istio_cni",
    "istiodRemote",
    "meshConfig",
    "pilot",
    "revisionTags",
    "sidecarInjectorWebhook",
    "sidecarInjectorWebhookAnnotations",
    "telemetry",
    "trustedZtunnelName",
    "trustedZtunnelNamespace",
    "ztunnel",
];

/// Names at the top level of Istio's charts that have an effect or a kind here.
const WHOLE: &[&str] = &["compatibilityVersion", "platform", "profile"];

/// Names in Istio's chart of the node agent.
const AGENT: &[&str] = &["privileged", "psp_cluster_role", "rollingMaxUnavailable"];

const AMBIENT: Kind = Kind::Object(&[
    ("configDir", Kind::Any),
    ("dnsCapture", Kind::Any),
    ("enableAmbientDetectionRetry", Kind::Any),
    ("enabled", Kind::Any),
    ("enablementSelectors", Kind::Any),
    ("ipv6", Kind::Any),
    ("redirectMode", Kind::Any),
    ("reconcileIptablesOnStartup", Kind::Any),
    ("shareHostNetworkNamespace", Kind::Any),
]);

/// Names of `sidecarInjectorWebhook` in Istio's charts.
const WEBHOOK: &[&str] = &[
    "alwaysInjectSelector",
    "defaultTemplates",
    "injectedAnnotations",
    "injectionURL",
    "neverInjectSelector",
    "rewriteAppHTTPProbe",
    "templates",
];

/// Returns the additional names in the map at this path. `is_agent`: whether the chart is the node agent's.
pub(super) fn further(path: &str, is_agent: bool) -> Vec<(String, Kind)> {
    let named = |names: &[&str], prefix: &str| -> Vec<(String, Kind)> {
        let kind = |name: &&str| kinds::of(&format!("{prefix}{name}")).unwrap_or(Kind::Any);
        names.iter().map(|name| ((*name).to_owned(), kind(name))).collect()
    };
    let owned = |names: &[(&str, Kind)]| names.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect();
    match path {
        "" => {
            let mut all = [named(WHOLE, ""), named(OTHERS, "another."), owned(&[("enabled", Kind::Flag)])].concat();
            if is_agent {
                all.extend([named(AGENT, ""), named(&["logLevel"], ""), owned(&[("ambient", AMBIENT)])].concat());
            }
            all
        }
        "repair" => {
            let switches = ["repairPods", "deletePods", "labelPods"].map(|name| (name, Kind::Flag));
            [named(&["createEvents", "hub", "image", "tag"], "another."), owned(&switches)].concat()
        }
        "global" => named(&["profile"], "global."),
        "sidecarInjectorWebhook" => named(WEBHOOK, ""),
        _ => vec![],
    }
}
