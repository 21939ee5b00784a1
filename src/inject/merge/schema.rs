//! Which lists of a pod are merged, and by which field: the part of the API's types that strategic merge reads.

/// A place in a pod, as far as merging tells places apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schema {
    /// The pod itself.
    Pod,
    /// Its metadata.
    Metadata,
    /// Its spec.
    Spec,
    /// A container of any of the three lists.
    Container,
    /// Anything below, where no list is merged.
    Plain,
}

/// What happens to a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// Replaced.
    Atomic,
    /// A set of scalars.
    Set,
    /// Merged by this field; what its elements are.
    Keyed(&'static str, Schema),
}

impl Schema {
    /// The place of a member that is a map.
    pub(super) fn member(self, key: &str) -> Self {
        match (self, key) {
            (Self::Pod, "metadata") => Self::Metadata,
            (Self::Pod, "spec") => Self::Spec,
            _ => Self::Plain,
        }
    }

    /// What happens to a member that is a list.
    pub(super) fn list(self, key: &str) -> Strategy {
        match (self, key) {
            (Self::Metadata, "ownerReferences") => Strategy::Keyed("uid", Self::Plain),
            (Self::Metadata, "finalizers") => Strategy::Set,
            (Self::Spec, "containers" | "initContainers" | "ephemeralContainers") => {
                Strategy::Keyed("name", Self::Container)
            }
            (Self::Spec, "volumes" | "imagePullSecrets" | "resourceClaims" | "schedulingGates")
            | (Self::Container, "env") => Strategy::Keyed("name", Self::Plain),
            (Self::Spec, "hostAliases") => Strategy::Keyed("ip", Self::Plain),
            (Self::Spec, "topologySpreadConstraints") => Strategy::Keyed("topologyKey", Self::Plain),
            (Self::Container, "ports") => Strategy::Keyed("containerPort", Self::Plain),
            (Self::Container, "volumeMounts") => Strategy::Keyed("mountPath", Self::Plain),
            (Self::Container, "volumeDevices") => Strategy::Keyed("devicePath", Self::Plain),
            _ => Strategy::Atomic,
        }
    }
}
