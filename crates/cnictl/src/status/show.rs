//! Formats the agents' states: tables, one node in depth, JSON values. Pure.
//!
//! Text output has its control characters escaped, because names and messages come from pods and agents.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use contract::diagnostics::terminal::is_unprintable;
use serde_json::{Value, json};

use super::assess::{Agent, Unreported};
use report::node::{Pod, Report};

/// The width limit of a cell, in characters.
const MAX_CELL: usize = 60;
/// The number of spaces between columns.
const GAP: usize = 3;
/// The smallest width, in characters, to which the last column is shortened. Lines that are still too long are wrapped
/// by the terminal.
const MIN_CELL: usize = 16;
/// The maximum number of agents whose problems are listed below a table.
const MAX_UNWELL: usize = 20;
/// The width limit of a cell of a wide table, in characters.
const MAX_WIDE_CELL: usize = 300;

/// Formats a table with a line for each agent, and a line with the sums. Unless the table is wide, and so has a column
/// of problems, the problems follow it. `width`: the width of the terminal, if known, to which the last cell of each
/// line is shortened.
pub(super) fn table(agents: &[Agent], wide: bool, width: Option<usize>) -> String {
    let mut head =
        vec!["NODE", "READY", "VERSION", "BACKEND", "CHAIN", "REDIRECTED", "SKIPPED", "REPAIRED", "LAST ERROR"];
    if wide {
        head.extend(["FAILED", "DRIFTED", "BROKEN", "HEALS", "STARTED", "POD", "PROBLEMS"]);
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
    rows.extend(agents.iter().map(|agent| row(agent, wide)));
    aligned(&rows, if wide { MAX_WIDE_CELL } else { MAX_CELL }, width)
        + &sums(agents)
        + &if wide { String::new() } else { unwell(agents) }
}

/// Formats a line for each agent whose report contains problems, up to [`MAX_UNWELL`] lines. For an agent without a report, the table
/// already contains the reason.
fn unwell(agents: &[Agent]) -> String {
    let unwell: Vec<_> = agents.iter().filter(|agent| agent.report.is_ok() && !agent.problems().is_empty()).collect();
    let line =
        |agent: &&Agent| shown(&format!("{}: {}", agent.node, agent.problems().join("; ")), MAX_WIDE_CELL) + "\n";
    let text: String = unwell.iter().take(MAX_UNWELL).map(line).collect();
    match unwell.len().saturating_sub(MAX_UNWELL) {
        0 => text,
        more => format!("{text}{more} more agents have problems; `-o wide` shows all\n"),
    }
}

fn row(agent: &Agent, wide: bool) -> Vec<String> {
    let place = format!("{}/{}", agent.namespace, agent.pod);
    let problems = agent.problems().join("; ");
    let report = match &agent.report {
        Ok(report) => report,
        Err(unreported) => {
            let ready = if matches!(unreported, Unreported::NoAgent { .. }) { "no" } else { "unknown" };
            let mut row = vec![agent.node.clone(), ready.to_owned()];
            row.resize(8, String::new());
            row.push(unreported.to_string());
            if wide {
                row.resize(14, String::new());
                row.extend([place, problems]);
            }
            return row;
        }
    };
    let chain = report.chain.as_deref().unwrap_or_default();
    let file = chain.rsplit('/').next().unwrap_or_default();
    let skipped: u64 = report.counts.skipped.values().copied().fold(0, u64::saturating_add);
    let mut row = vec![
        agent.node.clone(),
        ready(report).to_owned(),
        report.version.clone(),
        report.backend.clone().unwrap_or_default(),
        if wide { chain } else { file }.to_owned(),
        report.counts.redirected.to_string(),
        if wide { by_reason(&report.counts.skipped) } else { skipped.to_string() },
        report.repair.total.to_string(),
        agent.last_error().unwrap_or_default(),
    ];
    if wide {
        let counts = &report.counts;
        row.extend([counts.failed, counts.drifted, report.repair.broken, report.heals.total].map(|n| n.to_string()));
        row.extend([report.started.clone(), place, problems]);
    }
    row
}

pub(super) fn ready(report: &Report) -> &'static str {
    match (report.not_ready.is_empty(), report.active) {
        (false, _) => "no",
        (true, true) => "yes",
        (true, false) => "standby",
    }
}

fn by_reason(skipped: &BTreeMap<String, u64>) -> String {
    let parts: Vec<String> = skipped.iter().map(|(reason, number)| format!("{reason}={number}")).collect();
    if parts.is_empty() { "0".to_owned() } else { parts.join(",") }
}

/// Formats the number of agents without problems, of redirected pods, and of skipped pods by reason.
fn sums(agents: &[Agent]) -> String {
    let well = agents.iter().filter(|agent| agent.problems().is_empty()).count();
    let reports = || agents.iter().filter_map(|agent| agent.report.as_ref().ok());
    let redirected = reports().map(|report| report.counts.redirected).fold(0, u64::saturating_add);
    let mut skipped = BTreeMap::<String, u64>::new();
    for (reason, number) in reports().flat_map(|report| &report.counts.skipped) {
        let sum = skipped.entry(reason.clone()).or_default();
        *sum = sum.saturating_add(*number);
    }
    let skipped = shown(&by_reason(&skipped), MAX_WIDE_CELL);
    format!("\n{well} of {} agents are well; pods redirected: {redirected}, skipped: {skipped}\n", agents.len())
}

/// Formats everything that the agents of a node report.
pub(super) fn in_depth(agents: &[Agent]) -> String {
    let mut text = String::new();
    for agent in agents {
        let line = |key: &str, value: &str| format!("{key:<12}{}\n", shown(value, MAX_WIDE_CELL));
        text += &line("Node:", &agent.node);
        text += &line("Agent:", &format!("{}/{}", agent.namespace, agent.pod));
        for problem in agent.problems() {
            text += &line("Problem:", &problem);
        }
        let Ok(report) = &agent.report else { continue };
        for (key, value) in [
            ("Ready:", ready(report)),
            ("Version:", &report.version),
            ("Started:", &report.started),
            ("Chain:", report.chain.as_deref().unwrap_or("not known yet")),
            ("Backend:", report.backend.as_deref().unwrap_or("not known yet")),
        ] {
            text += &line(key, value);
        }
        for warning in &report.warnings {
            text += &line("Warning:", warning);
        }
        text += &section("Pods", &["POD", "VERDICT", "REASON", "BACKEND", "ADDED", "MS", "PARAMETERS"], pods(report));
        let repairs = report.repair.latest.iter().map(|done| vec![&done.time, &done.pod, &done.action, &done.result]);
        let title = format!("Repair, with broken pods in the queue: {}", report.repair.broken);
        text += &section(&title, &["TIME", "POD", "ACTION", "RESULT"], cloned(repairs));
        let heals = report.heals.latest.iter().map(|heal| vec![&heal.time, &heal.reason, &heal.change]);
        text += &section("Corrections of the installation", &["TIME", "REASON", "CHANGE"], cloned(heals));
        let errors = report.errors.iter().map(|line| vec![&line.time, &line.scope, &line.text]);
        text += &section("Latest errors", &["TIME", "SCOPE", "TEXT"], cloned(errors));
        let lines = report.lines.iter().map(|line| vec![&line.time, &line.level, &line.text]);
        text += &section("Latest lines of the plugin", &["TIME", "LEVEL", "TEXT"], cloned(lines));
    }
    text
}

fn cloned<'a>(rows: impl Iterator<Item = Vec<&'a String>>) -> Vec<Vec<String>> {
    rows.map(|row| row.into_iter().cloned().collect()).collect()
}

fn pods(report: &Report) -> Vec<Vec<String>> {
    let row = |pod: &Pod| {
        let parameters = pod.parameters.iter().map(|(key, value)| format!("{key}={value}"));
        let problem = pod.problem.iter().map(|problem| format!("({problem})"));
        vec![
            pod.name.clone(),
            pod.verdict.as_str().to_owned(),
            pod.reason.clone(),
            pod.backend.clone().unwrap_or_default(),
            pod.added.clone().unwrap_or_default(),
            pod.seconds.map(|seconds| format!("{:.1}", seconds * 1e3)).unwrap_or_default(),
            parameters.chain(problem).collect::<Vec<_>>().join(" "),
        ]
    };
    report.pods.iter().map(row).collect()
}

/// Formats a titled table; empty without rows.
fn section(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let head = head.iter().map(|&name| name.to_owned()).collect();
    format!("\n{title}:\n{}", aligned(&[vec![head], rows].concat(), MAX_WIDE_CELL, None))
}

/// Formats left-aligned columns, whose cells have at most `limit` characters. The last column is shortened so that
/// lines fit into `width`, unless that would leave it less than [`MIN_CELL`] characters.
fn aligned(rows: &[Vec<String>], limit: usize, width: Option<usize>) -> String {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| shown(cell, limit)).collect()).collect();
    let mut widths = Vec::new();
    for row in &rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    if let (Some(width), Some((last, others))) = (width, widths.split_last_mut()) {
        let left = width.saturating_sub(others.iter().map(|width| width + GAP).sum());
        *last = if left >= MIN_CELL { (*last).min(left) } else { *last };
    }
    rows.iter().fold(String::new(), |mut text, row| {
        let mut line = String::new();
        for (cell, &width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            let _ = write!(line, "{:<width$}{:GAP$}", shortened(cell, width), "");
        }
        text += line.trim_end();
        text.push('\n');
        text
    })
}

/// Shortens a string to at most `width` characters; an ellipsis replaces the rest.
fn shortened(text: &str, width: usize) -> Cow<'_, str> {
    match text.char_indices().nth(width) {
        None => text.into(),
        Some(_) => text.chars().take(width.saturating_sub(1)).chain(['…']).collect::<String>().into(),
    }
}

/// Formats a string for a cell: escapes control characters, shortens it to `limit` characters, and replaces an empty
/// string by `-`.
fn shown(text: &str, limit: usize) -> String {
    let mut short = String::new();
    for (position, character) in text.chars().enumerate() {
        if position >= limit {
            short.push('…');
            break;
        }
        if is_unprintable(character) { short.extend(character.escape_default()) } else { short.push(character) }
    }
    if short.is_empty() { "-".to_owned() } else { short }
}

/// Returns the agents as JSON values.
pub(super) fn values(agents: &[Agent]) -> Vec<Value> {
    let value = |agent: &Agent| {
        let mut value = json!({
            "node": agent.node, "namespace": agent.namespace, "pod": agent.pod, "problems": agent.problems(),
        });
        if let Ok(report) = &agent.report {
            value["report"] = json!(report);
        }
        value
    };
    agents.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use serve::log::Line;

    use super::*;
    use report::node::Counts;

    fn agent(node: &str, report: Result<Report, Unreported>) -> Agent {
        Agent { node: node.into(), namespace: "istio-system".into(), pod: "p".into(), report: report.map(Box::new) }
    }

    fn well() -> Report {
        Report {
            version: "0.1.0".into(),
            active: true,
            chain: Some("/host/etc/cni/net.d/10-x.conflist".into()),
            backend: Some("iptables-nft".into()),
            counts: Counts { redirected: 7, skipped: [("no_proxy".into(), 3)].into(), ..Counts::default() },
            errors: vec![Line { time: "T".into(), text: "past\u{1b}[2J".into(), ..Line::default() }],
            ..Report::default()
        }
    }

    #[test]
    fn a_table_has_a_line_for_each_agent_and_the_sums() {
        let agents = [agent("n1", Ok(well())), agent("node-2", Err(Unreported::Disabled))];
        let expected = "\
NODE     READY     VERSION   BACKEND        CHAIN           REDIRECTED   SKIPPED   REPAIRED   LAST ERROR
n1       yes       0.1.0     iptables-nft   10-x.conflist   7            3         0          T past\\u{1b}[2J
node-2   unknown   -         -              -               -            -         -          the agent serves no report; set statusPage.enabled, or STATU…

1 of 2 agents are well; pods redirected: 7, skipped: no_proxy=3
";
        assert_eq!(table(&agents, false, None), expected);
        let fitted = table(&agents, false, Some(110));
        assert!(
            fitted.contains("the agent serve…\n") && fitted.lines().all(|line| line.chars().count() <= 110),
            "{fitted}"
        );
        // A narrower terminal wraps lines: no column but the last is shortened.
        assert_eq!(table(&agents, false, Some(80)), expected);
        let wide = table(&agents, true, None);
        for part in ["/host/etc/cni/net.d/10-x.conflist", "no_proxy=3", "istio-system/p", "or STATUS_PAGE"] {
            assert!(wide.contains(part), "{part:?} in\n{wide}");
        }
    }

    #[test]
    fn problems_of_agents_follow_the_table() {
        let drifted = || Report { counts: Counts { drifted: 1, ..Counts::default() }, ..well() };
        let agents: Vec<Agent> = (0..MAX_UNWELL + 2).map(|n| agent(&format!("n{n}"), Ok(drifted()))).collect();
        let problem = agents[0].problems().join("; ");
        assert!(problem.contains("not redirected as intended"), "{problem}");
        let text = table(&agents, false, None);
        assert!(text.contains(&format!("\nn0: {problem}\nn1: ")), "{text}");
        assert!(text.contains("\nn19: ") && !text.contains("\nn20: "), "{text}");
        assert!(text.ends_with("\n2 more agents have problems; `-o wide` shows all\n"), "{text}");
        assert_eq!(table(&agents, true, None).matches(&problem).count(), agents.len(), "only the column has them");
    }

    #[test]
    fn control_characters_are_escaped_in_depth_and_in_sums() {
        let hostile = "\u{1b}[2J\r".to_owned();
        let pod = Pod { name: hostile.clone(), problem: Some(hostile.clone()), ..Pod::default() };
        let counts = Counts { skipped: [(hostile.clone(), u64::MAX), ("x".into(), 1)].into(), ..Counts::default() };
        let report = Report {
            pods: vec![pod],
            not_ready: vec![hostile.clone()],
            counts,
            warnings: vec![hostile.clone()],
            node: hostile,
            ..well()
        };
        let agents = [agent("n1", Ok(report))];
        for text in [in_depth(&agents), table(&agents, true, None)] {
            assert!(!text.contains('\u{1b}') && !text.contains('\r'), "{text}");
            assert!(text.contains("\\u{1b}[2J\\r"), "{text}");
        }
    }
}
