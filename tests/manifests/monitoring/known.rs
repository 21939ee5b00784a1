//! Compares the metrics and labels in the expressions of dashboards and alerts with those that the programs serve.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::expression::{Expression, Selector};
use super::{dashboards, rules};

/// The recorded names and labels of each program's metrics. The test suites `agent` and `webhook` compare them with the
/// running programs.
const SERVED: [&str; 2] =
    [include_str!("../../data/metrics-install-cni.txt"), include_str!("../../data/metrics-sidecar-injector.txt")];

/// Labels that Prometheus adds to each series of a target, as charts and clusters configure them.
const OF_TARGETS: [&str; 4] = ["cluster", "namespace", "node", "pod"];

/// Metrics of other programs: of Prometheus itself, and of kube-state-metrics.
const FOREIGN: [(&str, &[&str]); 3] = [
    ("up", &[]),
    ("kube_daemonset_status_desired_number_scheduled", &["daemonset"]),
    ("kube_daemonset_status_number_available", &["daemonset"]),
];

/// An expression of a dashboard or alert, its location, and the labels that its legend or annotations name.
pub(super) struct Named {
    pub(super) place: String,
    pub(super) expression: Expression,
    pub(super) texts: Vec<String>,
}

/// Metrics with their labels.
type Metrics = BTreeMap<String, BTreeSet<String>>;

fn served() -> Metrics {
    let lines = SERVED.iter().flat_map(|text| text.lines()).filter_map(|line| line.strip_prefix("  "));
    let metric = |line: &str| {
        let (name, labels) = line.split_once(' ').unwrap_or((line, ""));
        (name.to_owned(), labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned).collect())
    };
    lines.map(metric).collect()
}

fn named() -> Vec<Named> {
    dashboards::named().into_iter().chain(rules::named()).collect()
}

pub(super) fn metrics_and_labels_exist() {
    let mut known = served();
    assert!(known.len() > 30, "{known:?}");
    known.extend(
        FOREIGN.map(|(name, labels)| (name.to_owned(), labels.iter().map(|label| (*label).to_owned()).collect())),
    );
    let crates = fs::read_dir("crates").unwrap().map(|entry| entry.unwrap().path().join("src"));
    let sources: String = crates.chain(["src".into()]).map(|directory| sources(&directory)).collect();
    let problems: Vec<String> = named().iter().flat_map(|named| problems(named, &known, &sources)).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Returns an error message for each metric or label of an expression that does not exist.
fn problems(named: &Named, known: &Metrics, sources: &str) -> Vec<String> {
    let Named { place, expression, texts } = named;
    let (mut labels, mut problems) = (BTreeSet::from(OF_TARGETS.map(str::to_owned)), Vec::new());
    for Selector { metric, matchers } in &expression.selectors {
        let Some(own) = known.get(metric) else {
            problems.push(format!("{place}: no program has the metric {metric}"));
            continue;
        };
        labels.extend(own.iter().cloned());
        for (label, value) in matchers.iter().filter(|(label, _)| !OF_TARGETS.contains(&label.as_str())) {
            if !own.contains(label) {
                problems.push(format!("{place}: {metric} has no label {label}"));
            }
            let unknown = |value: &&str| !value.starts_with('$') && !sources.contains(&format!("\"{value}\""));
            let unknown = value.split('|').filter(unknown);
            problems.extend(unknown.map(|value| format!("{place}: no source has the value {value:?} of {label}")));
        }
    }
    let others = expression.grouping.iter().chain(texts).filter(|label| !labels.contains(*label));
    problems.extend(others.map(|label| format!("{place}: no metric of the expression has the label {label}")));
    problems
}

/// Each metric must be on a dashboard; for a histogram, one of its series is enough.
pub(super) fn each_metric_is_shown() {
    let family = |name: &str| {
        let part = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        part.unwrap_or(name).to_owned()
    };
    let of_panels = dashboards::named();
    let selectors = of_panels.iter().flat_map(|named| &named.expression.selectors);
    let shown: BTreeSet<String> = selectors.map(|selector| family(&selector.metric)).collect();
    let hidden: Vec<String> = served().keys().map(|name| family(name)).filter(|name| !shown.contains(name)).collect();
    assert!(hidden.is_empty(), "on no dashboard: {hidden:?}");
}

/// Returns the concatenated contents of all source files.
fn sources(directory: &Path) -> String {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { sources(&path) } else { fs::read_to_string(path).unwrap() }).collect()
}
