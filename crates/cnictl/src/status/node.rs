//! `explain node`: the state of a node with the meaning of each part, and the next steps. Formatting is pure.

use std::fmt::Write as _;
use std::time::Duration;

use clap::Args;
use contract::diagnostics::terminal::{Colour, Style, printable};
use podfacts::SkipReason;
use serde_json::{Value, json};

use super::super::configuration::ClusterFlags;
use super::super::form::{Detail, Output};
use super::super::{Error, Streams};
use super::agents_of;
use super::assess::Agent;
use super::show::ready;
use report::node::{Pod, PodState, Report};

/// The time limit of an agent's response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum number of pods with the same verdict in the text; the output form `wide` lists all pods.
const MAX_PODS: usize = 5;

#[derive(Debug, Clone, Args)]
pub(in super::super) struct NodeFlags {
    #[arg(value_name = "NODE")]
    node: String,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    output: Output,
}

pub(in super::super) async fn run(flags: &NodeFlags, streams: &mut Streams<'_>) -> Result<(), Error> {
    let client = flags.cluster.client(streams).await?;
    let agents = agents_of(client, &flags.node, TIMEOUT).await?;
    flags.output.write(&agents, text, json, streams)
}

/// A line of the text: name, colour and value.
type Line = (&'static str, Option<Colour>, String);

fn text(agent: &Agent, detail: Detail, style: Style) -> String {
    let lines = match &agent.report {
        Ok(report) => [state(agent, report), pods(report, detail)].concat(),
        Err(reason) => vec![("agent", Some(Colour::Red), format!("{}: {reason}", place(agent)))],
    };
    let steps = steps(agent).into_iter().map(|step| ("next", None, step));
    let mut text = style.paint(Colour::Bold, &format!("node {}", printable(&agent.node))).into_owned() + "\n";
    for (name, colour, value) in lines.into_iter().chain(steps) {
        let value = printable(&value);
        let value = colour.map_or_else(|| value.to_string(), |colour| style.paint(colour, &value).into_owned());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:<11} {value}", format!("{name}:"));
    }
    text
}

fn place(agent: &Agent) -> String {
    if agent.pod.is_empty() { "none".to_owned() } else { format!("{}/{}", agent.namespace, agent.pod) }
}

/// Returns the lines about the agent and its installation.
fn state(agent: &Agent, report: &Report) -> Vec<Line> {
    let is_ready = report.not_ready.is_empty();
    let readiness = match (is_ready, report.active) {
        (true, false) => "standby: another agent serves the node during an upgrade".to_owned(),
        (true, true) => ready(report).to_owned(),
        (false, _) => format!("no: {}", report.not_ready.join("; ")),
    };
    let chain = report.chain.as_deref().unwrap_or("no file is known to have the plugin's entry");
    let backend = report.backend.as_deref().unwrap_or("not known before the first redirection");
    let warnings = report.warnings.iter().map(|warning| ("warning", Some(Colour::Yellow), warning.clone()));
    let lines = [
        ("agent", None, format!("{}, version {}, since {}", place(agent), report.version, report.started)),
        ("ready", Some(if is_ready { Colour::Green } else { Colour::Red }), readiness),
        ("chain", None, chain.to_owned()),
        ("backend", None, backend.to_owned()),
    ];
    lines.into_iter().chain(warnings).collect()
}

/// Returns the lines about the pods by verdict.
fn pods(report: &Report, detail: Detail) -> Vec<Line> {
    let mut lines = vec![("redirected", None, report.counts.redirected.to_string())];
    for (reason, number) in &report.counts.skipped {
        let meaning = SkipReason::ALL.into_iter().find(|known| known.as_str() == reason).map(SkipReason::meaning);
        let meaning = meaning.map(|meaning| format!(" ({meaning})")).unwrap_or_default();
        lines.push(("skipped", None, format!("{number}: {reason}{meaning}")));
    }
    for (verdict, name, colour) in [
        (PodState::Failed, "failed", Colour::Red),
        (PodState::Drifted, "drifted", Colour::Red),
        (PodState::Unknown, "unknown", Colour::Yellow),
    ] {
        let limit = if detail == Detail::Wide { usize::MAX } else { MAX_PODS };
        let found = with(report, verdict);
        for pod in found.iter().take(limit) {
            let problem = pod.problem.as_deref().unwrap_or(&pod.reason);
            lines.push((name, Some(colour), format!("{}: {problem}", pod.name)));
        }
        if found.len() > limit {
            lines.push((name, Some(colour), format!("{} more; -o wide shows them", found.len() - limit)));
        }
    }
    if report.repair.broken > 0 {
        let text = format!("{} pods started without redirection and wait for repair", report.repair.broken);
        lines.push(("broken", Some(Colour::Red), text));
    }
    lines
}

fn with(report: &Report, verdict: PodState) -> Vec<&Pod> {
    report.pods.iter().filter(|pod| pod.verdict == verdict).collect()
}

/// Returns the next steps for the problems of a node; none for a node without problems.
fn steps(agent: &Agent) -> Vec<String> {
    let Agent { namespace, pod, .. } = agent;
    let report = match &agent.report {
        Ok(report) => report,
        Err(_) if pod.is_empty() => return Vec::new(),
        Err(_) => return vec![format!("kubectl logs -n {namespace} {pod}")],
    };
    let mut steps = Vec::new();
    if !report.not_ready.is_empty() {
        steps.push(format!("kubectl logs -n {namespace} {pod}; istio-cnictl check names the remedies"));
    }
    let named = |pod: &Pod| pod.name.split_once('/').map(|(namespace, name)| (namespace.to_owned(), name.to_owned()));
    if let Some((namespace, name)) = with(report, PodState::Failed).first().and_then(|pod| named(pod)) {
        steps.push(format!("istio-cnictl explain {name} -n {namespace} explains the plugin's decision"));
    }
    if let Some((namespace, name)) = with(report, PodState::Drifted).first().and_then(|pod| named(pod)) {
        steps.push(format!("kubectl delete pod {name} -n {namespace}, so that a new pod replaces it"));
    }
    steps
}

fn json(agent: &Agent) -> Value {
    let mut json =
        json!({ "node": agent.node, "agent": place(agent), "problems": agent.problems(), "next": steps(agent) });
    if let Ok(report) = &agent.report {
        json["report"] = json!(report);
    }
    json
}

#[cfg(test)]
mod tests {
    use super::super::assess::Unreported;
    use super::*;
    use report::node::Counts;

    fn agent(report: Result<Report, Unreported>) -> Agent {
        Agent { node: "n1".into(), namespace: "s".into(), pod: "agent-1".into(), report: report.map(Box::new) }
    }

    #[test]
    fn a_node_in_order_has_the_meaning_of_each_reason_and_no_next_step() {
        let counts =
            Counts { redirected: 2, skipped: [("no_proxy".into(), 3), ("new".into(), 1)].into(), ..Counts::default() };
        let (version, started) = ("0.1.0".into(), "T".into());
        let chain = Some("/etc/cni/net.d/10-x.conflist".into());
        let warnings = vec!["set cniConfDir".into()];
        let report = Report { version, started, active: true, chain, counts, warnings, ..Report::default() };
        let expected = "\
node n1
  agent:      s/agent-1, version 0.1.0, since T
  ready:      yes
  chain:      /etc/cni/net.d/10-x.conflist
  backend:    not known before the first redirection
  warning:    set cniConfDir
  redirected: 2
  skipped:    1: new
  skipped:    3: no_proxy (it has no container istio-proxy)
";
        assert_eq!(text(&agent(Ok(report)), Detail::Usual, Style::PLAIN), expected);
    }

    #[test]
    fn each_problem_has_its_next_step_and_pods_are_limited_and_escaped() {
        let pod = |verdict, number: usize| Pod {
            name: format!("shop/\u{1b}web-{number}"),
            verdict,
            problem: Some("bad".into()),
            ..Pod::default()
        };
        let mut pods: Vec<Pod> = (0..7).map(|number| pod(PodState::Failed, number)).collect();
        pods.push(pod(PodState::Drifted, 9));
        let report = Report { not_ready: vec!["install: x".into()], pods, ..Report::default() };
        let unwell = agent(Ok(report));
        let usual = text(&unwell, Detail::Usual, Style::PLAIN);
        assert!(!usual.contains('\u{1b}'), "{usual}");
        for part in [
            "  ready:      no: install: x\n",
            "  failed:     shop/\\u{1b}web-4: bad\n",
            "  failed:     2 more; -o wide shows them\n",
            "  drifted:    shop/\\u{1b}web-9: bad\n",
            "  next:       kubectl logs -n s agent-1; ",
            "  next:       istio-cnictl explain \\u{1b}web-0 -n shop",
            "  next:       kubectl delete pod \\u{1b}web-9 -n shop",
        ] {
            assert!(usual.contains(part), "no {part:?} in\n{usual}");
        }
        assert!(text(&unwell, Detail::Wide, Style::PLAIN).contains("web-6: bad"));
        let away = text(&agent(Err(Unreported::Disabled)), Detail::Usual, Style::PLAIN);
        assert!(
            away.contains("agent-1: the agent serves no report") && away.contains("next:       kubectl logs"),
            "{away}"
        );
    }
}
