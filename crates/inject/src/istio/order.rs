//! The order of containers, which decides the order of their start and the default container of `kubectl exec`.

use contract::container;
use serde_json::Value;

use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Moves the proxy to the end of the containers, or to the start if applications wait for it (`hold`). A native sidecar
/// precedes the pod's own init containers. Without a native sidecar, they precede `istio-init`.
pub(super) fn reorder(pod: &mut Value, hold: bool) {
    move_to(pod, CONTAINERS, container::PROXY, if hold { End::First } else { End::Last });
    let native = pod::find(pod::containers(pod, INIT_CONTAINERS), container::PROXY).is_some();
    let moves: &[(&str, End)] = if native {
        &[
            (container::CORE_DUMP, End::First),
            (container::PROXY, End::First),
            (container::VALIDATION, End::First),
            (container::INIT, End::First),
        ]
    } else {
        &[(container::VALIDATION, End::First), (container::INIT, End::Last), (container::CORE_DUMP, End::Last)]
    };
    for (name, end) in moves {
        move_to(pod, INIT_CONTAINERS, name, *end);
    }
}

#[derive(Debug, Clone, Copy)]
enum End {
    First,
    Last,
}

fn move_to(pod: &mut Value, which: &str, name: &str, end: End) {
    let containers = pod::containers_mut(pod, which);
    let Some(at) = containers.iter().position(|c| pod::name(c) == name) else { return };
    match end {
        End::First => containers[..=at].rotate_right(1),
        End::Last => containers[at..].rotate_left(1),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn names(pod: &Value, which: &str) -> Vec<String> {
        pod::containers(pod, which).iter().map(|c| pod::name(c).to_owned()).collect()
    }

    fn pod(containers: &[&str], inits: &[&str]) -> Value {
        let list = |names: &[&str]| names.iter().map(|n| json!({"name": n})).collect::<Vec<_>>();
        json!({"spec": {"containers": list(containers), "initContainers": list(inits)}})
    }

    #[test]
    fn the_proxy_is_last_unless_applications_wait() {
        let mut last = pod(&["istio-proxy", "a", "b"], &["istio-init", "x", "istio-validation", "enable-core-dump"]);
        reorder(&mut last, false);
        assert_eq!(names(&last, CONTAINERS), ["a", "b", "istio-proxy"]);
        assert_eq!(names(&last, INIT_CONTAINERS), ["istio-validation", "x", "istio-init", "enable-core-dump"]);
        reorder(&mut last, true);
        assert_eq!(names(&last, CONTAINERS), ["istio-proxy", "a", "b"]);
    }

    #[test]
    fn a_native_sidecar_starts_before_other_init_containers() {
        let mut native = pod(&["a"], &["x", "istio-proxy", "enable-core-dump", "istio-init", "y"]);
        reorder(&mut native, false);
        assert_eq!(names(&native, INIT_CONTAINERS), ["istio-init", "istio-proxy", "enable-core-dump", "x", "y"]);
    }
}
