//! Checks that a pod can start as far as its redirection is concerned.

use contract::container;
use podfacts::ApiPod;
use podfacts::{SkipReason, Verdict};
use serde::Deserialize;
use serde_json::Value;

use crate::istio::policy::{self, Reason};
use crate::istio::{Error, arguments, log_levels};
use crate::pod::{self, INIT_CONTAINERS};

/// The argument that makes `istio-iptables` check the rules that the plugin programmed.
const VALIDATE: &str = "--run-validation";

/// The namespace whose pods the plugin skips by default.
const EXCLUDED: &str = "kube-system";

/// Checks that an injected pod can start as far as its redirection is concerned: the plugin accepts all annotations, `istio-iptables`
/// accepts its arguments, the agent accepts its log levels, and the plugin redirects a pod that validates its redirection. Templates may
/// have made any of these from Helm's values.
///
/// # Errors
/// An annotation or an argument is invalid, or a container needs a redirection that the pod does not get.
pub(in crate::istio) fn check_injected(pod: &Value) -> Result<(), Error> {
    for (name, value) in pod::map(pod::metadata(pod), "annotations") {
        redirect::annotations::check(name, value.as_str().unwrap_or_default())
            .map_err(|error| Error::Unredirectable(error.to_string()))?;
    }
    log_levels::check(pod).map_err(Error::Unredirectable)?;
    pod::containers(pod, INIT_CONTAINERS)
        .iter()
        .try_for_each(|container| arguments::settings(container).map(drop).map_err(Error::Unredirectable))?;
    check_validated(pod)
}

/// Checks that a pod with `istio-init`, `istio-validation` or a sidecar can be redirected, and that one with `istio-validation` is.
fn check_validated(pod: &Value) -> Result<(), Error> {
    let validation = validation(pod);
    // The policy decided about the author's pod, which templates may have changed since.
    let in_need = init(pod, container::INIT).or(validation).or_else(|| pod::sidecar(pod));
    match (policy::unfit(pod::spec(pod)), in_need) {
        // A proxy without `istio-init` and `istio-validation` may run in the host's network.
        (Some(Reason::HostNetwork), _) if init(pod, container::INIT).or(validation).is_none() => {}
        (Some(reason), Some(container)) => {
            return Err(Error::Unredirected(format!(
                "container {} cannot work in the pod as the templates change it: {reason}",
                pod::name(container)
            )));
        }
        _ => {}
    }
    if validation.is_none() {
        return Ok(());
    }
    match unvalidated(pod)? {
        Some(reason) => Err(Error::Unredirected(reason)),
        None => Ok(()),
    }
}

/// Checks a pod that gets no sidecar: an earlier injection may have left its `istio-validation`, which waits for a
/// redirection that the pod does not get. `namespace`: the pod's namespace.
///
/// # Errors
/// The pod has an `istio-validation` that would never succeed.
pub(in crate::istio) fn check_skipped(pod: &Value, namespace: &str) -> Result<(), Error> {
    if validation(pod).is_none() {
        return Ok(());
    }
    let reason = match policy::unfit(pod::spec(pod)) {
        None if namespace == EXCLUDED => Some(format!(
            "container {} would find no redirection, because the plugin skips the pods of {EXCLUDED}, unless its excludeNamespaces are \
             others",
            container::VALIDATION
        )),
        Some(reason) => Some(format!("container {} would find no redirection: {reason}", container::VALIDATION)),
        None => unvalidated(pod)?,
    };
    let left = "it is of a former injection: remove what that has added, or let the pod be injected";
    reason.map_or(Ok(()), |reason| Err(Error::Unredirected(format!("{reason}; {left}"))))
}

fn init<'p>(pod: &'p Value, name: &str) -> Option<&'p Value> {
    pod::find(pod::containers(pod, INIT_CONTAINERS), name)
}

/// Returns the init container that validates the redirection.
fn validation(pod: &Value) -> Option<&Value> {
    let validates = |validation: &&Value| pod::list(validation, "args").iter().any(|argument| argument == VALIDATE);
    init(pod, container::VALIDATION).filter(validates)
}

/// Whether a pod has an init container that validates the redirection.
pub(in crate::istio) fn is_validated(pod: &Value) -> bool {
    validation(pod).is_some()
}

/// Returns why `istio-validation` would find no redirection in a pod; `None` if it would find one, or if the pod is malformed.
fn unvalidated(pod: &Value) -> Result<Option<String>, Error> {
    // `startable` refuses fields of a wrong type, and names their paths.
    let Ok(Ok(facts)) = ApiPod::deserialize(pod).map(ApiPod::into_facts) else { return Ok(None) };
    let reason = match podfacts::of_pod(&facts) {
        Ok(Verdict::Redirect { .. }) => return Ok(None),
        Ok(Verdict::Skip(SkipReason::HasIstioInit)) if programs_rules(pod) => return Ok(None),
        Ok(Verdict::Skip(reason)) => reason,
        Err(error) => return Err(Error::Unredirectable(error.to_string())),
    };
    Ok(Some(format!(
        "container {} would find no redirection, because the plugin skips this pod ({reason}): {}",
        container::VALIDATION,
        reason.meaning()
    )))
}

/// Whether `istio-init` can program the rules before they are validated.
fn programs_rules(pod: &Value) -> bool {
    let inits = pod::containers(pod, INIT_CONTAINERS);
    let place = |name| inits.iter().position(|container| pod::name(container) == name);
    let (Some(at), Some(validated)) = (place(container::INIT), place(container::VALIDATION)) else { return false };
    let context = inits[at].get("securityContext").unwrap_or(&Value::Null);
    let added = context.get("capabilities").map_or(&[][..], |capabilities| pod::list(capabilities, "add"));
    let is_capable = added.iter().any(|name| ["NET_ADMIN", "CAP_NET_ADMIN", "ALL"].iter().any(|known| name == known));
    at < validated && (is_capable || context.get("privileged") == Some(&Value::Bool(true)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_argument_that_starts_with_a_dash_is_checked() {
        let checked = |args: &[&str]| {
            let args: Vec<&str> = ["istio-iptables"].iter().chain(args).copied().collect();
            let pod = json!({"spec": {"initContainers": [{"name": container::INIT, "args": args}]}});
            check_injected(&pod).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(checked(&["-b", "-1"]).contains("container istio-init: "), "{}", checked(&["-b", "-1"]));
        assert!(checked(&["--iptables-probe-port", "-1"]).contains("invalid value '-1'"));
        assert_eq!(checked(&["--flag-of-another-release", "-b", "-1"]), "");
    }
}
