//! The conditions of the API server and the kubelet on what an injection adds to a pod or changes in it.
//!
//! Templates, the pod's own definition of an injected container and annotations are merged field by field, so that each may be valid, but
//! the resulting pod invalid. The injection refuses such a pod and names the field. Otherwise the API server would refuse a pod that its
//! author never wrote, or the pod would be created and never start.

mod change;
mod fields;
mod mounts;
mod names;
mod of_pod;
mod resources;
mod scheduling;
mod sources;
mod whole_pod;

pub(super) use fields::{PROFILES, remain};
pub(super) use resources::check_of_pod as check_resources_of_pod;
pub(super) use whole_pod::check as check_whole_pod;
pub use whole_pod::{Bound, Excess, with_derived_resources};

use std::collections::HashSet;

use contract::annotation;
use podfacts::name::{is_key, is_label_value};
use serde_json::{Map, Value};

use crate::pod::{self, CONTAINERS, INIT_CONTAINERS, VOLUMES};
use crate::typed::{Mismatch, Struct};
use crate::{image, volume};

/// The maximum size of all annotations with their keys, in bytes (`TotalAnnotationSizeLimitB`).
const ANNOTATIONS: usize = 256 * 1024;
/// The maximum length of an image or a name in a message, in characters.
const SHOWN: usize = 100;
/// The fields of a probe of which exactly one is set.
pub(super) const PROBE: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];
/// The fields of a handler in `lifecycle` of which exactly one is set.
pub(super) const HANDLER: &[&str] = &["exec", "httpGet", "tcpSocket", "sleep"];
/// The fields of `valueFrom` of which exactly one is set.
pub(super) const SOURCE: &[&str] = &["fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef"];
/// The probes of a container.
pub(super) const PROBES: [&str; 3] = ["startupProbe", "readinessProbe", "livenessProbe"];
/// The handlers of a container's `lifecycle`.
pub(super) const HANDLERS: [&str; 2] = ["postStart", "preStop"];

/// Why an injected pod would not be created or would not start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unstartable {
    #[error("two containers are named {0:?}")]
    SameName(String),
    #[error("the templates delete all containers of the pod")]
    NoContainers,
    #[error("the templates delete container {0:?} of the pod, but none does by its name")]
    Lost(String),
    #[error("two volumes are named {0:?}")]
    SameVolume(String),
    #[error("{place} has {field} {value}, which must be {allowed}")]
    Field {
        /// The container, or the pod.
        place: String,
        field: String,
        /// The value in JSON.
        value: String,
        allowed: &'static str,
    },
    #[error("container {0} has no image")]
    NoImage(String),
    /// A container still has the image `auto`, which stands for a template's image.
    #[error(
        "container {0} has the image \"auto\", which stands for that of a template, and no template of this pod has an image for a \
         container of this name: correct the name, the pod's annotation inject.istio.io/templates, or the image"
    )]
    Auto(String),
    #[error("container {container} has the image {image:?}, which no kubelet can parse: {error}")]
    Image {
        container: String,
        /// The beginning of the image.
        image: String,
        error: image::Invalid,
    },
    #[error("{place} has {found}: exactly one of {allowed} is required")]
    Alternatives { place: String, found: String, allowed: String },
    #[error("container {container} mounts volume {volume:?}, which the pod does not have")]
    NoVolume { container: String, volume: String },
    #[error("volume {volume:?} has a file with a resource of container {container:?}, which the pod does not have")]
    NoContainer { volume: String, container: String },
    #[error("volume {name:?} would be refused by the API server: {error}")]
    Volume { name: String, error: volume::Invalid },
    #[error("the mount of volume {name:?} in container {container} would be refused by the API server: {error}")]
    Mount { container: String, name: String, error: volume::Invalid },
    #[error("container {container} mounts two volumes at {path:?}")]
    SameMount { container: String, path: String },
    #[error("volume {volume:?} has several sources ({sources}): the pod and the template define it differently")]
    Sources { volume: String, sources: String },
    #[error("variable {name:?} of container {container} has both a value and a source (valueFrom)")]
    Variable { container: String, name: String },
    #[error("container {container} has a variable with the invalid name {name:?}")]
    VariableName { container: String, name: String },
    #[error("{place} requests {request} {resource}, more than its limit of {limit}")]
    Request { place: String, resource: String, request: String, limit: String },
    #[error(
        "{place} requests {request} {resource}, of which its limit must be the same amount, but its limit is {limit}"
    )]
    Whole { place: String, resource: String, request: String, limit: String },
    #[error(transparent)]
    WholePod(Excess),
    #[error("a rule of the Job's podFailurePolicy names container {0:?}, which the injected pod does not have")]
    Failures(String),
    #[error("the workload's selector does not select the injected pod, which has {0}")]
    Unselected(String),
    #[error("container {container} must not escalate privileges (allowPrivilegeEscalation: false), but {privilege}")]
    Escalation { container: String, privilege: &'static str },
    #[error("container {0} must not run as root (runAsNonRoot), but runs as user 0")]
    Root(String),
    #[error("init container {container} has {field}, which only native sidecars (restartPolicy: Always) may have")]
    Init { container: String, field: &'static str },
    #[error("the API server refuses {0}")]
    Type(Mismatch),
    #[error("container {container} has two ports named {name:?}")]
    SamePort { container: String, name: String },
    #[error(
        "{what} {name:?} would have an invalid name: it must be 1 to 63 letters, digits, \"-\", \"_\" and \".\", perhaps after a domain and a slash"
    )]
    Name { what: &'static str, name: String },
    #[error("label {name:?} would have the invalid value {value:?}")]
    Label { name: String, value: String },
    #[error(
        "all annotations would have {bytes} bytes with their names, and the API server allows 262144; the largest is {largest:?} with \
         {of_largest} bytes{}", if *is_record { ", the record of the pod's own containers" } else { "" }
    )]
    Annotations { bytes: usize, largest: String, of_largest: usize, is_record: bool },
}

/// Checks the injection of the pod `author`, which became `merged`. `claims`: the names of volumes that the pod's controller adds,
/// `template_pod`: a pod with the names of all injected containers and volumes.
///
/// # Errors
/// The pod would not be created, or would not start, because of what was injected.
pub(super) fn check(
    (author, claims): (&Value, &[String]),
    merged: &Value,
    template_pod: &Value,
) -> Result<(), Unstartable> {
    names(author, merged, template_pod)?;
    metadata(author, merged)?;
    of_pod::check(author, merged)?;
    whole_pod::check(author, merged)?;
    images(merged)?;
    let mut volumes = volumes((author, claims), merged, template_pod)?;
    volumes.extend(claims.iter().map(String::as_str));
    for which in [CONTAINERS, INIT_CONTAINERS] {
        let injected: HashSet<&str> = pod::containers(template_pod, which).iter().map(pod::name).collect();
        for container in pod::containers(merged, which).iter().filter(|c| injected.contains(pod::name(c))) {
            check_image(container)?;
            if which == INIT_CONTAINERS {
                init(container)?;
            }
            handlers(container)?;
            mounts::check(container, &volumes)?;
            sources::check(container)?;
            ports(container)?;
            resources::check(&format!("container {}", pod::name(container)), container)?;
            resources::check_claims(pod::spec(merged), container)?;
            privileges(merged, container)?;
            fields::check(pod::spec(merged), container)?;
        }
    }
    Struct::named("core.Pod").map_or(Ok(()), |of| of.check(merged).map_err(Unstartable::Type))
}

fn names(author: &Value, pod: &Value, template_pod: &Value) -> Result<(), Unstartable> {
    let mut seen = HashSet::new();
    let of = |pod| {
        let lists = [INIT_CONTAINERS, CONTAINERS].into_iter();
        lists.flat_map(move |which| pod::containers(pod, which)).map(pod::name)
    };
    let by_author = |name: &str| of(author).filter(|own| *own == name).count() > 1;
    let injected: HashSet<&str> = of(template_pod).collect();
    let mut twice = of(pod).filter(|name| injected.contains(name) && !seen.insert(*name));
    twice.find(|name| !by_author(name)).map_or(Ok(()), |name| Err(Unstartable::SameName(name.to_owned())))
}

fn metadata(author: &Value, pod: &Value) -> Result<(), Unstartable> {
    let metadata = pod::metadata(pod);
    for (name, value) in pod::map(metadata, "labels") {
        let value = value.as_str().unwrap_or_default();
        if !is_label_value(value) && pod::label(author, name) != Some(value) {
            return Err(Unstartable::Label { name: name.clone(), value: value.to_owned() });
        }
    }
    for (what, which) in [("label", "labels"), ("annotation", "annotations")] {
        let own = pod::map(pod::metadata(author), which);
        // The API server accepts an annotation's name in any case.
        let is_name = |name: &str| is_key(name) || (which == "annotations" && is_key(&name.to_lowercase()));
        let mut added = pod::map(metadata, which).keys().filter(|name| !own.contains_key(*name));
        if let Some(name) = added.find(|name| !is_name(name)) {
            return Err(Unstartable::Name { what, name: name.chars().take(SHOWN).collect() });
        }
    }
    check_annotations(pod)
}

/// Checks the size of all annotations.
///
/// # Errors
/// The annotations exceed the API server's limit.
pub(super) fn check_annotations(pod: &Value) -> Result<(), Unstartable> {
    let annotations = pod::map(pod::metadata(pod), "annotations").iter();
    let sizes = annotations.map(|(name, value)| (name.len() + value.as_str().map_or(0, str::len), name));
    let (bytes, largest) = sizes.fold((0, None), |(sum, largest), size| (sum + size.0, largest.max(Some(size))));
    match largest {
        Some((of_largest, name)) if bytes > ANNOTATIONS => Err(Unstartable::Annotations {
            bytes,
            largest: name.chars().take(SHOWN).collect(),
            of_largest,
            is_record: name == annotation::OVERRIDES || name == annotation::STATUS,
        }),
        _ => Ok(()),
    }
}

/// Checks the injected volumes, and returns the names of all volumes of the pod.
fn volumes<'a>(
    (author, claims): (&Value, &[String]),
    merged: &'a Value,
    template_pod: &Value,
) -> Result<HashSet<&'a str>, Unstartable> {
    let injected: HashSet<&str> = pod::list(pod::spec(template_pod), VOLUMES).iter().map(pod::name).collect();
    let volumes = pod::list(pod::spec(merged), VOLUMES);
    let lists = [INIT_CONTAINERS, CONTAINERS].into_iter();
    let containers: HashSet<&str> = lists.flat_map(|which| pod::containers(merged, which)).map(pod::name).collect();
    let mut seen = HashSet::new();
    let by_author =
        |name: &str| pod::list(pod::spec(author), VOLUMES).iter().filter(|v| pod::name(v) == name).count() > 1;
    for volume in volumes.iter().filter(|volume| injected.contains(pod::name(volume))) {
        if !seen.insert(pod::name(volume)) && !by_author(pod::name(volume)) {
            return Err(Unstartable::SameVolume(pod::name(volume).to_owned()));
        }
        let claim = claims.iter().any(|name| name == pod::name(volume)).then_some("a claim template");
        let sources: Vec<&str> = pod::set(volume).filter(|key| *key != "name").chain(claim).collect();
        if sources.len() > 1 {
            return Err(Unstartable::Sources { volume: pod::name(volume).to_owned(), sources: sources.join(", ") });
        }
        let error = |error| Unstartable::Volume { name: pod::name(volume).to_owned(), error };
        volume::check(volume).map_err(error)?;
        if let Some(container) = volume::containers(volume).find(|container| !containers.contains(container)) {
            return Err(Unstartable::NoContainer {
                volume: pod::name(volume).to_owned(),
                container: container.to_owned(),
            });
        }
    }
    Ok(volumes.iter().map(pod::name).collect())
}

/// Checks that no container is left with the image `auto`, whether it is injected or the author's.
fn images(merged: &Value) -> Result<(), Unstartable> {
    let mut all = [INIT_CONTAINERS, CONTAINERS].into_iter().flat_map(|which| pod::containers(merged, which));
    let auto = all.find(|container| pod::text(container, "image") == pod::AUTO);
    auto.map_or(Ok(()), |container| Err(Unstartable::Auto(pod::name(container).to_owned())))
}

fn check_image(container: &Value) -> Result<(), Unstartable> {
    let container_name = || pod::name(container).to_owned();
    match pod::text(container, "image") {
        "" => Err(Unstartable::NoImage(container_name())),
        text => match image::check(text) {
            // `advice` only warns about it, because Istio's own expected outputs have such an image from Helm's values.
            Ok(()) | Err(image::Invalid::UpperCase) => Ok(()),
            Err(error) => {
                let image = text.chars().take(SHOWN).collect();
                Err(Unstartable::Image { container: container_name(), image, error })
            }
        },
    }
}

/// Checks that an init container has probes and handlers only if it is a native sidecar.
fn init(container: &Value) -> Result<(), Unstartable> {
    if pod::text(container, "restartPolicy") == "Always" {
        return Ok(());
    }
    let mut fields = PROBES.into_iter().chain(["lifecycle"]);
    match fields.find(|field| container.get(field).is_some_and(|value| !value.is_null())) {
        Some(field) => Err(Unstartable::Init { container: pod::name(container).to_owned(), field }),
        None => Ok(()),
    }
}

fn handlers(container: &Value) -> Result<(), Unstartable> {
    let place = |field: &str| format!("{field} of container {}", pod::name(container));
    for probe in PROBES {
        alternatives(place(probe), container.get(probe), PROBE)?;
    }
    let lifecycle = container.get("lifecycle").unwrap_or(&Value::Null);
    HANDLERS.into_iter().try_for_each(|handler| alternatives(place(handler), lifecycle.get(handler), HANDLER))
}

/// Checks that a value, if there is one, has exactly one of `allowed`.
fn alternatives(place: String, value: Option<&Value>, allowed: &[&str]) -> Result<(), Unstartable> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(()) };
    let found: Vec<&str> = pod::set(value).filter(|key| allowed.contains(key)).collect();
    if found.len() == 1 {
        return Ok(());
    }
    let found = if found.is_empty() { "none".to_owned() } else { found.join(" and ") };
    Err(Unstartable::Alternatives { place, found, allowed: allowed.join(", ") })
}

fn ports(container: &Value) -> Result<(), Unstartable> {
    let mut seen = HashSet::new();
    let names = pod::list(container, "ports").iter().map(pod::name).filter(|name| !name.is_empty());
    let mut twice = names.filter(|name| !seen.insert(*name));
    twice.next().map_or(Ok(()), |name| {
        Err(Unstartable::SamePort { container: pod::name(container).to_owned(), name: name.to_owned() })
    })
}

fn privileges(merged: &Value, container: &Value) -> Result<(), Unstartable> {
    let own = pod::map(container, "securityContext");
    let name = || pod::name(container).to_owned();
    if own.get("allowPrivilegeEscalation") == Some(&Value::Bool(false)) {
        let added = |key: &str| own.get("capabilities").map_or(&[][..], |capabilities| pod::list(capabilities, key));
        if own.get("privileged") == Some(&Value::Bool(true)) {
            return Err(Unstartable::Escalation { container: name(), privilege: "is privileged" });
        }
        if added("add").iter().any(|name| name == "CAP_SYS_ADMIN") {
            return Err(Unstartable::Escalation { container: name(), privilege: "adds CAP_SYS_ADMIN" });
        }
    }
    let of_pod = pod::map(pod::spec(merged), "securityContext");
    let effective = |key: &str| set_member(own, key).or_else(|| set_member(of_pod, key));
    let is_root = effective("runAsUser").and_then(Value::as_i64) == Some(0);
    if is_root && effective("runAsNonRoot") == Some(&Value::Bool(true)) {
        return Err(Unstartable::Root(name()));
    }
    Ok(())
}

fn set_member<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    map.get(key).filter(|value| !value.is_null())
}

#[cfg(test)]
mod tests;
