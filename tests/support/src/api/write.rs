//! Handles requests that change objects, with the preconditions that the API server checks.

use hyper::Response;
use serde_json::{Value, json};

use super::Seen;
use super::response::{self, Body, Failure};
use super::route::Target;
use super::store::{Key, Store};

pub(super) fn create(store: &mut Store, target: &Target, seen: &Seen) -> Result<Response<Body>, Failure> {
    let mut object = seen.body.clone();
    let metadata = &mut object["metadata"];
    if let (Some(prefix), None) = (metadata["generateName"].as_str(), metadata["name"].as_str()) {
        metadata["name"] = json!(format!("{prefix}{:05}", store.revision()));
    }
    let namespace = target.namespace.clone().unwrap_or_default();
    if metadata["namespace"].as_str().is_some_and(|named| named != namespace) {
        return Err(Failure::status(400, "BadRequest", "the namespace of the object is not that of the request"));
    }
    let name = metadata["name"].as_str().unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(Failure::status(422, "Invalid", "metadata.name: Required value"));
    }
    let key = Key::new(&target.resource, &namespace, &name);
    if store.get(&key).is_some() {
        return Err(Failure::status(409, "AlreadyExists", &format!("{} \"{name}\" already exists", key.resource)));
    }
    Ok(response::object(201, &store.put(key, object)))
}

/// Evicts a pod. Clients send an Eviction of `policy/v1`; its unknown fields are ignored, as in the real API server.
pub(super) fn evict(store: &mut Store, key: &Key, seen: &Seen) -> Result<Response<Body>, Failure> {
    if seen.body["metadata"]["name"] != json!(key.name) {
        return Err(Failure::status(400, "BadRequest", "name in URL does not match name in Eviction object"));
    }
    end(store, key, &seen.body["deleteOptions"])?;
    Ok(response::object(201, &json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success" })))
}

/// Returns a token for a service account. The account's annotation `lifetime` limits the token's lifetime, in seconds.
pub(super) fn issue(store: &Store, key: &Key, seen: &Seen, number: usize) -> Result<Response<Body>, Failure> {
    let account = store.known(key)?;
    let limit = account["metadata"]["annotations"]["lifetime"].as_str().and_then(|text| text.parse::<i64>().ok());
    let mut request = seen.body.clone();
    if let Some(limit) = limit {
        request["spec"]["expirationSeconds"] = json!(limit);
    }
    request["status"] = json!({ "token": format!("issued-{number}"), "expirationTimestamp": "2026-01-01T01:00:00Z" });
    Ok(response::object(201, &request))
}

/// Responds to a `SelfSubjectAccessReview`.
pub(super) fn review(denied: &[String], seen: &Seen) -> Response<Body> {
    let mut review = seen.body.clone();
    let resource = &review["spec"]["resourceAttributes"]["resource"];
    let allowed = !denied.iter().any(|denied| resource == denied.as_str());
    review["status"] = json!({ "allowed": allowed });
    response::object(201, &review)
}

pub(super) fn delete(store: &mut Store, key: &Key, options: &Value) -> Result<Response<Body>, Failure> {
    Ok(response::object(200, &end(store, key, options)?))
}

/// Deletes an object. With a grace period it only gets a deletion timestamp, and remains until the test removes it as a
/// kubelet would.
fn end(store: &mut Store, key: &Key, options: &Value) -> Result<Value, Failure> {
    let object = store.known(key)?.clone();
    let preconditions = &options["preconditions"];
    preconditioned(&object, "uid", &preconditions["uid"])?;
    preconditioned(&object, "resourceVersion", &preconditions["resourceVersion"])?;
    let requested = options["gracePeriodSeconds"].as_u64();
    let grace = requested.or_else(|| object["spec"]["terminationGracePeriodSeconds"].as_u64()).unwrap_or(0);
    if grace == 0 {
        return Ok(store.remove(key).unwrap_or(object));
    }
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Ok(object);
    }
    let mut object = object;
    object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:30Z");
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    Ok(store.put(key.clone(), object))
}

fn preconditioned(object: &Value, field: &str, wanted: &Value) -> Result<(), Failure> {
    if wanted.is_null() || *wanted == object["metadata"][field] {
        return Ok(());
    }
    let present = &object["metadata"][field];
    Err(Failure::conflict(&format!(
        "Precondition failed: {field} in precondition: {wanted}, in object meta: {present}"
    )))
}

pub(super) fn patch(
    store: &mut Store,
    key: &Key,
    subresource: Option<&str>,
    seen: &Seen,
) -> Result<Response<Body>, Failure> {
    let before = store.known(key)?.clone();
    let mut after = before.clone();
    match seen.content_type.as_str() {
        "application/json-patch+json" => {
            let patch: json_patch::Patch = serde_json::from_value(seen.body.clone())
                .map_err(|error| Failure::status(400, "BadRequest", &error.to_string()))?;
            json_patch::patch(&mut after, &patch)
                .map_err(|error| Failure::status(422, "Invalid", &error.to_string()))?;
        }
        // For the patches in tests, a strategic merge patch has the same result as a merge patch.
        "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
            json_patch::merge(&mut after, &seen.body);
        }
        other => return Err(Failure::status(415, "UnsupportedMediaType", other)),
    }
    update(store, key, subresource, &before, after)
}

pub(super) fn replace(
    store: &mut Store,
    key: &Key,
    subresource: Option<&str>,
    seen: &Seen,
) -> Result<Response<Body>, Failure> {
    let before = store.known(key)?.clone();
    update(store, key, subresource, &before, seen.body.clone())
}

/// Replaces an object. An update of the subresource `status` keeps the spec; other updates keep the status.
fn update(
    store: &mut Store,
    key: &Key,
    subresource: Option<&str>,
    before: &Value,
    mut after: Value,
) -> Result<Response<Body>, Failure> {
    for field in ["uid", "resourceVersion"] {
        preconditioned(before, field, &after["metadata"][field])?;
    }
    let kept = match subresource {
        None => "status",
        Some("status") => "spec",
        Some(other) => return Err(Failure::not_found(other)),
    };
    match before.get(kept) {
        Some(value) => after[kept] = value.clone(),
        None => {
            after.as_object_mut().map(|object| object.remove(kept));
        }
    }
    Ok(response::object(200, &store.put(key.clone(), after)))
}
