//! Charges an injection to the budget: the steps and bytes that grow with the pod's annotations and containers.
//!
//! `inject` calls `charge` after it has read the pod and before it builds the patch, and `charge_components` before it
//! parses the Components' containers.

use contract::annotation;
use gotemplate::{Budget, Exceeded};

use super::annotations::Options;
use super::components::Component;
use super::pod::Pod;

/// Annotations that hold lists. Each of their bytes is charged, since one byte can be an element.
const LISTS: [&str; 7] = [
    "dapr.io/env",
    "dapr.io/env-from-secret",
    "dapr.io/volume-mounts",
    "dapr.io/volume-mounts-rw",
    "dapr.io/pluggable-components",
    annotation::EXCLUDE_INBOUND_PORTS,
    annotation::EXCLUDE_OUTBOUND_PORTS,
];
const STEPS_PER_BYTE: usize = 3;

/// Steps for the patch operations on one of the pod's containers, which add variables and a mount.
const STEPS_PER_CONTAINER: usize = 80;
/// Bytes of the patch operations on one of the pod's containers, without the paths of its mounts.
const BYTES_PER_CONTAINER: usize = 400;

/// Steps for a byte of a Component's container. In the container's JSON, an element can be as short as two bytes, and a
/// mount, for which the injection adds a volume, as short as 16 bytes.
const STEPS_PER_CONTAINER_BYTE: usize = 2;

/// Charges an injection.
///
/// # Errors
/// The pod has too many containers, or its annotations are too long.
pub(super) fn charge(pod: &Pod<'_>, options: &Options<'_>, budget: &mut Budget) -> Result<(), Exceeded> {
    let lists = LISTS.iter().filter_map(|name| pod.metadata.annotations.get(name).copied().flatten());
    let list_bytes: usize = lists.map(str::len).sum();
    let containers = pod.spec.containers.len();
    let steps = containers.saturating_mul(STEPS_PER_CONTAINER);
    budget.step(steps.saturating_add(list_bytes.saturating_mul(STEPS_PER_BYTE)))?;
    // The patch repeats the paths of the annotations in full for each container.
    let paths = options.socket_path.len().saturating_add(options.pluggable.folder.len().saturating_mul(2));
    budget.bytes(containers.saturating_mul(paths.saturating_add(BYTES_PER_CONTAINER)))
}

/// Charges the Components of a namespace: the comparison of their scopes with the app id, and the containers that the
/// pod gets.
///
/// # Errors
/// The namespace has too many Components, or their containers are too long.
pub(super) fn charge_components(id: &str, components: &[Component], budget: &mut Budget) -> Result<(), Exceeded> {
    for component in components {
        budget.step(component.scopes.len().saturating_add(1))?;
        if component.serves(id) {
            budget.step(component.container.len().saturating_mul(STEPS_PER_CONTAINER_BYTE))?;
        }
    }
    Ok(())
}
