//! The next steps after an explanation: the meaning of each reason, and how to change the decision. Pure.

use contract::annotation;
use podfacts::SkipReason;

use super::decision::{Explained, Injection, Redirection};

/// Returns the steps after this explanation.
pub(super) fn steps(pod: &Explained) -> Vec<String> {
    // A pod that the plugin would not redirect today would fail its validation again, so the next step follows from
    // that decision.
    if let (Some(failed), Redirection::Yes { .. }) = (&pod.validation, &pod.redirection) {
        return failed.steps(&pod.namespace, &pod.name, pod.node.as_deref().unwrap_or("NODE"));
    }
    let injection = match (&pod.injection, &pod.redirection) {
        (Injection::Fails(_), _) => Some("correct what the message names, and create the pod again".to_owned()),
        // A pod with another program's rules, or a gateway, needs no injection.
        (_, Redirection::No(SkipReason::HasIstioInit | SkipReason::NotSidecar | SkipReason::EnvoyDisabled)) => None,
        (Injection::No { rule, .. }, _) => Some(uninjected(rule, &pod.namespace)),
        _ => None,
    };
    let decided = injection.or_else(|| redirection(pod));
    pod.difference().map(|_| replacement(pod)).or(decided).into_iter().collect()
}

/// Returns the next step for a running pod whose state differs from the decision.
fn replacement(pod: &Explained) -> String {
    let Explained { namespace, name, .. } = pod;
    format!("kubectl delete pod {name} -n {namespace}, so that a new pod replaces it")
}

/// Returns the next step for a pod that the webhook does not inject.
fn uninjected(rule: &str, namespace: &str) -> String {
    match rule {
        "host_network" => "none: a pod with the node's network has no network namespace to redirect".to_owned(),
        "windows" => "none: there is no proxy for Windows".to_owned(),
        "ignored_namespace" => "move the pod to another namespace: system namespaces are never injected".to_owned(),
        "invalid_policy" => "set the policy of the injector's configuration to enabled or disabled".to_owned(),
        "label" | "annotation" => format!("remove {} from the pod's template", annotation::INJECT),
        "never_selector" => {
            "change the pod's labels, or neverInjectSelector of the injector's configuration".to_owned()
        }
        _ => format!("kubectl label namespace {namespace} istio-injection=enabled, then create the pod again"),
    }
}

fn redirection(pod: &Explained) -> Option<String> {
    let Explained { namespace, name, .. } = pod;
    match &pod.redirection {
        Redirection::Yes { .. } => Some(format!(
            "istio-cnictl trace {name} -n {namespace} --outbound ADDRESS:PORT says who receives a connection of the running pod"
        )),
        Redirection::Fails(_) => Some("correct the pod, and create it again".to_owned()),
        Redirection::NoPod => None,
        Redirection::Unfit(reason) => Some(uninjected(reason.label(), namespace)),
        Redirection::Sandboxed(_) => Some(
            "remove runtimeClassName from the pod's template, or unset Istio's value pilot.cni.enabled, so that istio-init programs \
             the rules in the sandbox"
                .to_owned(),
        ),
        Redirection::No(reason) => not_redirected(*reason),
    }
}

fn not_redirected(reason: SkipReason) -> Option<String> {
    let step = match reason {
        SkipReason::NotKubernetes | SkipReason::AgentPod | SkipReason::NotSidecar | SkipReason::EnvoyDisabled => {
            return None;
        }
        SkipReason::ExcludedNamespace => "remove the namespace from excludeNamespaces, and create the pod again",
        SkipReason::HasIstioInit => "set Istio's value pilot.cni.enabled, and create the pod again without istio-init",
        SkipReason::NoProxy | SkipReason::NoSidecarStatus => "create the pod again, so that it is injected",
        SkipReason::InjectDeclined => "remove sidecar.istio.io/inject from the pod's template",
        SkipReason::InterceptionNone => "remove sidecar.istio.io/interceptionMode from the pod's template",
    };
    Some(step.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(injection: Injection, redirection: Redirection) -> Explained {
        let (namespace, name) = ("shop".to_owned(), "web".to_owned());
        let (node, dapr, live, validation, ips, warnings) = (None, None, None, None, Vec::new(), Vec::new());
        Explained { namespace, name, node, ips, injection, dapr, warnings, redirection, live, validation }
    }

    fn no(rule: &'static str) -> Injection {
        Injection::No { rule, reason: String::new() }
    }

    #[test]
    fn steps_follow_from_the_first_reason() {
        let skipped = |reason| Redirection::No(reason);
        for (injection, redirection, said) in [
            (no("policy"), skipped(SkipReason::NoProxy), "kubectl label namespace shop istio-injection=enabled"),
            (no("host_network"), skipped(SkipReason::NoProxy), "none:"),
            (no("label"), skipped(SkipReason::NoProxy), "remove sidecar.istio.io/inject"),
            (no("policy"), skipped(SkipReason::HasIstioInit), "pilot.cni.enabled"),
            (Injection::Already, skipped(SkipReason::HasIstioInit), "pilot.cni.enabled"),
            (Injection::Already, skipped(SkipReason::NotSidecar), ""),
            (Injection::Already, skipped(SkipReason::ExcludedNamespace), "excludeNamespaces"),
            (Injection::Already, Redirection::Fails("x".into()), "correct the pod"),
            (Injection::Fails("x".into()), Redirection::NoPod, "correct what the message names"),
        ] {
            let steps = steps(&pod(injection, redirection)).join("\n");
            assert!(steps.contains(said) && steps.is_empty() == said.is_empty(), "{said:?}: {steps:?}");
        }
    }
}
