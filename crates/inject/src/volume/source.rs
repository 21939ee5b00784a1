//! Validates the source of a volume (`validateVolumeSource`).

use std::collections::HashSet;

use gocompat::quantity;
use podfacts::name::is_subdomain;
use serde_json::Value;

use super::{Invalid, is_outside_of_volume};
use crate::pod;

mod claim;
mod disks;
mod files;

pub(crate) use files::{absolute, containers};

/// The required fields of each source.
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
/// The sources with several fields of which exactly one is required.
const EITHER: [(&str, &[&str], &str); 2] = [
    ("flocker", &["datasetName", "datasetUUID"], "datasetName and datasetUUID"),
    ("fc", &["targetWWNs", "wwids"], "targetWWNs and wwids"),
];
/// The values of `hostPath.type`.
const HOST_PATHS: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];

/// The maximum length of a driver's name, in bytes.
const DRIVER: usize = 63;

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
    disks::all(volume)?;
    claim::check(&volume["ephemeral"]["volumeClaimTemplate"])?;
    files::all(volume)
}

/// Checks that a source, if there is one, has a non-empty value in each of these fields.
fn require(place: &str, source: Option<&Value>, fields: &[&str]) -> Result<(), Invalid> {
    let Some(source) = source.filter(|source| !source.is_null()) else { return Ok(()) };
    match fields.iter().find(|field| is_empty(source.get(**field))) {
        Some(field) => Err(Invalid::Required(format!("{place}.{field}"))),
        None => Ok(()),
    }
}

/// Checks that exactly one of several fields has a non-empty value.
fn one_of(place: &str, source: &Value, (fields, allowed): (&[&str], &'static str)) -> Result<(), Invalid> {
    let found: Vec<&str> = fields.iter().copied().filter(|field| !is_empty(source.get(*field))).collect();
    if found.len() == 1 {
        return Ok(());
    }
    let found = if found.is_empty() { "none".to_owned() } else { found.join(" and ") };
    Err(Invalid::Alternatives { place: place.to_owned(), found, allowed })
}

/// Returns an error with the allowed values unless the field's value is valid.
fn demand(field: &str, value: &str, is_valid: bool, allowed: &'static str) -> Result<(), Invalid> {
    match is_valid {
        true => Ok(()),
        false => Err(Invalid::Field { field: field.to_owned(), value: value.to_owned(), allowed }),
    }
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

/// Checks the driver's name and the Secret's name of a CSI volume.
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

#[cfg(test)]
mod tests;
