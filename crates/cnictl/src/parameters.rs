//! The parameters of a pod's redirection, with the source and the meaning of each. Pure.

use std::fmt::Display;

use contract::{annotation, proxy_env};
use podfacts::PodFacts;
use redirect::origin::{Origin, origin};
use redirect::{CidrSelector, DnsCapture, InterceptionMode, OwnerGroups, PortSelector, Redirect};
use serde_json::{Value, json};

/// A parameter of a redirection.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parameter {
    /// The parameter's name in the output, by which [`origin`] finds its source.
    pub(super) name: &'static str,
    pub(super) value: Value,
    pub(super) source: Source,
}

/// The source of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) origin: Origin,
    /// Whether the injector wrote the annotation, because the pod's author did not.
    pub(super) injector: bool,
}

pub(super) fn mode(redirect: &Redirect) -> &'static str {
    match redirect.mode {
        InterceptionMode::Redirect => "REDIRECT",
        InterceptionMode::Tproxy => "TPROXY",
    }
}

/// Returns all parameters. `facts` is read from the pod after its injection, `annotations` contains the annotations
/// that the pod's author set, and `warnings` name the values that were ignored.
pub(super) fn parameters(
    redirect: &Redirect,
    facts: &PodFacts,
    annotations: &Value,
    warnings: &[redirect::Error],
) -> Vec<Parameter> {
    let ignored: Vec<&str> = warnings.iter().map(|warning| warning.key.as_str()).collect();
    let parameter = |(name, value)| {
        let origin = origin(name, facts.settings(), &ignored);
        let injector = matches!(origin, Origin::Annotation(key) if annotations[key].is_null());
        Parameter { name, value, source: Source { origin, injector } }
    };
    values(redirect).into_iter().map(parameter).collect()
}

fn values(redirect: &Redirect) -> Vec<(&'static str, Value)> {
    let ports = |ports: &PortSelector| match ports {
        PortSelector::None => json!([]),
        PortSelector::All => json!("*"),
        PortSelector::List(ports) => list(ports),
    };
    let cidrs = |cidrs: &CidrSelector| match cidrs {
        CidrSelector::None => json!([]),
        CidrSelector::All => json!("*"),
        CidrSelector::List(nets) => list(nets),
    };
    let groups = match &redirect.owner_groups {
        OwnerGroups::AllBut(groups) if groups.is_empty() => json!("*"),
        OwnerGroups::AllBut(groups) => json!({ "allBut": list(groups) }),
        OwnerGroups::Only(groups) => list(groups),
    };
    let dns = match &redirect.dns {
        DnsCapture::Off => json!(false),
        DnsCapture::All => json!(true),
        DnsCapture::Servers { v4, v6 } => {
            json!(v4.iter().map(ToString::to_string).chain(v6.iter().map(ToString::to_string)).collect::<Vec<_>>())
        }
    };
    vec![
        ("interception-mode", json!(mode(redirect))),
        ("proxy-port", json!(redirect.proxy_port.0)),
        ("inbound-capture-port", json!(redirect.inbound_capture_port.0)),
        ("proxy-uid", list(&redirect.proxy_uids)),
        ("proxy-gid", list(&redirect.proxy_gids)),
        ("inbound-ports", ports(&redirect.inbound_ports)),
        ("inbound-ports-exclude", list(&redirect.inbound_ports_exclude)),
        ("outbound-ports", list(&redirect.outbound_ports_include)),
        ("outbound-ports-exclude", list(&redirect.outbound_ports_exclude)),
        ("outbound-ranges", cidrs(&redirect.outbound_cidrs)),
        ("outbound-ranges-exclude", list(&redirect.outbound_cidrs_exclude)),
        ("outbound-owner-groups", groups),
        ("exclude-interfaces", list(&redirect.exclude_interfaces)),
        ("virtual-interfaces", list(&redirect.virtual_interfaces)),
        ("capture-dns", dns),
        ("dual-stack", json!(redirect.dual_stack)),
        ("drop-invalid", json!(redirect.drop_invalid)),
        ("loopback-range", json!(redirect.loopback_v4.to_string())),
    ]
}

fn list<T: Display>(items: &[T]) -> Value {
    items.iter().map(ToString::to_string).collect()
}

impl Parameter {
    /// Returns the value for text output.
    pub(super) fn text(&self) -> String {
        shown(&self.value)
    }

    /// Returns the documentation of the annotation or variable that sets the parameter; empty for other sources.
    pub(super) fn meaning(&self) -> &'static str {
        let (all, key) = match self.source.origin {
            Origin::Annotation(key) => (annotation::ALL, key),
            Origin::Variable(key) => (proxy_env::ALL, key),
            Origin::SecurityContext(_) | Origin::Default => return "",
        };
        all.iter().find(|(name, _)| *name == key).map_or("", |(_, meaning)| meaning.trim())
    }
}

impl Source {
    pub(super) fn text(self) -> String {
        match self.origin {
            Origin::Annotation(key) if self.injector => format!("annotation {key}, set by the injector"),
            Origin::Annotation(key) => format!("annotation {key}"),
            Origin::Variable(key) => format!("variable {key} of istio-proxy"),
            Origin::SecurityContext(field) => format!("securityContext.{field} of istio-proxy"),
            Origin::Default => "default".to_owned(),
        }
    }

    pub(super) fn json(self) -> Value {
        match self.origin {
            Origin::Annotation(key) => json!({ "annotation": key, "setByInjector": self.injector }),
            Origin::Variable(key) => json!({ "variable": key }),
            Origin::SecurityContext(field) => json!({ "securityContext": field }),
            Origin::Default => json!("default"),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(shown).collect::<Vec<_>>().join(","),
        Value::String(text) => text.clone(),
        Value::Object(map) => format!("all but {}", map.values().map(shown).collect::<Vec<_>>().join(",")),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use podfacts::ProxyContainer;
    use podfacts::Verdict;

    use super::*;

    /// Returns a pod with a sidecar and these annotations and variables.
    fn facts(annotations: &[(&str, &str)], env: &[(&str, &str)]) -> PodFacts {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let mut facts = PodFacts { annotations: owned(annotations), ..PodFacts::default() };
        facts.annotations.insert(annotation::STATUS.into(), "{}".into());
        facts.proxy = Some(ProxyContainer { env: owned(env), ..ProxyContainer::default() });
        facts
    }

    fn of(facts: &PodFacts) -> Vec<Parameter> {
        match podfacts::of_pod(facts).unwrap() {
            Verdict::Redirect { redirect, warnings } => parameters(&redirect, facts, &Value::Null, &warnings),
            Verdict::Skip(reason) => panic!("{reason}"),
        }
    }

    /// Returns the parameters whose value or origin differs from a pod without settings.
    fn changed(facts_of_pod: &PodFacts) -> Vec<(&'static str, String, Origin)> {
        let both = of(facts_of_pod).into_iter().zip(of(&facts(&[], &[])));
        let differ = both.filter(|(pod, default)| pod != default);
        differ.map(|(pod, _)| (pod.name, pod.text(), pod.source.origin)).collect()
    }

    #[test]
    fn each_key_changes_the_parameter_whose_origin_it_is() {
        for (key, value, name, shown) in [
            (annotation::INTERCEPTION_MODE, "TPROXY", "interception-mode", "TPROXY"),
            (annotation::INCLUDE_INBOUND_PORTS, "80", "inbound-ports", "80"),
            (annotation::EXCLUDE_INBOUND_PORTS, "81", "inbound-ports-exclude", "81,15020,15021,15090"),
            (annotation::INCLUDE_OUTBOUND_PORTS, "82", "outbound-ports", "82"),
            (annotation::EXCLUDE_OUTBOUND_PORTS, "83,84", "outbound-ports-exclude", "83,84"),
            (annotation::INCLUDE_OUTBOUND_CIDRS, "10.0.0.0/8", "outbound-ranges", "10.0.0.0/8"),
            (annotation::EXCLUDE_OUTBOUND_CIDRS, "10.0.0.0/8", "outbound-ranges-exclude", "10.0.0.0/8"),
            (annotation::EXCLUDE_INTERFACES, "eth1", "exclude-interfaces", "eth1"),
            (annotation::REROUTE_VIRTUAL_INTERFACES, "v1", "virtual-interfaces", "v1"),
            (annotation::KUBEVIRT_INTERFACES, "v2", "virtual-interfaces", "v2"),
        ] {
            let expected = [(name, shown.to_owned(), Origin::Annotation(key))];
            assert_eq!(changed(&facts(&[(key, value)], &[])), expected);
        }
        for (key, value, name, shown) in [
            (proxy_env::DNS_CAPTURE, "true", "capture-dns", "true"),
            (proxy_env::DUAL_STACK, "true", "dual-stack", "true"),
            (proxy_env::INVALID_DROP, "true", "drop-invalid", "true"),
            (proxy_env::OWNER_GROUPS, "7,8", "outbound-owner-groups", "7,8"),
            (proxy_env::OWNER_GROUPS_EXCLUDE, "9", "outbound-owner-groups", "all but 9"),
            (proxy_env::LOOPBACK_CIDR, "127.0.0.1/30", "loopback-range", "127.0.0.1/30"),
        ] {
            let expected = [(name, shown.to_owned(), Origin::Variable(key))];
            assert_eq!(changed(&facts(&[], &[(key, value)])), expected);
        }
    }

    #[test]
    fn ignored_values_are_no_origin_and_a_former_name_yields() {
        assert_eq!(changed(&facts(&[], &[(proxy_env::DUAL_STACK, "maybe")])), []);
        let both = [(annotation::KUBEVIRT_INTERFACES, "v2"), (annotation::REROUTE_VIRTUAL_INTERFACES, "v1")];
        let expected =
            [("virtual-interfaces", "v1".to_owned(), Origin::Annotation(annotation::REROUTE_VIRTUAL_INTERFACES))];
        assert_eq!(changed(&facts(&both, &[])), expected);
        let mut pod = facts(&[], &[]);
        pod.proxy = Some(ProxyContainer { run_as_user: Some(7), run_as_group: Some(0), ..ProxyContainer::default() });
        assert_eq!(changed(&pod), [("proxy-uid", "7".to_owned(), Origin::SecurityContext("runAsUser"))]);
    }

    #[test]
    fn annotations_of_the_injector_are_told_from_those_of_the_author() {
        let pod = facts(&[(annotation::INCLUDE_INBOUND_PORTS, "80")], &[]);
        let source = |annotations: Value| {
            let Verdict::Redirect { redirect, .. } = podfacts::of_pod(&pod).unwrap() else { panic!("not redirected") };
            let all = parameters(&redirect, &pod, &annotations, &[]);
            all.iter().find(|parameter| parameter.name == "inbound-ports").unwrap().source.text()
        };
        let key = annotation::INCLUDE_INBOUND_PORTS;
        assert_eq!(source(json!({ key: "80" })), format!("annotation {key}"));
        assert_eq!(source(Value::Null), format!("annotation {key}, set by the injector"));
    }
}
