//! Warnings about annotations, labels and fields of the proxy configuration that a pod sets and the injection does not use.
//!
//! `settings` finds once what each template reads; `pipeline` compares it with each pod. A pod is never refused for what is unused, and
//! what a template may read without naming it is treated as used.

mod ineffective;
mod meant;
mod misplaced;

use std::collections::BTreeMap;

use contract::{ambient, annotation};
use gocompat::parse_bool;
use gotemplate::Template;
use serde_json::Value;

use super::functions::RESOURCE_ANNOTATIONS;
use super::shapes::mesh::PROXY_CONFIG;
use super::{prometheus, proto, user_volumes};
use crate::{pod, yaml};

/// Functions that read, from a map of annotations or an object with one, only what their other arguments name.
const LOOKUPS: [&str; 11] =
    ["index", "isset", "annotation", "hasKey", "get", "len", "not", "and", "or", "otelResourceAttributes", RESOURCES];

/// The function that reads the annotations for the sidecar's resources.
const RESOURCES: &str = "proxyResources";

/// The fields of the templates' data that depend on the annotation for the image type.
const IMAGES: [&str; 2] = ["ProxyImage", "ProxyInitImage"];

/// The prefixes of Istio's annotations and labels for pods.
const PREFIXES: [&str; 13] = [
    "sidecar.istio.io/",
    "traffic.sidecar.istio.io/",
    "status.sidecar.istio.io/",
    "readiness.status.sidecar.istio.io/",
    "proxy.istio.io/",
    "inject.istio.io/",
    "prometheus.istio.io/",
    "istio.io/",
    "ambient.istio.io/",
    "networking.istio.io/",
    "security.istio.io/",
    "service.istio.io/",
    "topology.istio.io/",
];

/// The annotations with one of [`PREFIXES`] that other parts of Istio set on pods or read from them.
const OF_ISTIO: [&str; 9] = [
    "istio.io/rev",
    "istio.io/autoRegistrationGroup",
    "istio.io/dry-run",
    "ambient.istio.io/redirection",
    "ambient.istio.io/waypoint-inbound-binding",
    "networking.istio.io/exportTo",
    ambient::DNS_CAPTURE,
    ambient::BYPASS_INBOUND_CAPTURE,
    "topology.istio.io/controlPlaneClusters",
];

/// The labels of pods with one of [`PREFIXES`] that Istio sets or reads.
const LABELS: [&str; 19] = [
    annotation::INJECT,
    annotation::NETWORK,
    ambient::DATAPLANE_MODE,
    "istio.io/rev",
    "istio.io/tag",
    "istio.io/gateway-name",
    "istio.io/global",
    "istio.io/use-waypoint",
    "istio.io/use-waypoint-namespace",
    "istio.io/ingress-use-waypoint",
    "istio.io/waypoint-for",
    "networking.istio.io/gatewayPort",
    "networking.istio.io/tunnel",
    "security.istio.io/tlsMode",
    "service.istio.io/canonical-name",
    "service.istio.io/canonical-revision",
    "service.istio.io/workload-name",
    "topology.istio.io/cluster",
    "topology.istio.io/subzone",
];

/// The annotations with one of [`PREFIXES`] that the injector reads itself.
const OF_INJECTOR: [&str; 8] = [
    annotation::TEMPLATES,
    annotation::PROXY_CONFIG,
    annotation::OVERRIDES,
    annotation::REWRITE_PROBES,
    annotation::STATUS_PORT,
    annotation::MERGE_METRICS,
    annotation::SCRAPE_TARGETS,
    annotation::SECURE_METRICS_PORT,
];

/// Returns the annotations that this program reads itself, in the plugin or in the injector.
fn read<'n>() -> impl Iterator<Item = &'n str> {
    podfacts::ANNOTATIONS.into_iter().chain(OF_INJECTOR)
}

/// Whether this program reads an annotation itself.
fn is_read(name: &str) -> bool {
    read().any(|known| known == name)
}

/// Annotations that the agent in the pod reads from a volume.
const OF_AGENT: [&str; 9] = [
    "sidecar.istio.io/extraStatTags",
    "sidecar.istio.io/statsCompression",
    "sidecar.istio.io/statsEvictionInterval",
    "sidecar.istio.io/statsFlushInterval",
    "sidecar.istio.io/statsHistogramBins",
    "sidecar.istio.io/statsHistogramBuckets",
    "sidecar.istio.io/statsInclusionPrefixes",
    "sidecar.istio.io/statsInclusionRegexps",
    "sidecar.istio.io/statsInclusionSuffixes",
];

/// The field path of such a volume, as a template prints it.
const VOLUME: &str = "metadata.annotations";

/// The fields of the proxy's configuration that the injector reads itself.
const FIELDS: [&str; 4] = ["holdApplicationUntilProxyStarts", "image", "interceptionMode", "statusPort"];

/// The maximum number of names in a warning.
const MOST: usize = 8;

/// The maximum length of a value in a warning, in characters.
const SHOWN: usize = 40;

/// What a template reads of a pod.
#[derive(Debug)]
pub(super) struct Reads {
    names: gotemplate::Names,
    /// Whether the template may read any annotation.
    all_annotations: bool,
    /// Whether the template may read any field of the proxy's configuration.
    all_fields: bool,
    /// Whether the template adds the volume from which the agent reads annotations.
    has_volume: bool,
    /// The members of `.Values` that the template reads; `None` if it may read any.
    values: Option<gotemplate::Paths>,
}

impl Reads {
    /// Finds what a template reads.
    pub(super) fn of(template: &Template) -> Self {
        let names = template.names(&LOOKUPS);
        let is_whole = |field: &str| names.whole.contains(field);
        // What `render` renders is not known.
        let is_unknown = names.functions.contains("render");
        Self {
            all_annotations: is_unknown || is_whole("Annotations") || is_whole("ObjectMeta"),
            all_fields: is_unknown || is_whole("ProxyConfig"),
            has_volume: template.has_text(VOLUME) || names.texts.iter().any(|text| text.contains(VOLUME)),
            values: (!is_unknown).then(|| template.paths("Values")),
            names,
        }
    }

    /// Removes annotations that the template names but does not use with the configuration's values.
    pub(super) fn ignore(&mut self, names: &[&str]) {
        self.names.texts.retain(|text| !names.contains(&text.as_str()));
    }

    /// Removes the annotations that the agent reads from a volume, because with the configuration's values pods do not have it.
    pub(super) fn ignore_volume(&mut self) {
        self.has_volume = false;
    }

    /// Whether the template may read this member of `.Values`.
    pub(super) fn has_value(&self, path: &[&str]) -> bool {
        self.values.as_ref().is_none_or(|values| values.has(path))
    }

    /// Whether the template may read `.Values`.
    pub(super) fn has_values(&self) -> bool {
        self.values.as_ref().is_none_or(|values| !values.is_empty())
    }

    fn has_annotation(&self, name: &str) -> bool {
        self.all_annotations
            || self.names.texts.contains(name)
            || (name == annotation::IMAGE_TYPE && IMAGES.iter().any(|field| self.names.fields.contains(*field)))
            || (self.has_volume && OF_AGENT.contains(&name))
            || (self.names.functions.contains(RESOURCES) && RESOURCE_ANNOTATIONS.iter().any(|(.., known)| *known == name))
            // A template may compose the name from parts.
            || self.names.texts.iter().any(|text| PREFIXES.iter().any(|prefix| text.starts_with(prefix) && is_part(text, name)))
    }

    /// Returns the names of annotations that the template reads.
    fn annotations(&self) -> impl Iterator<Item = &str> {
        let of_resources = RESOURCE_ANNOTATIONS.iter().map(|(.., name)| *name);
        let of_resources = of_resources.filter(|_| self.names.functions.contains(RESOURCES));
        let of_agent = OF_AGENT.into_iter().filter(|_| self.has_volume);
        self.names.texts.iter().map(String::as_str).filter(|text| has_prefix(text)).chain(of_resources).chain(of_agent)
    }

    fn has_field(&self, json: &str) -> bool {
        let field = PROXY_CONFIG.fields.iter().find(|field| field.json == json);
        let is_named =
            |name: &str| self.names.fields.contains(name) || self.names.fields.contains(&format!("Get{name}"));
        self.all_fields || field.is_none_or(|field| is_named(field.name))
    }
}

/// Whether `text` is the beginning of `name`, up to a slash, or a format string with such a beginning.
fn is_part(text: &str, name: &str) -> bool {
    let start = text.split('%').next().unwrap_or_default();
    (text.contains('%') || text.ends_with('/')) && name.starts_with(start)
}

/// Returns warnings about the annotations, labels and fields of the proxy configuration that a pod sets without effect.
pub(super) fn warnings<'n>(
    reads: &BTreeMap<String, Reads>,
    templates: impl Iterator<Item = &'n str>,
    pod: &Value,
) -> Vec<String> {
    let reads: Vec<&Reads> = templates.filter_map(|name| reads.get(name)).collect();
    let annotations = pod::map(pod::metadata(pod), "annotations");
    let unused = meant::of_istio(annotations.keys().map(String::as_str)).filter(|name| {
        !is_read(name)
            && !OF_ISTIO.contains(name)
            && !misplaced::is_label(name)
            && !prometheus::is_secure_port(name)
            && !reads.iter().any(|reads| reads.has_annotation(name))
    });
    let mut warnings = user_volumes::warnings(pod);
    warnings.extend(not_boolean(pod));
    warnings.extend(misplaced::warnings(&reads, pod));
    let in_templates = || reads.iter().flat_map(|reads| reads.annotations());
    let known = || read().chain(OF_ISTIO).chain(in_templates());
    warnings.extend(listed(&meant::with_meant(unused, known), "annotations that no template for this pod uses"));
    let labels = meant::of_istio(pod::map(pod::metadata(pod), "labels").keys().map(String::as_str));
    let unknown = labels.filter(|name| {
        !LABELS.contains(name)
            && !misplaced::is_annotation(name)
            && !reads.iter().any(|reads| reads.names.texts.contains(*name))
    });
    let unknown = meant::with_meant(unknown, || LABELS.into_iter().chain(in_templates()));
    warnings.extend(listed(&unknown, "labels with a prefix of Istio's that Istio does not read"));
    let is_read = |field: &str| FIELDS.contains(&field) || reads.iter().any(|reads| reads.has_field(field));
    if let Some(text) = pod::annotation(pod, annotation::PROXY_CONFIG)
        && let Ok(Value::Object(config)) = yaml::value(text)
    {
        let unknown = proto::unknown(proto::PROXY_CONFIG, &config);
        warnings.extend(listed(&unknown, "fields of proxy.istio.io/config that Istio does not have"));
        if reads.iter().any(|reads| reads.all_fields) {
            return warnings;
        }
        let unused = config.keys().map(String::as_str).filter(|field| !is_read(field)).collect::<Vec<_>>();
        warnings.extend(listed(&unused, "fields of proxy.istio.io/config that no template for this pod uses"));
    }
    warnings
}

/// Returns warnings about annotations of the author's pod that have no effect on the injected pod. `pods`: the author's pod and the
/// injected one, `mode`: the interception mode of the proxy configuration.
pub(super) fn ineffective<'n>(
    reads: &BTreeMap<String, Reads>,
    mut templates: impl Iterator<Item = &'n str>,
    pods: (&Value, &Value),
    mode: &str,
) -> Vec<String> {
    let names_bootstrap =
        templates.any(|name| reads.get(name).is_some_and(|reads| reads.has_annotation(annotation::BOOTSTRAP_OVERRIDE)));
    ineffective::warnings(pods, mode, names_bootstrap)
}

/// Whether a name has one of Istio's prefixes.
fn has_prefix(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Returns a warning for each annotation that must be a boolean but is not, and is therefore ignored. Templates compare
/// `capNetBindService` with `true`.
fn not_boolean(pod: &Value) -> impl Iterator<Item = String> {
    let is_boolean = |name: &str, value: &str| match name {
        annotation::CAP_NET_BIND_SERVICE => matches!(value, "true" | "false"),
        _ => parse_bool(value).is_some(),
    };
    let set = [annotation::REWRITE_PROBES, annotation::NATIVE_SIDECAR, annotation::CAP_NET_BIND_SERVICE].into_iter();
    let set = set.filter_map(|name| Some((name, pod::annotation(pod, name)?)));
    set.filter(move |(name, value)| !is_boolean(name, value)).map(|(name, value)| {
        let value: String = value.chars().take(SHOWN).collect();
        format!("{name} is ignored: its value {value:?} is neither true nor false")
    })
}

pub(super) fn listed(names: &[impl AsRef<str>], what: &str) -> Option<String> {
    let more = names.len().saturating_sub(MOST);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let first = names.iter().take(MOST).map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    (!names.is_empty()).then(|| format!("{what}: {first}{rest}"))
}

#[cfg(test)]
mod tests;
