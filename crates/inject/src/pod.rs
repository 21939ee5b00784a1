//! Accessors for pods as JSON values: metadata, spec, containers.
//!
//! An absent path reads as empty: the API server, not the injector, reports malformed pods.

use std::fmt;
use std::marker::PhantomData;

use contract::container;
use gotemplate::{member, member_of};
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// The value of `image` that stands for the template's image.
pub(super) const AUTO: &str = "auto";
// Fields of a pod's spec.
pub(super) const CONTAINERS: &str = "containers";
pub(super) const INIT_CONTAINERS: &str = "initContainers";
pub(super) const VOLUMES: &str = "volumes";
pub(super) const IMAGE_PULL_SECRETS: &str = "imagePullSecrets";

pub(super) static NO_MAP: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);

/// Deserializes null as the default, like an absent member; for `deserialize_with`.
///
/// # Errors
/// The value is neither null nor of type `T`.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(from)?.unwrap_or_default())
}

/// A struct that is deserialized only from a map; serde's derive also accepts a list of the members.
#[derive(Debug)]
pub struct Record<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Record<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Members(PhantomData)).map(Self)
    }
}

struct Members<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Members<T> {
    type Value = T;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(members))
    }
}

/// Deserializes a struct from a map only, or null as the default; for `deserialize_with`.
///
/// # Errors
/// The value is neither, or a member has another type.
pub fn record<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::<Record<T>>::deserialize(from)?.map(|record| record.0).unwrap_or_default())
}

/// Deserializes a list of [`Record`]s, or null as an empty one; for `deserialize_with`.
///
/// # Errors
/// The value is neither, or an element is not a map.
pub fn records<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    let list = Option::<Vec<Record<T>>>::deserialize(from)?.unwrap_or_default();
    Ok(list.into_iter().map(|record| record.0).collect())
}

/// Returns the map under `key`; empty if it is absent.
pub(super) fn map<'a>(value: &'a Value, key: &str) -> &'a Map<String, Value> {
    member_of(value, key).and_then(Value::as_object).unwrap_or(&NO_MAP)
}

/// Returns the list under `key`; empty if it is absent.
pub(super) fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    member_of(value, key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Returns the string under `key`; empty if it is absent.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    member_of(value, key).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the map under `key`, which is created if absent.
pub(super) fn map_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Map<String, Value> {
    let member = object(value).entry(key).or_insert(Value::Null);
    object(member)
}

/// Returns the list under `key`, which is created if absent.
pub(super) fn list_mut<'a>(value: &'a mut Value, key: &str) -> &'a mut Vec<Value> {
    let member = object(value).entry(key).or_insert(Value::Null);
    if !member.is_array() {
        *member = Value::Array(Vec::new());
    }
    match member {
        Value::Array(list) => list,
        _ => unreachable!("is an array since the check above"),
    }
}

/// Returns `value` as a map; a value of another type is replaced with an empty map.
pub(super) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("is an object since the check above"),
    }
}

/// Returns a pod's `metadata`.
pub(super) fn metadata(pod: &Value) -> &Value {
    member_of(pod, "metadata").unwrap_or(&Value::Null)
}

/// Returns a pod's `spec`.
pub(super) fn spec(pod: &Value) -> &Value {
    member_of(pod, "spec").unwrap_or(&Value::Null)
}

/// Returns the name of the node that the pod is bound to, if any.
pub(super) fn node_name(pod: &Value) -> Option<&str> {
    Some(text(spec(pod), "nodeName")).filter(|name| !name.is_empty())
}

/// Returns a pod's mutable `spec`, which is created if absent.
pub(super) fn spec_mut(pod: &mut Value) -> &mut Value {
    object(pod).entry("spec").or_insert_with(|| Value::Object(Map::new()))
}

/// Returns an annotation's value.
pub(super) fn annotation<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    member(map(metadata(pod), "annotations"), name)?.as_str()
}

/// Returns a label's value.
pub(super) fn label<'a>(pod: &'a Value, name: &str) -> Option<&'a str> {
    member(map(metadata(pod), "labels"), name)?.as_str()
}

/// Returns the mutable annotations, which are created if absent.
pub(super) fn annotations_mut(pod: &mut Value) -> &mut Map<String, Value> {
    map_mut(object(pod).entry("metadata").or_insert(Value::Null), "annotations")
}

/// Returns the mutable labels, which are created if absent.
pub(super) fn labels_mut(pod: &mut Value) -> &mut Map<String, Value> {
    map_mut(object(pod).entry("metadata").or_insert(Value::Null), "labels")
}

/// Returns the containers in `which`: [`CONTAINERS`] or [`INIT_CONTAINERS`].
pub(super) fn containers<'a>(pod: &'a Value, which: &str) -> &'a [Value] {
    list(spec(pod), which)
}

/// Returns the mutable containers in `which`; an absent list is empty and is not created.
pub(super) fn containers_mut<'a>(pod: &'a mut Value, which: &str) -> &'a mut [Value] {
    pod.get_mut("spec")
        .and_then(|spec| spec.get_mut(which))
        .and_then(Value::as_array_mut)
        .map_or(&mut [], Vec::as_mut_slice)
}

/// Returns the field `name` of a container, a volume or another object.
pub(super) fn name(item: &Value) -> &str {
    text(item, "name")
}

/// Returns the item with this name.
pub(super) fn find<'a>(items: &'a [Value], wanted: &str) -> Option<&'a Value> {
    items.iter().find(|item| name(item) == wanted)
}

/// Returns the container `istio-proxy`, searched in the containers first, then in the init containers.
pub(super) fn sidecar(pod: &Value) -> Option<&Value> {
    [CONTAINERS, INIT_CONTAINERS].iter().find_map(|which| find(containers(pod, which), container::PROXY))
}

/// Returns the mutable [`sidecar`].
pub(super) fn sidecar_mut(pod: &mut Value) -> Option<&mut Value> {
    let which =
        [CONTAINERS, INIT_CONTAINERS].into_iter().find(|w| find(containers(pod, w), container::PROXY).is_some())?;
    containers_mut(pod, which).iter_mut().find(|c| name(c) == container::PROXY)
}

/// Returns the number of the port that a probe or hook of a container refers to, by number or by the name of a port.
pub(super) fn numeric_port(container: &Value, port: &Value) -> Option<u64> {
    let Some(wanted) = port.as_str() else { return port.as_u64() };
    list(container, "ports").iter().find(|port| name(port) == wanted)?.get("containerPort")?.as_u64()
}

/// Appends an environment variable to a container.
pub(super) fn push_env(container: &mut Value, name: &str, value: &str) {
    list_mut(container, "env").push(serde_json::json!({"name": name, "value": value}));
}

/// Removes the environment variables of this name from a container.
pub(super) fn remove_env(container: &mut Value, variable: &str) {
    if let Some(Value::Array(env)) = container.get_mut("env") {
        env.retain(|item| name(item) != variable);
    }
}

/// Returns the keys of an object whose values are not null.
pub(super) fn set(value: &Value) -> impl Iterator<Item = &str> {
    let members = value.as_object().into_iter().flatten();
    members.filter(|(_, value)| !value.is_null()).map(|(key, _)| key.as_str())
}

/// Removes null members at any depth, as decoding into Go's types does.
pub(super) fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, member| !member.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}
