//! User and group of the sidecar on OpenShift, from the namespace's ID ranges.

use std::collections::BTreeMap;

use contract::container;
use serde_json::Value;

use crate::pod::{self, CONTAINERS};

const UID_RANGE: &str = "openshift.io/sa.scc.uid-range";
const GROUPS: &str = "openshift.io/sa.scc.supplemental-groups";

/// Returns the sidecar's user and group: the last IDs of the first range in each of the namespace's annotations.
/// Applications get the first IDs of these ranges.
pub(super) fn ids(annotations: &BTreeMap<String, String>) -> (Option<i64>, Option<i64>) {
    let last = |name: &str| annotations.get(name).and_then(|blocks| blocks.split(',').next()).and_then(last_of_block);
    let user = last(UID_RANGE);
    (user, last(GROUPS).or(user))
}

/// Returns the last ID of `start/size` or `first-last`.
fn last_of_block(block: &str) -> Option<i64> {
    let number = |text: &str| text.trim().parse::<u32>().ok().map(i64::from);
    if let Some((start, size)) = block.split_once('/') {
        return Some(number(start)? + number(size)? - 1);
    }
    let (_, last) = block.split_once('-')?;
    number(last)
}

/// Removes the sidecar's user and group if its user is the application's. OpenShift sets this user in each container
/// before it calls the webhook, so the pod's author did not choose it for the sidecar.
pub(super) fn clear_default_user(pod: &mut Value) {
    let user = |container: &Value| container.pointer("/securityContext/runAsUser").cloned();
    let containers = pod::containers(pod, CONTAINERS);
    let application = containers.iter().rfind(|c| pod::name(c) != container::PROXY).and_then(user);
    if application.is_none() || pod::sidecar(pod).and_then(user) != application {
        return;
    }
    if let Some(sidecar) = pod::sidecar_mut(pod) {
        let context = pod::map_mut(sidecar, "securityContext");
        context.shift_remove("runAsUser");
        context.shift_remove("runAsGroup");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_last_of_the_namespaces_ranges() {
        let annotations = |users: &str, groups: &str| {
            BTreeMap::from([(UID_RANGE.to_owned(), users.to_owned()), (GROUPS.to_owned(), groups.to_owned())])
        };
        assert_eq!(ids(&annotations("1000/10", "2000-2005,1/1")), (Some(1009), Some(2005)));
        assert_eq!(ids(&annotations("1000/10", "")), (Some(1009), Some(1009)));
        assert_eq!(ids(&annotations("x", "4294967296/1")), (None, None));
        assert_eq!(ids(&BTreeMap::new()), (None, None));
    }
}
