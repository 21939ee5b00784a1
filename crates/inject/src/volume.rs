//! Validates a pod's volumes and volume mounts as the API server does.

use gocompat::quantity;
use podfacts::name::{is_dns_label, is_key};
use serde_json::Value;

use super::pod;
use super::typed::{Mismatch, Struct};

mod source;

pub(crate) use source::{absolute, containers};

/// The values of `mountPropagation`.
const PROPAGATION: [&str; 3] = ["None", "HostToContainer", "Bidirectional"];

/// Why the API server refuses a volume or a volume mount.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    #[error("{0}")]
    Type(Mismatch),
    #[error("its name must be 1 to 63 lower-case letters, digits and dashes, with a letter or digit at both ends")]
    Name,
    #[error("it has several sources ({0})")]
    Sources(String),
    #[error("{0} is required")]
    Required(String),
    #[error("{place} has {found}: exactly one of {allowed} is required")]
    Alternatives { place: String, found: String, allowed: &'static str },
    #[error("mountPath is required")]
    NoPath,
    #[error("{0} must be a path within the volume: relative, and without \"..\"")]
    SubPath(String),
    #[error("subPath and subPathExpr exclude each other")]
    SubPaths,
    #[error("mountPropagation must be None, HostToContainer or Bidirectional")]
    Propagation,
    #[error("{0} must not have the part \"..\"")]
    Backsteps(&'static str),
    #[error("hostPath.type {0:?} is unknown")]
    HostPathType(String),
    #[error("{0} must be an absolute path")]
    Relative(&'static str),
    #[error("projected.serviceAccountToken.expirationSeconds {0} is not from 600 to 4294967296")]
    Expiration(i64),
    #[error("image.pullPolicy {0:?} is none of Always, IfNotPresent and Never")]
    PullPolicy(String),
    #[error("{field} {value} is not from 0 to 255")]
    Partition { field: String, value: i64 },
    #[error("{field} {value:?} must be the name of an object: a DNS subdomain")]
    Object { field: &'static str, value: String },
    #[error("{field} {value:?} must be {allowed}")]
    Field { field: String, value: String, allowed: &'static str },
    #[error(
        "{field} has {value}: it must be ReadWriteOncePod alone, or of ReadWriteOnce, ReadOnlyMany and ReadWriteMany"
    )]
    Access { field: &'static str, value: String },
    #[error(
        "{place}.resourceFieldRef.resource {resource:?} is none of limits or requests of cpu, memory, ephemeral-storage and hugepages-SIZE"
    )]
    Resource { place: String, resource: String },
    #[error("two files of projected have the path {0:?}")]
    SamePath(String),
    #[error("{field} {value} is not from 0 to 0777")]
    Mode { field: String, value: String },
    #[error("the path of an item of {0} must be without \"..\"")]
    ItemPath(String),
    #[error("emptyDir.sizeLimit must not be negative")]
    SizeLimit,
    #[error(
        "{place}.fieldRef.fieldPath {path:?} is none of metadata.name, metadata.namespace, metadata.uid, metadata.labels, \
         metadata.annotations and one of them such as metadata.labels['app']: other fields are for variables only"
    )]
    FieldPath { place: String, path: String },
    #[error(
        "projected.podCertificate.keyType {0:?} is none of RSA3072, RSA4096, ECDSAP256, ECDSAP384, ECDSAP521 and ED25519"
    )]
    KeyType(String),
    #[error("projected.podCertificate.maxExpirationSeconds {seconds} is not from 3600 to {longest}")]
    Lifetime { seconds: i64, longest: i64 },
    #[error("projected.clusterTrustBundle.labelSelector must be absent beside name")]
    BundleSelector,
    #[error("a source of projected has several kinds ({0})")]
    Projected(String),
}

/// Checks a volume. A volume without a source is an `emptyDir`.
///
/// # Errors
/// The API server would refuse the volume.
pub(super) fn check(volume: &Value) -> Result<(), Invalid> {
    typed("core.Volume", volume)?;
    if !is_dns_label(pod::name(volume)) {
        return Err(Invalid::Name);
    }
    let sources: Vec<&str> = pod::set(volume).filter(|key| *key != "name").collect();
    if sources.len() > 1 {
        return Err(Invalid::Sources(sources.join(", ")));
    }
    source::check(volume)
}

/// Checks a volume mount except for the volume's name, which the caller checks.
///
/// # Errors
/// The API server would refuse the mount.
pub(super) fn check_mount(mount: &Value) -> Result<(), Invalid> {
    typed("core.VolumeMount", mount)?;
    if pod::text(mount, "mountPath").is_empty() {
        return Err(Invalid::NoPath);
    }
    let mut within = ["subPath", "subPathExpr"].into_iter().filter(|field| !pod::text(mount, field).is_empty());
    match (within.next(), within.next()) {
        (Some(_), Some(_)) => return Err(Invalid::SubPaths),
        (Some(field), None) if is_outside_of_volume(pod::text(mount, field)) => {
            return Err(Invalid::SubPath(field.to_owned()));
        }
        _ => {}
    }
    let propagation = mount.get("mountPropagation").and_then(Value::as_str);
    if propagation.is_some_and(|mode| !PROPAGATION.contains(&mode)) {
        return Err(Invalid::Propagation);
    }
    Ok(())
}

/// Whether a field path names a single label or annotation of a pod, such as `metadata.labels['app']`.
pub(super) fn is_member(path: &str) -> bool {
    let subscript = |map: &str| path.strip_prefix(map)?.strip_prefix("['")?.strip_suffix("']");
    match (subscript("metadata.annotations"), subscript("metadata.labels")) {
        (Some(name), _) => is_key(&name.to_lowercase()),
        (_, Some(name)) => is_key(name),
        _ => false,
    }
}

/// The container resources that a `resourceFieldRef` may name, in addition to huge pages.
const RESOURCES: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// Whether a `resourceFieldRef` of a file or a variable may name this resource, such as `limits.cpu`.
pub(super) fn is_resource(resource: &str) -> bool {
    let name = resource.strip_prefix("limits.").or_else(|| resource.strip_prefix("requests."));
    name.is_some_and(|name| RESOURCES.contains(&name) || name.starts_with("hugepages-"))
}

/// The divisors of amounts in bytes.
const UNITS: [&str; 14] = ["0", "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];
/// The divisors of amounts of CPU.
const SHARES: [&str; 3] = ["0", "1m", "1"];
/// The valid divisors, for error messages.
pub(super) const DIVISORS: &str = "1 or 1m for cpu, and 1 with a unit such as Mi otherwise";

/// Whether a `resourceFieldRef` may have this divisor for a resource (`validateContainerResourceDivisor`).
pub(super) fn is_divisor(resource: &str, divisor: &Value) -> bool {
    let units = if resource.ends_with(".cpu") { &SHARES[..] } else { &UNITS };
    quantity::canonical(&quantity::text(divisor)).is_none_or(|unit| units.contains(&unit.as_str()))
}

/// Whether a path within a volume leaves it (`validateLocalDescendingPath`).
fn is_outside_of_volume(path: &str) -> bool {
    path.starts_with('/') || path.split('/').any(|part| part == "..")
}

fn typed(name: &str, value: &Value) -> Result<(), Invalid> {
    match Struct::named(name) {
        Some(of) => of.check(value).map_err(Invalid::Type),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused<T>(result: Result<T, Invalid>) -> Option<String> {
        result.err().map(|error| error.to_string())
    }

    #[test]
    fn a_volume_that_the_api_server_refuses_is_refused_for_its_reason() {
        for valid in [
            json!({"name": "a"}),
            json!({"name": "a-1", "emptyDir": {}, "secret": null}),
            json!({"name": "a", "hostPath": {"path": "/x"}}),
            json!({"name": "a", "projected": {"sources": []}}),
            json!({"name": "a", "hostPath": {"path": "/x/..y", "type": "Socket"}}),
            json!({"name": "a", "configMap": {"name": "c", "defaultMode": 511, "items": [{"key": "k", "path": "a/..b"}]}}),
            json!({"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}),
            json!({"name": "a", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}),
        ] {
            assert_eq!(check(&valid), Ok(()), "{valid}");
        }
        for (invalid, reason) in [
            (json!(5), "expected a map, got 5"),
            (json!({}), "its name must be"),
            (json!({"name": "Upper"}), "its name must be"),
            (json!({"name": "a."}), "its name must be"),
            (json!({"name": "a".repeat(64)}), "its name must be"),
            (
                json!({"name": "a", "emptyDir": {}, "secret": {"secretName": "s"}}),
                "it has several sources (emptyDir, secret)",
            ),
            (json!({"name": "a", "hostPath": {}}), "hostPath.path is required"),
            (json!({"name": "a", "nfs": {"server": "s", "path": ""}}), "nfs.path is required"),
            (json!({"name": "a", "emptyDir": []}), "emptyDir: expected a map, got a list"),
            (json!({"name": "a", "hostPath": {"path": 5}}), "hostPath.path: expected a text, got 5"),
            (json!({"name": "a", "secret": {"defaultMode": "x"}}), "secret.defaultMode: expected"),
            (json!({"name": "a", "hostPath": {"path": "/x/../y"}}), "hostPath.path must not have the part"),
            (json!({"name": "a", "hostPath": {"path": "/x", "type": "Dir"}}), "hostPath.type \"Dir\" is unknown"),
            (
                json!({"name": "a", "secret": {"secretName": "s", "defaultMode": 512}}),
                "secret.defaultMode 512 is not from 0 to 0777",
            ),
            (json!({"name": "a", "projected": {"defaultMode": -1}}), "projected.defaultMode -1 is not from"),
            (
                json!({"name": "a", "configMap": {"name": "c", "items": [{"key": "k", "path": "../x"}]}}),
                "the path of an item of configMap must be without",
            ),
            (
                json!({"name": "a", "projected": {"sources": [{"secret": {"name": "s", "items": [{"key": "k", "path": "x/../y"}]}}]}}),
                "the path of an item of projected.secret must be without",
            ),
            (
                json!({"name": "a", "downwardAPI": {"items": [{"path": "x", "mode": 777}]}}),
                "downwardAPI.items.mode 777 is not from",
            ),
            (json!({"name": "a", "emptyDir": {"sizeLimit": "-1Gi"}}), "emptyDir.sizeLimit must not be negative"),
            (
                json!({"name": "a", "projected": {"sources": [{"secret": {"name": "s"}, "configMap": {"name": "c"}}]}}),
                "a source of projected has several kinds (secret, configMap)",
            ),
        ] {
            let found = refused(check(&invalid)).unwrap_or_default();
            assert!(found.starts_with(reason), "{invalid}: {found}");
        }
    }

    #[test]
    fn a_mount_that_the_api_server_refuses_is_refused_for_its_reason() {
        let valid =
            json!({"name": "a", "mountPath": "/x", "subPath": "a..b/c", "readOnly": true, "mountPropagation": "None"});
        assert_eq!(check_mount(&valid), Ok(()));
        for (fields, reason) in [
            (json!({"mountPath": ""}), "mountPath is required"),
            (json!({"mountPath": []}), "mountPath: expected"),
            (json!({"mountPath": 1}), "mountPath: expected a text, got 1"),
            (json!({"mountPath": "/x", "readOnly": "yes"}), "readOnly: expected true or false"),
            (json!({"mountPath": "/x", "subPath": "/a"}), "subPath must be a path within the volume"),
            (json!({"mountPath": "/x", "subPathExpr": "a/../b"}), "subPathExpr must be a path within the volume"),
            (json!({"mountPath": "/x", "subPath": "a", "subPathExpr": "b"}), "subPath and subPathExpr exclude"),
            (json!({"mountPath": "/x", "mountPropagation": "Both"}), "mountPropagation must be"),
        ] {
            let found = refused(check_mount(&fields)).unwrap_or_default();
            assert!(found.starts_with(reason), "{fields}: {found}");
        }
    }
}
