//! Containers of a template that the pod itself speaks of: what the pod says wins, now and when it is injected again.

use std::collections::HashMap;

use gotemplate::Budget;
use serde_json::{Map, Value};

use super::Error;
use super::status::Status;
use crate::contract::{annotation, container};
use crate::inject::gojson;
use crate::inject::merge::merge_container;
use crate::inject::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// The image that means: the one of the template.
const AUTO: &str = "auto";

/// What the pod's annotation remembers of an earlier injection.
#[derive(Debug, Default)]
pub(super) struct Overrides(Value);

impl Overrides {
    /// Reads the annotation.
    ///
    /// # Errors
    /// It is no JSON.
    pub(super) fn of(pod: &Value) -> Result<Self, Error> {
        let Some(text) = pod::annotation(pod, annotation::OVERRIDES) else { return Ok(Self::default()) };
        serde_json::from_str(text).map(Self).map_err(|error| Error::Json { what: annotation::OVERRIDES, error })
    }

    /// The containers that it remembers, of one of the two lists.
    pub(super) fn containers(&self, which: &str) -> &[Value] {
        pod::list(&self.0, which)
    }
}

/// What a pod says about its containers, apart from what an earlier injection made of them.
#[derive(Debug)]
pub(super) struct Own<'a> {
    /// The pod as it came.
    pub(super) pod: &'a Value,
    /// What it said the first time.
    pub(super) remembered: &'a Overrides,
    /// What was injected then.
    pub(super) status: Option<&'a Status>,
}

impl<'a> Own<'a> {
    /// What the pod says about the containers of a list of the templates, by name. A native sidecar may stand among the
    /// containers still.
    fn containers(&self, which: &str) -> HashMap<&'a str, &'a Value> {
        let lists: &[&str] = if which == INIT_CONTAINERS { &[INIT_CONTAINERS, CONTAINERS] } else { &[CONTAINERS] };
        let here = lists.iter().flat_map(|which| pod::containers(self.pod, which).iter().rev());
        // Of those with one name the last insertion counts: the first of a list, and what is remembered before all.
        let mut said: HashMap<_, _> = here.map(|container| (pod::name(container), container)).collect();
        for name in self.status.map_or(&[][..], |status| status.containers_of(which)) {
            said.remove(name.as_str());
        }
        said.extend(self.remembered.containers(which).iter().rev().map(|container| (pod::name(container), container)));
        said
    }

    /// What the pod says about its sidecar.
    fn sidecar(&self) -> Option<&'a Value> {
        [CONTAINERS, INIT_CONTAINERS].iter().find_map(|which| self.containers(which).get(container::PROXY).copied())
    }
}

/// Puts what the pod says about the templates' containers over what they made of them, and remembers it.
///
/// # Errors
/// What the pod says cannot be merged, or the budget is spent.
pub(super) fn reapply(
    merged: &mut Value,
    own: &Own<'_>,
    template_pod: &Value,
    budget: &mut Budget,
) -> Result<(), Error> {
    let mut said = Map::new();
    for which in [CONTAINERS, INIT_CONTAINERS] {
        let owns = own.containers(which);
        let mut places = HashMap::new();
        for (at, container) in pod::containers(merged, which).iter().enumerate() {
            places.entry(pod::name(container).to_owned()).or_insert(at);
        }
        let mut containers = Vec::new();
        for name in pod::containers(template_pod, which).iter().map(pod::name) {
            let Some(own) = owns.get(name).copied().cloned() else { continue };
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
            said.insert(which.to_owned(), containers.into());
        }
    }
    let injected = pod::annotation(own.pod, annotation::STATUS).is_some();
    if !injected && !said.is_empty() {
        let text = gojson::encode(&Value::Object(said));
        pod::annotations_mut(merged).insert(annotation::OVERRIDES.to_owned(), text.into());
    }
    Ok(())
}

/// Lets redirection follow a user and a group that the pod gives its sidecar.
pub(super) fn follow_user(merged: &mut Value, own: &Own<'_>, tproxy: bool) {
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
        // Marked packets are sent by root alone.
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
