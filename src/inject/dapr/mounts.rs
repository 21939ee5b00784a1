//! Volume mounts: what `dapr.io/volume-mounts` asks for, and what containers of the pod already mount.

use serde_json::{Value, json};

use super::pod::Mount;
use crate::inject::patch::Operation;

/// A mount that an annotation asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted<'a> {
    pub(super) volume: &'a str,
    pub(super) path: &'a str,
    pub(super) read_only: bool,
}

/// `volume:path` divided by commas; what has another number of parts is passed over.
pub(super) fn parse(text: &str, read_only: bool) -> impl Iterator<Item = Wanted<'_>> {
    text.split(',').filter_map(move |piece| {
        let (volume, path) = piece.trim().split_once(':')?;
        (!path.contains(':')).then_some(Wanted { volume, path, read_only })
    })
}

impl Wanted<'_> {
    /// As a container lists it.
    pub(super) fn value(self) -> Value {
        mount(self.volume, self.path, self.read_only)
    }
}

/// A mount as a container lists it.
pub(super) fn mount(volume: &str, path: &str, read_only: bool) -> Value {
    if read_only {
        json!({"name": volume, "readOnly": true, "mountPath": path})
    } else {
        json!({"name": volume, "mountPath": path})
    }
}

/// Mounts `volume` at `path` in the container at `index`, unless the volume or something else is mounted there already.
pub(super) fn add(index: usize, present: &[Mount<'_>], volume: &str, path: &str) -> Option<Operation> {
    let list = format!("/spec/containers/{index}/volumeMounts");
    let value = mount(volume, path, false);
    if present.is_empty() {
        return Some(Operation::Add { path: list, value: Value::Array(vec![value]) });
    }
    let taken = present.iter().any(|there| there.path == path || there.name == volume);
    (!taken).then(|| Operation::Add { path: format!("{list}/-"), value })
}
