//! Generates the tables of metrics, from the registries that the daemons encode.

use anyhow::{Context as _, Result};
use istio_cni::{agent, install};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serve::health::{Liveness, Readiness};
use serve::metrics::register_build;
use serve::tasks::Supervisor;

#[cfg(test)]
use super::read;
use super::table::{code, head, sentence, table};

pub(super) fn page() -> Result<String> {
    let mut text = head("Metrics", "the daemons' registries");
    text.push_str(
        "Both daemons serve them under `/metrics`, as OpenMetrics text. Counters have the suffix `_total`, histograms \
         `_bucket`, `_sum` and `_count`.\n\n",
    );
    let (mut node, mut injector) = (Registry::default(), Registry::default());
    register_build(&mut node, "cni");
    register_tasks(&mut node, "istio_cni");
    install::Metrics::new(&mut node).create_series();
    agent::Metrics::new(&mut node).create_series();
    repair::Metrics::new(&mut node).create_series();
    register_build(&mut injector, "sidecar-injector");
    register_tasks(&mut injector, "sidecar_injection");
    webhook::Metrics::new(&mut injector).create_series();
    repair::Metrics::of_dapr_watchdog(&mut injector).create_series();
    for (program, registry) in [("install-cni", node), ("sidecar-injector", injector)] {
        let mut encoded = String::new();
        encode(&mut encoded, &registry)?;
        text.push_str(&format!("## {program}\n\n"));
        text.push_str(&table(["Name", "Type", "Labels", "Description"], &rows(&encoded)?));
    }
    Ok(text.trim_end().to_owned() + "\n")
}

/// Registers the metrics of a daemon's tasks.
fn register_tasks(registry: &mut Registry, prefix: &str) {
    let registry = registry.sub_registry_with_prefix(prefix);
    Supervisor::new(registry, Readiness::default(), Liveness::default()).create_series();
}

/// Returns a row for each metric of an encoded registry.
fn rows(encoded: &str) -> Result<Vec<[String; 4]>> {
    let described = encoded.lines().filter_map(|line| line.strip_prefix("# HELP ")?.split_once(' '));
    let row = |(name, help): (&str, &str)| {
        let kind = encoded.lines().find_map(|line| line.strip_prefix(&format!("# TYPE {name} ")));
        let kind = kind.with_context(|| format!("{name} has no type"))?;
        let suffix = if kind == "counter" { "_total" } else { "" };
        let series = encoded.lines().find(|line| !line.starts_with('#') && line.starts_with(name));
        Ok([code(&format!("{name}{suffix}")), kind.to_owned(), labels(series.unwrap_or_default()), sentence(help)])
    };
    described.map(row).collect()
}

/// Returns the names of a series' labels, except the label of histogram buckets.
fn labels(series: &str) -> String {
    let Some((_, labels)) = series.split_once('{') else { return String::new() };
    let names = labels.split("=\"").filter_map(|part| part.rsplit(['{', ',', '"']).next());
    let names = names.filter(|name| !name.is_empty() && *name != "le" && !name.starts_with('}'));
    names.map(code).collect::<Vec<_>>().join(", ")
}

/// The files contain the metrics that the running daemons export, as the suites `agent` and `webhook` check.
#[test]
fn each_metric_that_a_daemon_exports_is_listed() {
    let page = page().unwrap();
    for program in ["install-cni", "sidecar-injector"] {
        let exported = read(&format!("tests/data/metrics-{program}.txt")).unwrap();
        let (_, section) = page.split_once(&format!("## {program}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        for name in exported.lines().filter(|line| !line.starts_with(' ')).filter_map(|line| line.split(' ').next()) {
            assert!(section.contains(&format!("`{name}")), "{program} exports {name}, which the page does not list");
        }
    }
}

#[test]
fn labels_are_those_of_the_series() {
    assert_eq!(labels("x_total{a=\"\",b=\"1\"} 0"), "`a`, `b`");
    assert_eq!(labels("x_bucket{le=\"0.5\",verdict=\"\"} 0"), "`verdict`");
    assert_eq!(labels("x 0"), "");
}
