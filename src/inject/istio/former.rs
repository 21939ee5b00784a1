//! The pod before a former injection: what that injection added is taken away, and what it replaced is put back.
//!
//! `pipeline` calls [`before`] for a pod that other settings injected, so that the pod is injected as if for the first
//! time. The former settings are unknown: another release, another revision or Istio itself may have injected the pod.
//! Therefore only what the former injection recorded counts: the status annotation names the added items, the overrides
//! annotation has the pod's own containers of their names, and variables of the former sidecar have the original probes
//! and metrics. Labels and annotations are not recorded; those are taken away that have the value which an injection
//! writes where the pod's author writes none.

mod lists;
mod metadata;

use std::borrow::Cow;

use gotemplate::Budget;
use serde_json::{Map, Value};

use super::overrides::Overrides;
use super::status::Status;
use super::{Error, probes};
use crate::contract::{annotation, container};
use crate::inject::gojson;
use crate::inject::merge::{self, difference, merge_pod};
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// What remains of a former injection in a pod.
#[derive(Debug)]
struct Former<'a> {
    /// The injected pod.
    pod: &'a Value,
    status: &'a Status,
    /// The former sidecar, unless the pod's author wrote it.
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

    /// The value of a variable of the former sidecar; empty if it is absent.
    fn variable(&self, name: &str) -> &'a str {
        let variables = self.sidecar.map(|sidecar| pod::list(sidecar, "env")).unwrap_or_default();
        pod::find(variables, name).map(|variable| pod::text(variable, "value")).unwrap_or_default()
    }

    /// The map in a variable of the former sidecar; empty if it is absent or not JSON.
    ///
    /// # Errors
    /// The budget is spent.
    fn map(&self, name: &str, budget: &mut Budget) -> Result<Map<String, Value>, Error> {
        Ok(gojson::decode(self.variable(name), budget)?.unwrap_or_default())
    }

    /// Whether the former injection named an init container.
    fn has_init(&self, name: &str) -> bool {
        self.status.init_containers.iter().any(|init| init == name)
    }
}

/// Returns the pod before a former injection, if there was one. `workload`: the name of the pod's owner.
///
/// # Errors
/// The annotation of the overrides is not JSON, or the budget is spent.
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
/// The budget is spent.
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
    probes::restore(&mut before, &former.map(probes::PROBERS, budget)?);
    metadata::restore(&mut before, &former, workload, budget)?;
    let annotations = pod::annotations_mut(&mut before);
    annotations.shift_remove(annotation::STATUS);
    annotations.shift_remove(annotation::OVERRIDES);
    if annotations.is_empty() {
        pod::map_mut(&mut before, "metadata").shift_remove("annotations");
    }
    if let Some(overlay) = &status.before {
        // An overlay that cannot be merged is the pod's author's, and no record.
        if let Err(merge::Error::Exceeded(exceeded)) = merge_pod(&mut before, overlay.clone(), budget) {
            return Err(exceeded.into());
        }
    }
    Ok(before)
}

/// Returns what [`before`] does not find out about the pod `original`, which became `injected`, as an overlay; `None`
/// if it finds out all.
///
/// # Errors
/// The annotation of the overrides is not JSON, or the budget is spent.
pub(super) fn unknown(
    injected: &Value,
    original: &Value,
    workload: &str,
    budget: &mut Budget,
) -> Result<Option<Value>, Error> {
    let found = self::original(injected, workload, budget)?;
    let mut overlay = Value::Object(difference(&found, original));
    // Equal pods have equal records, whatever the order of their members.
    overlay.sort_all_objects();
    Ok(overlay.as_object().is_some_and(|overlay| !overlay.is_empty()).then_some(overlay))
}

#[cfg(test)]
mod tests;
