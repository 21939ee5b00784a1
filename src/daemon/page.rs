//! Renders a node's report as HTML. Pure; every string is escaped, because names, values and messages come from pods.

mod words;

use std::fmt::Write as _;

use serve::http::Response;
use serve::log::Line;
use serve::page::{self, Escaped, section, table, timed_row, to_seconds, utc};

use report::node::{Pod, PodState, Report};

/// The maximum number of log lines on a page.
const LINES: usize = 30;
/// The size limit of a parameter's value on a page, in bytes.
const MAX_VALUE: usize = 80;

/// Returns the response with the page of a report.
pub(super) fn respond(report: &Report) -> Response {
    page::page(&format!("Node {}", report.node), &body(report))
}

fn body(report: &Report) -> String {
    let mut html = String::with_capacity(64 << 10);
    html.push_str(&state(report));
    html.push_str(&pods(report));
    html.push_str(&repair(report));
    html.push_str(&heals(report));
    html.push_str(&lines("errors", "Latest errors", "No error was logged.", &report.errors));
    let latest = &report.lines[..report.lines.len().min(LINES)];
    html.push_str(&lines("plugin", "Latest lines of the plugin", "The plugin has logged nothing.", latest));
    html
}

fn state(report: &Report) -> String {
    let skipped: Vec<String> =
        report.counts.skipped.iter().map(|(reason, number)| format!("{number} ({})", words::of(reason))).collect();
    let unknown = || "not known yet".to_owned();
    let role = if report.active { "serves this node" } else { "stands by; another agent serves this node" };
    let mut terms = vec![
        ("Agent", role.to_owned()),
        ("Version", report.version.clone()),
        ("Started", utc(&report.started)),
        ("Report", utc(&report.time)),
        ("Chain", report.chain.clone().unwrap_or_else(unknown)),
        ("Backend", report.backend.clone().unwrap_or_else(unknown)),
        ("Redirected", report.counts.redirected.to_string()),
        ("Skipped", if skipped.is_empty() { "0".to_owned() } else { skipped.join(", ") }),
        ("Not observed", report.counts.unknown.to_string()),
    ];
    terms.extend(report.warnings.iter().map(|warning| ("Warning", warning.clone())));
    page::state(&report.problems(), &terms)
}

fn pods(report: &Report) -> String {
    let columns = ["Pod", "Verdict", "Reason", "Backend", "Added", "ms", "Parameters and problems"];
    let rows = report.pods.iter().map(row).collect::<String>();
    section("pods", "Pods", "No pod is known.", &rows, |rows| {
        table("pods-table", "Pods of this node, with the outcome of the latest ADD", &columns, rows)
    })
}

fn row(pod: &Pod) -> String {
    let class = match pod.verdict {
        PodState::Redirected => "good",
        PodState::Skipped => "dim",
        PodState::Failed | PodState::Drifted => "bad",
        PodState::Unknown => "warn",
    };
    let mut html = format!(
        "<tr><th scope=row>{}<td class={class}>{}<td>{}<td class=num>{}<td class=num>{}<td class=num>{}<td>",
        Escaped(&pod.name),
        pod.verdict.as_str(),
        Escaped(words::of(&pod.reason)),
        Escaped(pod.backend.as_deref().unwrap_or_default()),
        Escaped(pod.added.as_deref().map_or("", to_seconds)),
        pod.seconds.map(|seconds| format!("{:.1}", seconds * 1e3)).unwrap_or_default(),
    );
    for (key, value) in &pod.parameters {
        let (key, value) = (key.rsplit('/').next().unwrap_or(key), &value[..value.floor_char_boundary(MAX_VALUE)]);
        let _ = write!(html, "{}={} ", Escaped(key), Escaped(value));
    }
    if let Some(problem) = &pod.problem {
        let _ = write!(html, "<span class=bad>{}</span>", Escaped(problem));
    }
    html
}

fn repair(report: &Report) -> String {
    let rows = report.repair.latest.iter().map(|done| timed_row(&[&done.time, &done.pod, &done.action, &done.result]));
    let (broken, total) = (report.repair.broken, report.repair.total);
    let none = format!("Broken pods in the queue: {broken}. Repair has not acted since the agent's start.");
    section("repair", "Repair", &none, &rows.collect::<String>(), |rows| {
        let caption = format!("Broken pods in the queue: {broken}; actions since the agent's start: {total}");
        table("repair-table", &caption, &["Time", "Pod", "Action", "Result"], rows)
    })
}

fn heals(report: &Report) -> String {
    let rows = report.heals.latest.iter().map(|heal| timed_row(&[&heal.time, words::of(&heal.reason), &heal.change]));
    let none = "No other program has changed the installation since the agent's start.";
    section("heals", "Corrections of what other programs changed", none, &rows.collect::<String>(), |rows| {
        let caption = format!("Corrections since the agent's start: {}", report.heals.total);
        table("heals-table", &caption, &["Time", "Reason", "Change"], rows)
    })
}

fn lines(id: &str, title: &str, none: &str, lines: &[Line]) -> String {
    let rows: String = lines.iter().map(|line| timed_row(&[&line.time, &line.level, &line.text])).collect();
    section(id, title, none, &rows, |rows| {
        table(&format!("{id}-table"), &format!("{title}, the latest one first"), &["Time", "Level", "Text"], rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use report::node::{Counts, Heal, Heals, Repair, RepairAction};

    const HOSTILE: &str = "</td><script>alert(1)</script>\u{1b}[2J\" onload=\"x";

    fn hostile() -> Report {
        let text = || HOSTILE.to_owned();
        let line = || Line { time: text(), level: text(), scope: text(), text: text() };
        Report {
            node: text(),
            version: text(),
            time: text(),
            started: text(),
            active: true,
            not_ready: vec![text()],
            warnings: vec![text()],
            chain: Some(text()),
            backend: Some(text()),
            counts: Counts { skipped: [(text(), 1)].into(), failed: 1, ..Counts::default() },
            pods: vec![Pod {
                name: text(),
                reason: text(),
                parameters: [(text(), text())].into(),
                added: Some(text()),
                backend: Some(text()),
                problem: Some(text()),
                ..Pod::default()
            }],
            heals: Heals { total: 1, latest: vec![Heal { time: text(), reason: text(), change: text() }] },
            repair: Repair {
                broken: 1,
                total: 1,
                latest: vec![RepairAction { time: text(), pod: text(), action: text(), result: text() }],
            },
            errors: vec![line()],
            lines: vec![line()],
        }
    }

    #[test]
    fn every_text_is_escaped() {
        let html = body(&hostile());
        assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
        for raw in ["<script", "\u{1b}", "\" onload"] {
            assert!(!html.contains(raw), "{raw:?} in\n{html}");
        }
    }

    #[test]
    fn a_page_names_the_problems_and_where_each_table_is_empty() {
        let html = body(&Report::default());
        for part in ["✓ All is well.", "No pod is known.", "The plugin has logged nothing."] {
            assert!(html.contains(part), "{part:?} in\n{html}");
        }
        let html = body(&Report { not_ready: vec!["install: x".into()], ..Report::default() });
        assert!(html.contains("✗ Not all is well.") && html.contains("<li>not ready: install: x"), "{html}");
    }

    #[test]
    fn reasons_are_words() {
        let counts = Counts { skipped: [("no_proxy".into(), 2)].into(), unknown: 1, ..Counts::default() };
        let heal = Heal { time: "T".into(), reason: "entry_missing".into(), change: "write x".into() };
        let heals = Heals { total: 1, latest: vec![heal] };
        let pod = Pod { name: "shop/web".into(), reason: "not_observed".into(), ..Pod::default() };
        let html = body(&Report { counts, heals, pods: vec![pod], ..Report::default() });
        for part in [
            "2 (it has no container istio-proxy)",
            "<dt>Not observed<dd>1",
            "<td>no network configuration named the plugin<td>write x",
            "<td class=warn>unknown<td>no ADD since the agent&#39;s start",
        ] {
            assert!(html.contains(part), "{part:?} in\n{html}");
        }
    }

    #[test]
    fn parameters_lack_the_prefix_of_their_annotation() {
        let parameters = [("traffic.sidecar.istio.io/excludeOutboundPorts".to_owned(), "3306".to_owned())].into();
        let pod = Pod { name: "shop/web".into(), verdict: PodState::Redirected, parameters, ..Pod::default() };
        let html = row(&Pod { added: Some("2026-01-01T00:00:00.5Z".into()), seconds: Some(0.0015), ..pod });
        let expected = "<tr><th scope=row>shop/web<td class=good>redirected<td><td class=num><td class=num>2026-01-01T00:00:00\
                        <td class=num>1.5<td>excludeOutboundPorts=3306 ";
        assert_eq!(html, expected);
    }
}
