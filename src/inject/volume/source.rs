//! The conditions of the API server on the source of a volume (`validateVolumeSource`).

use std::collections::HashSet;

use gocompat::quantity;
use podfacts::name::is_subdomain;
use serde_json::Value;

use super::{Invalid, is_outside_of_volume};
use crate::inject::pod;

mod files;

pub(in crate::inject) use files::{absolute, containers};

/// The fields of each source without which the API server refuses a volume.
const REQUIRED: [(&str, &[&str]); 25] = [
    ("hostPath", &["path"]),
    ("secret", &["secretName"]),
    ("configMap", &["name"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("nfs", &["server", "path"]),
    ("csi", &["driver"]),
    ("ephemeral", &["volumeClaimTemplate"]),
    ("image", &["reference"]),
    ("azureFile", &["secretName", "shareName"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("gcePersistentDisk", &["pdName"]),
    ("cinder", &["volumeID"]),
    ("cephfs", &["monitors"]),
    ("rbd", &["monitors", "image"]),
    ("glusterfs", &["endpoints", "path"]),
    ("flexVolume", &["driver"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("gitRepo", &["repository"]),
    ("quobyte", &["registry", "volume"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeName"]),
];
/// The sources of which exactly one of several fields is required.
const EITHER: [(&str, &[&str], &str); 2] = [
    ("flocker", &["datasetName", "datasetUUID"], "datasetName and datasetUUID"),
    ("fc", &["targetWWNs", "wwids"], "targetWWNs and wwids"),
];
/// The sources with the number of a partition.
const PARTITIONED: [&str; 2] = ["awsElasticBlockStore", "gcePersistentDisk"];
/// The values of `hostPath.type`.
const HOST_PATHS: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

/// The maximum length of a driver's name, in bytes.
const DRIVER: usize = 63;
/// The modes of access to a claim. The first one excludes the others.
const ACCESS: [&str; 4] = ["ReadWriteOncePod", "ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany"];

/// Checks the source of a volume.
pub(super) fn check(volume: &Value) -> Result<(), Invalid> {
    for (name, fields) in REQUIRED {
        require(name, volume.get(name), fields)?;
    }
    for (name, fields, allowed) in EITHER {
        if let Some(source) = volume.get(name).filter(|source| !source.is_null()) {
            one_of(name, source, (fields, allowed))?;
        }
    }
    for name in PARTITIONED {
        let partition = volume[name].get("partition").and_then(Value::as_i64);
        if let Some(value) = partition.filter(|partition| !(0..=255).contains(partition)) {
            return Err(Invalid::Partition { field: format!("{name}.partition"), value });
        }
    }
    host_path(&volume["hostPath"])?;
    let nfs = pod::text(&volume["nfs"], "path");
    if !nfs.is_empty() && !nfs.starts_with('/') {
        return Err(Invalid::Relative("nfs.path"));
    }
    let limit = volume["emptyDir"].get("sizeLimit").filter(|limit| !limit.is_null());
    if limit.is_some_and(|limit| quantity::is_negative(&quantity::text(limit))) {
        return Err(Invalid::SizeLimit);
    }
    pull_policy(pod::text(&volume["image"], "pullPolicy"))?;
    csi(&volume["csi"])?;
    iscsi(&volume["iscsi"])?;
    claim(&volume["ephemeral"]["volumeClaimTemplate"])?;
    files::all(volume)
}

/// Checks that a source, if there is one, has values in its fields.
fn require(place: &str, source: Option<&Value>, fields: &[&str]) -> Result<(), Invalid> {
    let Some(source) = source.filter(|source| !source.is_null()) else { return Ok(()) };
    match fields.iter().find(|field| is_empty(source.get(**field))) {
        Some(field) => Err(Invalid::Required(format!("{place}.{field}"))),
        None => Ok(()),
    }
}

/// Checks that exactly one of several fields has a value.
fn one_of(place: &str, source: &Value, (fields, allowed): (&[&str], &'static str)) -> Result<(), Invalid> {
    let found: Vec<&str> = fields.iter().copied().filter(|field| !is_empty(source.get(*field))).collect();
    if found.len() == 1 {
        return Ok(());
    }
    let found = if found.is_empty() { "none".to_owned() } else { found.join(" and ") };
    Err(Invalid::Alternatives { place: place.to_owned(), found, allowed })
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(items)) => items.is_empty(),
        Some(_) => false,
    }
}

fn host_path(source: &Value) -> Result<(), Invalid> {
    if pod::text(source, "path").split('/').any(|part| part == "..") {
        return Err(Invalid::Backsteps("hostPath.path"));
    }
    match pod::text(source, "type") {
        known if HOST_PATHS.contains(&known) => Ok(()),
        unknown => Err(Invalid::HostPathType(unknown.to_owned())),
    }
}

fn pull_policy(policy: &str) -> Result<(), Invalid> {
    match policy {
        "" | "Always" | "IfNotPresent" | "Never" => Ok(()),
        other => Err(Invalid::PullPolicy(other.to_owned())),
    }
}

/// Checks the driver of a volume and the name of its Secret.
fn csi(source: &Value) -> Result<(), Invalid> {
    let secret = source.get("nodePublishSecretRef").filter(|secret| !secret.is_null());
    require("csi.nodePublishSecretRef", secret, &["name"])?;
    let driver = pod::text(source, "driver").to_lowercase();
    let is_driver = driver.is_empty() || (driver.len() <= DRIVER && is_subdomain(&driver));
    if !is_driver {
        return Err(Invalid::Object { field: "csi.driver", value: pod::text(source, "driver").to_owned() });
    }
    match secret.map(pod::name).filter(|name| !is_subdomain(name)) {
        Some(name) => Err(Invalid::Object { field: "csi.nodePublishSecretRef.name", value: name.to_owned() }),
        None => Ok(()),
    }
}

/// Checks a volume of iSCSI (`validateISCSIVolumeSource`).
fn iscsi(source: &Value) -> Result<(), Invalid> {
    for (key, field) in [("iqn", "iscsi.iqn"), ("initiatorName", "iscsi.initiatorName")] {
        let name = pod::text(source, key);
        if !name.is_empty() && !is_qualified(name) {
            return Err(Invalid::Iscsi { field, value: name.to_owned() });
        }
    }
    let lun = source.get("lun").and_then(Value::as_i64);
    if let Some(value) = lun.filter(|lun| !(0..=255).contains(lun)) {
        return Err(Invalid::Partition { field: "iscsi.lun".to_owned(), value });
    }
    let is_on = |key: &str| source.get(key) == Some(&Value::Bool(true));
    match is_on("chapAuthDiscovery") || is_on("chapAuthSession") {
        true => require("iscsi", Some(source), &["secretRef"]),
        false => Ok(()),
    }
}

/// Whether a text is a name of iSCSI: `iqn.2001-04.com.example:storage`, or `eui.` or `naa.` with 16 or 32 letters and digits.
fn is_qualified(name: &str) -> bool {
    let is_id = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if let Some(id) = name.strip_prefix("eui.") {
        return is_id(id, 16);
    }
    if let Some(id) = name.strip_prefix("naa.") {
        return is_id(id, 32);
    }
    let is_number = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = || {
        let (date, rest) = name.strip_prefix("iqn.")?.split_once('.')?;
        let ((year, month), (authority, target)) = (date.split_once('-')?, rest.split_once(':')?);
        let is_authority = authority.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
        let is_target = !target.contains([',', ';', '*', '&', '$', '|']) && !target.contains(char::is_whitespace);
        let is_date = is_number(year, 4) && is_number(month, 2);
        Some(is_date && is_authority && is_target && !authority.is_empty() && !target.is_empty())
    };
    parts().unwrap_or(false)
}

/// Checks the modes of access to a claim.
fn access_modes(modes: &[Value]) -> Result<(), Invalid> {
    let field = "ephemeral.volumeClaimTemplate.spec.accessModes";
    let is_known = |mode: &&Value| mode.as_str().is_some_and(|mode| ACCESS.contains(&mode));
    let is_alone = |mode: &&Value| *mode != ACCESS[0] || modes.iter().all(|other| other == ACCESS[0]);
    match modes.iter().find(|mode| !is_known(mode) || !is_alone(mode)) {
        Some(mode) => Err(Invalid::Access { field, value: mode.to_string() }),
        None => Ok(()),
    }
}

/// Checks the template of a claim.
fn claim(template: &Value) -> Result<(), Invalid> {
    if template.is_null() {
        return Ok(());
    }
    let place = "ephemeral.volumeClaimTemplate.spec";
    let spec = template.get("spec").filter(|spec| !spec.is_null());
    require("ephemeral.volumeClaimTemplate", Some(template), &["spec"])?;
    require(place, spec, &["accessModes"])?;
    access_modes(spec.map(|spec| pod::list(spec, "accessModes")).unwrap_or_default())?;
    let requests = spec.and_then(|spec| spec.get("resources")?.get("requests")).unwrap_or(&Value::Null);
    match requests.get("storage").filter(|storage| !storage.is_null()) {
        Some(_) => Ok(()),
        None => Err(Invalid::Required(format!("{place}.resources.requests.storage"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_source_without_what_it_needs_is_refused_for_its_reason() {
        for valid in [json!({"fc": {"wwids": ["w"]}}), json!({"image": {"reference": "i", "pullPolicy": "Never"}})] {
            assert_eq!(check(&valid), Ok(()), "{valid}");
        }
        for (invalid, reason) in [
            (json!({"nfs": {"server": "s", "path": "x"}}), "nfs.path must be an absolute path"),
            (json!({"ephemeral": {"volumeClaimTemplate": {}}}), "ephemeral.volumeClaimTemplate.spec is required"),
            (
                json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}}),
                "ephemeral.volumeClaimTemplate.spec.accessModes is required",
            ),
            (
                json!({"ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}),
                "ephemeral.volumeClaimTemplate.spec.resources.requests.storage is required",
            ),
            (json!({"cinder": {}}), "cinder.volumeID is required"),
            (json!({"flocker": {}}), "flocker has none: exactly one of datasetName and"),
            (json!({"csi": {"driver": "d", "nodePublishSecretRef": {}}}), "csi.nodePublishSecretRef.name is required"),
            (json!({"gcePersistentDisk": {"pdName": "p", "partition": 256}}), "gcePersistentDisk.partition 256"),
            (json!({"image": {"reference": "i", "pullPolicy": "Now"}}), "image.pullPolicy \"Now\""),
        ] {
            let found = check(&invalid).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(found.starts_with(reason), "{invalid}: {found}");
        }
    }
}
