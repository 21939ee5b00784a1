//! The list, `containers` or `initContainers`, that has the sidecar. Overlays and the pod itself may have it in the
//! other list: their authors need not know whether the sidecar is native.

use contract::container;
use serde_json::{Value, json};

use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Returns the list that gets the sidecar: the one in which an overlay has it with an image, or else the one in which
/// the pod itself has it with an image, or else the one in which an overlay names it. `native`: whether it is
/// `initContainers` if both lists qualify. `None`: no overlay names the sidecar.
pub(super) fn of(overlays: &[&Value], pod: &Value, native: bool) -> Option<&'static str> {
    let lists = |overlay: &Value, with_image: bool| {
        [CONTAINERS, INIT_CONTAINERS].map(|which| {
            let named = pod::find(pod::containers(overlay, which), container::PROXY);
            named.is_some_and(|sidecar| !with_image || !pod::text(sidecar, "image").is_empty())
        })
    };
    let any = |with_image: bool| {
        overlays.iter().map(|overlay| lists(overlay, with_image)).fold([false; 2], |[a, b], [c, d]| [a || c, b || d])
    };
    let pick = |lists: [bool; 2]| match lists {
        [true, true] => Some(if native { INIT_CONTAINERS } else { CONTAINERS }),
        [true, false] => Some(CONTAINERS),
        [false, true] => Some(INIT_CONTAINERS),
        [false, false] => None,
    };
    let named = pick(any(false))?;
    pick(any(true)).or_else(|| pick(lists(pod, true))).or(Some(named))
}

/// Whether the sidecar of a pod, or of an overlay, is in the list other than `place`.
pub(super) fn is_elsewhere(pod: &Value, place: &str) -> bool {
    pod::find(pod::containers(pod, other(place)), container::PROXY).is_some()
}

fn other(place: &str) -> &'static str {
    if place == CONTAINERS { INIT_CONTAINERS } else { CONTAINERS }
}

/// Removes the sidecar in the other list from an overlay that has one in both, and returns an overlay with only this sidecar, in the list
/// `place`. Merged one after the other, the two sidecars become one container.
pub(super) fn second(overlay: &mut Value, place: &'static str) -> Option<Value> {
    pod::find(pod::containers(overlay, place), container::PROXY)?;
    let other = other(place);
    let list = pod::spec_mut(overlay).get_mut(other)?.as_array_mut()?;
    let at = list.iter().position(|item| pod::name(item) == container::PROXY && item.get("$patch").is_none())?;
    let mut second = json!({"spec": {other: [list.remove(at)]}});
    move_to(&mut second, place);
    Some(second)
}

/// Moves the sidecar of a pod, or of an overlay, to the end of the list `place`. In `containers`, it loses its `restartPolicy`, which the
/// API server would refuse. An item with `$patch: replace` stays, because the directive is about its own list.
pub(super) fn move_to(pod: &mut Value, place: &str) {
    if !is_elsewhere(pod, place) {
        return;
    }
    let other = other(place);
    let spec = pod::spec_mut(pod);
    let list = std::mem::take(pod::list_mut(spec, other));
    let is_sidecar = |item: &Value| pod::name(item) == container::PROXY && pod::text(item, "$patch") != "replace";
    let (mut sidecars, rest): (Vec<Value>, Vec<Value>) = list.into_iter().partition(is_sidecar);
    // Every pod has `containers`, even if the list is empty; an empty `initContainers` is removed.
    if rest.is_empty() && other == INIT_CONTAINERS {
        pod::object(spec).shift_remove(other);
    } else {
        *pod::list_mut(spec, other) = rest;
    }
    if place == CONTAINERS {
        sidecars.iter_mut().for_each(|sidecar| drop(pod::object(sidecar).shift_remove("restartPolicy")));
    }
    if !sidecars.is_empty() {
        pod::list_mut(spec, place).extend(sidecars);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlay(list: &str, image: Option<&str>) -> Value {
        let sidecar = json!({"name": "istio-proxy", "image": image});
        json!({"spec": {list: [{"name": "other", "image": "o"}, sidecar]}})
    }

    #[test]
    fn the_sidecar_is_where_an_overlay_defines_it() {
        let (inits, containers) = (Some(INIT_CONTAINERS), Some(CONTAINERS));
        let defined = |list: &str| overlay(list, Some("p"));
        let named = |list: &str| overlay(list, None);
        let none = json!({});
        for (overlays, pod, native, place) in [
            (vec![defined(INIT_CONTAINERS), named(CONTAINERS)], &none, false, inits),
            (vec![named(CONTAINERS), defined(INIT_CONTAINERS)], &defined(CONTAINERS), true, inits),
            (vec![named(INIT_CONTAINERS), defined(CONTAINERS)], &none, true, containers),
            (vec![defined(INIT_CONTAINERS), defined(CONTAINERS)], &none, false, containers),
            (vec![defined(CONTAINERS), defined(INIT_CONTAINERS)], &none, true, inits),
            (vec![named(CONTAINERS)], &defined(INIT_CONTAINERS), false, inits),
            (vec![named(CONTAINERS)], &none, true, containers),
            (vec![json!({"spec": {}})], &defined(INIT_CONTAINERS), true, None),
        ] {
            assert_eq!(of(&overlays.iter().collect::<Vec<_>>(), pod, native), place, "{overlays:?} {pod}");
        }
    }

    #[test]
    fn an_overlay_with_the_sidecar_in_both_lists_becomes_two() {
        let sidecar = |field: &str| json!({"name": "istio-proxy", field: "x"});
        let mut both =
            json!({"spec": {"containers": [{"name": "a"}, sidecar("image")], "initContainers": [sidecar("tty")]}});
        let second = second(&mut both, INIT_CONTAINERS);
        assert_eq!(second, Some(json!({"spec": {"containers": [], "initContainers": [sidecar("image")]}})));
        assert_eq!(both, json!({"spec": {"containers": [{"name": "a"}], "initContainers": [sidecar("tty")]}}));
        assert_eq!(super::second(&mut both, INIT_CONTAINERS), None);
    }

    #[test]
    fn an_item_that_replaces_its_list_stays_there() {
        let item = json!({"name": "istio-proxy", "image": "p", "$patch": "replace"});
        let mut overlay = json!({"spec": {"containers": [item]}});
        let unchanged = overlay.clone();
        move_to(&mut overlay, INIT_CONTAINERS);
        assert_eq!(overlay, unchanged);
    }

    #[test]
    fn a_moved_sidecar_leaves_no_empty_list_and_no_restart_policy() {
        let sidecar = json!({"name": "istio-proxy", "restartPolicy": "Always"});
        let mut pod = json!({"spec": {"containers": [{"name": "a"}], "initContainers": [sidecar]}});
        assert!(is_elsewhere(&pod, CONTAINERS));
        (0..2).for_each(|_| move_to(&mut pod, CONTAINERS));
        assert_eq!(pod, json!({"spec": {"containers": [{"name": "a"}, {"name": "istio-proxy"}]}}));
        move_to(&mut pod, INIT_CONTAINERS);
        assert_eq!(pod["spec"]["initContainers"], json!([{"name": "istio-proxy"}]));
    }
}
