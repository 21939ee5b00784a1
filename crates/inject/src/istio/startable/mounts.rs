//! The conditions of the API server on the volumes that an injected container mounts, or has as devices.

use std::collections::HashSet;

use serde_json::Value;

use super::Unstartable;
use super::fields::{demand, require};
use super::names::is_straight;
use crate::{pod, volume};

const READ_ONLY: [&str; 3] = ["Disabled", "IfPossible", "Enabled"];

/// Checks the mounts and the devices of a container. `volumes`: the names of the pod's volumes.
pub(super) fn check(container: &Value, volumes: &HashSet<&str>) -> Result<(), Unstartable> {
    let name = || pod::name(container).to_owned();
    let known = |volume: &str| match volumes.contains(volume) {
        true => Ok(()),
        false => Err(Unstartable::NoVolume { container: name(), volume: volume.to_owned() }),
    };
    let place = format!("container {}", pod::name(container));
    let (mut paths, mut devices) = (HashSet::new(), HashSet::new());
    for device in pod::list(container, "volumeDevices") {
        known(pod::name(device))?;
        let path = pod::text(device, "devicePath");
        let is_valid = !path.is_empty() && is_straight(path) && paths.insert(path);
        let allowed = "a path without \"..\" that no other device of the container has";
        demand(&place, "volumeDevices.devicePath", &path.into(), |_| is_valid, allowed)?;
        let is_new = devices.insert(pod::name(device));
        demand(&place, "volumeDevices.name", &pod::name(device).into(), |_| is_new, "a volume with one device")?;
    }
    for mount in pod::list(container, "volumeMounts") {
        let (volume, path) = (pod::name(mount), pod::text(mount, "mountPath"));
        known(volume)?;
        let error = |error| Unstartable::Mount { container: name(), name: volume.to_owned(), error };
        volume::check_mount(mount).map_err(error)?;
        if !paths.insert(path) {
            return Err(Unstartable::SameMount { container: name(), path: path.to_owned() });
        }
        let is_device = devices.contains(volume);
        demand(&place, "volumeMounts.name", &volume.into(), |_| !is_device, "a volume that is not a device, too")?;
        propagation(&place, container, mount)?;
    }
    Ok(())
}

/// Checks `mountPropagation` and `recursiveReadOnly` of a mount.
fn propagation(place: &str, container: &Value, mount: &Value) -> Result<(), Unstartable> {
    let context = container.get("securityContext").unwrap_or(&Value::Null);
    let is_privileged = context.get("privileged") == Some(&Value::Bool(true));
    let mode = mount.get("mountPropagation");
    let is_allowed = |mode: &Value| is_privileged || mode != "Bidirectional";
    let allowed = "None or HostToContainer in a container that is not privileged";
    require(place, "volumeMounts.mountPropagation", mode, is_allowed, allowed)?;
    let is_plain = mode.is_none_or(|mode| mode.is_null() || mode == "None");
    let is_read_only = mount.get("readOnly") == Some(&Value::Bool(true));
    let is_valid = |recursive: &Value| {
        let text = recursive.as_str().unwrap_or_default();
        READ_ONLY.contains(&text) && (text == READ_ONLY[0] || (is_read_only && is_plain))
    };
    let allowed = "Disabled, or IfPossible or Enabled for a mount with readOnly and without mountPropagation";
    require(place, "volumeMounts.recursiveReadOnly", mount.get("recursiveReadOnly"), is_valid, allowed)
}
