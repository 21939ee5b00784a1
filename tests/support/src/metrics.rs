//! Extracts the names, types and labels of the metrics from a page in the Prometheus format. Dashboards and alerts
//! depend on them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Returns a line for each metric family with its type, followed by a line for each different sample name with its
/// label names.
pub fn names(page: &str) -> String {
    let mut names = String::new();
    let mut seen = BTreeSet::new();
    for line in page.lines() {
        if let Some(family) = line.strip_prefix("# TYPE ") {
            writeln!(names, "{family}").unwrap();
        } else if !line.starts_with('#') {
            let sample = line.rsplit_once(' ').unwrap().0;
            let (name, labels) = sample.split_once('{').unwrap_or((sample, ""));
            let keys: Vec<&str> = labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0)).collect();
            let shape = format!("  {name} {}", keys.join(","));
            if seen.insert(shape.clone()) {
                writeln!(names, "{}", shape.trim_end()).unwrap();
            }
        }
    }
    names
}
