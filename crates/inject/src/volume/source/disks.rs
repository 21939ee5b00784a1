//! Validates volumes on disks and on network storage.

use podfacts::name::is_dns_label;
use serde_json::Value;

use super::{Invalid, demand, is_empty, is_outside_of_volume, pod, require};

/// The sources that have a partition number.
const PARTITIONED: [&str; 2] = ["awsElasticBlockStore", "gcePersistentDisk"];
/// The sources whose `secretRef` must have a name.
const WITH_SECRETS: [&str; 2] = ["cinder", "storageos"];
/// The maximum length of a Quobyte tenant, in bytes.
const TENANT: usize = 64;
/// The maximum length of an iSCSI volume's name and its portal, joined by a colon, if `initiatorName` is set.
const PORTAL: usize = 64;
const IQN: &str = "a name of iSCSI, such as iqn.2001-04.com.example:storage";
const LABEL: &str = "1 to 63 lower-case letters, digits and dashes, with a letter or digit at both ends";

/// Checks the volume's disk or network storage, if it has one.
pub(super) fn all(volume: &Value) -> Result<(), Invalid> {
    PARTITIONED.into_iter().try_for_each(|name| byte(name, "partition", &volume[name]))?;
    for name in WITH_SECRETS {
        require(&format!("{name}.secretRef"), volume[name].get("secretRef"), &["name"])?;
    }
    iscsi(pod::name(volume), &volume["iscsi"])?;
    fibre_channel(&volume["fc"])?;
    azure(&volume["azureDisk"])?;
    quobyte(&volume["quobyte"])?;
    for key in pod::map(&volume["flexVolume"], "options").keys() {
        demand("flexVolume.options", key, !is_reserved(key), "of another domain than kubernetes.io and k8s.io")?;
    }
    let dataset = pod::text(&volume["flocker"], "datasetName");
    demand("flocker.datasetName", dataset, !dataset.contains('/'), "without a slash")?;
    if is_outside_of_volume(pod::text(&volume["gitRepo"], "directory")) {
        return Err(Invalid::SubPath("gitRepo.directory".to_owned()));
    }
    for name in ["volumeName", "volumeNamespace"] {
        let value = pod::text(&volume["storageos"], name);
        demand(&format!("storageos.{name}"), value, value.is_empty() || is_dns_label(value), LABEL)?;
    }
    Ok(())
}

/// Checks that the field of a source, if it is set, is from 0 to 255.
fn byte(name: &str, field: &str, source: &Value) -> Result<(), Invalid> {
    match source.get(field).and_then(Value::as_i64).filter(|number| !(0..=255).contains(number)) {
        Some(value) => Err(Invalid::Partition { field: format!("{name}.{field}"), value }),
        None => Ok(()),
    }
}

/// Checks an iSCSI volume (`validateISCSIVolumeSource`).
fn iscsi(volume: &str, source: &Value) -> Result<(), Invalid> {
    for key in ["iqn", "initiatorName"] {
        let name = source.get(key).and_then(Value::as_str);
        demand(&format!("iscsi.{key}"), name.unwrap_or_default(), name.is_none_or(is_qualified), IQN)?;
    }
    byte("iscsi", "lun", source)?;
    let portal = pod::text(source, "targetPortal");
    let is_short = source.get("initiatorName").is_none_or(Value::is_null) || volume.len() + 1 + portal.len() <= PORTAL;
    let allowed = "so short that it has 64 characters at most with the volume's name, beside initiatorName";
    demand("iscsi.targetPortal", portal, is_short, allowed)?;
    let is_on = |key: &str| source.get(key) == Some(&Value::Bool(true));
    match is_on("chapAuthDiscovery") || is_on("chapAuthSession") {
        true => require("iscsi", Some(source), &["secretRef"]),
        false => Ok(()),
    }
}

/// Whether a string is an iSCSI name for the API server, whose patterns are loose: `iqn`, any characters, and a name
/// such as `iqn.2001-04.com.example:storage`; or `eui` or `naa`, any character, and 16 or 32 letters and digits.
fn is_qualified(name: &str) -> bool {
    let is_id = |text: &str, length| {
        let mut characters = text.chars();
        let is_separator = characters.next().is_some_and(|c| c != '\n');
        let id = characters.as_str();
        is_separator && id.len() == length && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    match (name.strip_prefix("eui"), name.strip_prefix("naa")) {
        (Some(id), _) => is_id(id, 16),
        (_, Some(id)) => is_id(id, 32),
        _ => name.starts_with("iqn") && name.match_indices("iqn.").any(|(at, iqn)| is_iqn(&name[at + iqn.len()..])),
    }
}

/// Whether a string may follow `iqn.` in an iSCSI name: a date, a naming authority, a colon and the target's name.
fn is_iqn(name: &str) -> bool {
    let is_number = |text: &str, length| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = || {
        let (date, rest) = name.split_once('.')?;
        let ((year, month), (authority, target)) = (date.split_once('-')?, rest.split_once(':')?);
        let is_authority = authority.chars().all(|c| c.is_ascii_alphanumeric() || "-.".contains(c));
        let is_target = !target.contains([',', ';', '*', '&', '$', '|', '\t', '\n', '\u{c}', '\r', ' ']);
        let is_date = is_number(year, 4) && is_number(month, 2);
        Some(is_date && is_authority && is_target && !authority.is_empty() && !target.is_empty())
    };
    parts().unwrap_or(false)
}

/// Checks a Fibre Channel volume (`validateFCVolumeSource`).
fn fibre_channel(source: &Value) -> Result<(), Invalid> {
    if is_empty(source.get("targetWWNs")) {
        return Ok(());
    }
    require("fc", Some(source), &["lun"])?;
    byte("fc", "lun", source)
}

/// Checks an Azure disk (`validateAzureDisk`), whose kind is `Shared` by default.
fn azure(source: &Value) -> Result<(), Invalid> {
    if source.is_null() {
        return Ok(());
    }
    let text = |name: &str, default: &'static str| source.get(name).and_then(Value::as_str).unwrap_or(default);
    let (caching, kind) = (text("cachingMode", "ReadWrite"), text("kind", "Shared"));
    let is_caching = ["None", "ReadOnly", "ReadWrite"].contains(&caching);
    demand("azureDisk.cachingMode", caching, is_caching, "None, ReadOnly or ReadWrite")?;
    let is_kind = ["Shared", "Dedicated", "Managed"].contains(&kind);
    demand("azureDisk.kind", kind, is_kind, "Shared, Dedicated or Managed")?;
    let (start, allowed) = match kind {
        "Managed" => ("/subscriptions/", "a path that begins with /subscriptions/"),
        _ => ("https://", "an address that begins with https://, unless kind is Managed"),
    };
    let uri = pod::text(source, "diskURI");
    demand("azureDisk.diskURI", uri, uri.starts_with(start), allowed)
}

/// Checks a Quobyte volume (`validateQuobyteVolumeSource`).
fn quobyte(source: &Value) -> Result<(), Invalid> {
    let (registry, tenant) = (pod::text(source, "registry"), pod::text(source, "tenant"));
    demand("quobyte.tenant", tenant, tenant.len() <= TENANT, "a UUID of 64 characters at most")?;
    let is_registry = source.is_null() || registry.split(',').all(has_port);
    demand("quobyte.registry", registry, is_registry, "host:port, or several of them with commas between them")
}

/// Whether an address has a host and a port, either of which may be empty (`net.SplitHostPort`).
fn has_port(address: &str) -> bool {
    let parts = match address.strip_prefix('[') {
        Some(rest) => rest.split_once("]:"),
        None => address.split_once(':'),
    };
    parts.is_some_and(|(host, port)| !port.contains(':') && [host, port].iter().all(|part| !part.contains(['[', ']'])))
}

/// Whether the domain in an option's key is reserved for Kubernetes.
fn is_reserved(key: &str) -> bool {
    let domain = format!(".{}", key.split_once('/').map_or(key, |(domain, _)| domain).to_lowercase());
    domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io")
}
