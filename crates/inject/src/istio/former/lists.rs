//! The lists of a pod before a former injection: containers, volumes and pull secrets.

use std::collections::{HashMap, HashSet};

use contract::container;
use serde_json::{Value, json};

use super::Former;
use crate::istio::overrides::Overrides;
use crate::merge::restricted;
use crate::pod::{self, CONTAINERS, IMAGE_PULL_SECRETS, INIT_CONTAINERS, VOLUMES};

/// Returns the number of items in the pod's lists.
pub(super) fn length(pod: &Value) -> usize {
    let lists = [CONTAINERS, INIT_CONTAINERS, VOLUMES, IMAGE_PULL_SECRETS];
    lists.iter().map(|which| pod::list(pod::spec(pod), which).len()).sum()
}

/// Whether the overrides have containers other than the sidecar, which a template extended.
pub(super) fn has_applications(recorded: &Overrides) -> bool {
    let mut all = [CONTAINERS, INIT_CONTAINERS].into_iter().flat_map(|which| recorded.containers(which));
    all.any(|own| pod::name(own) != container::PROXY)
}

/// Removes the injected items, and restores the pod's own containers.
pub(super) fn restore(pod: &mut Value, former: &Former<'_>, recorded: &Overrides) {
    for which in [INIT_CONTAINERS, CONTAINERS] {
        restore_containers(pod, former, which, recorded.containers(which));
    }
    // A volume that an application mounts stays: without it, the pod could not start unless the next injection adds one
    // with this name.
    let mounted: HashSet<String> = [CONTAINERS, INIT_CONTAINERS]
        .iter()
        .flat_map(|which| pod::containers(pod, which))
        .flat_map(|container| pod::list(container, "volumeMounts").iter().chain(pod::list(container, "volumeDevices")))
        .map(|mount| pod::name(mount).to_owned())
        .collect();
    retain(pod, VOLUMES, &former.status.volumes, |name| mounted.contains(name));
    retain(pod, IMAGE_PULL_SECRETS, &former.status.image_pull_secrets, |_| false);
}

/// Replaces the injected containers of a list with the pod's own containers of the same names, and removes the others. A sidecar that the
/// author wrote in `containers` is restored as the last one there, because the former injection moved it: to the other end, or to the init
/// containers, where only a native sidecar of the author's has a recorded `restartPolicy`.
fn restore_containers(pod: &mut Value, former: &Former<'_>, which: &str, recorded: &[Value]) {
    let injected: HashSet<&str> = former.status.containers_of(which).iter().map(String::as_str).collect();
    if injected.is_empty() {
        if pod::containers(pod, which).is_empty() {
            put(pod, which, Vec::new());
        }
        return;
    }
    let is_moved = |own: &Value| {
        pod::name(own) == container::PROXY && (which == CONTAINERS || pod::text(own, "restartPolicy").is_empty())
    };
    let (moved, here): (Vec<&Value>, Vec<&Value>) = recorded.iter().partition(|own| is_moved(own));
    let mut own: HashMap<&str, &Value> = here.iter().rev().map(|own| (pod::name(own), *own)).collect();
    let mut containers = Vec::new();
    for container in pod::containers(pod, which) {
        match own.remove(pod::name(container)) {
            Some(own) if pod::name(own) == container::PROXY => containers.push(as_written(own)),
            Some(own) => containers.push(application(container, own, former)),
            None if injected.contains(pod::name(container)) => {}
            None => containers.push(container.clone()),
        }
    }
    // The author wrote the sidecar, even if the pod lacks it now. A recorded application that the pod lacks was removed since.
    containers.extend(own.remove(container::PROXY).map(as_written));
    put(pod, which, containers);
    if !moved.is_empty() {
        pod::list_mut(pod::spec_mut(pod), CONTAINERS).extend(moved.into_iter().map(as_written));
    }
}

/// Returns the container of an application that the former template extended. If the status has a record, the container
/// stays as it is, and the record later restores each field. Without a record, the fields that the author wrote stay,
/// with their present values, and all others are removed.
fn application(present: &Value, own: &Value, former: &Former<'_>) -> Value {
    if former.status.record.as_ref().is_some_and(|record| record.written.is_some()) {
        return present.clone();
    }
    as_written(&restricted(present, own))
}

/// Returns a recorded container as its author wrote it: the record always has `resources`, and has no image if the
/// author wrote `auto`.
fn as_written(own: &Value) -> Value {
    let mut own = own.clone();
    let members = pod::object(&mut own);
    if members.get("resources").is_some_and(|resources| *resources == json!({})) {
        members.shift_remove("resources");
    }
    members.entry("image").or_insert_with(|| pod::AUTO.into());
    own
}

/// Removes the injected items of a list, except those that are `kept`.
fn retain(pod: &mut Value, which: &str, injected: &[String], kept: impl Fn(&str) -> bool) {
    let injected: HashSet<&str> = injected.iter().map(String::as_str).collect();
    let items = pod::list(pod::spec(pod), which);
    if injected.is_empty() || items.is_empty() {
        return;
    }
    let stays = |item: &&Value| !injected.contains(pod::name(item)) || kept(pod::name(item));
    let items = items.iter().filter(stays).cloned().collect();
    put(pod, which, items);
}

/// Sets a list of the pod's spec. An empty list is removed, except `containers`, which every pod has.
fn put(pod: &mut Value, which: &str, items: Vec<Value>) {
    let spec = pod::object(pod::spec_mut(pod));
    if items.is_empty() && which != CONTAINERS {
        spec.shift_remove(which);
    } else {
        spec.insert(which.to_owned(), items.into());
    }
}
