//! What the API server requires of the pod in a workload (`spec.template`), beyond what it requires of a pod.

use serde_json::{Map, Value};

use super::startable::Unstartable;
use crate::pod;

/// Checks the injected pod of a workload. What is wrong with the author's pod, too, is left to the API server.
///
/// # Errors
/// A template changes a field for which the API server refuses the workload.
pub(super) fn check(workload: &Value, author: &Value, injected: &Value) -> Result<(), Unstartable> {
    let found = match pod::text(workload, "kind") {
        "Pod" => return Ok(()),
        "Job" | "CronJob" => restart(injected, &["Never", "OnFailure"], "Never or OnFailure in a Job")
            .filter(|_| restart_policy(author) != restart_policy(injected)),
        _ => restart(injected, &["Always"], "Always in this kind of workload")
            .filter(|_| restart_policy(author) != restart_policy(injected))
            .or_else(|| deadline(injected).filter(|_| deadline(author).is_none())),
    };
    found.or_else(|| selected(workload, author, injected)).map_or(Ok(()), Err)
}

fn restart_policy(pod: &Value) -> &str {
    match pod::text(pod::spec(pod), "restartPolicy") {
        "" => "Always",
        policy => policy,
    }
}

fn restart(pod: &Value, valid: &[&str], allowed: &'static str) -> Option<Unstartable> {
    let policy = restart_policy(pod);
    (!valid.contains(&policy)).then(|| field("restartPolicy", &policy.into(), allowed))
}

fn deadline(pod: &Value) -> Option<Unstartable> {
    let value = pod::spec(pod).get("activeDeadlineSeconds").filter(|value| !value.is_null())?;
    Some(field("activeDeadlineSeconds", value, "absent in this kind of workload"))
}

/// Returns the label by which the workload no longer selects its pod.
fn selected(workload: &Value, author: &Value, injected: &Value) -> Option<Unstartable> {
    let selector = pod::map(&workload["spec"], "selector");
    // That of a ReplicationController and of a DeploymentConfig is the labels.
    let labels = selector.get("matchLabels").map_or(Some(selector), Value::as_object)?;
    let of = |pod| pod::map(pod::metadata(pod), "labels");
    let is_lost =
        |(name, value): &(&String, &Value)| differs(of(injected), name, value) && !differs(of(author), name, value);
    let (name, _) = labels.iter().filter(|(_, value)| value.is_string()).find(is_lost)?;
    let value = of(injected).get(name).unwrap_or(&Value::Null);
    Some(field(&format!("label {name}"), value, "as the workload's selector requires"))
}

fn differs(labels: &Map<String, Value>, name: &str, value: &Value) -> bool {
    labels.get(name) != Some(value)
}

fn field(field: &str, value: &Value, allowed: &'static str) -> Unstartable {
    Unstartable::Field { place: "the pod".to_owned(), field: field.to_owned(), value: value.to_string(), allowed }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the text of the refusal of a change; empty if there is none.
    fn refused(workload: &Value, author: &Value, injected: &Value) -> String {
        check(workload, author, injected).map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn a_pod_that_its_workload_cannot_have_is_refused_where_the_injection_made_it() {
        let plain = json!({"spec": {}});
        let restarts = |policy: &str| json!({"spec": {"restartPolicy": policy}});
        let limited = json!({"spec": {"activeDeadlineSeconds": 9}});
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
    }

    #[test]
    fn a_pod_that_its_workload_does_not_select_is_refused() {
        let labelled = |label: &str| json!({"metadata": {"labels": {"app": label}}});
        let (web, other) = (labelled("web"), labelled("other"));
        let text = "the pod has label app \"other\", which must be as the workload's selector requires";
        for selector in [json!({"matchLabels": {"app": "web"}}), json!({"app": "web"})] {
            let workload = json!({"kind": "ReplicaSet", "spec": {"selector": selector}});
            assert_eq!(refused(&workload, &web, &other), text);
            assert_eq!(refused(&workload, &web, &web), "");
            assert_eq!(refused(&workload, &other, &other), "", "the author's own label");
        }
    }
}
