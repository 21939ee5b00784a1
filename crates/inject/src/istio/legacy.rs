//! The injection of Istio up to 1.8: a single template renders lists of containers and volumes, and a patch adds these
//! to the pod. The operations of the patch are in the order of Istio 1.8.

pub(super) mod kube_inject;
mod render;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::HashSet;

use contract::{annotation, container};
use gocompat::parse_bool;
use gotemplate::{Budget, Exceeded};
use serde_json::{Map, Value, json};

use super::config::Config;
use super::legacy_template::{GROUP, LegacyTemplate};
use super::status::Status;
use super::subject::Subject;
use super::{Error, annotations, former, probes, prometheus, startable};
use crate::patch::{self, Operation, push_escaped};
use crate::pod::{self, CONTAINERS, IMAGE_PULL_SECRETS, INIT_CONTAINERS, VOLUMES};
use render::Parts;

const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The number of list elements that are moved in the time of one step of the budget.
const ELEMENTS_MOVED_PER_STEP: usize = 16;

/// Returns the patch that injects a pod.
///
/// # Errors
/// An annotation of the pod or the output of the template is invalid; see [`Error`].
pub(super) fn inject(
    config: &Config,
    template: &LegacyTemplate,
    subject: &Subject<'_>,
    budget: &mut Budget,
) -> Result<Vec<Operation>, Error> {
    let pod = subject.pod;
    let former = status(pod, budget)?;
    let (mut parts, rewritten) = rendered(config, template, subject, budget)?;
    let release = template.release(&config.values);
    // In Istio 1.1, the operations that rewrite probes are the last ones.
    let (mut operations, last) = if release > 1 { (rewritten, Vec::new()) } else { (Vec::new(), rewritten) };
    let merge = pod::annotation(pod, annotation::MERGE_METRICS).and_then(parse_bool);
    let merge = release >= 6 && merge.unwrap_or(config.mesh.prometheus_merge);
    if merge {
        match &former {
            Some(status) => record_scraping(&former::with_own_metrics(pod, status, budget)?, &mut parts, budget)?,
            None => record_scraping(pod, &mut parts, budget)?,
        }
    }
    let mut annotations = config.settings.injected_annotations.clone();
    if merge {
        let port = prometheus::port(pod, prometheus::configured(subject.status_port(), &config.mesh));
        annotations.insert("prometheus.io/port".to_owned(), port.to_string().into());
        annotations.insert("prometheus.io/path".to_owned(), "/stats/prometheus".into());
        annotations.insert("prometheus.io/scrape".to_owned(), "true".into());
    }
    annotations.insert(annotation::STATUS.to_owned(), parts.status(&template.version).into());
    let previous = former.filter(|status| !status.is_empty()).unwrap_or_else(former_names);
    let removed = removed(pod, &previous);
    // Removing an element of a list moves the elements after it.
    budget.step(removed.len().saturating_mul(longest(pod) / ELEMENTS_MOVED_PER_STEP))?;
    operations.extend(removed);
    operations.extend(added(pod, &mut parts));
    operations
        .extend(parts.dns_config.take().map(|value| Operation::Add { path: "/spec/dnsConfig".to_owned(), value }));
    if takes_group(config, release) {
        let mut context = pod::spec(pod).get("securityContext").cloned().unwrap_or_default();
        pod::object(&mut context).insert("fsGroup".to_owned(), GROUP.into());
        operations.push(Operation::Add { path: "/spec/securityContext".to_owned(), value: context });
    }
    operations.extend(annotated(pod, annotations));
    operations.extend(labelled(pod, config, (&subject.owner.name, release)));
    operations.extend(last);
    Ok(operations)
}

/// Returns the status of a former injection. An invalid status is treated as absent, as in the releases of legacy templates.
///
/// # Errors
/// The budget is spent.
fn status(pod: &Value, budget: &mut Budget) -> Result<Option<Status>, Error> {
    match Status::of(pod, budget) {
        Err(Error::Record(_)) => Ok(None),
        status => status,
    }
}

/// Returns the pod before a former injection by templates of later releases, if there was one: it wrote more than a
/// legacy template's injection replaces.
///
/// # Errors
/// A record of the former injection is damaged, or the budget is spent.
pub(super) fn without_later<'a>(pod: &'a Value, workload: &str, budget: &mut Budget) -> Result<Cow<'a, Value>, Error> {
    match status(pod, budget)? {
        Some(status) if !status.is_legacy && !status.is_empty() => former::original(pod, workload, budget),
        _ => Ok(Cow::Borrowed(pod)),
    }
}

/// Renders the template. Also returns the operations that rewrite the pod's probes, whose originals are recorded in the
/// sidecar.
///
/// # Errors
/// An annotation of the pod or the output of the template is invalid; see [`Error`].
fn rendered(
    config: &Config,
    template: &LegacyTemplate,
    subject: &Subject<'_>,
    budget: &mut Budget,
) -> Result<(Parts, Vec<Operation>), Error> {
    annotations::check(subject.pod)?;
    let mut parts = render::render(config, &template.compiled, subject, budget)?;
    let rewritten = match probes::are_rewritten(subject.pod, parts.rewrite_probes) {
        true => rewritten_probes(subject.pod, &mut parts, subject.status_port(), budget)?,
        false => Vec::new(),
    };
    Ok((parts, rewritten))
}

/// Whether the patch sets the pod's `fsGroup` to [`GROUP`]. Before Istio 1.5 it does so only in meshes with mounted
/// tokens.
fn takes_group(config: &Config, release: u32) -> bool {
    release >= 5 || config.mesh.json.get("enableSdsTokenMount") == Some(&Value::Bool(true))
}

/// Applies the patch to a pod, and checks the result. Adds `metadata` and `spec` first if they are absent or null, because no operation
/// creates them: a pod in a request of the API server always has both.
pub(super) fn patched(pod: &Value, operations: &[Operation]) -> Result<Value, Error> {
    let mut patched = pod.clone();
    for part in ["metadata", "spec"] {
        let part = pod::object(&mut patched).entry(part).or_insert(Value::Null);
        if part.is_null() {
            *part = json!({});
        }
    }
    let patched = patch::apply(patched, operations)?;
    annotations::check_injected(&patched)?;
    startable::check_whole_pod(pod, &patched)?;
    Ok(patched)
}

/// Returns the names of the items that the first releases, which wrote no status, injected.
fn former_names() -> Status {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Status {
        init_containers: names(&[container::INIT, container::CORE_DUMP]),
        containers: names(&[container::PROXY]),
        volumes: names(&["istio-certs", "istio-envoy"]),
        ..Status::default()
    }
}

/// Returns the operations that rewrite probes; none if the template has no sidecar that could answer the rewritten
/// probes.
///
/// # Errors
/// The budget is spent.
fn rewritten_probes(
    pod: &Value,
    parts: &mut Parts,
    status_port: u16,
    budget: &mut Budget,
) -> Result<Vec<Operation>, Exceeded> {
    let Some(sidecar) = parts.sidecar() else { return Ok(Vec::new()) };
    let (probes, known) = probes::http_probes(pod, status_port, budget)?;
    if let Some(known) = known {
        pod::push_env(sidecar, probes::PROBERS, &known);
    }
    Ok(probes)
}

/// Returns the operations that remove the items of an earlier injection, from the end of each list, so that the indices
/// of later operations stay valid.
fn removed(pod: &Value, previous: &Status) -> Vec<Operation> {
    let removed = |(which, names): (&'static str, &Vec<String>)| {
        let names: HashSet<&str> = names.iter().map(String::as_str).collect();
        let items = pod::list(pod::spec(pod), which).iter().enumerate().rev();
        let removed = items.filter(|(_, item)| names.contains(pod::name(item)));
        removed.map(|(at, _)| Operation::Remove { path: format!("/spec/{which}/{at}") }).collect::<Vec<_>>()
    };
    previous.lists().into_iter().flat_map(removed).collect()
}

/// Returns the length of the longest of the lists to which an injection adds items.
fn longest(pod: &Value) -> usize {
    let lists = [INIT_CONTAINERS, CONTAINERS, VOLUMES, IMAGE_PULL_SECRETS];
    lists.iter().map(|which| pod::list(pod::spec(pod), which).len()).max().unwrap_or_default()
}

/// Records the application's Prometheus annotations for the agent, before they are overwritten.
///
/// # Errors
/// The budget is spent.
fn record_scraping(pod: &Value, parts: &mut Parts, budget: &mut Budget) -> Result<(), Exceeded> {
    let scraping = ["scrape", "path", "port"].map(|what| {
        let value = pod::annotation(pod, &format!("prometheus.io/{what}")).unwrap_or_default();
        (what.to_owned(), Value::from(value))
    });
    if scraping.iter().all(|(_, value)| value == "") {
        return Ok(());
    }
    let text = crate::gojson::encode(&Value::Object(scraping.into_iter().collect()), budget)?;
    if let Some(sidecar) = parts.sidecar() {
        pod::push_env(sidecar, prometheus::SCRAPING, &text);
    }
    Ok(())
}

fn added(pod: &Value, parts: &mut Parts) -> Vec<Operation> {
    let token = pod::containers(pod, CONTAINERS)
        .iter()
        .flat_map(|c| pod::list(c, "volumeMounts"))
        .rfind(|mount| pod::text(mount, "mountPath") == TOKEN_PATH);
    if let (Some(mount), Some(sidecar)) = (token, parts.sidecar()) {
        pod::list_mut(sidecar, "volumeMounts").push(mount.clone());
    }
    let hold = parts.hold;
    let is_first = |item: &Value| match pod::name(item) {
        container::VALIDATION => true,
        container::PROXY => hold,
        _ => false,
    };
    let mut operations = Vec::new();
    for (which, items) in parts.lists() {
        let path = format!("/spec/{which}");
        let mut empty = pod::list(pod::spec(pod), which).is_empty();
        for item in items {
            let containers = which == CONTAINERS || which == INIT_CONTAINERS;
            let (path, value) = match (empty, containers && is_first(item)) {
                (true, _) => (path.clone(), json!([item])),
                (false, true) => (format!("{path}/0"), item.clone()),
                (false, false) => (format!("{path}/-"), item.clone()),
            };
            empty = false;
            operations.push(Operation::Add { path, value });
        }
    }
    operations
}

fn annotated(pod: &Value, mut added: Map<String, Value>) -> Vec<Operation> {
    added.sort_keys();
    let present = pod::metadata(pod).get("annotations").and_then(Value::as_object);
    members("annotations", present.is_some(), added, |key| {
        present.and_then(|present| present.get(key)).is_some_and(|value| value != "")
    })
}

fn labelled(pod: &Value, config: &Config, (workload, release): (&str, u32)) -> Vec<Operation> {
    let present = pod::metadata(pod).get("labels").and_then(Value::as_object);
    let label = |name: &str| pod::label(pod, name).filter(|value| !value.is_empty());
    let first = |names: &[&str], default: &str| names.iter().find_map(|name| label(name)).unwrap_or(default).to_owned();
    let (name, revision) = ("service.istio.io/canonical-name", "service.istio.io/canonical-revision");
    let mut added = Map::new();
    let mut add = |since: u32, key: &str, value: String| {
        if release >= since && label(key).is_none() {
            added.insert(key.to_owned(), value.into());
        }
    };
    add(6, "istio.io/rev", config.revision.clone());
    add(4, "security.istio.io/tlsMode", "istio".to_owned());
    add(6, name, first(&["app.kubernetes.io/name", "app"], workload));
    add(6, revision, first(&["app.kubernetes.io/version", "version"], "latest"));
    if !config.values.network.is_empty() {
        add(6, annotation::NETWORK, config.values.network.clone());
    }
    members("labels", present.is_some(), added, |_| false)
}

/// Returns the operations that set members of a map in the metadata. Unless the map is `present`, the first operation
/// creates it. `replaces`: whether a key is replaced instead of added.
fn members(map: &str, mut present: bool, added: Map<String, Value>, replaces: impl Fn(&str) -> bool) -> Vec<Operation> {
    let mut operations = Vec::with_capacity(added.len());
    for (key, value) in added {
        let mut path = format!("/metadata/{map}");
        if !present {
            present = true;
            operations.push(Operation::Add { path, value: json!({key: value}) });
            continue;
        }
        path.push('/');
        push_escaped(&mut path, &key);
        operations.push(match replaces(&key) {
            true => Operation::Replace { path, value },
            false => Operation::Add { path, value },
        });
    }
    operations
}
