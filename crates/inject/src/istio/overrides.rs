//! A pod's overrides of injected containers: if the pod itself has a container with the name of a template's container,
//! the fields of the pod's container take precedence over those of the template, in each injection.

use std::collections::HashMap;

use contract::{annotation, container};
use gotemplate::Budget;
use serde_json::{Map, Value};

use super::{Error, recorded, unions};
use crate::gojson;
use crate::merge::merge_container;
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// The steps charged per value of an override, which is converted to its type, merged, recorded as JSON and compared.
const STEPS_PER_VALUE: usize = 12;

/// The overrides that an earlier injection recorded in the pod's annotation.
#[derive(Debug, Default)]
pub(super) struct Overrides(Value);

impl Overrides {
    /// Reads the annotation.
    ///
    /// # Errors
    /// The annotation is not one that an injection writes, or the budget is spent.
    pub(super) fn of(pod: &Value, budget: &mut Budget) -> Result<Self, Error> {
        let Some(overrides) = recorded::map(pod, annotation::OVERRIDES, budget)?? else { return Ok(Self::default()) };
        for which in [CONTAINERS, INIT_CONTAINERS] {
            recorded::items(&overrides, annotation::OVERRIDES, which)?;
        }
        Ok(Self(overrides))
    }

    /// Returns the overrides of the containers in `which`.
    pub(super) fn containers(&self, which: &str) -> &[Value] {
        pod::list(&self.0, which)
    }
}

/// A pod's own containers.
#[derive(Debug)]
pub(super) struct OwnContainers<'a> {
    /// The pod before any injection.
    pub(super) pod: &'a Value,
    /// The overrides in the pod's annotation, if the pod has no status annotation.
    pub(super) recorded: &'a Overrides,
}

impl<'a> OwnContainers<'a> {
    /// Returns the pod's own containers by name, for the list `which` of the template. For init containers, the result
    /// includes the pod's `containers`: the pod may have its sidecar there, while the template's sidecar is native.
    fn containers(&self, which: &str) -> HashMap<&'a str, &'a Value> {
        let lists: &[&str] = if which == INIT_CONTAINERS { &[INIT_CONTAINERS, CONTAINERS] } else { &[CONTAINERS] };
        let here = lists.iter().flat_map(|which| pod::containers(self.pod, which).iter().rev());
        // A later insertion replaces an earlier one of the same name. Therefore the lists are reversed, so that the
        // first container of a name is used, and recorded overrides are inserted last.
        let mut overrides: HashMap<_, _> = here.map(|container| (pod::name(container), container)).collect();
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
            budget.step(values(&own).saturating_mul(STEPS_PER_VALUE))?;
            let named = |error| Error::Container { container: name.to_owned(), error: Box::new(error) };
            let mut own = gojson::container(own).map_err(named)?;
            if pod::text(&own, "image") == pod::AUTO {
                pod::object(&mut own).shift_remove("image");
            }
            containers.push(own.clone());
            let place = places.get(name).and_then(|at| pod::containers_mut(merged, which).get_mut(*at));
            let merge = match (place, own) {
                (Some(container), Value::Object(own)) => {
                    unions::give_way(container, &own);
                    merge_container(container, own, budget)
                }
                _ => Ok(()),
            };
            merge.map_err(|error| Error::Reapply { container: name.to_owned(), error })?;
        }
        if !containers.is_empty() {
            overrides.insert(which.to_owned(), containers.into());
        }
    }
    let injected = pod::annotation(merged, annotation::STATUS).is_some();
    if !injected && !overrides.is_empty() {
        let text = gojson::encode(&Value::Object(overrides), budget)?;
        pod::annotations_mut(merged).insert(annotation::OVERRIDES.to_owned(), text.into());
    }
    Ok(())
}

/// Returns the number of values that `value` contains at any depth, including `value` itself.
fn values(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<usize>(),
        Value::Object(members) => 1 + members.values().map(values).sum::<usize>(),
        _ => 1,
    }
}

/// Applies the user and group of the pod's own sidecar to the init container that redirects traffic or validates the
/// redirection. With TPROXY, a sidecar with a user of its own runs as root instead.
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

#[cfg(test)]
mod tests {
    use gotemplate::{Exceeded, Limits};
    use serde_json::json;

    use super::super::status::Status;
    use super::*;

    /// Returns the steps that a pod's own sidecar with this many variables and arguments costs.
    fn steps(variables: usize, args: usize) -> Result<u64, Error> {
        let env: Vec<Value> = (0..variables).map(|at| json!({"name": format!("V{at}"), "value": "v"})).collect();
        let own = json!({"name": "istio-proxy", "env": env, "args": vec!["x"; args]});
        let pod = json!({"metadata": {}, "spec": {"containers": [own]}});
        let own = OwnContainers { pod: &pod, recorded: &Overrides::default() };
        let template_pod = json!({"spec": {"containers": [{"name": "istio-proxy"}]}});
        let mut budget = Budget::default();
        reapply(&mut pod.clone(), &own, &template_pod, &mut budget)?;
        Ok(Limits::default().steps - budget.left().steps)
    }

    #[test]
    fn annotations_of_an_earlier_injection_are_charged() {
        let text = format!("[{}0]", "0,".repeat(1000));
        let pod = json!({"metadata": {"annotations": {annotation::STATUS: text, annotation::OVERRIDES: text}}});
        let budget = || Budget::new(Limits { steps: 2000, ..Limits::default() });
        assert!(matches!(Overrides::of(&pod, &mut budget()), Err(Error::Exceeded(Exceeded::Steps(2000)))));
        assert!(matches!(Status::of(&pod, &mut budget()), Err(Error::Exceeded(Exceeded::Steps(2000)))));
    }

    #[test]
    fn an_override_is_charged_by_its_values() {
        let (none, variables, args) = (steps(0, 0).unwrap(), steps(1000, 0).unwrap(), steps(0, 1000).unwrap());
        assert!(variables >= none + 1000 * 3 * 12 && args >= none + 1000 * 12, "{none}, {variables}, {args}");
        let error = steps(30_000, 0).unwrap_err();
        assert!(matches!(error, Error::Exceeded(Exceeded::Steps(1_000_000))), "{error}");
    }
}
