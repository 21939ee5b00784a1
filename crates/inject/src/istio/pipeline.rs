//! The injection of Istio since 1.9: renders the templates, merges their output into the pod, reapplies the pod's
//! overrides, and makes the changes that need no template.
//!
//! A pod that was injected before with the same settings is injected over its present state: the API server may call
//! the webhook again within one admission, and what other webhooks added in between must stay, also in the injected
//! containers. With other settings, this would leave what only the former settings add. Therefore the former injection
//! is removed first, and with it what others added to its containers, because no record distinguishes the two.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use contract::annotation;
use gocompat::parse_bool;
use gotemplate::{Budget, Template};
use serde_json::{Map, Value};

use super::config::Config;
use super::data::Data;
use super::overlay::{Overlay, Overlays};
use super::overrides::{self, Overrides, OwnContainers};
use super::settings::Program;
use super::splice::Spliced;
use super::status::{self, Record, Status};
use super::subject::Subject;
use super::{
    Error, advice, annotations, digest, early, former, order, place, probes, prometheus, startable, status_port,
    unions, unused, values,
};
use crate::merge_pod;
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};
use crate::typed::Struct;

const CLUSTER: &str = "ISTIO_META_CLUSTER_ID";
const NETWORK: &str = "ISTIO_META_NETWORK";

/// Returns the injected pod, and warnings about it.
///
/// # Errors
/// An annotation is invalid, or a template cannot be rendered or merged; see [`Error`].
pub(super) fn inject(
    config: &Config,
    overlays: &Overlays,
    subject: &Subject<'_>,
    budget: &mut Budget,
) -> Result<(Value, Vec<String>), Error> {
    annotations::check(subject.pod)?;
    let (recorded, status) = (Overrides::of(subject.pod, budget)?, Status::of(subject.pod, budget)?);
    let Some(status) = &status else {
        let rendered = render(config, overlays, subject, &Source::First(&recorded), budget)?;
        return merge(config, subject, &Source::First(&recorded), rendered, budget);
    };
    let before = former::before(subject.pod, (status, &recorded), &subject.owner.name, budget)?;
    if status.settings.is_some() && status.settings == digest::of_subject(subject) {
        let again = Source::Again { before: &before, status };
        let present = without_former_network(config, subject, status);
        let subject = &Subject { pod: &present, ..subject.clone() };
        let rendered = render(config, overlays, subject, &again, budget)?;
        // If the templates no longer add all items in the status, the settings differ in a part that the digest does not cover.
        if status.is_within(&rendered.template_pod) {
            return merge(config, subject, &again, rendered, budget);
        }
    }
    let (former, subject, none) = (subject.pod, &Subject { pod: &before, ..subject.clone() }, Overrides::default());
    let rendered = render(config, overlays, subject, &Source::First(&none), budget)?;
    let (merged, mut warnings) = merge(config, subject, &Source::First(&none), rendered, budget)?;
    warnings.extend(former::check(former, &merged)?);
    // The webhook would repeat these warnings for each pod of a workload.
    if subject.digest.is_none() {
        warnings.extend(former::unclear((former, &before, &merged), (status, &recorded), &subject.owner.name));
    }
    Ok((merged, warnings))
}

/// Where the pod's own containers are.
#[derive(Debug)]
enum Source<'s> {
    /// In the pod, and in these overrides: those in the annotation of a pod without a status, or none.
    First(&'s Overrides),
    /// In the pod before a former injection, which had the same settings and wrote this status.
    Again { before: &'s Value, status: &'s Status },
}

impl<'s> Source<'s> {
    fn status(&self) -> Option<&'s Status> {
        match self {
            Self::First(_) => None,
            Self::Again { status, .. } => Some(*status),
        }
    }
}

/// Makes all changes that follow the merge of the overlays, and checks the pod.
fn merge(
    config: &Config,
    subject: &Subject<'_>,
    source: &Source<'_>,
    rendered: Rendered<'_>,
    budget: &mut Budget,
) -> Result<(Value, Vec<String>), Error> {
    let Rendered { own, mut merged, template_pod, missing, deleted } = rendered;
    startable::remain(&own, &merged, &deleted)?;
    let (env, status) = (cluster_env(config, subject), source.status());
    let none = Overrides::default();
    let recorded = if let Source::First(recorded) = source { *recorded } else { &none };
    let own = OwnContainers { pod: &own, recorded };
    overrides::reapply(&mut merged, &own, &template_pod, budget)?;
    for which in [CONTAINERS, INIT_CONTAINERS] {
        let names: HashSet<&str> = pod::containers(&template_pod, which).iter().map(pod::name).collect();
        let mut injected = pod::containers(&merged, which).iter().filter(|item| names.contains(pod::name(item)));
        injected.try_for_each(|container| values::check_image(container, &missing))?;
    }
    let mode = pod::text(&subject.proxy_config, "interceptionMode");
    let tproxy = mode == "TPROXY" || pod::annotation(&merged, annotation::INTERCEPTION_MODE) == Some("TPROXY");
    overrides::follow_user(&mut merged, &own, tproxy);
    replace_env(&mut merged, &env);
    if let Some(network) = env.get(NETWORK) {
        pod::labels_mut(&mut merged).insert(annotation::NETWORK.to_owned(), network.as_str().into());
    }
    if let Source::Again { before, .. } = source {
        prometheus::renew(&mut merged, before);
        probes::renew(&mut merged, before, budget)?;
    }
    let mut warnings = finish(config, subject, &mut merged, budget)?;
    if status.is_some() {
        keep_order(&mut merged, subject.pod);
    }
    let settings = digest::of_subject(subject);
    let describe = |record: Option<&Record>| {
        Value::from(status::describe(&template_pod, &config.revision, settings.as_deref(), record))
    };
    set_status(&mut merged, describe(None));
    let original = if let Source::Again { before, .. } = source { *before } else { subject.pod };
    let record = former::unknown(&merged, original, (&subject.owner.name, settings.is_none()), budget)?;
    if record.is_some() {
        set_status(&mut merged, describe(record.as_ref()));
    }
    annotations::check_injected(&merged)?;
    early::check(&merged, subject.context())?;
    startable::check((subject.pod, subject.claims), &merged, &template_pod)?;
    let configs = (&config.mesh.json, &subject.proxy_config);
    status_port::check(subject.pod, &merged, configs)?;
    warnings.extend(status_port::warnings(subject.pod, &merged, configs));
    warnings.extend(early::warnings(&merged, subject.context()));
    let templates = selected(config, subject)?;
    let names = || templates.iter().map(|template| template.name());
    warnings.extend(unused::warnings(&config.settings.reads, names(), subject.pod));
    warnings.extend(unused::ineffective(&config.settings.reads, names(), (original, &merged), mode));
    Ok((merged, warnings))
}

fn set_status(pod: &mut Value, status: Value) {
    pod::annotations_mut(pod).insert(annotation::STATUS.to_owned(), status);
}

/// Returns the environment variables of the sidecar. For the cluster and the network, the request takes precedence over
/// Helm's values; for the network, the pod's label takes precedence over both.
fn cluster_env(config: &Config, subject: &Subject<'_>) -> BTreeMap<String, String> {
    let mut env = subject.env.clone();
    let requested = |name: &str| subject.env.get(name).filter(|value| !value.is_empty()).map(String::as_str);
    // An empty label disables the network of Helm's values, but not the network of the request, which is already in
    // `env`.
    let label = pod::label(subject.pod, annotation::NETWORK);
    let network = label.or(requested(NETWORK)).unwrap_or(&config.values.network);
    for (name, value) in [(CLUSTER, requested(CLUSTER).unwrap_or(&config.values.cluster)), (NETWORK, network)] {
        if !value.is_empty() {
            env.insert(name.to_owned(), value.to_owned());
        }
    }
    env
}

/// Returns the pod without the sidecar's variable for the network if the former injection took its value from a label that the pod lacks
/// now.
fn without_former_network<'a>(config: &Config, subject: &Subject<'a>, status: &Status) -> Cow<'a, Value> {
    let mut pod = Cow::Borrowed(subject.pod);
    let former = status.record.as_ref().and_then(|record| pod::label(&record.before, annotation::NETWORK));
    let variable = pod::sidecar(subject.pod).and_then(|sidecar| pod::find(pod::list(sidecar, "env"), NETWORK));
    let is_former = variable.is_some_and(|variable| former == Some(pod::text(variable, "value")));
    if is_former
        && !cluster_env(config, subject).contains_key(NETWORK)
        && let Some(sidecar) = pod::sidecar_mut(pod.to_mut())
    {
        pod::remove_env(sidecar, NETWORK);
    }
    pod
}

/// The output of all templates.
struct Rendered<'a> {
    /// The pod before the overlays, with its own sidecar moved to the list that has the templates' sidecar.
    own: Cow<'a, Value>,
    /// The pod with all overlays.
    merged: Value,
    /// The merged outlines: a pod with the names of all injected items.
    template_pod: Value,
    /// The templates' expressions that have no value.
    missing: Vec<String>,
    /// The names of the containers that a template deletes.
    deleted: HashSet<String>,
}

/// Renders the templates and merges each overlay into the pod.
fn render<'a>(
    config: &Config,
    overlays: &Overlays,
    subject: &Subject<'a>,
    source: &Source<'a>,
    budget: &mut Budget,
) -> Result<Rendered<'a>, Error> {
    let native =
        pod::annotation(subject.pod, annotation::NATIVE_SIDECAR).and_then(parse_bool).unwrap_or(subject.native);
    let seen = seen(subject, source, native);
    let data = Data::new(config, subject, &seen);
    let value = data.value();
    let spliced = Spliced::of(config, subject, &seen, budget)?;
    let mut rendered = Vec::new();
    let mut all_missing = Vec::new();
    for template in selected(config, subject)? {
        let name = template.name();
        let output = template.render_recorded(&value, None, budget)?;
        if let Some(spliced) = &spliced {
            spliced.check(template, &output, budget)?;
        }
        all_missing.extend(output.missing);
        let overlay = overlays.read(output.text, budget).map_err(|error| Error::rendered(name, error))?;
        annotations::check_networks(subject.pod, &overlay.pod, budget)?;
        if !matches!(overlay.pod, Value::Object(_) | Value::Null) {
            return Err(Error::NoPod(name.to_owned()));
        }
        // A merge would replace the pod's value with a value of a wrong type.
        let of_pod = Struct::named("core.Pod").map_or(Ok(()), |of| of.check(&overlay.pod));
        of_pod.map_err(|error| Error::Typed { template: name.to_owned(), error: error.into() })?;
        rendered.push((name, overlay));
    }
    let all: Vec<&Value> = rendered.iter().map(|(_, overlay)| &overlay.pod).collect();
    let place = place::of(&all, subject.pod, native);
    let placed = |pod: &'a Value| {
        let mut placed = Cow::Borrowed(pod);
        if place.is_some_and(|place| place::is_elsewhere(&placed, place)) {
            place.into_iter().for_each(|place| place::move_to(placed.to_mut(), place));
        }
        placed
    };
    let mut merged = placed(subject.pod).into_owned();
    let own = placed(if let Source::Again { before, .. } = source { before } else { subject.pod });
    let mut template_pod = Value::Object(Map::new());
    let deleted = all.iter().flat_map(|overlay| deleted(overlay)).collect();
    for (name, overlay) in rendered {
        let mut merge = |into: &mut Value, mut overlay| {
            let second = place.and_then(|place| place::second(&mut overlay, place));
            place.into_iter().for_each(|place| place::move_to(&mut overlay, place));
            let mut parts = std::iter::once(overlay).chain(second);
            parts
                .try_for_each(|part| {
                    unions::give_way_to_overlay(into, &part);
                    merge_pod(into, part, budget)
                })
                .map_err(|error| Error::Merge { template: name.to_owned(), error })
        };
        let Overlay { pod: partial, outline } = Arc::unwrap_or_clone(overlay);
        merge(&mut template_pod, outline)?;
        merge(&mut merged, partial)?;
    }
    Ok(Rendered { own, merged, template_pod, missing: all_missing, deleted })
}

/// Returns the names of the containers that an overlay deletes.
fn deleted(overlay: &Value) -> impl Iterator<Item = String> {
    let containers = [CONTAINERS, INIT_CONTAINERS].into_iter().flat_map(|which| pod::containers(overlay, which));
    containers.filter(|container| pod::text(container, "$patch") == "delete").map(|item| pod::name(item).to_owned())
}

/// Returns the pod's templates in their order. If a name occurs more than twice, only its first and its last occurrence
/// are rendered: the last one sets again all fields that an occurrence between them would set.
fn selected<'a>(config: &'a Config, subject: &Subject<'_>) -> Result<Vec<&'a Template>, Error> {
    let Program::Modern { templates, .. } = &config.settings.program else { return Err(Error::NoTemplates) };
    let requested: Vec<&str> = match pod::annotation(subject.pod, annotation::TEMPLATES) {
        Some(names) => first_and_last(names.split(',').map(str::trim)),
        None => subject.templates.iter().map(String::as_str).collect(),
    };
    let template = |name: &str| {
        let have = || templates.keys().cloned().collect::<Vec<_>>().join(", ");
        templates.get(name).ok_or_else(|| Error::UnknownTemplate { name: name.to_owned(), have: have() })
    };
    let mut expanded = Vec::new();
    for name in requested {
        match subject.aliases.get(name) {
            Some(names) => expanded.extend(names.iter().map(String::as_str)),
            None => expanded.push(template(name)?.name()),
        }
    }
    first_and_last(expanded.into_iter()).into_iter().map(template).collect()
}

/// Returns the first and the last occurrence of each name, in order.
fn first_and_last<'n>(names: impl Iterator<Item = &'n str>) -> Vec<&'n str> {
    let names: Vec<&str> = names.collect();
    let mut places: HashMap<&str, (usize, usize)> = HashMap::new();
    for (at, name) in names.iter().enumerate() {
        places.entry(name).and_modify(|(_, last)| *last = at).or_insert((at, at));
    }
    let is_end = |(at, name): &(usize, &str)| places.get(name).is_some_and(|(first, last)| at == first || at == last);
    names.iter().copied().enumerate().filter(is_end).map(|(_, name)| name).collect()
}

/// Returns the pod for the templates' data: without the additions of an earlier injection, with its namespace, and with the containers in
/// its overrides. `native`: whether its sidecar is native. If the pod has the annotation for that, it is set to this value, because
/// templates compare it with `false`.
fn seen<'a>(subject: &Subject<'a>, source: &Source<'a>, native: bool) -> Cow<'a, Value> {
    let mut seen = match source {
        Source::First(_) => Cow::Borrowed(subject.pod),
        Source::Again { before, .. } => Cow::Borrowed(*before),
    };
    if pod::text(pod::metadata(&seen), "namespace") != subject.namespace {
        pod::map_mut(seen.to_mut(), "metadata").insert("namespace".to_owned(), subject.namespace.into());
    }
    let native = if native { "true" } else { "false" };
    if pod::annotation(&seen, annotation::NATIVE_SIDECAR).is_some_and(|value| value != native) {
        pod::annotations_mut(seen.to_mut()).insert(annotation::NATIVE_SIDECAR.to_owned(), native.into());
    }
    let Source::First(recorded) = source else { return seen };
    for which in [CONTAINERS, INIT_CONTAINERS] {
        let present: HashSet<&str> = pod::containers(subject.pod, which).iter().map(pod::name).collect();
        let recorded = recorded.containers(which).iter();
        let missing: Vec<Value> =
            recorded.filter(|container| !present.contains(pod::name(container))).cloned().collect();
        if !missing.is_empty() {
            pod::list_mut(pod::spec_mut(seen.to_mut()), which).extend(missing);
        }
    }
    seen
}

/// Sets variables of the sidecar, after those of the template.
fn replace_env(merged: &mut Value, env: &BTreeMap<String, String>) {
    let Some(sidecar) = pod::sidecar_mut(merged).filter(|_| !env.is_empty()) else { return };
    pod::list_mut(sidecar, "env").retain(|variable| !env.contains_key(pod::name(variable)));
    env.iter().for_each(|(name, value)| pod::push_env(sidecar, name, value));
}

/// Sorts the sidecar's variables into the order that they have in the pod `before` the merge; new ones follow them.
fn keep_order(merged: &mut Value, before: &Value) {
    let variables = |sidecar| pod::list(sidecar, "env").iter().map(pod::name).enumerate().rev();
    let places: HashMap<&str, usize> =
        pod::sidecar(before).into_iter().flat_map(variables).map(|(at, name)| (name, at)).collect();
    if let Some(sidecar) = pod::sidecar_mut(merged).filter(|_| !places.is_empty()) {
        let place = |variable: &Value| places.get(pod::name(variable)).copied().unwrap_or(usize::MAX);
        pod::list_mut(sidecar, "env").sort_by_key(place);
    }
}

/// Makes the changes that need no template: metrics, probes, annotations, and the order of containers.
/// Returns warnings about the pod.
fn finish(
    config: &Config,
    subject: &Subject<'_>,
    merged: &mut Value,
    budget: &mut Budget,
) -> Result<Vec<String>, Error> {
    let configured = prometheus::configured(subject.status_port(), &config.mesh);
    let ports = prometheus::Ports::of(merged, configured);
    prometheus::merge(merged, config.mesh.prometheus_merge, ports, budget)?;
    prometheus::secure_port(merged);
    let held = subject.proxy_config.get("holdApplicationUntilProxyStarts") == Some(&Value::Bool(true));
    order::reorder(merged, held || config.values.hold);
    if probes::are_rewritten(merged, config.values.rewrite_probes) {
        let injected = pod::annotation(merged, annotation::STATUS).is_some();
        probes::rewrite(merged, subject.context(), injected, budget)?;
    }
    pod::annotations_mut(merged).extend(subject.annotations.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    Ok(advice::warnings(merged, subject.sandbox))
}

#[cfg(test)]
mod tests;
