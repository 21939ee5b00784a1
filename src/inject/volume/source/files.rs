//! The conditions of the API server on volumes of files: Secrets, ConfigMaps, fields of the pod, and projections of them.

use super::{HashSet, Invalid, Value, is_outside_of_volume, one_of, pod, require};

/// The sources of files with modes, also within `projected`.
const FILES: [&str; 3] = ["secret", "configMap", "downwardAPI"];
/// The largest mode of a file.
const MODE: i64 = 0o777;
/// The lifetimes of a token, in seconds.
const EXPIRATION: std::ops::RangeInclusive<i64> = 600..=1 << 32;

/// Checks the volume's files, if it has any.
pub(super) fn all(volume: &Value) -> Result<(), Invalid> {
    FILES.into_iter().try_for_each(|name| files((name, name), &volume[name]))?;
    let projected = &volume["projected"];
    mode("projected.defaultMode", projected.get("defaultMode"))?;
    let mut paths = HashSet::new();
    pod::list(projected, "sources").iter().try_for_each(|source| {
        let kinds: Vec<&str> = pod::set(source).collect();
        if kinds.len() > 1 {
            return Err(Invalid::Projected(kinds.join(", ")));
        }
        project(source)?;
        match paths_of(source).find(|path| !paths.insert(*path)) {
            Some(path) => Err(Invalid::SamePath(path.to_owned())),
            None => Ok(()),
        }
    })
}

/// Checks a source of a projection.
fn project(source: &Value) -> Result<(), Invalid> {
    for kind in ["secret", "configMap"] {
        require(&format!("projected.{kind}"), source.get(kind), &["name"])?;
    }
    FILES.into_iter().try_for_each(|name| files((name, &format!("projected.{name}")), &source[name]))?;
    require("projected.serviceAccountToken", source.get("serviceAccountToken"), &["path"])?;
    let token = &source["serviceAccountToken"];
    if is_outside(pod::text(token, "path")) {
        return Err(Invalid::SubPath("projected.serviceAccountToken.path"));
    }
    let expiration = token.get("expirationSeconds").and_then(Value::as_i64);
    if let Some(seconds) = expiration.filter(|seconds| !EXPIRATION.contains(seconds)) {
        return Err(Invalid::Expiration(seconds));
    }
    let Some(bundle) = source.get("clusterTrustBundle").filter(|bundle| !bundle.is_null()) else { return Ok(()) };
    let place = "projected.clusterTrustBundle";
    one_of(place, bundle, (&["name", "signerName"], "name and signerName"))?;
    require(place, Some(bundle), &["path"])?;
    match is_outside(pod::text(bundle, "path")) {
        true => Err(Invalid::SubPath("projected.clusterTrustBundle.path")),
        false => Ok(()),
    }
}

/// Returns the paths that a source of a projection has for itself. That of a token may be another source's, too.
fn paths_of(source: &Value) -> impl Iterator<Item = &str> {
    let items = FILES.into_iter().flat_map(|kind| pod::list(&source[kind], "items"));
    let certificate = ["credentialBundlePath", "keyPath", "certificateChainPath"];
    let certificate = certificate.into_iter().map(|path| pod::text(&source["podCertificate"], path));
    let bundle = pod::text(&source["clusterTrustBundle"], "path");
    let paths = items.map(|item| pod::text(item, "path")).chain(certificate).chain(std::iter::once(bundle));
    paths.filter(|path| !path.is_empty())
}

/// Checks a source of files: their modes, and their paths in the volume. `place` names it in errors.
fn files((kind, place): (&str, &str), source: &Value) -> Result<(), Invalid> {
    mode(&format!("{place}.defaultMode"), source.get("defaultMode"))?;
    for item in pod::list(source, "items") {
        let place_of_item = format!("{place}.items");
        mode(&format!("{place_of_item}.mode"), item.get("mode"))?;
        if kind == "downwardAPI" {
            let kinds: &[&str] = &["fieldRef", "resourceFieldRef"];
            one_of(&place_of_item, item, (kinds, "fieldRef and resourceFieldRef"))?;
            require(&format!("{place_of_item}.fieldRef"), item.get("fieldRef"), &["fieldPath"])?;
            let resource = item.get("resourceFieldRef");
            require(&format!("{place_of_item}.resourceFieldRef"), resource, &["containerName", "resource"])?;
        } else {
            require(&place_of_item, Some(item), &["key"])?;
        }
        require(&place_of_item, Some(item), &["path"])?;
        let path = pod::text(item, "path");
        // Istio's own expected outputs have an absolute path.
        if path.starts_with("..") || path.split('/').any(|part| part == "..") {
            return Err(Invalid::ItemPath(place.to_owned()));
        }
    }
    Ok(())
}

/// Whether a path is outside of the volume, or begins as the kubelet's own files do (`ValidateLocalNonReservedPath`).
fn is_outside(path: &str) -> bool {
    path.starts_with("..") || is_outside_of_volume(path)
}

fn mode(field: &str, mode: Option<&Value>) -> Result<(), Invalid> {
    match mode.and_then(Value::as_i64).filter(|mode| !(0..=MODE).contains(mode)) {
        Some(mode) => Err(Invalid::Mode { field: field.to_owned(), value: mode.to_string() }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_without_what_they_need_are_refused_for_their_reason() {
        for valid in [
            json!({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 43200}}]}}),
            json!({"projected": {"sources": [{"clusterTrustBundle": {"signerName": "s", "path": "t"}}]}}),
        ] {
            assert_eq!(all(&valid), Ok(()), "{valid}");
        }
        for (invalid, reason) in [
            (json!({"configMap": {"name": "c", "items": [{"path": "x"}]}}), "configMap.items.key is required"),
            (json!({"secret": {"secretName": "c", "items": [{"key": "x"}]}}), "secret.items.path is required"),
            (
                json!({"downwardAPI": {"items": [{"path": "x"}]}}),
                "downwardAPI.items has none: exactly one of fieldRef and resourceFieldRef",
            ),
            (
                json!({"downwardAPI": {"items": [{"path": "x", "resourceFieldRef": {"resource": "limits.cpu"}}]}}),
                "downwardAPI.items.resourceFieldRef.containerName is required",
            ),
            (json!({"projected": {"sources": [{"secret": {}}]}}), "projected.secret.name is required"),
            (
                json!({"projected": {"sources": [{"serviceAccountToken": {}}]}}),
                "projected.serviceAccountToken.path is required",
            ),
            (
                json!({"projected": {"sources": [{"serviceAccountToken": {"path": "../t"}}]}}),
                "projected.serviceAccountToken.path must be a path within",
            ),
            (
                json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 60}}]}}),
                "projected.serviceAccountToken.expirationSeconds 60 is not from 600",
            ),
            (
                json!({"projected": {"sources": [{"clusterTrustBundle": {"path": "t"}}]}}),
                "projected.clusterTrustBundle has none: exactly one of name and signerName",
            ),
            (
                json!({"projected": {"sources": [
                    {"secret": {"name": "s", "items": [{"key": "k", "path": "t"}]}}, {"clusterTrustBundle": {"name": "b", "path": "t"}}]}}),
                "two files of projected have the path \"t\"",
            ),
        ] {
            let found = all(&invalid).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(found.starts_with(reason), "{invalid}: {found}");
        }
    }
}
