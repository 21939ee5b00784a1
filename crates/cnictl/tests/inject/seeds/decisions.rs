//! Statements about the injection policy: one row for each statement and example of the descriptions.

pub(super) const WORKS: &str = "How sidecar injection works (1.6)";
pub(super) const FLEXIBLE: &str = "A flexible way to inject sidecars (1.8)";
pub(super) const JOURNEY: &str = "The journey of Istio begins (1.0)";

/// A statement of a description: the injector's configuration, the pod's namespace and metadata, whether the pod uses
/// the host's network, and whether it must be injected.
pub(super) struct Row {
    pub(super) seed: &'static str,
    pub(super) statement: &'static str,
    pub(super) config: &'static str,
    pub(super) namespace: &'static str,
    pub(super) metadata: &'static str,
    pub(super) host: bool,
    pub(super) injected: bool,
}

const fn row(
    seed: &'static str,
    statement: &'static str,
    config: &'static str,
    metadata: &'static str,
    injected: bool,
) -> Row {
    Row { seed, statement, config, namespace: "shop", metadata, host: false, injected }
}

const ENABLED: &str = "policy: enabled";
const DISABLED: &str = "policy: disabled";
pub(super) const SELECTORS: &str = "policy: enabled
neverInjectSelector: [{matchLabels: {sidecar/label: notinject}}, {matchExpressions: [{key: sidecar/notinject, operator: Exists}]}]
alwaysInjectSelector: [{matchLabels: {sidecar/label: inject}}, {matchExpressions: [{key: sidecar/inject, operator: Exists}]}]";
pub(super) const SELECTORS_DISABLED: &str = "policy: disabled
neverInjectSelector: [{matchLabels: {sidecar/label: notinject}}, {matchExpressions: [{key: sidecar/notinject, operator: Exists}]}]
alwaysInjectSelector: [{matchLabels: {sidecar/label: inject}}, {matchExpressions: [{key: sidecar/inject, operator: Exists}]}]";
const ASKS: &str = "{annotations: {sidecar.istio.io/inject: 'true'}}";
const DECLINES: &str = "{annotations: {sidecar.istio.io/inject: 'false'}}";

pub(super) const ROWS: [Row; 49] = [
    Row { host: true, ..row(WORKS, "pods of the host's network are passed over", ENABLED, ASKS, false) },
    Row { namespace: "kube-system", ..row(WORKS, "kube-system is passed over", ENABLED, ASKS, false) },
    Row { namespace: "kube-public", ..row(WORKS, "kube-public is passed over", ENABLED, ASKS, false) },
    Row { namespace: "kube-node-lease", ..row(WORKS, "no other namespace is", ENABLED, "{}", true) },
    row(WORKS, "y asks", DISABLED, "{annotations: {sidecar.istio.io/inject: 'y'}}", true),
    row(WORKS, "yes asks", DISABLED, "{annotations: {sidecar.istio.io/inject: 'yes'}}", true),
    row(WORKS, "TRUE asks", DISABLED, "{annotations: {sidecar.istio.io/inject: 'TRUE'}}", true),
    row(WORKS, "On asks", DISABLED, "{annotations: {sidecar.istio.io/inject: 'On'}}", true),
    row(WORKS, "an empty annotation says nothing", ENABLED, "{annotations: {sidecar.istio.io/inject: ''}}", true),
    row(WORKS, "any other word declines", ENABLED, "{annotations: {sidecar.istio.io/inject: 'sure'}}", false),
    row(
        WORKS,
        "the annotation comes before neverInjectSelector",
        SELECTORS,
        "{labels: {sidecar/notinject: ''}, annotations: {sidecar.istio.io/inject: 'true'}}",
        true,
    ),
    row(
        WORKS,
        "neverInjectSelector comes before alwaysInjectSelector",
        SELECTORS,
        "{labels: {sidecar/notinject: '', sidecar/inject: ''}}",
        false,
    ),
    row(
        WORKS,
        "alwaysInjectSelector comes before the policy",
        SELECTORS_DISABLED,
        "{labels: {sidecar/inject: ''}}",
        true,
    ),
    row(WORKS, "the policy comes last: enabled", ENABLED, "{}", true),
    row(WORKS, "the policy comes last: disabled", DISABLED, "{}", false),
    row(WORKS, "another policy injects nothing", "policy: 'off'", ASKS, false),
    row(WORKS, "a label does not ask yet", DISABLED, "{labels: {sidecar.istio.io/inject: 'true'}}", false),
    // Rows for the pseudocode in the description.
    row(
        WORKS,
        "an empty neverInjectSelector selects nothing",
        "policy: enabled\nneverInjectSelector: [{}]",
        "{labels: {a: b}}",
        true,
    ),
    row(
        WORKS,
        "an empty alwaysInjectSelector selects nothing",
        "policy: disabled\nalwaysInjectSelector: [{}]",
        "{labels: {a: b}}",
        false,
    ),
    row(
        WORKS,
        "an invalid alwaysInjectSelector is passed over for the next",
        "policy: disabled\nalwaysInjectSelector: [{matchExpressions: [{key: a, operator: Is}]}, {matchLabels: {a: b}}]",
        "{labels: {a: b}}",
        true,
    ),
    // The description states that other values of the annotation have no effect. In releases up to 1.26 they disable
    // injection.
    row(
        FLEXIBLE,
        "another value of the annotation is a no (corrected)",
        ENABLED,
        "{annotations: {sidecar.istio.io/inject: 'maybe'}}",
        false,
    ),
    // The description states that alwaysInjectSelector has precedence. In every release neverInjectSelector has
    // precedence.
    row(
        FLEXIBLE,
        "neverInjectSelector wins (corrected)",
        SELECTORS,
        "{labels: {sidecar/notinject: '', sidecar/inject: ''}}",
        false,
    ),
    Row { host: true, ..row(FLEXIBLE, "1.1: pods of the host's network are passed over", ENABLED, ASKS, false) },
    Row { namespace: "kube-system", ..row(FLEXIBLE, "1.2: kube-system is passed over", ENABLED, ASKS, false) },
    Row { namespace: "kube-public", ..row(FLEXIBLE, "1.2: kube-public is passed over", ENABLED, ASKS, false) },
    row(FLEXIBLE, "1.4: y asks", DISABLED, "{annotations: {sidecar.istio.io/inject: 'y'}}", true),
    row(FLEXIBLE, "1.4: yes asks", DISABLED, "{annotations: {sidecar.istio.io/inject: 'yes'}}", true),
    row(FLEXIBLE, "1.4: on asks", DISABLED, "{annotations: {sidecar.istio.io/inject: 'on'}}", true),
    row(FLEXIBLE, "1.6: neverInjectSelector alone: no", SELECTORS, "{labels: {sidecar/notinject: ''}}", false),
    row(
        FLEXIBLE,
        "1.7: alwaysInjectSelector alone: yes",
        SELECTORS_DISABLED,
        "{labels: {sidecar/label: inject}}",
        true,
    ),
    row(FLEXIBLE, "2.3: disabled and declined: no", DISABLED, DECLINES, false),
    row(FLEXIBLE, "2.4: enabled and asked: yes", ENABLED, ASKS, true),
    row(FLEXIBLE, "2.6: another policy injects nothing", "policy: always", ASKS, false),
    row(JOURNEY, "the annotation true asks", DISABLED, ASKS, true),
    row(JOURNEY, "any other word declines", ENABLED, "{annotations: {sidecar.istio.io/inject: 'off'}}", false),
    row(FLEXIBLE, "disabled and nothing said: no", DISABLED, "{}", false),
    row(FLEXIBLE, "disabled and asked: yes", DISABLED, ASKS, true),
    row(FLEXIBLE, "enabled and declined: no", ENABLED, DECLINES, false),
    row(FLEXIBLE, "enabled and nothing said: yes", ENABLED, "{}", true),
    row(
        FLEXIBLE,
        "the example's foo-v1",
        DISABLED,
        "{annotations: {sidecar.istio.io/inject: 'true'}, labels: {app: foo, version: v1}}",
        true,
    ),
    row(FLEXIBLE, "the example's foo-v2", DISABLED, "{labels: {app: foo, version: v2}}", false),
    // The description uses the policy `disable`, which does not exist. An unknown policy disables injection, also for
    // pods that request it.
    row(FLEXIBLE, "policy disable injects nothing (corrected)", "policy: disable", ASKS, false),
    row(JOURNEY, "the annotation false declines", ENABLED, DECLINES, false),
    row(
        JOURNEY,
        "sidecar/label notinject is never injected",
        SELECTORS,
        "{labels: {app: example, version: v1, sidecar/label: notinject}}",
        false,
    ),
    row(JOURNEY, "sidecar/notinject is never injected", SELECTORS, "{labels: {sidecar/notinject: 'x'}}", false),
    row(
        JOURNEY,
        "sidecar/label inject is always injected",
        SELECTORS_DISABLED,
        "{labels: {sidecar/label: inject}}",
        true,
    ),
    row(
        JOURNEY,
        "sidecar/inject on is always injected",
        SELECTORS_DISABLED,
        "{labels: {app: example, version: v1, sidecar/inject: 'on'}}",
        true,
    ),
    row(
        JOURNEY,
        "never wins over always",
        SELECTORS,
        "{labels: {app: example, version: v1, sidecar/label: notinject, sidecar/inject: 'on'}}",
        false,
    ),
    row(
        JOURNEY,
        "never wins over always where the policy is disabled",
        SELECTORS_DISABLED,
        "{labels: {sidecar/label: notinject, sidecar/inject: 'on'}}",
        false,
    ),
];
