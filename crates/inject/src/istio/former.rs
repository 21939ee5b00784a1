//! Restores the pod before a former (earlier) injection: removes what that injection added, and restores what it replaced.
//!
//! `pipeline` calls [`before`] for a pod that was injected before, so that with other settings it is injected as if for
//! the first time. The former settings are unknown: another release, another revision or Istio itself may have injected
//! the pod. Therefore only what the former injection recorded is used: the status annotation names the added items, the
//! overrides annotation has the pod's own containers with the names of injected ones, and variables of the former
//! sidecar have the original probes and metrics. A label or annotation is removed if it has the value that an injection
//! writes when the pod's author sets none.
//!
//! What these records lack is in the status of this project's webhook, as a [`Record`] of the values before the injection and of the values
//! that replaced them. A value that has changed since the injection is somebody else's and stays. The status of `kube-inject` is the same
//! as Istio's, so it has the record only if a value of the author's would be lost without it, or if a field of the pod's spec that a
//! template wrote would stay.

mod lists;
mod metadata;
mod metrics;
mod unclear;

use std::borrow::Cow;
use std::collections::HashSet;

use contract::{annotation, container};
use gotemplate::Budget;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::overrides::Overrides;
use super::recorded::Reason;
use super::status::{Record, Status};
use super::{Error, probes};
use crate::gojson;
use crate::merge::{self, difference, merge_pod, removes, replaced, sets, standing};
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};
pub(super) use unclear::unclear;

/// The variable that the templates for proxyless gRPC add to applications.
const GRPC: &str = "GRPC_XDS_BOOTSTRAP";

/// What remains of a former injection in a pod.
#[derive(Debug)]
struct Former<'a> {
    /// The injected pod.
    pod: &'a Value,
    status: &'a Status,
    /// The former sidecar, if the status names it as injected.
    sidecar: Option<&'a Value>,
}

impl<'a> Former<'a> {
    fn of(pod: &'a Value, status: &'a Status) -> Self {
        let sidecar = [CONTAINERS, INIT_CONTAINERS].into_iter().find_map(|which| {
            let is_injected = status.containers_of(which).iter().any(|name| name == container::PROXY);
            pod::find(pod::containers(pod, which), container::PROXY).filter(|_| is_injected)
        });
        Self { pod, status, sidecar }
    }

    /// Returns the value of a variable of the former sidecar; empty if the variable is absent.
    fn variable(&self, name: &str) -> &'a str {
        let variables = self.sidecar.map(|sidecar| pod::list(sidecar, "env")).unwrap_or_default();
        pod::find(variables, name).map(|variable| pod::text(variable, "value")).unwrap_or_default()
    }

    /// Returns the JSON in a variable of the former sidecar; empty if the variable is absent or its value has another type.
    ///
    /// # Errors
    /// The budget is spent.
    fn decoded<T: Default + DeserializeOwned>(&self, name: &str, budget: &mut Budget) -> Result<T, Error> {
        Ok(gojson::decode(self.variable(name), budget)?.unwrap_or_default())
    }

    /// Whether the status names an init container as injected.
    fn has_init(&self, name: &str) -> bool {
        self.status.init_containers.iter().any(|init| init == name)
    }

    /// Whether the former injection set up applications for gRPC without a proxy.
    fn has_grpc(&self) -> bool {
        let containers = pod::containers(self.pod, CONTAINERS).iter();
        let mut injected =
            containers.filter(|container| self.status.containers.iter().any(|name| name == pod::name(container)));
        injected.any(|container| pod::find(pod::list(container, "env"), GRPC).is_some())
    }
}

/// Removes a member if its value is one that an injection writes.
fn remove_if(members: &mut Map<String, Value>, name: &str, is_injected: impl FnOnce(&str) -> bool) {
    if members.get(name).and_then(Value::as_str).is_some_and(is_injected) {
        members.shift_remove(name);
    }
}

/// Returns the pod before a former injection, or the unchanged pod if there was none. `workload`: the name of the pod's owner.
///
/// # Errors
/// A record of the former injection is damaged, or the budget is spent.
pub(super) fn original<'a>(pod: &'a Value, workload: &str, budget: &mut Budget) -> Result<Cow<'a, Value>, Error> {
    match Status::of(pod, budget)? {
        Some(status) => before(pod, (&status, &Overrides::of(pod, budget)?), workload, budget).map(Cow::Owned),
        None => Ok(Cow::Borrowed(pod)),
    }
}

/// Returns the pod before the former injection, which wrote this status and recorded these overrides. `workload`: the
/// name of the pod's owner.
///
/// # Errors
/// The record in the status cannot be merged, or the budget is spent.
pub(super) fn before(
    pod: &Value,
    (status, recorded): (&Status, &Overrides),
    workload: &str,
    budget: &mut Budget,
) -> Result<Value, Error> {
    let former = Former::of(pod, status);
    budget.step(lists::length(pod))?;
    let mut before = pod.clone();
    lists::restore(&mut before, &former, recorded);
    let ports: Vec<Value> = former.decoded("ISTIO_META_POD_PORTS", budget)?;
    probes::restore(&mut before, &former.decoded(probes::PROBERS, budget)?, &ports);
    metadata::restore(&mut before, &former, workload, budget)?;
    let annotations = pod::annotations_mut(&mut before);
    annotations.shift_remove(annotation::STATUS);
    annotations.shift_remove(annotation::OVERRIDES);
    if annotations.is_empty() {
        pod::map_mut(&mut before, "metadata").shift_remove("annotations");
    }
    if let Some(Record { before: overlay, written }) = &status.record {
        let overlay = match written {
            Some(written) => {
                keep_present(&mut before, pod, (overlay, written));
                standing(overlay, &before, written)
            }
            None => overlay.clone(),
        };
        merge_pod(&mut before, overlay, budget).map_err(|error| match error {
            merge::Error::Exceeded(exceeded) => exceeded.into(),
            error => Error::from(Reason::Before(error).of(annotation::STATUS)),
        })?;
    }
    Ok(before)
}

/// Returns the pod with the application's own metrics annotations, which the former injection replaced.
///
/// # Errors
/// The budget is spent.
pub(super) fn with_own_metrics(pod: &Value, status: &Status, budget: &mut Budget) -> Result<Value, Error> {
    let mut own = pod.clone();
    metrics::restore(&mut own, &Former::of(pod, status), budget)?;
    Ok(own)
}

/// The members of the metadata that an injection changes.
const METADATA: [&str; 2] = ["labels", "annotations"];

/// Copies to the pod `before` the present state of the labels and annotations that the injection left as their author
/// wrote them: those that the record has, with equal values, both in its overlay and as written.
fn keep_present(before: &mut Value, pod: &Value, (overlay, written): (&Value, &Value)) {
    for which in METADATA {
        let [own, written, present] = [overlay, written, pod].map(|pod| pod::map(pod::metadata(pod), which));
        for (name, _) in own.iter().filter(|(name, own)| written.get(*name) == Some(*own)) {
            let members = pod::map_mut(&mut before["metadata"], which);
            match present.get(name) {
                Some(present) => drop(members.insert(name.clone(), present.clone())),
                None => drop(members.shift_remove(name)),
            }
        }
    }
}

/// Adds to `written` the labels and annotations of an overlay that the injection left unchanged.
fn note_kept(written: &mut Value, injected: &Value, overlay: &Value) {
    for which in METADATA {
        let present = pod::map(pod::metadata(injected), which);
        for (name, own) in pod::map(pod::metadata(overlay), which) {
            if present.get(name) == Some(own) {
                written["metadata"][which][name] = own.clone();
            }
        }
    }
}

/// Checks the containers of a pod that was injected again, and returns a warning for each container that was removed because the status
/// names it as added. Containers of Istio's templates are not reported, because they depend on the settings.
///
/// # Errors
/// The status names all applications as added, so that none would be left. No injection writes such a status.
pub(super) fn check(former: &Value, injected: &Value) -> Result<Vec<String>, Error> {
    let is_application = |item: &&Value| pod::name(item) != container::PROXY;
    let gone = |which| {
        let left: HashSet<&str> = pod::containers(injected, which).iter().map(pod::name).collect();
        let gone = pod::containers(former, which).iter().map(pod::name).filter(move |name| !left.contains(name));
        gone.filter(|name| !ISTIOS.contains(name)).collect::<Vec<_>>()
    };
    let applications = gone(CONTAINERS);
    if !applications.is_empty() && !pod::containers(injected, CONTAINERS).iter().any(|item| is_application(&item)) {
        return Err(Reason::Applications(applications.join(", ")).of(annotation::STATUS).into());
    }
    let warning = |name: &str| {
        format!(
            "container {name:?} is taken away: annotation {:?} names it as added by a former injection, and these settings do not \
             add it",
            annotation::STATUS
        )
    };
    Ok(applications.into_iter().chain(gone(INIT_CONTAINERS)).map(warning).collect())
}

/// The containers of Istio's templates.
const ISTIOS: [&str; 5] =
    [container::PROXY, container::INIT, container::VALIDATION, container::CORE_DUMP, "grpc-bootstrap-init"];

/// Returns the record without which [`before`] could not restore the pod `original` from `injected`; `None` if none is needed. For a
/// document, none is needed if `before` restores every value that the author wrote, and removes every field of the pod's spec that the
/// templates wrote.
///
/// # Errors
/// A record of the former injection is damaged, or the budget is spent.
pub(super) fn unknown(
    injected: &Value,
    original: &Value,
    (workload, is_document): (&str, bool),
    budget: &mut Budget,
) -> Result<Option<Record>, Error> {
    let Some(mut status) = Status::of(injected, budget)? else { return Ok(None) };
    let empty = || Value::Object(Map::new());
    status.record = Some(Record { before: empty(), written: Some(empty()) });
    let recorded = Overrides::of(injected, budget)?;
    let found = before(injected, (&status, &recorded), workload, budget)?;
    let mut overlay = Value::Object(difference(&found, original));
    let is_needed = match is_document {
        true => {
            status.record = None;
            let bare = before(injected, (&status, &recorded), workload, budget)?;
            let without_record = Value::Object(difference(&bare, original));
            // Without a record, the labels that an injection derives are removed, and templates without a sidecar do not write all of them
            // again.
            (pod::sidecar(injected).is_none() && changes(&without_record, sets))
                || changes_spec(&without_record, removes)
                || changes(&overlay, sets)
                || leaves_values(&found, original)
                || own_sidecar(&found) != own_sidecar(original)
        }
        // With a record in the status, `lists::application` keeps the whole present container; without one, only the fields that the
        // overrides name.
        false => overlay != empty() || lists::has_applications(&recorded),
    };
    if !is_needed {
        return Ok(None);
    }
    let mut written = Value::Object(replaced(&found, &overlay));
    note_kept(&mut written, injected, &overlay);
    // Equal pods have equal records, whatever the order of their members.
    overlay.sort_all_objects();
    written.sort_all_objects();
    Ok(Some(Record { before: overlay, written: Some(written) }))
}

/// Returns the position and the restart policy of the author's sidecar in each of the two lists. The overrides annotation, whose format is
/// Istio's, does not show where the author wrote it.
fn own_sidecar(pod: &Value) -> [Option<(usize, &str)>; 2] {
    [CONTAINERS, INIT_CONTAINERS].map(|which| {
        let mut containers = pod::containers(pod, which).iter().enumerate();
        let own = containers.find(|(_, container)| pod::name(container) == container::PROXY);
        own.map(|(at, own)| (at, pod::text(own, "restartPolicy")))
    })
}

/// Whether an overlay has a change of this kind outside the containers, whose fields are in Istio's own records.
fn changes(overlay: &Value, is_of_kind: fn(&str, &Value) -> bool) -> bool {
    changes_spec(overlay, is_of_kind) || overlay.get("metadata").is_some_and(|change| is_of_kind("metadata", change))
}

fn changes_spec(overlay: &Value, is_of_kind: fn(&str, &Value) -> bool) -> bool {
    let is_container = |key: &str| [CONTAINERS, INIT_CONTAINERS].contains(&key);
    pod::map(overlay, "spec").iter().any(|(key, change)| !is_container(key) && is_of_kind(key, change))
}

/// Whether the pod `found` has an annotation that the former injection wrote from Helm's values: the next injection would treat it as the
/// author's.
fn leaves_values(found: &Value, original: &Value) -> bool {
    let has = |pod: &Value, name: &str| pod::annotation(pod, name).is_some();
    metadata::OF_VALUES.iter().any(|name| has(found, name) && !has(original, name))
}

#[cfg(test)]
mod tests;
