//! Validates volumes of files: Secrets, ConfigMaps, fields of the pod, and projections of these.

use gocompat::quantity;
use podfacts::name::{is_dns_label, is_key};

use super::{HashSet, Invalid, Value, demand, is_outside_of_volume, is_subdomain, one_of, pod, require};
use crate::volume::{DIVISORS, is_divisor, is_member, is_resource};

/// The sources whose files have modes, as volumes or within `projected`.
const FILES: [&str; 3] = ["secret", "configMap", "downwardAPI"];
/// The largest mode of a file.
const MODE: i64 = 0o777;
/// The valid lifetimes of a token, in seconds.
const EXPIRATION: std::ops::RangeInclusive<i64> = 600..=1 << 32;

/// The pod fields that a file may contain, in addition to single labels and annotations.
const FIELDS: [&str; 5] =
    ["metadata.name", "metadata.namespace", "metadata.uid", "metadata.labels", "metadata.annotations"];
/// The valid types of a certificate's key.
const KEYS: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
/// The fields with the paths of a certificate's files.
const CERTIFICATE: [&str; 3] = ["credentialBundlePath", "keyPath", "certificateChainPath"];
/// The minimum lifetime of a certificate, the maximum from Kubernetes' own signers, and the maximum from others, in
/// seconds.
const LIFETIMES: (i64, i64, i64) = (3600, 24 * 60 * 60, 91 * 24 * 60 * 60);
/// The maximum length of a signer's name, in bytes.
const SIGNER: usize = 571;

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

/// Returns the `items` of a volume's file sources, including projected ones.
fn items(volume: &Value) -> impl Iterator<Item = &Value> {
    let sources = std::iter::once(volume).chain(pod::list(&volume["projected"], "sources"));
    sources.flat_map(|source| FILES.into_iter().flat_map(|kind| pod::list(&source[kind], "items")))
}

/// Returns the names of the containers whose resources a volume's files contain.
pub(crate) fn containers(volume: &Value) -> impl Iterator<Item = &str> {
    let names = items(volume).map(|item| pod::text(&item["resourceFieldRef"], "containerName"));
    names.filter(|name| !name.is_empty())
}

/// Returns the absolute paths of a volume's files, which the API server refuses.
pub(crate) fn absolute(volume: &Value) -> impl Iterator<Item = &str> {
    items(volume).map(|item| pod::text(item, "path")).filter(|path| path.starts_with('/'))
}

/// Checks a source of a projected volume.
fn project(source: &Value) -> Result<(), Invalid> {
    for kind in ["secret", "configMap"] {
        require(&format!("projected.{kind}"), source.get(kind), &["name"])?;
    }
    FILES.into_iter().try_for_each(|name| files((name, &format!("projected.{name}")), &source[name]))?;
    require("projected.serviceAccountToken", source.get("serviceAccountToken"), &["path"])?;
    let token = &source["serviceAccountToken"];
    within("projected.serviceAccountToken", "path", token)?;
    let expiration = token.get("expirationSeconds").and_then(Value::as_i64);
    if let Some(seconds) = expiration.filter(|seconds| !EXPIRATION.contains(seconds)) {
        return Err(Invalid::Expiration(seconds));
    }
    bundle(&source["clusterTrustBundle"])?;
    certificate(&source["podCertificate"])
}

/// Checks a `clusterTrustBundle`, if there is one.
fn bundle(bundle: &Value) -> Result<(), Invalid> {
    if bundle.is_null() {
        return Ok(());
    }
    let place = "projected.clusterTrustBundle";
    one_of(place, bundle, (&["name", "signerName"], "name and signerName"))?;
    require(place, Some(bundle), &["path"])?;
    if !pod::text(bundle, "name").is_empty() && bundle.get("labelSelector").is_some_and(|labels| !labels.is_null()) {
        return Err(Invalid::BundleSelector);
    }
    let (name, signer_name) = (pod::text(bundle, "name"), pod::text(bundle, "signerName"));
    if !signer_name.is_empty() {
        signer(&format!("{place}.signerName"), signer_name)?;
    }
    let of_signer = name.rsplit_once(':').map_or(name, |(_, name)| name);
    let is_name = name.is_empty() || is_subdomain(of_signer);
    demand(
        &format!("{place}.name"),
        name,
        is_name,
        "a DNS subdomain, perhaps behind the name of a signer and a colon",
    )?;
    within(place, "path", bundle)
}

/// Checks a `podCertificate`, if there is one.
fn certificate(certificate: &Value) -> Result<(), Invalid> {
    if certificate.is_null() {
        return Ok(());
    }
    let place = "projected.podCertificate";
    require(place, Some(certificate), &["signerName", "keyType"])?;
    let key = pod::text(certificate, "keyType");
    if !KEYS.contains(&key) {
        return Err(Invalid::KeyType(key.to_owned()));
    }
    let name = pod::text(certificate, "signerName");
    signer(&format!("{place}.signerName"), name)?;
    let domain = name.split('/').next().unwrap_or_default();
    let is_kubernetes = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
    let (shortest, of_kubernetes, of_others) = LIFETIMES;
    let longest = if is_kubernetes { of_kubernetes } else { of_others };
    let lifetime = certificate.get("maxExpirationSeconds").and_then(Value::as_i64);
    if let Some(seconds) = lifetime.filter(|seconds| !(shortest..=longest).contains(seconds)) {
        return Err(Invalid::Lifetime { seconds, longest });
    }
    for name in pod::map(certificate, "userAnnotations").keys() {
        let is_prefixed = name.contains('/') && is_key(&name.to_lowercase());
        demand(&format!("{place}.userAnnotations"), name, is_prefixed, "a name with a domain, such as example.com/a")?;
    }
    if CERTIFICATE.into_iter().all(|path| pod::text(certificate, path).is_empty()) {
        return Err(Invalid::Required(format!("one of {} in {place}", CERTIFICATE.join(", "))));
    }
    CERTIFICATE.into_iter().try_for_each(|path| within(place, path, certificate))
}

/// Checks the name of a signer (`ValidateSignerName`).
fn signer(field: &str, name: &str) -> Result<(), Invalid> {
    let is_valid = name.split_once('/').is_some_and(|(domain, path)| {
        let is_domain = is_subdomain(domain) && domain.contains('.') && domain.split('.').all(is_dns_label);
        is_domain && path.split('.').all(is_subdomain)
    });
    demand(field, name, is_valid && name.len() <= SIGNER, "a domain and a name, such as example.com/signer")
}

/// Checks that the path in the field `key` is within the volume.
fn within(place: &str, key: &str, source: &Value) -> Result<(), Invalid> {
    match is_outside(pod::text(source, key)) {
        true => Err(Invalid::SubPath(format!("{place}.{key}"))),
        false => Ok(()),
    }
}

/// Returns the paths of a projected source that no other source may have. A token's path is not among them.
fn paths_of(source: &Value) -> impl Iterator<Item = &str> {
    let items = FILES.into_iter().flat_map(|kind| pod::list(&source[kind], "items"));
    let certificate = CERTIFICATE.into_iter().map(|path| pod::text(&source["podCertificate"], path));
    let bundle = pod::text(&source["clusterTrustBundle"], "path");
    let paths = items.map(|item| pod::text(item, "path")).chain(certificate).chain(std::iter::once(bundle));
    paths.filter(|path| !path.is_empty())
}

/// Checks a source of files: the modes of its files, and their paths in the volume. `place` names the source in errors.
fn files((kind, place): (&str, &str), source: &Value) -> Result<(), Invalid> {
    mode(&format!("{place}.defaultMode"), source.get("defaultMode"))?;
    for item in pod::list(source, "items") {
        let place_of_item = format!("{place}.items");
        mode(&format!("{place_of_item}.mode"), item.get("mode"))?;
        if kind == "downwardAPI" {
            let kinds: &[&str] = &["fieldRef", "resourceFieldRef"];
            one_of(&place_of_item, item, (kinds, "fieldRef and resourceFieldRef"))?;
            field(&place_of_item, &item["fieldRef"])?;
            let resource = item.get("resourceFieldRef");
            require(&format!("{place_of_item}.resourceFieldRef"), resource, &["containerName", "resource"])?;
            let resource = pod::text(&item["resourceFieldRef"], "resource");
            if !resource.is_empty() && !is_resource(resource) {
                return Err(Invalid::Resource { place: place_of_item, resource: resource.to_owned() });
            }
            if let Some(divisor) = item["resourceFieldRef"].get("divisor").filter(|divisor| !divisor.is_null()) {
                let field = format!("{place_of_item}.resourceFieldRef.divisor");
                demand(&field, &quantity::text(divisor), is_divisor(resource, divisor), DIVISORS)?;
            }
        } else {
            require(&place_of_item, Some(item), &["key"])?;
        }
        require(&place_of_item, Some(item), &["path"])?;
        let path = pod::text(item, "path");
        // An absolute path is accepted, because Istio's own golden files have one; a warning reports it.
        if path.starts_with("..") || path.split('/').any(|part| part == "..") {
            return Err(Invalid::ItemPath(place.to_owned()));
        }
    }
    Ok(())
}

/// Checks the `fieldRef` of a file, if there is one.
fn field(place: &str, reference: &Value) -> Result<(), Invalid> {
    require(&format!("{place}.fieldRef"), Some(reference), &["fieldPath"])?;
    let version = pod::text(reference, "apiVersion");
    demand(&format!("{place}.fieldRef.apiVersion"), version, matches!(version, "" | "v1"), "v1")?;
    let path = pod::text(reference, "fieldPath");
    if reference.is_null() || FIELDS.contains(&path) || is_member(path) {
        return Ok(());
    }
    Err(Invalid::FieldPath { place: place.to_owned(), path: path.to_owned() })
}

/// Whether a path leaves the volume, or begins with `..` like the kubelet's own files (`ValidateLocalNonReservedPath`).
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

    /// Returns a volume with a `podCertificate` that has these fields.
    fn certified(fields: &Value) -> Value {
        json!({"projected": {"sources": [{"podCertificate": fields}]}})
    }

    #[test]
    fn files_without_what_they_need_are_refused_for_their_reason() {
        for valid in [
            json!({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}}),
            json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 43200}}]}}),
            json!({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.labels['a/b']"}}]}}),
            certified(
                &json!({"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k", "maxExpirationSeconds": 3600}),
            ),
            json!({"projected": {"sources": [{"clusterTrustBundle": {"signerName": "a.b/s", "path": "t"}}]}}),
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
            (
                json!({"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "spec.nodeName"}}]}}),
                "downwardAPI.items.fieldRef.fieldPath \"spec.nodeName\" is none of metadata.name",
            ),
            (json!({"projected": {"sources": [{"secret": {}}]}}), "projected.secret.name is required"),
            (
                json!({"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "labelSelector": {}, "path": "t"}}]}}),
                "projected.clusterTrustBundle.labelSelector must be absent",
            ),
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

    #[test]
    fn the_divisor_of_a_resource_is_a_unit_of_it() {
        let file = |resource: &str, divisor: Value| {
            let reference = json!({"containerName": "a", "resource": resource, "divisor": divisor});
            json!({"items": [{"path": "x", "resourceFieldRef": reference}]})
        };
        for (resource, divisor, is_valid) in [
            ("limits.cpu", json!("1m"), true),
            ("limits.cpu", json!(1), true),
            ("requests.cpu", json!("0"), true),
            ("requests.cpu", json!("1000m"), true),
            ("limits.cpu", json!("1Mi"), false),
            ("limits.memory", json!("1Mi"), true),
            ("limits.memory", json!("1024Ki"), true),
            ("limits.memory", json!("3"), false),
            ("requests.ephemeral-storage", json!("1m"), false),
            ("requests.hugepages-2Mi", json!("1Gi"), true),
            ("requests.hugepages-2Mi", json!("2Gi"), false),
        ] {
            let source = file(resource, divisor.clone());
            for volume in [json!({"downwardAPI": source}), json!({"projected": {"sources": [{"downwardAPI": source}]}})]
            {
                let found = all(&volume).map_err(|error| error.to_string());
                let is_named = found.as_ref().is_err_and(|reason| reason.contains("resourceFieldRef.divisor"));
                assert_eq!((found.is_ok(), is_named), (is_valid, !is_valid), "{resource} {divisor}: {found:?}");
            }
        }
    }

    #[test]
    fn a_certificate_without_what_it_needs_is_refused_for_its_reason() {
        for (invalid, reason) in [
            (certified(&json!({})), "projected.podCertificate.signerName is required"),
            (certified(&json!({"signerName": "a.b/c", "keyType": "RSA"})), "projected.podCertificate.keyType \"RSA\""),
            (
                certified(&json!({"signerName": "a.b/c", "keyType": "ED25519"})),
                "one of credentialBundlePath, keyPath, certificateChainPath in projected.podCertificate is required",
            ),
            (
                certified(&json!({"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "/k"})),
                "projected.podCertificate.keyPath must be a path within",
            ),
            (
                certified(
                    &json!({"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k", "maxExpirationSeconds": 60}),
                ),
                "projected.podCertificate.maxExpirationSeconds 60",
            ),
            (
                certified(
                    &json!({"signerName": "a.b/c", "keyType": "ED25519", "keyPath": "k", "maxExpirationSeconds": 7_862_401}),
                ),
                "projected.podCertificate.maxExpirationSeconds 7862401",
            ),
            (
                certified(
                    &json!({"signerName": "kubernetes.io/c", "keyType": "ED25519", "keyPath": "k", "maxExpirationSeconds": 86401}),
                ),
                "projected.podCertificate.maxExpirationSeconds 86401",
            ),
            (
                certified(&json!({"signerName": "a_b/c", "keyType": "ED25519", "keyPath": "k"})),
                "projected.podCertificate.signerName \"a_b/c\"",
            ),
        ] {
            let found = all(&invalid).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(found.starts_with(reason), "{invalid}: {found}");
        }
    }
}
