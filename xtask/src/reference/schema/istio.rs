//! Names of Istio's charts that `values.yaml` does not have.
//!
//! One file may have the values of a whole mesh, so each chart takes the names of all of Istio's charts. Those that nothing here
//! reads are taken as they are; what the charts' templates refuse is named here, too, because the refusal has a reason.

use super::kinds::{self, Kind};

/// Names under which a chart of Istio, or this one, keeps its defaults. A release that is upgraded with the values of a former
/// one has them.
pub(super) const UNREAD_DEFAULTS: [(&str, &str); 2] = [
    ("defaults", "The defaults, as documentation; to change one, write it without this name."),
    ("_internal_defaults_do_not_set", "The defaults of Istio's charts, which are not read."),
];

/// Names of Istio's other charts, and of the file for a whole mesh.
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

/// Names of Istio's charts for the whole chart, which have an effect or a kind here.
const WHOLE: &[&str] = &["compatibilityVersion", "platform", "profile"];

/// Names of Istio's charts for the node agent.
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

/// The further names in the map with this path; `is_agent`: of the node agent's chart.
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
