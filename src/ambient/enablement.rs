//! Decides whether ambient mode enrols a pod, and why.
//!
//! Pure. [`Selectors`] are parsed once, from the agent's `AMBIENT_ENABLEMENT_SELECTOR` or from the plugin's chain
//! entry.

use std::collections::BTreeMap;
use std::fmt;

use contract::ambient::ZTUNNEL;
use podfacts::selector::LabelSelector;
use serde::Deserialize;

/// The labels of a pod or a namespace.
pub type Labels = BTreeMap<String, String>;

/// Istio's default selectors: pods with the label `istio.io/dataplane-mode: ambient`, and pods of namespaces with that
/// label, except those with the label's value `none`.
pub const DEFAULT_SELECTORS: &str = "\
- podSelector:
    matchLabels:
      istio.io/dataplane-mode: ambient
- namespaceSelector:
    matchLabels:
      istio.io/dataplane-mode: ambient
  podSelector:
    matchExpressions:
    - key: istio.io/dataplane-mode
      operator: NotIn
      values:
      - none
";

/// The enablement selectors are invalid.
#[derive(Debug, thiserror::Error)]
#[error(
    "the enablement selectors are not a list of objects with the optional label selectors `podSelector` and \
     `namespaceSelector`: {0}"
)]
pub struct Error(Box<serde_saphyr::Error>);

/// Pairs of selectors, at least one of which must match for a pod to be enrolled; without any, no pod is enrolled.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(transparent)]
pub struct Selectors(Vec<Selector>);

/// Two label selectors that must both match; an absent one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    #[serde(default)]
    pod_selector: Option<LabelSelector>,
    #[serde(default)]
    namespace_selector: Option<LabelSelector>,
}

/// The properties of a pod and of its namespace that determine whether the pod is enrolled.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub namespace: &'a str,
    pub namespace_labels: &'a Labels,
    pub pod_labels: &'a Labels,
    /// `spec.hostNetwork`
    pub host_network: bool,
    /// The pod has the annotation [`STATUS`](contract::annotation::STATUS), whatever its value.
    pub has_sidecar: bool,
}

/// Whether a pod is enrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    Enrol(Enrol),
    Skip(Skip),
}

/// Why a pod is enrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enrol {
    /// The first selector that matches, counted from 1.
    pub selector: usize,
}

/// Why a pod is not enrolled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Skip {
    /// The namespace is one of `excludeNamespaces`.
    ExcludedNamespace,
    /// The pod has the node's netns.
    HostNetwork,
    /// The pod has a sidecar.
    Sidecar,
    /// No selector matches.
    NotSelected,
}

impl Selectors {
    /// Parses YAML or JSON; an empty string is an empty list.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let list: Option<Self> = match text.trim() {
            "" => None,
            text => serde_saphyr::from_str(text).map_err(|error| Error(Box::new(error)))?,
        };
        Ok(list.unwrap_or_default())
    }

    /// Decides about a pod whose namespace is not excluded, in Istio's order.
    pub fn decide(&self, facts: &Facts<'_>) -> Decision {
        if facts.host_network {
            return Decision::Skip(Skip::HostNetwork);
        }
        if facts.has_sidecar {
            return Decision::Skip(Skip::Sidecar);
        }
        match self.0.iter().position(|selector| selector.selects(facts)) {
            Some(at) => Decision::Enrol(Enrol { selector: at + 1 }),
            None => Decision::Skip(Skip::NotSelected),
        }
    }

    /// Decides about a pod. The pods of `excluded` namespaces are not enrolled.
    pub fn decide_unless_excluded(&self, facts: &Facts<'_>, excluded: &[String]) -> Decision {
        match excluded.iter().any(|namespace| namespace == facts.namespace) {
            true => Decision::Skip(Skip::ExcludedNamespace),
            false => self.decide(facts),
        }
    }

    /// Whether a namespace's labels may enrol its pods: a selector with conditions on the namespace matches them. Only
    /// a change of this value can change decisions about all pods of the namespace.
    pub fn select_namespace(&self, labels: &Labels) -> bool {
        let namespaces = self.0.iter().filter_map(|selector| selector.namespace_selector.as_ref());
        namespaces.filter(|selector| !selector.is_empty()).any(|selector| matches(Some(selector), labels))
    }
}

impl Selector {
    fn selects(&self, facts: &Facts<'_>) -> bool {
        matches(self.pod_selector.as_ref(), facts.pod_labels)
            && matches(self.namespace_selector.as_ref(), facts.namespace_labels)
    }
}

fn matches(selector: Option<&LabelSelector>, labels: &Labels) -> bool {
    selector.is_none_or(|selector| selector.matches(|key| labels.get(key).map(String::as_str)))
}

/// Whether a pod is ztunnel's own: such a pod is not in the snapshot of enrolled pods, and a change of its namespace
/// does not enrol it.
pub fn is_ztunnel(namespace: &str, labels: &Labels, system_namespace: &str) -> bool {
    namespace == system_namespace && labels.get("app").is_some_and(|app| app == ZTUNNEL)
}

impl Decision {
    /// Returns the decision as a metric label, from a fixed set.
    pub fn label(self) -> &'static str {
        match self {
            Self::Enrol(_) => "enrolled",
            Self::Skip(Skip::ExcludedNamespace) => "excluded_namespace",
            Self::Skip(Skip::HostNetwork) => "host_network",
            Self::Skip(Skip::Sidecar) => "sidecar",
            Self::Skip(Skip::NotSelected) => "not_selected",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Enrol(Enrol { selector }) => write!(f, "enrolled, because enablement selector {selector} matches"),
            Self::Skip(reason) => write!(f, "not enrolled, because {reason}"),
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ExcludedNamespace => "its namespace is excluded",
            Self::HostNetwork => "it uses the host's network",
            Self::Sidecar => "it has a sidecar",
            Self::NotSelected => "no enablement selector matches",
        })
    }
}

#[cfg(test)]
mod tests {
    use contract::ambient::DATAPLANE_MODE;

    use super::*;

    fn labels(mode: &str) -> Labels {
        (mode != "-").then(|| (DATAPLANE_MODE.to_owned(), mode.to_owned())).into_iter().collect()
    }

    fn decide(selectors: &str, namespace: &str, pod: &str) -> Decision {
        let (namespace_labels, pod_labels) = (labels(namespace), labels(pod));
        let facts = Facts {
            namespace: "shop",
            namespace_labels: &namespace_labels,
            pod_labels: &pod_labels,
            host_network: false,
            has_sidecar: false,
        };
        Selectors::parse(selectors).unwrap().decide(&facts)
    }

    fn by(selector: usize) -> Decision {
        Decision::Enrol(Enrol { selector })
    }

    const NOT_SELECTED: Decision = Decision::Skip(Skip::NotSelected);

    #[test]
    fn the_default_selectors_enrol_by_the_label_of_namespace_or_pod() {
        for (namespace, pod, expected) in [
            ("ambient", "-", by(2)),
            ("-", "ambient", by(1)),
            ("ambient", "ambient", by(1)),
            ("-", "-", NOT_SELECTED),
            ("ambient", "none", NOT_SELECTED),
            ("none", "ambient", by(1)),
            ("none", "-", NOT_SELECTED),
            ("Ambient", "AMBIENT", NOT_SELECTED),
        ] {
            assert_eq!(decide(DEFAULT_SELECTORS, namespace, pod), expected, "namespace {namespace}, pod {pod}");
        }
    }

    #[test]
    fn exclusions_precede_the_selectors_in_a_fixed_order() {
        let selectors = Selectors::parse(DEFAULT_SELECTORS).unwrap();
        let (ambient, excluded) = (labels("ambient"), ["shop".to_owned()]);
        let facts = |host_network, has_sidecar| {
            let (namespace_labels, pod_labels) = (&ambient, &ambient);
            Facts { namespace: "shop", namespace_labels, pod_labels, host_network, has_sidecar }
        };
        for (host_network, has_sidecar, reason) in
            [(true, true, Skip::HostNetwork), (true, false, Skip::HostNetwork), (false, true, Skip::Sidecar)]
        {
            assert_eq!(selectors.decide(&facts(host_network, has_sidecar)), Decision::Skip(reason));
        }
        let facts = facts(true, true);
        let skipped = Decision::Skip(Skip::ExcludedNamespace);
        assert_eq!(selectors.decide_unless_excluded(&facts, &excluded), skipped);
        assert_eq!(selectors.decide_unless_excluded(&facts, &[]), Decision::Skip(Skip::HostNetwork));
        assert_eq!(selectors.decide_unless_excluded(&facts, &["sho".to_owned()]), Decision::Skip(Skip::HostNetwork));
    }

    #[test]
    fn without_selectors_no_pod_is_enrolled_and_an_empty_one_enrols_all() {
        for none in ["", " \n", "[]", "null", "# nothing\n"] {
            assert_eq!(decide(none, "ambient", "ambient"), NOT_SELECTED, "{none:?}");
        }
        for all in ["[{}]", "[{podSelector: {}, namespaceSelector: {}}]", "[{podSelector: null}]"] {
            assert_eq!(decide(all, "-", "-"), by(1), "{all:?}");
        }
    }

    #[test]
    fn an_absent_half_matches_everything_and_both_halves_must_match() {
        let namespace_only = "- namespaceSelector: {matchLabels: {istio.io/dataplane-mode: ambient}}";
        assert_eq!(decide(namespace_only, "ambient", "none"), by(1));
        assert_eq!(decide(namespace_only, "-", "ambient"), NOT_SELECTED);
        let json = r#"[{"podSelector":{"matchExpressions":[{"key":"istio.io/dataplane-mode","operator":"Exists"}]},
            "namespaceSelector":{"matchLabels":{"istio.io/dataplane-mode":"x"}}}]"#;
        assert_eq!(decide(json, "x", "anything"), by(1));
        assert_eq!(decide(json, "x", "-"), NOT_SELECTED);
        assert_eq!(decide(json, "-", "anything"), NOT_SELECTED);
    }

    #[test]
    fn only_conditions_on_the_namespace_select_it() {
        let selects = |text, mode| Selectors::parse(text).unwrap().select_namespace(&labels(mode));
        assert!(selects(DEFAULT_SELECTORS, "ambient"));
        assert!(!selects(DEFAULT_SELECTORS, "none"));
        assert!(!selects("[{}, {podSelector: {}, namespaceSelector: {}}]", "ambient"));
        assert!(selects("- namespaceSelector: {matchExpressions: [{key: x, operator: DoesNotExist}]}", "-"));
    }

    #[test]
    fn invalid_selectors_are_refused_with_their_fault() {
        let error = |text| Selectors::parse(text).unwrap_err().to_string();
        for (text, fault) in [
            ("podSelector: {}", "sequence"),
            ("- podSelector: 1", "expected"),
            ("- podSelector: {matchExpressions: [{key: a, operator: In}]}", "operator In of \"a\" has 0 values"),
            ("- podSelector: {matchExpressions: [{key: a, operator: Is}]}", "Is"),
            ("- namespaceSelector: {matchLabels: {a b: c}}", "\"a b\" is not a label"),
        ] {
            let error = error(text);
            assert!(error.starts_with("the enablement selectors are not a list") && error.contains(fault), "{error}");
        }
    }

    #[test]
    fn ztunnel_is_known_by_its_label_in_its_namespace() {
        let ztunnel: Labels = [("app".to_owned(), "ztunnel".to_owned())].into();
        assert!(is_ztunnel("istio-system", &ztunnel, "istio-system"));
        assert!(!is_ztunnel("shop", &ztunnel, "istio-system"));
        assert!(!is_ztunnel("istio-system", &labels("none"), "istio-system"));
    }

    #[test]
    fn each_decision_states_its_reason() {
        assert_eq!(by(2).to_string(), "enrolled, because enablement selector 2 matches");
        assert_eq!(NOT_SELECTED.to_string(), "not enrolled, because no enablement selector matches");
        assert_eq!((by(2).label(), NOT_SELECTED.label()), ("enrolled", "not_selected"));
    }
}
