//! What the API server requires of the pod in a workload (`spec.template`), beyond what it requires of every pod.

use podfacts::selector::LabelSelector;
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::startable::{self, Unstartable};
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Checks the injected pod of a workload. A rule that the author's pod already violates is left to the API server.
///
/// # Errors
/// An injection changes the pod so that the API server refuses the workload.
pub(super) fn check(workload: &Value, author: &Value, injected: &Value) -> Result<(), Unstartable> {
    let kind = pod::text(workload, "kind");
    if kind == "Pod" {
        return Ok(());
    }
    let job = match kind {
        "Job" => Some(&workload["spec"]),
        "CronJob" => Some(&workload["spec"]["jobTemplate"]["spec"]),
        _ => None,
    };
    for rule in [restart, deadline, failures, totals] {
        if rule(author, job).is_none() {
            rule(injected, job).map_or(Ok(()), Err)?;
        }
    }
    unselected(&workload["spec"]["selector"], author, injected).map_or(Ok(()), Err)
}

fn restart(pod: &Value, job: Option<&Value>) -> Option<Unstartable> {
    let policy = match pod::text(pod::spec(pod), "restartPolicy") {
        "" => "Always",
        policy => policy,
    };
    let has_policy = job.is_some_and(|job| !job["podFailurePolicy"].is_null());
    let (valid, allowed): (&[&str], _) = match job {
        Some(_) if has_policy => (&["Never"], "Never in a Job with podFailurePolicy"),
        Some(_) => (&["Never", "OnFailure"], "Never or OnFailure in a Job"),
        None => (&["Always"], "Always in this kind of workload"),
    };
    (!valid.contains(&policy)).then(|| field("restartPolicy", &policy.into(), allowed))
}

fn deadline(pod: &Value, job: Option<&Value>) -> Option<Unstartable> {
    let value = pod::spec(pod).get("activeDeadlineSeconds").filter(|value| !value.is_null() && job.is_none())?;
    Some(field("activeDeadlineSeconds", value, "absent in this kind of workload"))
}

/// Returns the error if a rule of the Job's `podFailurePolicy` names a container that the pod does not have.
fn failures(pod: &Value, job: Option<&Value>) -> Option<Unstartable> {
    let names = |which| pod::containers(pod, which).iter().map(pod::name);
    let has = |name: &str| names(CONTAINERS).chain(names(INIT_CONTAINERS)).any(|own| name == own);
    let rules = pod::list(&job?["podFailurePolicy"], "rules").iter();
    let mut named = rules.filter_map(|rule| rule.get("onExitCodes")?.get("containerName")?.as_str());
    named.find(|name| !has(name)).map(|lost| Unstartable::Failures(lost.to_owned()))
}

/// Checks the resources of the whole pod as they are written: the API server derives none in a workload.
fn totals(pod: &Value, _: Option<&Value>) -> Option<Unstartable> {
    startable::check_resources_of_pod(pod::spec(pod).get("resources").unwrap_or(&Value::Null)).err()
}

/// Returns the error if the selector no longer selects the pod; it names the label that does not match. An invalid selector is left to the
/// API server.
fn unselected(selector: &Value, author: &Value, injected: &Value) -> Option<Unstartable> {
    let is_plain = ["matchLabels", "matchExpressions"].iter().all(|key| selector.get(key).is_none());
    // The selector of a ReplicationController or a DeploymentConfig is a plain map of labels.
    let selector = if is_plain { json!({"matchLabels": selector}) } else { selector.clone() };
    let selector = LabelSelector::deserialize(selector).ok()?;
    if !selector.matches(|key| pod::label(author, key)) {
        return None;
    }
    let key = selector.unmet(|key| pod::label(injected, key))?;
    Some(Unstartable::Unselected(match pod::label(injected, key) {
        Some(value) => format!("the label {key}: {value:?}"),
        None => format!("no label {key}"),
    }))
}

fn field(field: &str, value: &Value, allowed: &'static str) -> Unstartable {
    Unstartable::Field { place: "the pod".to_owned(), field: field.to_owned(), value: value.to_string(), allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the error message for a workload whose pod the injection changes; empty if it is accepted.
    fn refused(workload: &Value, author: &Value, injected: &Value) -> String {
        check(workload, author, injected).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_pod_that_its_workload_cannot_have_is_refused_where_the_injection_made_it() {
        let plain = json!({"spec": {}});
        let restarts = |policy: &str| json!({"spec": {"restartPolicy": policy}});
        let limited = json!({"spec": {"activeDeadlineSeconds": 9}});
        let paged = json!({"spec": {"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}});
        let of = |kind: &str| json!({"kind": kind, "spec": {}});
        let cases = [
            (
                "Deployment",
                &restarts("Never"),
                "the pod has restartPolicy \"Never\", which must be Always in this kind of workload",
            ),
            (
                "StatefulSet",
                &limited,
                "the pod has activeDeadlineSeconds 9, which must be absent in this kind of workload",
            ),
            (
                "ReplicaSet",
                &paged,
                "the pod has resources {\"limits\":{\"hugepages-2Mi\":\"4Mi\"}}, which must be with cpu or memory beside huge pages",
            ),
            ("DaemonSet", &restarts("Always"), ""),
            ("Pod", &restarts("Never"), ""),
            ("Job", &limited, "the pod has restartPolicy \"Always\", which must be Never or OnFailure in a Job"),
            ("CronJob", &restarts("OnFailure"), ""),
        ];
        for (kind, injected, text) in cases {
            let author = if kind.ends_with("Job") { restarts("Never") } else { plain.clone() };
            assert_eq!(refused(&of(kind), &author, injected), text);
            assert_eq!(refused(&of(kind), injected, injected), "", "{kind} as its author wrote it");
        }
        assert_eq!(
            refused(&of("Deployment"), &restarts("Never"), &restarts("OnFailure")),
            "",
            "the author's is invalid"
        );
    }

    #[test]
    fn the_failure_policy_of_a_job_is_that_of_the_injected_pod() {
        let pod = |policy: &str, name: &str| json!({"spec": {"restartPolicy": policy, "containers": [{"name": name}]}});
        let rules = json!([{"onPodConditions": []}, {"onExitCodes": {"containerName": "app"}}, {"onExitCodes": {}}]);
        let job = json!({"podFailurePolicy": {"rules": rules}});
        let author = pod("Never", "app");
        for workload in
            [json!({"kind": "Job", "spec": job}), json!({"kind": "CronJob", "spec": {"jobTemplate": {"spec": job}}})]
        {
            assert_eq!(
                refused(&workload, &author, &pod("OnFailure", "app")),
                "the pod has restartPolicy \"OnFailure\", which must be Never in a Job with podFailurePolicy"
            );
            assert_eq!(
                refused(&workload, &author, &pod("Never", "other")),
                "a rule of the Job's podFailurePolicy names container \"app\", which the injected pod does not have"
            );
            assert_eq!(refused(&workload, &author, &author), "");
            assert_eq!(refused(&workload, &pod("Never", "a"), &pod("Never", "b")), "", "the author's is invalid");
        }
    }

    #[test]
    fn a_pod_that_its_workload_does_not_select_is_refused() {
        let labelled = |label: &str| json!({"metadata": {"labels": {"app": label}}});
        let (web, other, none) =
            (labelled("web"), labelled("other"), json!({"metadata": {"labels": {"tls": "istio"}}}));
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        let changed = "the workload's selector does not select the injected pod, which has the label app: \"other\"";
        let lost = "the workload's selector does not select the injected pod, which has no label app";
        let added = "the workload's selector does not select the injected pod, which has the label tls: \"istio\"";
        for (selector, [of_other, of_none]) in [
            (json!({"matchLabels": {"app": "web"}}), [changed, lost]),
            (json!({"app": "web"}), [changed, lost]),
            (expression("app", "In", json!(["web", "www"])), [changed, lost]),
            (expression("app", "NotIn", json!(["other"])), [changed, ""]),
            (expression("app", "Exists", json!([])), ["", lost]),
            (expression("tls", "DoesNotExist", Value::Null), ["", added]),
            (expression("app", "Near", Value::Null), ["", ""]),
        ] {
            let workload = json!({"kind": "ReplicaSet", "spec": {"selector": selector}});
            assert_eq!(refused(&workload, &web, &other), of_other, "{selector}");
            assert_eq!(refused(&workload, &web, &none), of_none, "{selector}");
            assert_eq!(refused(&workload, &web, &web), "");
            assert_eq!(refused(&workload, &other, &other), "", "the author's own label");
        }
    }
}
