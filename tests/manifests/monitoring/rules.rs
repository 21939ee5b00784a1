//! Tests of the rules for Prometheus, all of which are alerts.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::expression::Expression;
use super::files;
use super::known::Named;
use crate::tool::PROMTOOL;

/// The document with a section for each alert.
const DOCUMENT: &str = "docs/alerts.md";
/// The files with rule tests in promtool's format.
const TESTS: [&str; 2] =
    ["tests/manifests/monitoring/istio-cni.yaml", "tests/manifests/monitoring/sidecar-injector.yaml"];

fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn alerts() -> Vec<Value> {
    let groups =
        files("-rules.yaml").into_iter().flat_map(|(_, text)| yaml(&text)["groups"].as_array().unwrap().clone());
    let alerts: Vec<Value> = groups.flat_map(|group| group["rules"].as_array().unwrap().clone()).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    alerts
}

fn name(alert: &Value) -> &str {
    alert["alert"].as_str().unwrap()
}

/// Returns the expressions of all alerts, with the labels in the alerts' annotations.
pub(super) fn named() -> Vec<Named> {
    let of = |alert: &Value| {
        let texts = alert["annotations"].to_string();
        let labels = texts.split("$labels.").skip(1);
        let end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
        Named {
            place: name(alert).to_owned(),
            expression: Expression::parse(alert["expr"].as_str().unwrap()),
            texts: labels.map(|label| label.split(end).next().unwrap().to_owned()).collect(),
        }
    };
    alerts().iter().map(of).collect()
}

pub(super) fn are_described() {
    let document = fs::read_to_string(DOCUMENT).unwrap();
    let sections: BTreeSet<&str> = document.lines().filter_map(|line| line.strip_prefix("### ")).collect();
    let alerts = alerts();
    let names: BTreeSet<&str> = alerts.iter().map(name).collect();
    assert_eq!(sections, names, "sections of {DOCUMENT}, and alerts");
    for alert in &alerts {
        let (name, annotations) = (name(alert), &alert["annotations"]);
        let text = |key: &str| annotations[key].as_str().unwrap_or_default();
        assert!(["critical", "warning", "info"].map(Value::from).contains(&alert["labels"]["severity"]), "{alert}");
        assert_eq!(text("docs"), format!("{DOCUMENT}#{}", name.to_lowercase()));
        assert!(text("summary").len() > 20 && !text("summary").ends_with('.'), "{name}: {annotations}");
        assert!(text("description").len() > 60 && text("description").ends_with('.'), "{name}: {annotations}");
        // The runbook contains a command, in a code span or block.
        assert!(text("runbook").matches('`').count() >= 2, "{name}: {annotations}");
    }
}

pub(super) fn have_tests() {
    let tests: Vec<Value> = TESTS.iter().map(|path| yaml(&fs::read_to_string(path).unwrap())).collect();
    let tests = tests.iter().flat_map(|file| file["tests"].as_array().unwrap());
    let cases: Vec<&Value> = tests.flat_map(|test| test["promql_expr_test"].as_array().unwrap()).collect();
    for alert in alerts() {
        let (name, severity) = (name(&alert), &alert["labels"]["severity"]);
        let selects = format!("ALERTS{{alertname=\"{name}\",");
        let of = cases.iter().filter(|case| case["expr"].as_str().unwrap().starts_with(&selects));
        let samples: Vec<String> = of.map(|case| case["exp_samples"].to_string()).collect();
        let expected = format!("severity=\\\"{}\\\"", severity.as_str().unwrap());
        assert!(
            samples.iter().any(|samples| samples.contains(&expected)),
            "no test in which {name} fires as {severity}"
        );
        assert!(samples.iter().any(|samples| samples == "[]"), "no test in which {name} does not fire");
    }
}

pub(super) fn pass_their_tests() {
    let rules: Vec<String> = files("-rules.yaml").into_iter().map(|(path, _)| path.display().to_string()).collect();
    promtool(["check", "rules", "--lint=all", "--lint-fatal"].into_iter().chain(rules.iter().map(String::as_str)));
    promtool(["test", "rules"].into_iter().chain(TESTS));
}

pub(super) fn promtool<'a>(arguments: impl Iterator<Item = &'a str>) {
    let arguments: Vec<&str> = arguments.collect();
    let output = Command::new(PROMTOOL.program().unwrap()).args(&arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "promtool {}: {}", arguments.join(" "), String::from_utf8_lossy(&said));
}
