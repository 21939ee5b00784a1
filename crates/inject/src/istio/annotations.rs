//! Checks of annotations before templates use them.
//!
//! Templates insert annotations into YAML, where each must be a single scalar.

mod injected;
mod networks;

use std::fmt::Display;
use std::str::FromStr;

use contract::annotation;
use gocompat::quantity::is_quantity;
use gotemplate::{Budget, Exceeded};
use podfacts::name::is_subdomain;
use redirect::CIDRS;
use serde_json::Value;

use super::{Error, log_levels, user_volumes};
use crate::image;
use crate::pod;
pub(super) use injected::{check_injected, check_skipped, is_validated};
pub(super) use networks::check_networks;

type Check = fn(&str) -> Result<(), &'static str>;

const INCLUDED: &str = "`*` or a comma-separated list of CIDRs such as 10.0.0.0/8, as includeIPRanges of the values";
const EXCLUDED: &str = "a comma-separated list of CIDRs such as 10.0.0.0/8, as excludeIPRanges of the values";
const IMAGE: &str = "an image that the kubelet can parse: [host[:port]/]path[:tag][@digest] with a lower-case path, such as docker.io/istio/proxyv2:1.30.0";
const NUMBER: &str = "a whole number from 0 to 4294967295 without leading zeros";

/// The check of each annotation.
const CHECKS: [(&str, Check); 31] = [
    (annotation::INTERCEPTION_MODE, |v| traffic(annotation::INTERCEPTION_MODE, v)),
    (annotation::STATUS_PORT, |v| whole::<u16>(v, "a port from 0 to 65535 without leading zeros")),
    (annotation::READINESS_DELAY, number),
    (annotation::READINESS_PERIOD, number),
    (annotation::READINESS_FAILURES, number),
    (annotation::INCLUDE_OUTBOUND_CIDRS, |v| ranges(annotation::INCLUDE_OUTBOUND_CIDRS, v, INCLUDED)),
    (annotation::EXCLUDE_OUTBOUND_CIDRS, |v| ranges(annotation::EXCLUDE_OUTBOUND_CIDRS, v, EXCLUDED)),
    (annotation::INCLUDE_INBOUND_PORTS, |v| traffic(annotation::INCLUDE_INBOUND_PORTS, v)),
    (annotation::EXCLUDE_INBOUND_PORTS, |v| traffic(annotation::EXCLUDE_INBOUND_PORTS, v)),
    (annotation::EXCLUDE_OUTBOUND_PORTS, |v| traffic(annotation::EXCLUDE_OUTBOUND_PORTS, v)),
    (annotation::INCLUDE_OUTBOUND_PORTS, |v| traffic(annotation::INCLUDE_OUTBOUND_PORTS, v)),
    (annotation::EXCLUDE_INTERFACES, |v| traffic(annotation::EXCLUDE_INTERFACES, v)),
    (annotation::KUBEVIRT_INTERFACES, |v| traffic(annotation::KUBEVIRT_INTERFACES, v)),
    (annotation::REROUTE_VIRTUAL_INTERFACES, |v| traffic(annotation::REROUTE_VIRTUAL_INTERFACES, v)),
    (annotation::MERGE_METRICS, boolean),
    (annotation::PROXY_CPU, quantity),
    (annotation::PROXY_CPU_LIMIT, quantity),
    (annotation::PROXY_MEMORY, quantity),
    (annotation::PROXY_MEMORY_LIMIT, quantity),
    (annotation::PROXY_IMAGE, image),
    (annotation::IMAGE_TYPE, part_of_tag),
    (annotation::LOG_LEVEL, |v| printable(v).and_then(|()| log_levels::proxy(v))),
    (annotation::COMPONENT_LOG_LEVEL, |v| printable(v).and_then(|()| log_levels::components(v))),
    (annotation::AGENT_LOG_LEVEL, |v| printable(v).and_then(|()| log_levels::agent(v))),
    (annotation::BOOTSTRAP_OVERRIDE, object_name),
    (annotation::CAP_NET_BIND_SERVICE, printable),
    (annotation::DISCOVERY_ADDRESS, printable),
    (annotation::NETWORKS, |v| no_control(v, "text without control characters other than line breaks", "\n\r\t")),
    (annotation::USER_VOLUME, |v| {
        user_volumes::check_text(annotation::USER_VOLUME, v).map_err(|_| user_volumes::VOLUMES)
    }),
    (annotation::USER_VOLUME_MOUNT, |v| {
        user_volumes::check_text(annotation::USER_VOLUME_MOUNT, v).map_err(|_| user_volumes::MOUNTS)
    }),
    // `mesh` has already parsed this annotation.
    (annotation::PROXY_CONFIG, |_| Ok(())),
];

/// Whether `name` is one of Istio's annotations in [`CHECKS`].
pub(super) fn is_istios(name: &str) -> bool {
    CHECKS.iter().any(|(known, _)| *known == name) && name.contains("istio.io/")
}

/// The annotations that only templates read. The injector checks them and has no other use for them.
const OF_TEMPLATES: [&str; 17] = [
    annotation::READINESS_DELAY,
    annotation::READINESS_PERIOD,
    annotation::READINESS_FAILURES,
    annotation::PROXY_CPU,
    annotation::PROXY_CPU_LIMIT,
    annotation::PROXY_MEMORY,
    annotation::PROXY_MEMORY_LIMIT,
    annotation::PROXY_IMAGE,
    annotation::LOG_LEVEL,
    annotation::COMPONENT_LOG_LEVEL,
    annotation::AGENT_LOG_LEVEL,
    annotation::BOOTSTRAP_OVERRIDE,
    annotation::CAP_NET_BIND_SERVICE,
    annotation::DISCOVERY_ADDRESS,
    annotation::USER_VOLUME,
    annotation::USER_VOLUME_MOUNT,
    annotation::NETWORKS,
];

/// Whether only templates read an annotation.
pub fn is_of_templates(name: &str) -> bool {
    OF_TEMPLATES.contains(&name)
}

/// The annotations with JSON or lists that the injector reads and that are not in [`CHECKS`].
const READ: [&str; 4] = [annotation::OVERRIDES, annotation::STATUS, annotation::TEMPLATES, annotation::SCRAPE_TARGETS];
/// The steps charged per byte of an annotation, because each byte may be an element of a list in JSON or YAML.
const STEPS_PER_BYTE: usize = 2;

/// Returns the description of the values that an annotation may have; `None` if no check describes them.
pub fn allowed(name: &str) -> Option<&'static str> {
    let (_, check) = CHECKS.iter().find(|(known, _)| *known == name)?;
    check("\0").err()
}

/// Charges the budget for all annotations that the injector reads.
///
/// # Errors
/// The annotations exceed the budget.
pub(super) fn charge(pod: &Value, budget: &mut Budget) -> Result<(), Exceeded> {
    let names = CHECKS.iter().map(|(name, _)| *name).chain(READ);
    let bytes: usize = names.filter_map(|name| pod::annotation(pod, name)).map(str::len).sum();
    budget.step(bytes.saturating_mul(STEPS_PER_BYTE))
}

/// Checks all annotations of a pod.
///
/// # Errors
/// An annotation is invalid. If several are, the error is about volumes or mounts or else about the first one in the order of `CHECKS`.
pub(super) fn check(pod: &Value) -> Result<(), Error> {
    // The errors of this check are more exact than those of `CHECKS` for the same annotations.
    user_volumes::check(pod)?;
    for (name, check) in CHECKS {
        if let Some(value) = pod::annotation(pod, name) {
            check(value).map_err(|allowed| Error::annotation(name, value, allowed))?;
        }
    }
    Ok(())
}

/// Checks an annotation that the plugin reads, with the plugin's own parser. Templates insert such a value into YAML, so a line break,
/// which the parser ignores around an element, is refused, too.
fn traffic(name: &str, value: &str) -> Result<(), &'static str> {
    redirect::annotations::check(name, value).map_err(|error| error.allowed)?;
    printable(value)
}

/// Checks an annotation that lists CIDRs. `allowed` describes valid values, and names the Helm value with the same syntax.
fn ranges(name: &str, value: &str, allowed: &'static str) -> Result<(), &'static str> {
    traffic(name, value).map_err(|own| if own.ends_with(CIDRS) { allowed } else { own })
}

fn number(value: &str) -> Result<(), &'static str> {
    whole::<u32>(value, NUMBER)
}

/// Checks an unsigned number in the only spelling that templates, YAML and the plugin read alike: with a leading zero, it is octal in YAML.
fn whole<T: FromStr + Display>(value: &str, allowed: &'static str) -> Result<(), &'static str> {
    value.parse::<T>().is_ok_and(|number| number.to_string() == value).then_some(()).ok_or(allowed)
}

fn boolean(value: &str) -> Result<(), &'static str> {
    gocompat::parse_bool(value).map(drop).ok_or("true or false")
}

fn quantity(value: &str) -> Result<(), &'static str> {
    let is_amount = is_quantity(value) && !value.starts_with('-');
    is_amount.then_some(()).ok_or("a quantity such as 100m or 128Mi that is not negative")
}

/// Checks the name of a ConfigMap: a DNS subdomain.
fn object_name(value: &str) -> Result<(), &'static str> {
    is_subdomain(value).then_some(()).ok_or("the name of a ConfigMap")
}

/// Checks an image. An empty value selects the configured image.
fn image(value: &str) -> Result<(), &'static str> {
    (value.is_empty() || image::check(value).is_ok()).then_some(()).ok_or(IMAGE)
}

/// Checks an image type, which becomes the suffix of the image's tag.
fn part_of_tag(value: &str) -> Result<(), &'static str> {
    let is_part = value.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c));
    is_part.then_some(()).ok_or("a part of an image's tag: letters, digits, underscores, periods and dashes")
}

fn printable(value: &str) -> Result<(), &'static str> {
    no_control(value, "text without control characters", "")
}

fn no_control(value: &str, allowed: &'static str, except: &str) -> Result<(), &'static str> {
    match value.contains(|c: char| c.is_control() && !except.contains(c)) {
        true => Err(allowed),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use podfacts::PodFacts;
    use redirect::annotations::from_pod;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_invalid_annotation_is_refused_with_its_valid_values() {
        let pod = |name: &str, value: &str| json!({"metadata": {"annotations": {name: value}}});
        let wrong = [
            (annotation::INTERCEPTION_MODE, "redirect"),
            (annotation::STATUS_PORT, "70000"),
            (annotation::STATUS_PORT, "+80"),
            (annotation::STATUS_PORT, "015099"),
            (annotation::STATUS_PORT, "00"),
            (annotation::READINESS_PERIOD, "+2"),
            (annotation::READINESS_PERIOD, "010"),
            (annotation::INCLUDE_OUTBOUND_CIDRS, "10.0.0.0/8,bad"),
            (annotation::EXCLUDE_OUTBOUND_CIDRS, "*"),
            (annotation::EXCLUDE_INBOUND_PORTS, "*"),
            (annotation::EXCLUDE_INTERFACES, "eth0; x"),
            (annotation::MERGE_METRICS, "maybe"),
            (annotation::PROXY_CPU, "1\n        evil: yes"),
            (annotation::PROXY_CPU, "-1"),
            (annotation::BOOTSTRAP_OVERRIDE, ""),
            (annotation::BOOTSTRAP_OVERRIDE, "Not A Name"),
            (annotation::BOOTSTRAP_OVERRIDE, "a..b"),
            (annotation::LOG_LEVEL, "info\n- x"),
            (annotation::LOG_LEVEL, "loud"),
            (annotation::COMPONENT_LOG_LEVEL, "misc"),
            (annotation::AGENT_LOG_LEVEL, "default:loud"),
            (annotation::PROXY_IMAGE, " "),
            (annotation::PROXY_IMAGE, "image:"),
            (annotation::PROXY_IMAGE, "docker.io/istio/proxyv2:1\n"),
            (annotation::PROXY_IMAGE, "img@sha256:xyz"),
            (annotation::IMAGE_TYPE, "distro less"),
        ];
        for (name, value) in wrong {
            let error = check(&pod(name, value)).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("invalid value {value:?} for annotation {name:?}: must be ")),
                "{error}"
            );
        }
        for (name, value) in [
            (annotation::INCLUDE_OUTBOUND_CIDRS, "*"),
            (annotation::INCLUDE_INBOUND_PORTS, ""),
            (annotation::STATUS_PORT, "0"),
            (annotation::READINESS_PERIOD, "10"),
        ] {
            check(&pod(name, value)).unwrap();
        }
    }

    #[test]
    fn a_list_that_is_too_long_for_the_plugin_is_refused() {
        let lists = [
            (annotation::INCLUDE_INBOUND_PORTS, "80", 1024),
            (annotation::EXCLUDE_INBOUND_PORTS, "80", 1024),
            (annotation::INCLUDE_OUTBOUND_PORTS, "80", 1024),
            (annotation::EXCLUDE_OUTBOUND_PORTS, "80", 1024),
            (annotation::INCLUDE_OUTBOUND_CIDRS, "10.0.0.0/8", 1024),
            (annotation::EXCLUDE_OUTBOUND_CIDRS, "10.0.0.0/8", 1024),
            (annotation::EXCLUDE_INTERFACES, "eth0", 32),
            (annotation::KUBEVIRT_INTERFACES, "eth0", 32),
            (annotation::REROUTE_VIRTUAL_INTERFACES, "eth0", 32),
        ];
        for (name, element, longest) in lists {
            let list = |count: usize| vec![element; count].join(",");
            let annotations: BTreeMap<_, _> = [(name.to_owned(), list(longest + 1))].into();
            let plugin = from_pod(PodFacts { annotations, ..PodFacts::default() }.settings()).unwrap_err();
            let pod = |count| json!({"metadata": {"annotations": {name: list(count)}}});
            let Err(Error::Annotation { allowed, .. }) = check(&pod(longest + 1)) else { panic!("{name} is accepted") };
            assert_eq!(allowed, plugin.allowed, "{name}");
            check(&pod(longest)).unwrap();
        }
    }

    #[test]
    fn an_annotation_of_templates_that_no_template_reads_changes_nothing() {
        use crate::istio::{BuiltIn, Config, InjectionOutcome, Injector, Request, Settings};

        const TEMPLATE: &str = "spec: {containers: [{name: istio-proxy, image: '{{ .ProxyImage }}'}]}";
        let settings = Settings::from_template(TEMPLATE).unwrap();
        let injector = Injector::new(Config { settings, ..BuiltIn::default().config().unwrap() });
        let spec = |name: &str| {
            let value = match name {
                annotation::COMPONENT_LOG_LEVEL => "misc:info",
                name if name.ends_with("ogLevel") => "info",
                _ => "7",
            };
            let pod = json!({"metadata": {"annotations": {name: value}}, "spec": {"containers": [{"name": "app"}]}});
            match injector.review(&Request::new(&pod, "shop")).unwrap() {
                InjectionOutcome::Injected { injected, .. } => injected.pod["spec"].clone(),
                InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
            }
        };
        for name in OF_TEMPLATES.into_iter().filter(|name| !name.contains("userVolume")) {
            assert_eq!(spec(name), spec("unknown"), "{name}");
        }
    }

    #[test]
    fn each_list_that_injection_reads_is_charged() {
        for name in [annotation::TEMPLATES, annotation::SCRAPE_TARGETS, annotation::OVERRIDES, annotation::STATUS] {
            let pod = json!({"metadata": {"annotations": {name: "1,".repeat(1000)}}});
            let mut budget = Budget::default();
            charge(&pod, &mut budget).unwrap();
            assert_eq!(Budget::default().left().steps - budget.left().steps, 4000, "{name}");
        }
    }
}
