//! Restricts the overlay that undoes an injection to the values that the injection wrote.
//!
//! The overlay, from [`difference`](super::difference), turns the injected pod into the original one. [`replaced`]
//! returns the injected values that it replaces. If the pod has changed since the injection, [`standing`] keeps only
//! those parts of the overlay that replace values which are still the injected ones, so that changes by others stay.

use std::cmp::Ordering;
use std::collections::HashMap;

use gocompat::quantity;
use serde_json::{Map, Value, json};

use super::super::typed::{Merge, Struct};
use super::difference::indexed;
use super::directive::PATCH;
use crate::pod::NO_MAP;

/// The members of a container from which injected fields are removed one by one. Other structs are removed as a whole
/// or not at all, because the API server adds default values to them.
const BY_FIELD: [&str; 3] = ["securityContext", "resources", "lifecycle"];

/// Members of a container that send requests to the agent in an injected pod.
const HANDLERS: [&str; 4] = ["readinessProbe", "livenessProbe", "startupProbe", "lifecycle"];

/// Returns the values of the pod `from` that an overlay replaces or removes.
pub(crate) fn replaced(from: &Value, overlay: &Value) -> Map<String, Value> {
    let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
    replaced_of(&map(from), &map(overlay), Struct::named("core.Pod"))
}

fn replaced_of(from: &Map<String, Value>, overlay: &Map<String, Value>, of: Option<Struct>) -> Map<String, Value> {
    let mut replaced = Map::new();
    for (key, new) in overlay.iter().filter(|(key, _)| !is_directive(key)) {
        let inner = of.and_then(|of| of.member(key));
        let old = match (from.get(key).unwrap_or(&Value::Null), new) {
            (Value::Null, _) => continue,
            (Value::Object(old), Value::Object(new)) => replaced_of(old, new, inner).into(),
            (Value::Array(old), Value::Array(new)) => replaced_items(old, new, merge_key(of, key), inner),
            (old, _) => old.clone(),
        };
        replaced.insert(key.clone(), old);
    }
    replaced
}

fn replaced_items(from: &[Value], overlay: &[Value], by: Option<&str>, of: Option<Struct>) -> Value {
    let Some((by, old)) = by.and_then(|by| Some((by, indexed(from, by)?))) else { return from.into() };
    let item = |new: &Value| {
        let old = *old.get(&new[by])?;
        if new.get(PATCH).is_some() {
            return Some(Value::from(old.clone()));
        }
        let mut replaced = replaced_of(old, new.as_object().unwrap_or(&NO_MAP), of);
        replaced.insert(by.to_owned(), new[by].clone());
        Some(replaced.into())
    };
    overlay.iter().filter_map(item).collect()
}

/// Returns the parts of `overlay` that change values of `pod` which are still equal to `written`, or absent in both.
pub(crate) fn standing(overlay: &Value, pod: &Value, written: &Value) -> Value {
    let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let shape = Shape { of: Struct::named("core.Pod"), quantities: false };
    standing_of(&map(overlay), &map(pod), &map(written), shape).into()
}

/// The API type of a value, as far as it is known.
#[derive(Debug, Clone, Copy)]
struct Shape {
    of: Option<Struct>,
    /// Whether its scalars are quantities, which the API server rewrites in canonical form.
    quantities: bool,
}

impl Shape {
    fn member(self, key: &str) -> Self {
        match self.of {
            Some(of) => Self { of: of.member(key), quantities: of.has_quantities(key) },
            None => self,
        }
    }
}

fn standing_of(
    overlay: &Map<String, Value>,
    pod: &Map<String, Value>,
    written: &Map<String, Value>,
    shape: Shape,
) -> Map<String, Value> {
    let mut kept = Map::new();
    for (key, new) in overlay {
        if is_directive(key) {
            kept.insert(key.clone(), new.clone());
            continue;
        }
        let place = Place { key, by: merge_key(shape.of, key), shape: shape.member(key) };
        let (now, ours) = (pod.get(key).unwrap_or(&Value::Null), written.get(key).unwrap_or(&Value::Null));
        kept.extend(place.change(new, now, ours).map(|change| (key.clone(), change)));
    }
    kept
}

/// The key of a member of an object in the pod, and how its values are merged.
struct Place<'p> {
    key: &'p str,
    /// The key by which the elements of a list are merged.
    by: Option<&'static str>,
    shape: Shape,
}

impl Place<'_> {
    /// Returns the part of the change to `new` that applies because the present value, `now`, is still `ours`, the one
    /// that the injection wrote; `None` if no part applies.
    fn change(&self, new: &Value, now: &Value, ours: &Value) -> Option<Value> {
        match (new, now, ours) {
            (Value::Null, ..) => self.removal(now, ours),
            (Value::Object(new), now, ours)
                if matches!(
                    (now, ours),
                    (Value::Object(_) | Value::Null, Value::Object(_)) | (Value::Object(_), Value::Null)
                ) =>
            {
                let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
                let change = standing_of(new, &map(now), &map(ours), self.shape);
                (!change.is_empty()).then(|| change.into())
            }
            (Value::Array(items), now, ours) => match self.items(items, now, ours) {
                Some(kept) => (!kept.is_empty() || items.is_empty() && now.is_null()).then(|| kept.into()),
                None => is_within(ours, now, self.shape).then(|| new.clone()),
            },
            _ => is_within(ours, now, self.shape).then(|| new.clone()),
        }
    }

    /// Returns the elements of an overlay's list that still apply; `None` for a list that is not merged by key.
    fn items(&self, overlay: &[Value], now: &Value, ours: &Value) -> Option<Vec<Value>> {
        let by = self.by?;
        let (now, ours) = (elements(now, by)?, elements(ours, by)?);
        let item = |new: &Value| match (now.get(&new[by]), ours.get(&new[by])) {
            (Some(now), Some(ours)) if new.get(PATCH).is_some() => {
                are_within(ours, now, self.shape).then(|| new.clone())
            }
            (Some(now), Some(ours)) => {
                let mut change = standing_of(new.as_object()?, now, ours, self.shape);
                change.insert(by.to_owned(), new[by].clone());
                (change.len() > 1).then(|| change.into())
            }
            (None, None) => Some(new.clone()),
            // Someone else has removed or added the element since the injection.
            _ => None,
        };
        Some(overlay.iter().filter_map(item).collect())
    }

    /// Returns the change that removes from `now` what the injection wrote; `None` if nothing of it is left.
    fn removal(&self, now: &Value, ours: &Value) -> Option<Value> {
        if ours.is_null() || now.is_null() {
            return None;
        }
        match (now, ours) {
            (Value::Object(now), Value::Object(ours)) if self.shape.of.is_none() || BY_FIELD.contains(&self.key) => {
                let standing = ours.iter().filter(|(key, ours)| {
                    now.get(*key).is_some_and(|now| is_within(ours, now, self.shape.member(key)))
                });
                let removed: Map<String, Value> = standing.map(|(key, _)| (key.clone(), Value::Null)).collect();
                whole_or(removed.len() == now.len(), removed.is_empty(), removed.into())
            }
            (Value::Array(items), ours) => {
                match self.by.and_then(|by| Some((by, elements(now, by)?, elements(ours, by)?))) {
                    Some((by, now, ours)) => {
                        let standing = ours
                            .iter()
                            .filter(|(id, ours)| now.get(*id).is_some_and(|now| are_within(ours, now, self.shape)));
                        let mut removed: Vec<Value> =
                            standing.map(|(id, _)| json!({by: id, PATCH: "delete"})).collect();
                        removed.sort_by_key(Value::to_string);
                        whole_or(removed.len() == items.len(), removed.is_empty(), removed.into())
                    }
                    None => is_within(ours, now, self.shape).then_some(Value::Null),
                }
            }
            (now, ours) => is_within(ours, now, self.shape).then_some(Value::Null),
        }
    }
}

/// Returns the change that removes a member: all of it, none of it, or `part`.
fn whole_or(all: bool, none: bool, part: Value) -> Option<Value> {
    match (all, none) {
        (true, _) => Some(Value::Null),
        (_, true) => None,
        _ => Some(part),
    }
}

fn elements<'v>(list: &'v Value, by: &str) -> Option<HashMap<&'v Value, &'v Map<String, Value>>> {
    match list {
        Value::Null => Some(HashMap::new()),
        Value::Array(items) => indexed(items, by),
        _ => None,
    }
}

/// Whether `now` equals the written value, except for members that the API server added and the spelling of quantities.
fn is_within(written: &Value, now: &Value, shape: Shape) -> bool {
    match (written, now) {
        (Value::Object(written), Value::Object(now)) => are_within(written, now, shape),
        (Value::Array(written), Value::Array(now)) => {
            written.len() == now.len() && written.iter().zip(now).all(|(written, now)| is_within(written, now, shape))
        }
        (written, now) => written == now || shape.quantities && is_same_amount(written, now),
    }
}

fn is_same_amount(one: &Value, other: &Value) -> bool {
    quantity::compare(&quantity::text(one), &quantity::text(other)).is_some_and(Ordering::is_eq)
}

fn are_within(written: &Map<String, Value>, now: &Map<String, Value>, shape: Shape) -> bool {
    written.iter().all(|(key, written)| is_within(written, now.get(key).unwrap_or(&Value::Null), shape.member(key)))
}

/// Returns the container `present` without the fields and the keyed list elements that the container `own` lacks.
/// Probes and hooks are kept whole.
pub(crate) fn restricted(present: &Value, own: &Value) -> Value {
    let map = |value: &Value| value.as_object().cloned().unwrap_or_default();
    restricted_to(&map(own), &map(present), Struct::named("core.Container")).into()
}

fn restricted_to(own: &Map<String, Value>, present: &Map<String, Value>, of: Option<Struct>) -> Map<String, Value> {
    let mut restricted = Map::new();
    for (key, own) in own {
        let Some(now) = present.get(key) else { continue };
        let inner = of.and_then(|of| of.member(key));
        let kept = match (own, now) {
            (Value::Object(own), Value::Object(now)) if !HANDLERS.contains(&&**key) => {
                restricted_to(own, now, inner).into()
            }
            (Value::Array(own), Value::Array(now)) => {
                match merge_key(of, key).and_then(|by| Some((by, indexed(own, by)?))) {
                    Some((by, own)) => {
                        let items = now.iter().filter_map(|now| Some((own.get(&now[by])?, now.as_object()?)));
                        items.map(|(own, now)| Value::from(restricted_to(own, now, inner))).collect()
                    }
                    None => now.as_slice().into(),
                }
            }
            _ => now.clone(),
        };
        restricted.insert(key.clone(), kept);
    }
    restricted
}

fn merge_key(of: Option<Struct>, key: &str) -> Option<&'static str> {
    match of.and_then(|of| of.merge(key)) {
        Some(Merge::By(by)) => Some(by),
        _ => None,
    }
}

fn is_directive(key: &str) -> bool {
    key.starts_with('$')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::merge::{difference, merge_pod};

    /// Undoes in the pod `now` the changes that turned `original` into `injected`.
    fn taken_back(original: &Value, injected: &Value, now: &Value) -> Value {
        let overlay = Value::Object(difference(injected, original));
        let written = Value::Object(replaced(injected, &overlay));
        let mut pod = now.clone();
        merge_pod(&mut pod, standing(&overlay, now, &written), &mut gotemplate::Budget::default()).unwrap();
        pod
    }

    fn of_app(app: &Value) -> Value {
        json!({"spec": {"containers": [app]}})
    }

    #[test]
    fn only_values_that_are_still_injected_are_undone() {
        let variable = |name: &str, value: &str| json!({"name": name, "value": value});
        let (zone, added, own) = (variable("ZONE", "z"), variable("ADDED", "1"), variable("OWN", "o"));
        let plain = of_app(&json!({"name": "app", "image": "i:1"}));
        let extended =
            of_app(&json!({"name": "app", "image": "i:2", "env": [zone], "securityContext": {"runAsUser": 1}}));
        assert_eq!(taken_back(&plain, &extended, &extended), plain, "all of it");
        let changed = of_app(&json!({"name": "app", "image": "i:3", "env": [zone, added],
            "securityContext": {"runAsUser": 1, "privileged": false}}));
        let rest =
            of_app(&json!({"name": "app", "image": "i:3", "env": [added], "securityContext": {"privileged": false}}));
        assert_eq!(taken_back(&plain, &extended, &changed), rest, "beside what others added");
        let replaced = of_app(&json!({"name": "app", "image": "i:2", "env": [variable("ZONE", "y")]}));
        let kept = of_app(&json!({"name": "app", "image": "i:1", "env": [variable("ZONE", "y")]}));
        assert_eq!(taken_back(&plain, &extended, &replaced), kept, "but a variable that another replaced");
        let (owned, removed) = (of_app(&json!({"name": "app", "env": [own]})), of_app(&json!({"name": "app"})));
        assert_eq!(taken_back(&owned, &removed, &removed), owned, "a removed variable is back");
        let again = of_app(&json!({"name": "app", "env": [variable("OWN", "later")]}));
        assert_eq!(taken_back(&owned, &removed, &again), again, "unless another has set it");
    }

    #[test]
    fn an_element_with_default_values_of_the_api_server_is_removed() {
        let plain = json!({"spec": {"volumes": [{"name": "a"}]}});
        let volume = |mode: Option<u16>| {
            let mut secret = json!({"secretName": "s"});
            mode.into_iter().for_each(|mode| secret["defaultMode"] = mode.into());
            json!({"spec": {"volumes": [{"name": "a"}, {"name": "s", "secret": secret}]}})
        };
        assert_eq!(taken_back(&plain, &volume(None), &volume(Some(420))), plain);
    }

    /// A quantity is still the injected one if only its spelling differs: the API server stores the canonical form.
    #[test]
    fn quantities_are_compared_by_value() {
        let limited = |cpu: &str, memory: &str| {
            let volume = json!({"name": "v", "emptyDir": {"sizeLimit": memory}});
            let app = json!({"name": "app", "resources": {"limits": {"cpu": cpu, "memory": memory}}});
            json!({"spec": {"containers": [app], "volumes": [volume]}})
        };
        let plain = json!({"spec": {"containers": [{"name": "app"}]}});
        let own = json!({"spec": {"containers": [{"name": "app", "resources": {"limits": {"cpu": "1"}}}]}});
        let injected = limited("2000m", "1024Mi");
        assert_eq!(taken_back(&plain, &injected, &limited("2", "1Gi")), plain);
        assert_eq!(taken_back(&own, &injected, &limited("2", "1Gi")), own);
        let limits = json!({"cpu": "3", "memory": "1Gi"});
        let changed = json!({"spec": {"containers": [{"name": "app", "resources": {"limits": limits}}]}});
        let mut now = limited("3", "1Gi");
        assert_eq!(taken_back(&plain, &injected, &now), changed, "but another limit stays");
        now["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "2"}]);
        let mut with_env = injected.clone();
        with_env["spec"]["containers"][0]["env"] = json!([{"name": "A", "value": "2000m"}]);
        let kept = taken_back(&plain, &with_env, &now);
        assert_eq!(kept["spec"]["containers"][0]["env"], now["spec"]["containers"][0]["env"], "a text is no quantity");
    }

    #[test]
    fn a_container_is_restricted_to_the_fields_of_another() {
        let own = json!({"name": "app", "image": "i:1", "env": [{"name": "A", "value": "1"}], "args": ["x"],
            "livenessProbe": {"grpc": {"port": 1}}});
        let probe = json!({"httpGet": {"port": 15020}});
        let present = json!({"name": "app", "image": "i:2", "env": [{"name": "A", "value": "2"}, {"name": "B"}],
            "livenessProbe": probe, "tty": true});
        let expected =
            json!({"name": "app", "image": "i:2", "env": [{"name": "A", "value": "2"}], "livenessProbe": probe});
        assert_eq!(restricted(&present, &own), expected);
    }
}
