//! The injection of Istio since 1.9: renders the templates, merges their output into the pod, reapplies the pod's
//! overrides, and makes the changes that need no template.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use gotemplate::{Budget, Template};
use serde_json::{Map, Value};

use super::config::Config;
use super::data::Data;
use super::overlay::{Overlay, Overlays};
use super::overrides::{self, Overrides, OwnContainers};
use super::settings::Program;
use super::splice::Spliced;
use super::status::{self, Status};
use super::subject::Subject;
use super::{Error, advice, annotations, order, probes, prometheus, startable, unused, values};
use crate::contract::{annotation, container};
use crate::inject::merge_pod;
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};
use crate::redirect::annotations::parse_bool;

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
    let env = cluster_env(config, subject);
    let status = Status::of(subject.pod, budget)?;
    let recorded = Overrides::of(subject.pod, budget)?;
    let Rendered { mut merged, template_pod, missing } =
        render(config, overlays, subject, (&recorded, status.as_ref()), budget)?;
    let own = OwnContainers { pod: subject.pod, recorded: &recorded, status: status.as_ref() };
    overrides::reapply(&mut merged, &own, &template_pod, budget)?;
    for which in [CONTAINERS, INIT_CONTAINERS] {
        let names: HashSet<&str> = pod::containers(&template_pod, which).iter().map(pod::name).collect();
        let mut injected = pod::containers(&merged, which).iter().filter(|item| names.contains(pod::name(item)));
        injected.try_for_each(|container| values::check_image(container, &missing))?;
    }
    let mode = pod::text(&subject.proxy_config, "interceptionMode");
    let tproxy = mode == "TPROXY" || pod::annotation(&merged, annotation::INTERCEPTION_MODE) == Some("TPROXY");
    overrides::follow_user(&mut merged, &own, tproxy);
    let mut warnings = finish(config, subject, &env, &template_pod, &mut merged, budget)?;
    annotations::check_injected(&merged)?;
    startable::check(&merged, &template_pod)?;
    let templates = selected(config, subject)?;
    let names = templates.iter().map(|template| template.name());
    warnings.extend(unused::warnings(&config.settings.reads, names, subject.pod));
    Ok((merged, warnings))
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

/// The output of all templates.
struct Rendered {
    /// The pod with all overlays.
    merged: Value,
    /// The merged outlines: a pod with the names of all injected items.
    template_pod: Value,
    /// The templates' expressions that have no value.
    missing: Vec<String>,
}

/// Renders the templates and merges each overlay into the pod.
fn render(
    config: &Config,
    overlays: &Overlays,
    subject: &Subject<'_>,
    (recorded, status): (&Overrides, Option<&Status>),
    budget: &mut Budget,
) -> Result<Rendered, Error> {
    let seen = stripped(subject, recorded, status);
    let data = Data::new(config, subject, &seen);
    let value = data.value();
    let spliced = Spliced::of(config, subject, &seen, budget)?;
    let mut merged = subject.pod.clone();
    let mut template_pod = Value::Object(Map::new());
    let mut all_missing = Vec::new();
    for template in selected(config, subject)? {
        let name = template.name();
        let (text, missing) = template.render_with_missing(&value, budget)?;
        if let Some(spliced) = &spliced {
            spliced.check(template, &text, budget)?;
        }
        all_missing.extend(missing);
        let overlay = overlays.read(text, budget).map_err(|error| Error::rendered(name, error))?;
        let mut merge = |into: &mut Value, overlay| {
            merge_pod(into, overlay, budget).map_err(|error| Error::Merge { template: name.to_owned(), error })
        };
        let Overlay { pod: partial, outline } = Arc::unwrap_or_clone(overlay);
        merge(&mut template_pod, outline)?;
        make_native(subject, &template_pod, &mut merged);
        merge(&mut merged, partial)?;
    }
    Ok(Rendered { merged, template_pod, missing: all_missing })
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

/// Returns the pod for the templates' data, without the additions of an earlier injection.
fn stripped<'a>(subject: &Subject<'a>, recorded: &Overrides, status: Option<&Status>) -> Cow<'a, Value> {
    let named = pod::text(pod::metadata(subject.pod), "namespace") == subject.namespace;
    let lists = [CONTAINERS, INIT_CONTAINERS];
    let none_recorded = lists.iter().all(|which| recorded.containers(which).is_empty());
    if named && status.is_none() && none_recorded {
        return Cow::Borrowed(subject.pod);
    }
    let mut seen = subject.pod.clone();
    if !named {
        pod::map_mut(&mut seen, "metadata").insert("namespace".to_owned(), subject.namespace.into());
    }
    if let Some(status) = status {
        for which in lists.into_iter().filter(|which| !pod::containers(&seen, which).is_empty()).collect::<Vec<_>>() {
            let injected: HashSet<&str> = status.containers_of(which).iter().map(String::as_str).collect();
            pod::list_mut(pod::spec_mut(&mut seen), which).retain(|container| !injected.contains(pod::name(container)));
        }
        if prometheus::is_merged(&seen, prometheus::port(&seen, subject.status_port())) {
            prometheus::clear(&mut seen);
        }
        pod::annotations_mut(&mut seen).shift_remove(annotation::STATUS);
    }
    for which in lists {
        let present: HashSet<&str> = pod::containers(subject.pod, which).iter().map(pod::name).collect();
        let injected = status.map_or(&[][..], |status| status.containers_of(which));
        let stripped: HashSet<&str> = injected.iter().map(String::as_str).collect();
        let missing: Vec<Value> = recorded
            .containers(which)
            .iter()
            .filter(|container| {
                let name = pod::name(container);
                !present.contains(name) || stripped.contains(name)
            })
            .cloned()
            .collect();
        if !missing.is_empty() {
            pod::list_mut(pod::spec_mut(&mut seen), which).extend(missing);
        }
    }
    Cow::Owned(seen)
}

/// Moves the pod's own sidecar from the containers to the init containers, if the template's sidecar is native.
fn make_native(subject: &Subject<'_>, template_pod: &Value, merged: &mut Value) {
    let annotated = pod::annotation(merged, annotation::NATIVE_SIDECAR).and_then(parse_bool);
    let is_native = |pod| pod::find(pod::containers(pod, INIT_CONTAINERS), container::PROXY).is_some();
    if !annotated.unwrap_or(subject.native) || !is_native(template_pod) || is_native(merged) {
        return;
    }
    let Some(at) = pod::containers(merged, CONTAINERS).iter().position(|c| pod::name(c) == container::PROXY) else {
        return;
    };
    let spec = pod::spec_mut(merged);
    let sidecar = pod::list_mut(spec, CONTAINERS).remove(at);
    pod::list_mut(spec, INIT_CONTAINERS).push(sidecar);
}

/// Makes the changes that need no template: variables, metrics, probes, annotations, and the order of containers.
/// Returns warnings about the pod.
fn finish(
    config: &Config,
    subject: &Subject<'_>,
    env: &BTreeMap<String, String>,
    template_pod: &Value,
    merged: &mut Value,
    budget: &mut Budget,
) -> Result<Vec<String>, Error> {
    if let Some(sidecar) = pod::sidecar_mut(merged)
        && !env.is_empty()
    {
        pod::list_mut(sidecar, "env").retain(|variable| !env.contains_key(pod::name(variable)));
        env.iter().for_each(|(name, value)| pod::push_env(sidecar, name, value));
    }
    let ports = prometheus::Ports::of(merged, subject.status_port());
    prometheus::merge(merged, config.mesh.prometheus_merge, ports, budget)?;
    prometheus::secure_port(merged);
    if probes::are_rewritten(merged, config.values.rewrite_probes) {
        let injected = pod::annotation(merged, annotation::STATUS).is_some();
        probes::rewrite(merged, subject.status_port(), injected, budget)?;
    }
    if let Some(network) = env.get(NETWORK) {
        pod::labels_mut(merged).insert(annotation::NETWORK.to_owned(), network.as_str().into());
    }
    let annotations = pod::annotations_mut(merged);
    annotations.insert(annotation::STATUS.to_owned(), status::describe(template_pod, &config.revision).into());
    annotations.extend(subject.annotations.into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    let held = subject.proxy_config.get("holdApplicationUntilProxyStarts") == Some(&Value::Bool(true));
    order::reorder(merged, held || config.values.hold);
    Ok(advice::warnings(merged))
}

#[cfg(test)]
mod tests {
    use gotemplate::Limits;
    use serde_json::json;

    use super::*;
    use crate::inject::istio::{BuiltIn, InjectionOutcome, Injector, Request, Settings};

    /// Returns the labels of a pod that is injected with these templates, with a budget of `steps`.
    fn labels(names: &str, steps: u64) -> Result<Value, Error> {
        let template = |name: &str| format!("{{metadata: {{labels: {{last: {name}, {name}: 'true'}}}}}}");
        let templates = json!({"a": template("a"), "b": template("b"), "c": template("c")});
        let config = json!({"policy": "enabled", "templates": templates, "aliases": {"both": ["a", "b"]}}).to_string();
        let settings = Settings::parse(&config, None)?;
        let injector = Injector::new(Config { settings, ..BuiltIn::default().config()? });
        let pod = json!({"metadata": {"annotations": {annotation::TEMPLATES: names}}});
        let budget = Budget::new(Limits { steps, ..Limits::default() });
        match injector.review(&Request { budget, ..Request::new(&pod, "shop") })? {
            InjectionOutcome::Injected { injected, .. } => Ok(injected.pod["metadata"]["labels"].clone()),
            InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
        }
    }

    /// Returns the steps that the annotation costs before any template is rendered.
    fn charged(names: &str) -> u64 {
        let mut budget = Budget::new(Limits::default());
        let pod = json!({"metadata": {"annotations": {annotation::TEMPLATES: names}}});
        annotations::charge(&pod, &mut budget).unwrap();
        Limits::default().steps - budget.left().steps
    }

    #[test]
    fn repeated_names_are_rendered_at_their_first_and_last_occurrence() {
        assert_eq!(labels("b,a", 1000).unwrap()["last"], "a");
        assert_eq!(labels("a,b,a", 1000).unwrap(), json!({"last": "a", "a": "true", "b": "true"}));
        let names = format!("b,{}", "both, a ,".repeat(10_000) + "c");
        assert_eq!(
            labels(&names, 1000 + charged(&names)).unwrap(),
            json!({"last": "c", "a": "true", "b": "true", "c": "true"})
        );
        assert_eq!(first_and_last("x y x z y x".split(' ')), ["x", "y", "z", "y", "x"]);
    }

    #[test]
    fn a_pod_over_the_budget_is_refused_with_the_reason() {
        let error = labels("a,b,c", 10).unwrap_err();
        assert!(error.is_exceeded() && error.to_string().contains("takes more than 10 steps"), "{error}");
        let names = format!("a,{}", "x,".repeat(30_000));
        let unknown = labels(&names, 1000 + charged(&names)).unwrap_err().to_string();
        assert_eq!(unknown, "requested template \"x\" not found; have a, b, c");
    }
}
