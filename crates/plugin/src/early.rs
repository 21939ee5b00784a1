//! Decides about a call before the pod is looked up. Pure.

use cni::{NetConf, PodArgs};
use contract::annotation;
use podfacts::{PodName, SkipReason, verdict};

/// The decision that needs only the request and the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Early {
    Skip(SkipReason),
    /// The decision depends on the pod's [`PodFacts`](podfacts::PodFacts).
    Lookup(PodName),
}

/// Decides without [`PodFacts`](podfacts::PodFacts) to skip containers that are not Kubernetes pods, the agent's pod, pods in
/// excluded namespaces, and pods that were not injected according to the annotations that the runtime passed. All other
/// pods must be looked up.
pub fn before_lookup(pod: &PodArgs, conf: &NetConf<'_>) -> Early {
    let (Some(namespace), Some(name)) = (&pod.namespace, &pod.name) else {
        return Early::Skip(SkipReason::NotKubernetes);
    };
    let pod = PodName { namespace: namespace.clone(), name: name.clone() };
    let settings = &conf.settings;
    if let Some(reason) = verdict::of_name(&pod, settings.agent_namespace.as_deref(), &settings.exclude_namespaces) {
        return Early::Skip(reason);
    }
    match &conf.pod_annotations {
        Some(annotations) if !annotations.contains_key(annotation::STATUS) => Early::Skip(SkipReason::NoSidecarStatus),
        _ => Early::Lookup(pod),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(namespace: &str, name: &str) -> PodArgs {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        PodArgs { namespace: given(namespace), name: given(name), ..PodArgs::default() }
    }

    fn early(args: &PodArgs, runtime_config: &str) -> Early {
        let json = format!(
            r#"{{"name":"n","cniVersion":"1.0.0","pod_namespace":"istio-system","exclude_namespaces":["kube-system"],
                "runtimeConfig":{runtime_config}}}"#
        );
        before_lookup(args, &NetConf::parse(json.as_bytes()).unwrap())
    }

    #[test]
    fn some_pods_are_decided_without_facts() {
        let lookup = |namespace: &str, name: &str| {
            Early::Lookup(PodName { namespace: namespace.to_owned(), name: name.to_owned() })
        };
        for (namespace, name, expected) in [
            ("", "web-0", Early::Skip(SkipReason::NotKubernetes)),
            ("shop", "", Early::Skip(SkipReason::NotKubernetes)),
            ("istio-system", "istio-cni-node-x7k2p", Early::Skip(SkipReason::AgentPod)),
            ("istio-system", "istiod-0", lookup("istio-system", "istiod-0")),
            ("shop", "istio-cni-node-x7k2p", lookup("shop", "istio-cni-node-x7k2p")),
            ("kube-system", "dns-0", Early::Skip(SkipReason::ExcludedNamespace)),
            ("shop", "web-0", lookup("shop", "web-0")),
        ] {
            assert_eq!(early(&args(namespace, name), "{}"), expected, "{namespace}/{name}");
        }
    }

    #[test]
    fn the_runtimes_annotations_decide_only_pods_that_were_not_injected() {
        let with = |annotations: &str| {
            early(&args("shop", "web-0"), &format!(r#"{{"io.kubernetes.cri.pod-annotations":{annotations}}}"#))
        };
        assert_eq!(with(r#"{"a":"b"}"#), Early::Skip(SkipReason::NoSidecarStatus));
        assert_eq!(with("{}"), Early::Skip(SkipReason::NoSidecarStatus));
        assert!(matches!(with(r#"{"sidecar.istio.io/status":"{}"}"#), Early::Lookup(_)));
        assert!(matches!(with("null"), Early::Lookup(_)), "no annotations were passed");
    }
}
