//! The conditions of the API server on the fields of a volume's source.

use serde_json::Value;

use super::{Invalid, set};
use crate::inject::{pod, quantity};

/// The values of `hostPath.type`.
const HOST_PATHS: [&str; 8] =
    ["", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"];
/// The sources of files with modes, also within `projected`.
const FILES: [&str; 3] = ["secret", "configMap", "downwardAPI"];
/// The largest mode of a file.
const MODE: i64 = 0o777;

/// Checks the source of a volume.
pub(super) fn check(volume: &Value) -> Result<(), Invalid> {
    host_path(&volume["hostPath"])?;
    let limit = volume["emptyDir"].get("sizeLimit").filter(|limit| !limit.is_null());
    if limit.is_some_and(|limit| quantity::is_negative(&quantity::text(limit))) {
        return Err(Invalid::SizeLimit);
    }
    FILES.into_iter().try_for_each(|name| files(name, &volume[name]))?;
    let projected = &volume["projected"];
    mode("projected.defaultMode", projected.get("defaultMode"))?;
    pod::list(projected, "sources").iter().try_for_each(|source| {
        let kinds: Vec<&str> = set(source).collect();
        if kinds.len() > 1 {
            return Err(Invalid::Projected(kinds.join(", ")));
        }
        FILES.into_iter().try_for_each(|name| files(&format!("projected.{name}"), &source[name]))
    })
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

/// Checks a source of files: their modes, and their paths in the volume.
fn files(name: &str, source: &Value) -> Result<(), Invalid> {
    mode(&format!("{name}.defaultMode"), source.get("defaultMode"))?;
    for item in pod::list(source, "items") {
        mode(&format!("{name}.items.mode"), item.get("mode"))?;
        let path = pod::text(item, "path");
        // Istio's own expected outputs have an absolute path.
        if path.starts_with("..") || path.split('/').any(|part| part == "..") {
            return Err(Invalid::ItemPath(name.to_owned()));
        }
    }
    Ok(())
}

fn mode(field: &str, mode: Option<&Value>) -> Result<(), Invalid> {
    match mode.and_then(Value::as_i64).filter(|mode| !(0..=MODE).contains(mode)) {
        Some(mode) => Err(Invalid::Mode { field: field.to_owned(), value: mode.to_string() }),
        None => Ok(()),
    }
}
