//! Parses `dapr.io/volume-mounts` and adds mounts to containers.

use serde_json::{Value, json};

use super::pod::Mount;
use inject::Operation;

/// A mount requested by an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    pub(super) volume: &'a str,
    pub(super) path: &'a str,
    pub(super) read_only: bool,
}

/// Parses comma-separated `volume:path`; entries with another number of parts are ignored.
pub(super) fn parse(text: &str, read_only: bool) -> impl Iterator<Item = Wanted<'_>> {
    text.split(',').filter_map(move |piece| {
        let (volume, path) = piece.trim().split_once(':')?;
        (!path.contains(':')).then_some(Wanted { volume, path, read_only })
    })
}

impl Wanted<'_> {
    /// Returns the entry for a container's `volumeMounts`.
    pub(super) fn value(self) -> Value {
        mount(self.volume, self.path, self.read_only)
    }
}

/// Returns an entry for a container's `volumeMounts`.
pub(super) fn mount(volume: &str, path: &str, read_only: bool) -> Value {
    if read_only {
        json!({"name": volume, "readOnly": true, "mountPath": path})
    } else {
        json!({"name": volume, "mountPath": path})
    }
}

/// Mounts `volume` at `path` in the container at `index`, unless the volume or the path is already mounted.
pub(super) fn add(index: usize, present: &[Mount<'_>], volume: &str, path: &str) -> Option<Operation> {
    let list = format!("/spec/containers/{index}/volumeMounts");
    let value = mount(volume, path, false);
    if present.is_empty() {
        return Some(Operation::Add { path: list, value: Value::Array(vec![value]) });
    }
    let taken = present.iter().any(|there| there.path == path || there.name == volume);
    (!taken).then(|| Operation::Add { path: format!("{list}/-"), value })
}
