//! `status`: reports whether the agents of all nodes, or of one node, have problems.
//!
//! Lists the agents' pods and requests their reports through the API server. `assess` finds problems in the reports,
//! `show` formats them.

mod assess;
mod fetch;
mod missing;
mod node;
mod show;

use std::io::IsTerminal as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kube::Client;
use tokio::time::sleep;

use super::configuration::ClusterFlags;
use super::{Error as CommandError, Streams, text};
use assess::Agent;
use fetch::{Fetch, Progress};
use report::node::Report;

pub(super) use node::{NodeFlags, run as explain_node};

/// The escape sequence that clears a terminal.
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

#[derive(Debug, Clone, Args)]
pub struct StatusFlags {
    /// Only the agents of this node, in depth
    #[arg(value_name = "NODE")]
    node: Option<String>,
    /// Namespace of the agents
    #[arg(long, short, default_value = "kube-system")]
    namespace: String,
    /// Search all namespaces for agents
    #[arg(long, short = 'A', conflicts_with = "namespace")]
    all_namespaces: bool,
    /// A table, a table with more columns, JSON or YAML
    #[arg(long, short, default_value = "table")]
    output: Output,
    /// Repeat until interrupted
    #[arg(long, short)]
    watch: bool,
    /// Seconds between two repetitions
    #[arg(long, default_value = "5", value_parser = clap::value_parser!(u64).range(1..=3600))]
    interval: u64,
    /// Seconds to wait for an agent's report
    #[arg(long, default_value = "10", value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
    #[command(flatten)]
    cluster: ClusterFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Wide,
    Json,
    Yaml,
}

/// The agents' state could not be shown, or some agents have problems.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the agents cannot be listed: {0}; is `list` of pods allowed, or only in another namespace (--namespace)?")]
    List(String),
    #[error("no pod has the label {label}{}; is the chart installed, and in that namespace (--namespace, --all-namespaces)?", .namespace.as_ref().map(|name| format!(" in namespace {name}")).unwrap_or_default())]
    NoAgents { label: &'static str, namespace: Option<String> },
    #[error("node {node} has no agent; nodes with one: {known}")]
    NoNode { node: String, known: usize },
    /// Agents have problems or no report. The command has printed their state and ends with exit code 1.
    #[error("{unwell} of {agents} agents have problems; `istio-cnictl status NODE` shows the details of one")]
    Unwell { unwell: usize, agents: usize },
}

pub(super) async fn run(flags: &StatusFlags, mut streams: Streams<'_>) -> Result<(), CommandError> {
    let client = flags.cluster.client(&mut streams).await?;
    let is_terminal = std::io::stdout().is_terminal();
    loop {
        let agents = flags.fetch(&client, &mut streams).await;
        // With `--watch`, an error of the API server is shown, and the request is repeated.
        let shown = match agents {
            Ok(agents) => {
                let text = flags.format(&agents, streams.style.width())?;
                let clear = if flags.watch && is_terminal { CLEAR } else { "" };
                text::write(None, &format!("{clear}{text}"), &mut streams)?;
                assess::verdict(&agents)
            }
            Err(error) => Err(error),
        };
        if !flags.watch {
            return shown.map_err(CommandError::from);
        }
        if let Err(error) = shown {
            // An unwritable warning must not end the command.
            let _ = writeln!(streams.err, "{error}");
        }
        sleep(Duration::from_secs(flags.interval)).await;
    }
}

/// Requests the report of a node's agent. If the node has two agents during an upgrade, returns the report of the agent
/// that serves the node.
///
/// # Errors
/// Why there is no report, as a sentence.
pub(super) async fn report_of(client: Client, node: &str, timeout: Duration) -> Result<Report, String> {
    let mut agents = agents_of(client, node, timeout).await.map_err(|error| error.to_string())?;
    agents.sort_by_key(|agent| !agent.report.as_ref().is_ok_and(|report| report.active));
    let agent = agents.into_iter().next().ok_or_else(|| format!("node {node} has no agent"))?;
    agent.report.map(|report| *report).map_err(|reason| reason.to_string())
}

/// Requests the full reports of a node's agents, in all namespaces.
async fn agents_of(client: Client, node: &str, timeout: Duration) -> Result<Vec<Agent>, Error> {
    let fetch = Fetch { client, namespace: None, node: Some(node.to_owned()), timeout };
    Ok(fetch.agents(&mut Progress::new(&mut std::io::sink(), false)).await?.0)
}

impl StatusFlags {
    async fn fetch(&self, client: &Client, streams: &mut Streams<'_>) -> Result<Vec<Agent>, Error> {
        let fetch = Fetch {
            client: client.clone(),
            namespace: (!self.all_namespaces).then(|| self.namespace.clone()),
            node: self.node.clone(),
            timeout: Duration::from_secs(self.timeout),
        };
        let shows_progress = std::io::stderr().is_terminal();
        let (agents, unknown) = fetch.agents(&mut Progress::new(&mut *streams.err, shows_progress)).await?;
        if let Some(reason) = unknown {
            // An unwritable warning must not end the command.
            let _ = writeln!(streams.err, "nodes without an agent are not known: {reason}");
        }
        Ok(agents)
    }

    fn format(&self, agents: &[Agent], width: Option<usize>) -> Result<String, CommandError> {
        Ok(match self.output {
            Output::Json => text::json(&show::values(agents))?,
            // YAML has one document for each agent.
            Output::Yaml => show::values(agents).into_iter().map(inject::write).collect::<Result<String, _>>()?,
            Output::Table | Output::Wide if self.node.is_some() => show::in_depth(agents),
            Output::Table => show::table(agents, false, width),
            Output::Wide => show::table(agents, true, None),
        })
    }
}
