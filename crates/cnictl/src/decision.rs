//! The decisions about a pod as values: the webhooks' decisions on its sidecars and the plugin's decision on its
//! redirection. Pure.

use std::net::IpAddr;

use inject::istio::{Injector, Sandbox, policy};
use podfacts::PodFacts;
use podfacts::{SkipReason, Verdict};
use redirect::{Redirect, rules};
use ruleset::RuleSet;
use serde_json::Value;

use super::Error;
use super::live::Live;
use super::parameters::{Parameter, parameters};
use super::validation::FailedValidation;

/// The explanation of a pod.
pub(super) struct Explained {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The node that the pod is assigned to.
    pub(super) node: Option<String>,
    /// The pod's addresses; empty before the pod has a network.
    pub(super) ips: Vec<IpAddr>,
    /// The decision on Istio's sidecar.
    pub(super) injection: Injection,
    /// The decision on Dapr's sidecar, if the pod uses Dapr.
    pub(super) dapr: Option<Injection>,
    /// The webhooks' warnings.
    pub(super) warnings: Vec<String>,
    pub(super) redirection: Redirection,
    /// The state of a running pod, from its node's agent.
    pub(super) live: Option<Live>,
    /// The failed validation that the pod's status reports.
    pub(super) validation: Option<FailedValidation>,
}

/// The decision of a webhook on its sidecar.
pub(super) enum Injection {
    /// The pod already has the sidecar.
    Already,
    Yes {
        rule: &'static str,
        reason: String,
        added: Vec<String>,
    },
    No {
        rule: &'static str,
        reason: String,
    },
    /// The webhook refuses the pod.
    Fails(String),
}

/// The plugin's decision on redirection, or why the plugin does not decide.
pub(super) enum Redirection {
    Yes {
        redirect: Box<Redirect>,
        parameters: Vec<Parameter>,
        rules: RuleSet,
        warnings: Vec<String>,
    },
    No(SkipReason),
    /// The plugin is not called: the pod has the node's network, or runs on Windows.
    Unfit(policy::Reason),
    /// The pod has a sandboxed runtime, whose kernel the plugin's rules do not reach.
    Sandboxed(Sandbox),
    /// The plugin refuses the pod, for example because of its sandboxed runtime, or the pod cannot start for another
    /// reason.
    Fails(String),
    /// The webhook refuses the pod, so the plugin is not called.
    NoPod,
}

impl Explained {
    /// Returns `namespace/name`.
    pub(super) fn subject(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the pod can start as it is: neither a webhook nor the plugin refuses it, and its validation has not failed.
    fn can_start(&self) -> bool {
        let is_refused = |injection: &Injection| matches!(injection, Injection::Fails(_));
        !(is_refused(&self.injection)
            || self.dapr.as_ref().is_some_and(is_refused)
            || matches!(
                self.redirection,
                Redirection::Fails(_) | Redirection::Sandboxed(Sandbox { is_validated: true, .. })
            )
            || self.validation.is_some())
    }

    /// Checks that all explained pods can start.
    ///
    /// # Errors
    /// [`Error::Unstartable`]: some pods cannot start.
    pub(super) fn check<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Result<(), Error> {
        let (explained, unstartable) = (all.clone().count(), all.filter(|pod| !pod.can_start()).count());
        if unstartable == 0 { Ok(()) } else { Err(Error::Unstartable { unstartable, explained }) }
    }

    /// Returns the difference between the decision and the state of the running pod.
    pub(super) fn difference(&self) -> Option<String> {
        // The plugin programs rules for a pod with a sandboxed runtime, too.
        self.live.as_ref()?.difference(matches!(self.redirection, Redirection::Yes { .. } | Redirection::Sandboxed(_)))
    }
}

/// Returns the plugin's decision on an injected pod. `author`: the pod before its injection.
pub(super) fn redirect(pod: &Value, author: &Value, ipv6: bool) -> Redirection {
    let facts = match PodFacts::from_pod_json(pod.to_string().as_bytes()) {
        Ok(facts) => facts,
        Err(error) => return Redirection::Fails(error.to_string()),
    };
    match podfacts::of_pod(&facts) {
        Err(error) => Redirection::Fails(error.to_string()),
        Ok(Verdict::Skip(reason)) => Redirection::No(reason),
        Ok(Verdict::Redirect { redirect, warnings }) => {
            let rules = rules::build(&redirect, ipv6);
            let parameters = parameters(&redirect, &facts, &author["metadata"]["annotations"], &warnings);
            let warnings = warnings.iter().map(ToString::to_string);
            let warnings = warnings.chain(rules::warning(&redirect).map(|warning| warning.to_string())).collect();
            Redirection::Yes { redirect, parameters, rules, warnings }
        }
    }
}

/// Returns the plugin's decision, or why its rules do not reach the pod, which may have been edited since its injection. `sandbox`: see
/// `Request::sandbox`.
pub(super) fn actual(decided: Redirection, pod: &Value, sandbox: Option<bool>) -> Redirection {
    if !matches!(decided, Redirection::Yes { .. }) {
        return decided;
    }
    let unreached = || Injector::sandbox(pod, sandbox).map(Redirection::Sandboxed);
    policy::unfit(&pod["spec"]).map(Redirection::Unfit).or_else(unreached).unwrap_or(decided)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_plugin_fails_for_a_pod_that_it_cannot_read() {
        let sidecar = json!({"name": "istio-proxy", "securityContext": {"runAsUser": -5}});
        let pod = json!({"metadata": {}, "spec": {"containers": [sidecar, {"name": "app"}]}});
        let Redirection::Fails(reason) = redirect(&pod, &pod, false) else { panic!("the pod has an invalid user") };
        assert!(reason.contains("runAsUser"), "{reason}");
    }
}
