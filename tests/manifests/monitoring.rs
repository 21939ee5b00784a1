//! Tests of dashboards and alerts: they use only metrics and labels that the programs export, Grafana and promtool
//! accept them, and each alert has a test and a description.

mod charts;
mod dashboards;
mod expression;
mod known;
mod rules;

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Trial;

use crate::tool::{HELM, PROMTOOL};

/// The directory of dashboards and rules, which are symbolic links to the charts' files.
const DIRECTORY: &str = "manifests/monitoring";

/// Returns the trials of this module.
pub(crate) fn trials() -> Vec<Trial> {
    let always: [(&str, fn()); 6] = [
        ("monitoring/dashboards_can_be_loaded", dashboards::can_be_loaded),
        ("monitoring/panels_are_described", dashboards::panels_are_described),
        ("monitoring/each_metric_is_shown", known::each_metric_is_shown),
        ("monitoring/metrics_and_labels_exist", known::metrics_and_labels_exist),
        ("monitoring/alerts_are_described", rules::are_described),
        ("monitoring/alerts_have_tests", rules::have_tests),
    ];
    let always = always.into_iter().map(|(name, body)| {
        Trial::test(name, move || {
            body();
            Ok(())
        })
    });
    let by_tools = [
        PROMTOOL.trial("monitoring/expressions_of_dashboards_are_valid", dashboards::expressions_are_valid),
        PROMTOOL.trial("monitoring/rules_pass_their_tests", rules::pass_their_tests),
        HELM.trial("monitoring/charts_contain_the_files", charts::contain_the_files),
        HELM.trial("monitoring/monitors_select_the_pods", charts::monitors_select_the_pods),
        HELM.trial("monitoring/alerts_lead_to_their_sections", charts::alerts_lead_to_their_sections),
    ];
    always.chain(by_tools).collect()
}

/// Returns the files with this suffix and their contents, ordered by name.
fn files(end: &str) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(Path::new(DIRECTORY)).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = paths.filter(|path| path.to_str().unwrap().ends_with(end)).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}
