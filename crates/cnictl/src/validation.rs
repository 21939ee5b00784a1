//! The failed validation of a pod, as its status reports it: exit code, meaning, and the next steps. Pure.

use contract::{EXIT_USAGE, EXIT_VALIDATION, container};
use serde_json::{Value, json};

/// A failed run of `istio-validation` that no successful run followed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FailedValidation {
    exit_code: i64,
}

impl FailedValidation {
    /// Returns the failed validation that a pod's status reports. As in the repair, the exit code for missing
    /// redirection in the current or the last state takes precedence over other codes.
    pub(super) fn of(pod: &Value) -> Option<Self> {
        let statuses = pod["status"]["initContainerStatuses"].as_array()?;
        let status = statuses.iter().find(|status| status["name"] == container::VALIDATION)?;
        let code = |state: &str| status[state]["terminated"]["exitCode"].as_i64();
        let (present, last) = (code("state"), code("lastState"));
        if present == Some(0) {
            return None;
        }
        let mut failures = [present, last].into_iter().flatten().filter(|code| *code != 0);
        let first = failures.next()?;
        let exit_code = failures.find(|code| *code == i64::from(EXIT_VALIDATION)).unwrap_or(first);
        Some(Self { exit_code })
    }

    /// Whether the validation failed because it found no redirection, and not because of another error.
    fn is_unredirected(&self) -> bool {
        self.exit_code == i64::from(EXIT_VALIDATION)
    }

    fn meaning(&self) -> String {
        match self.exit_code {
            code if code == i64::from(EXIT_VALIDATION) => {
                "the pod's traffic does not reach its proxy, as of a pod that started before its node had the plugin"
                    .to_owned()
            }
            code if code == i64::from(EXIT_USAGE) => "the flags of the validation cannot be parsed".to_owned(),
            1 => "the validation stopped with an error, which its log states".to_owned(),
            code @ 129..=192 => format!("the validation was killed by signal {}", code - 128),
            _ => "the validation itself did not run to its end".to_owned(),
        }
    }

    /// Describes the failure in a sentence.
    pub(super) fn sentence(&self) -> String {
        format!("{} failed with exit code {}: {}", container::VALIDATION, self.exit_code, self.meaning())
    }

    /// Returns the next steps for the pod `namespace/name` on a node.
    pub(super) fn steps(&self, namespace: &str, name: &str, node: &str) -> Vec<String> {
        if !self.is_unredirected() {
            return vec![format!("kubectl logs {name} -n {namespace} -c {} says why it failed", container::VALIDATION)];
        }
        vec![
            format!("istio-cnictl status {node} says whether the plugin is on the node"),
            format!(
                "once it is: kubectl delete pod {name} -n {namespace}, so that a new pod replaces it, unless the agent's \
                 repair evicts or repairs the pod first"
            ),
        ]
    }

    /// Formats as JSON.
    pub(super) fn json(&self) -> Value {
        json!({ "container": container::VALIDATION, "exitCode": self.exit_code, "meaning": self.meaning() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i64) -> Value {
        json!({ "terminated": { "exitCode": code } })
    }

    fn exit_code(status: Value) -> Option<i64> {
        let mut status = status;
        status["name"] = json!("istio-validation");
        let other = json!({ "name": "istio-init", "state": ended(1) });
        FailedValidation::of(&json!({ "status": { "initContainerStatuses": [other, status] } }))
            .map(|failed| failed.exit_code)
    }

    #[test]
    fn the_present_or_last_run_failed_and_none_succeeded_since() {
        let waits = json!({ "waiting": { "reason": "CrashLoopBackOff" } });
        for (status, expected) in [
            (json!({ "state": ended(126) }), Some(126)),
            (json!({ "state": waits, "lastState": ended(126) }), Some(126)),
            (json!({ "state": { "running": {} }, "lastState": ended(137) }), Some(137)),
            (json!({ "state": ended(137), "lastState": ended(126) }), Some(126)),
            (json!({ "state": ended(126), "lastState": ended(1) }), Some(126)),
            (json!({ "state": ended(137), "lastState": ended(1) }), Some(137)),
            (json!({ "state": ended(0), "lastState": ended(126) }), None),
            (json!({ "state": { "running": {} } }), None),
            (json!({ "state": waits, "lastState": ended(0) }), None),
            (json!({ "state": { "terminated": { "exitCode": "126" } } }), None),
        ] {
            assert_eq!(exit_code(status.clone()), expected, "{status}");
        }
        for pod in [json!({}), json!({ "status": { "initContainerStatuses": [{ "state": ended(126) }] } })] {
            assert_eq!(FailedValidation::of(&pod), None, "{pod}");
        }
    }

    #[test]
    fn each_exit_code_has_its_meaning_and_its_steps() {
        for (exit_code, meaning, step) in [
            (126, "does not reach its proxy", "istio-cnictl status n1 "),
            (255, "cannot be parsed", "kubectl logs web-0 -n shop -c istio-validation "),
            (1, "which its log states", "kubectl logs"),
            (137, "killed by signal 9", "kubectl logs"),
            (2, "did not run to its end", "kubectl logs"),
        ] {
            let failed = FailedValidation { exit_code };
            assert!(failed.sentence().contains(&format!("exit code {exit_code}: ")), "{}", failed.sentence());
            assert!(failed.sentence().contains(meaning), "{}", failed.sentence());
            assert!(failed.steps("shop", "web-0", "n1")[0].starts_with(step), "{exit_code}");
        }
    }
}
