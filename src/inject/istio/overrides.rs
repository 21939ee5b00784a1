//! A pod's overrides of a template's containers, which take precedence over the template in each injection.

use std::collections::HashMap;

use gotemplate::Budget;
use serde_json::{Map, Value};

use super::Error;
use super::status::Status;
use crate::contract::{annotation, container};
use crate::inject::gojson;
use crate::inject::merge::merge_container;
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// The value of `image` that stands for the template's image.
const AUTO: &str = "auto";

/// The overrides that the pod's annotation has from an earlier injection.
#[derive(Debug, Default)]
pub(super) struct Overrides(Value);

impl Overrides {
    /// Reads the annotation.
    ///
    /// # Errors
    /// The annotation is not JSON.
    pub(super) fn of(pod: &Value) -> Result<Self, Error> {
        let Some(text) = pod::annotation(pod, annotation::OVERRIDES) else { return Ok(Self::default()) };
        serde_json::from_str(text).map(Self).map_err(|error| Error::Json { what: annotation::OVERRIDES, error })
    }

    /// The overrides of the containers in `which`.
    pub(super) fn containers(&self, which: &str) -> &[Value] {
        pod::list(&self.0, which)
    }
}

/// A pod's own containers, separated from those of an earlier injection.
#[derive(Debug)]
pub(super) struct OwnContainers<'a> {
    /// The pod before the injection.
    pub(super) pod: &'a Value,
    /// The overrides before the first injection.
    pub(super) recorded: &'a Overrides,
    /// The status of the first injection.
    pub(super) status: Option<&'a Status>,
}

impl<'a> OwnContainers<'a> {
    /// Returns the pod's own containers by name, for a list of the template. The pod may have a native sidecar in its containers.
    fn containers(&self, which: &str) -> HashMap<&'a str, &'a Value> {
        let lists: &[&str] = if which == INIT_CONTAINERS { &[INIT_CONTAINERS, CONTAINERS] } else { &[CONTAINERS] };
        let here = lists.iter().flat_map(|which| pod::containers(self.pod, which).iter().rev());
        // The last insertion wins: the first container of a name in a list, and recorded overrides over all.
        let mut overrides: HashMap<_, _> = here.map(|container| (pod::name(container), container)).collect();
        for name in self.status.map_or(&[][..], |status| status.containers_of(which)) {
            overrides.remove(name.as_str());
        }
        overrides
            .extend(self.recorded.containers(which).iter().rev().map(|container| (pod::name(container), container)));
        overrides
    }

    /// Returns the pod's own sidecar.
    fn sidecar(&self) -> Option<&'a Value> {
        [CONTAINERS, INIT_CONTAINERS].iter().find_map(|which| self.containers(which).get(container::PROXY).copied())
    }
}

/// Merges the pod's overrides into the injected containers, and records them in the annotation.
///
/// # Errors
/// An override cannot be merged, or the budget is spent.
pub(super) fn reapply(
    merged: &mut Value,
    own: &OwnContainers<'_>,
    template_pod: &Value,
    budget: &mut Budget,
) -> Result<(), Error> {
    let mut overrides = Map::new();
    for which in [CONTAINERS, INIT_CONTAINERS] {
        let own_by_name = own.containers(which);
        let mut places = HashMap::new();
        for (at, container) in pod::containers(merged, which).iter().enumerate() {
            places.entry(pod::name(container).to_owned()).or_insert(at);
        }
        let mut containers = Vec::new();
        for name in pod::containers(template_pod, which).iter().map(pod::name) {
            let Some(own) = own_by_name.get(name).copied().cloned() else { continue };
            let named = |error| Error::Container { container: name.to_owned(), error };
            let mut own = gojson::container(own).map_err(named)?;
            if pod::text(&own, "image") == AUTO {
                pod::object(&mut own).shift_remove("image");
            }
            containers.push(own.clone());
            let place = places.get(name).and_then(|at| pod::containers_mut(merged, which).get_mut(*at));
            let merge = match (place, own) {
                (Some(container), Value::Object(own)) => merge_container(container, own, budget),
                _ => Ok(()),
            };
            merge.map_err(|error| Error::Reapply { container: name.to_owned(), error })?;
        }
        if !containers.is_empty() {
            overrides.insert(which.to_owned(), containers.into());
        }
    }
    let injected = pod::annotation(own.pod, annotation::STATUS).is_some();
    if !injected && !overrides.is_empty() {
        let text = gojson::encode(&Value::Object(overrides));
        pod::annotations_mut(merged).insert(annotation::OVERRIDES.to_owned(), text.into());
    }
    Ok(())
}

/// Passes the user and group of the pod's own sidecar to the redirection.
pub(super) fn follow_user(merged: &mut Value, own: &OwnContainers<'_>, tproxy: bool) {
    let Some(own) = own.sidecar().and_then(|sidecar| sidecar.get("securityContext")) else { return };
    let (user, group) = (own.get("runAsUser").and_then(Value::as_i64), own.get("runAsGroup").and_then(Value::as_i64));
    if user.is_none() && group.is_none() {
        return;
    }
    let names = [container::INIT, container::VALIDATION];
    let inits = pod::containers(merged, INIT_CONTAINERS);
    let Some(name) = names.into_iter().find(|name| pod::find(inits, name).is_some()) else { return };
    if tproxy
        && user.is_some()
        && let Some(sidecar) = pod::sidecar_mut(merged)
    {
        // Only root can send marked packets.
        pod::map_mut(sidecar, "securityContext").insert("runAsUser".to_owned(), 0.into());
    }
    let Some(init) = pod::containers_mut(merged, INIT_CONTAINERS).iter_mut().find(|c| pod::name(c) == name) else {
        return;
    };
    if !tproxy && name == container::VALIDATION {
        let context = pod::map_mut(init, "securityContext");
        context.extend(user.map(|id| ("runAsUser".to_owned(), id.into())));
        context.extend(group.map(|id| ("runAsGroup".to_owned(), id.into())));
    }
    if let Some(user) = user.filter(|id| *id != 0) {
        let args = pod::list_mut(init, "args");
        let at = args.iter().position(|arg| arg.as_str() == Some("-u"));
        if let Some(value) = at.and_then(|at| args.get_mut(at + 1)) {
            *value = user.to_string().into();
        }
    }
}
