//! Whether the sidecar can be an init container that keeps running: the nodes' kubelets decide.

/// `ENABLE_NATIVE_SIDECARS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NativeSidecars {
    /// Always.
    On,
    /// Never.
    Off,
    /// Where the pod's node can; before it has one, where all nodes can.
    #[default]
    Auto,
}

/// The first minor version of Kubernetes 1 whose kubelets are trusted with native sidecars.
const SINCE: u32 = 33;

impl NativeSidecars {
    /// Reads the switch as Istio does: any other word is off.
    pub fn parse(text: &str) -> Self {
        match text {
            "true" => Self::On,
            "auto" => Self::Auto,
            _ => Self::Off,
        }
    }

    /// Whether a pod gets one. `own`: kubelet version of its node, where it has one that is known; `nodes`: those of all
    /// nodes. Where there is no node yet, new ones are expected to be up to date.
    pub fn holds<'a>(self, own: Option<&'a str>, nodes: impl IntoIterator<Item = &'a str>) -> bool {
        match (self, own) {
            (Self::On, _) => true,
            (Self::Off, _) => false,
            (Self::Auto, Some(version)) => is_able(version),
            (Self::Auto, None) => nodes.into_iter().all(is_able),
        }
    }
}

/// `v1.33.4+k3s1` is; what cannot be read is not.
fn is_able(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split(['.', '-', '+']);
    let mut number = || parts.next()?.parse::<u32>().ok();
    match (number(), number()) {
        (Some(1), Some(minor)) => minor >= SINCE,
        (Some(major), Some(_)) => major > 1,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_nodes_must_be_able_unless_the_pod_has_one() {
        let auto = NativeSidecars::parse("auto");
        assert!(auto.holds(None, ["v1.33.0", "v1.34.1+k3s1", "v2.0.0"]));
        assert!(!auto.holds(None, ["v1.33.0", "v1.32.9"]));
        assert!(!auto.holds(None, ["v1.33.0", "odd"]));
        assert!(auto.holds(None, []));
        assert!(auto.holds(Some("v1.33.0"), ["v1.20.0"]));
        assert!(!auto.holds(Some("v1.32.0-gke.1"), ["v1.33.0"]));
        assert!(NativeSidecars::parse("true").holds(Some("v1.20.0"), []));
        assert!(!NativeSidecars::parse("yes").holds(Some("v1.33.0"), []));
    }
}
