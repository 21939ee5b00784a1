//! `trace`: reports which rule redirects a pod's connection to which port.
//!
//! The rules are those that `explain` computes for pods, or come from a file in the format of `iptables-save` or from a
//! netns on this node.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args, ValueEnum};
use contract::diagnostics::terminal::printable;
use contract::port;
use podnet::converge;
use podnet::netns::{Netns, addresses};
use redirect::istio;
use redirect::trace::{Connection, Direction, EPHEMERAL_PORT, Effect, Hop, Ruleset, Trace, Verdict, trace};
use ruleset::{Proto, restore};
use serde_json::{Value, json};

use super::decision::{Explained, Redirection};
use super::explain::Pods;
use super::text::Output;
use super::{Error, Streams, text};

const EXAMPLES: &str = "Examples:
    istio-cnictl trace web-0 -n shop --outbound 198.51.100.7:80
    istio-cnictl trace --netns /proc/4711/ns/net --inbound 10.0.0.7:8080 --all";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
#[command(group(ArgGroup::new("direction").args(["inbound", "outbound"])))]
#[command(group(ArgGroup::new("source_of_rules").args(["rules", "netns"]).conflicts_with_all(["filename", "pod"])))]
pub struct TraceFlags {
    /// A connection to the pod: its address and port
    #[arg(long, value_name = "ADDRESS:PORT")]
    inbound: Option<SocketAddr>,
    /// A connection of a process of the pod to this address and port
    #[arg(long, value_name = "ADDRESS:PORT")]
    outbound: Option<SocketAddr>,
    #[arg(long, default_value = "tcp")]
    protocol: Protocol,
    /// User of the process
    #[arg(long, default_value_t = 1000)]
    uid: u32,
    /// Group of the process; by default the number of its user
    #[arg(long)]
    gid: Option<u32>,
    /// Source address; by default one that no rule of Istio names
    #[arg(long, value_name = "ADDRESS")]
    from: Option<IpAddr>,
    /// Interface of the pod; by default lo for its own addresses, else eth0
    #[arg(long)]
    interface: Option<String>,
    /// File of rules as iptables-save prints them (ip6tables-save for an IPv6 address); `-` is standard input
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,
    /// Path of a network namespace of this node, whose rules are read from the kernel; needs root
    #[arg(long, value_name = "PATH")]
    netns: Option<PathBuf>,
    /// Print each evaluated rule, with the condition that does not hold
    #[arg(long)]
    all: bool,
    /// Text for people, or JSON
    #[arg(long, short, default_value = "text")]
    output: Output,
    #[command(flatten)]
    pods: Pods,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Protocol {
    Tcp,
    Udp,
}

/// The rules of one pod, one file, or one backend in a netns.
struct Source {
    /// The name of the pod, the file, or the netns and backend, for messages.
    name: String,
    /// The pod's own addresses, as far as they are known.
    ips: Vec<IpAddr>,
    rules: Rules,
}

enum Rules {
    /// The rules in the format of `iptables-save`.
    Text(String),
    /// The pod has no rules, for this reason.
    None(String),
}

pub(super) async fn run(flags: &TraceFlags, mut streams: Streams<'_>) -> Result<(), Error> {
    let destination = flags.inbound.or(flags.outbound).ok_or(Error::NoConnection)?;
    let sources = flags.sources(destination, &mut streams).await?;
    let traced = sources.iter().map(|source| flags.trace(source, destination)).collect::<Result<Vec<_>, _>>()?;
    let output = match flags.output {
        Output::Text => traced.iter().map(|traced| traced.text(flags.all)).collect::<Vec<_>>().join("\n"),
        Output::Json => text::json(&traced.iter().map(Traced::json).collect::<Vec<Value>>())?,
    };
    text::write(None, &output, &mut streams)
}

impl TraceFlags {
    async fn sources(&self, destination: SocketAddr, streams: &mut Streams<'_>) -> Result<Vec<Source>, Error> {
        if let Some(path) = &self.rules {
            let rules = Rules::Text(text::read_or_input(path, streams)?);
            return Ok(vec![Source { name: format!("rules of {}", path.display()), ips: Vec::new(), rules }]);
        }
        if let Some(path) = &self.netns {
            return live(path, destination);
        }
        Ok(self.pods.explain(streams).await?.into_iter().map(|pod| of_pod(pod, destination)).collect())
    }

    fn trace(&self, source: &Source, destination: SocketAddr) -> Result<Traced, Error> {
        let connection = self.connection(destination, &source.ips);
        let result = match &source.rules {
            Rules::None(reason) => Err(reason.clone()),
            Rules::Text(text) => {
                let rules = Ruleset::parse(text);
                let rules = rules.map_err(|cause| Error::Rules { what: source.name.clone(), cause })?;
                Ok(trace(&rules, &connection))
            }
        };
        Ok(Traced { source: source.name.clone(), connection, result })
    }

    fn connection(&self, destination: SocketAddr, own: &[IpAddr]) -> Connection {
        let is_own = destination.ip().is_loopback() || own.contains(&destination.ip());
        let interface = self.interface.clone();
        let direction = match self.outbound {
            None => Direction::Inbound { interface: interface.unwrap_or_else(|| "eth0".to_owned()) },
            Some(_) => Direction::Outbound {
                interface: interface.unwrap_or_else(|| if is_own { "lo" } else { "eth0" }.to_owned()),
                uid: self.uid,
                gid: self.gid.unwrap_or(self.uid),
            },
        };
        let protocol = match self.protocol {
            Protocol::Tcp => Proto::Tcp,
            Protocol::Udp => Proto::Udp,
        };
        // For a connection to one of the pod's own addresses, the kernel chooses the same address as the source. Other
        // connections get a source that no rule names, from TEST-NET-1 or 2001:db8::.
        let assumed = match destination.ip() {
            own if is_own && self.outbound.is_some() => own,
            IpAddr::V4(_) => Ipv4Addr::new(192, 0, 2, 1).into(),
            IpAddr::V6(_) => Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(),
        };
        let source = SocketAddr::new(self.from.unwrap_or(assumed), EPHEMERAL_PORT);
        Connection { direction, protocol, source, destination }
    }
}

/// Reads the rules of a netns from the kernel, for each backend that has rules in it.
fn live(path: &Path, destination: SocketAddr) -> Result<Vec<Source>, Error> {
    let family = redirect::trace::family(destination);
    let read = || Ok::<_, converge::Error>((addresses::read()?, converge::saved(family, &istio::OWNED)?));
    let (ips, saved) = Netns::open(path)?.enter(read)??;
    let name = |backend: &str| format!("rules of mangle, nat and raw in {} ({backend})", path.display());
    let source = |(backend, text)| Source {
        name: name(netfilter::Backend::as_str(backend)),
        ips: ips.clone(),
        rules: Rules::Text(text),
    };
    Ok(saved.into_iter().map(source).collect())
}

fn of_pod(pod: Explained, destination: SocketAddr) -> Source {
    let name = format!("pod {}", pod.subject());
    let rules = match pod.redirection {
        Redirection::Yes { rules, .. } => Rules::Text(restore::render(&rules, redirect::trace::family(destination))),
        other => Rules::None(other.sentence()),
    };
    Source { name, ips: pod.ips, rules }
}

/// A connection and its path through the rules.
struct Traced {
    source: String,
    connection: Connection,
    /// The path, or why the pod has no rules.
    result: Result<Trace, String>,
}

impl Traced {
    fn text(&self, all: bool) -> String {
        let mut text = format!("{}\n  {}\n", printable(&self.source), described(&self.connection));
        match &self.result {
            Err(reason) => {
                let _ = writeln!(text, "  not redirected: {}", printable(reason));
            }
            Ok(Trace { hops, verdict }) => {
                let shown = hops.iter().filter(|hop| all || !matches!(hop.effect, Effect::NoMatch { .. }));
                text.push_str(&columns(&shown.collect::<Vec<_>>()));
                let _ = writeln!(text, "  {}", sentence(verdict, &self.connection));
            }
        }
        text
    }

    fn json(&self) -> Value {
        let mut json = json!({ "rules": self.source, "connection": described(&self.connection) });
        match &self.result {
            Err(reason) => json["reason"] = json!(reason),
            Ok(Trace { hops, verdict }) => {
                json["path"] = hops.iter().map(hop_json).collect();
                json["verdict"] = json!(word(verdict));
                json["port"] = json!(accepted_on(verdict));
                json["sentence"] = json!(sentence(verdict, &self.connection));
            }
        }
        json
    }
}

fn described(connection: &Connection) -> String {
    let Connection { direction, protocol, source, destination } = connection;
    let protocol = protocol.as_str();
    match direction {
        Direction::Inbound { interface } => {
            format!("inbound {protocol} from {source} to {destination}, through {interface}")
        }
        Direction::Outbound { interface, uid, gid } => {
            format!("outbound {protocol} from {source} to {destination}, uid {uid}, gid {gid}, through {interface}")
        }
    }
}

/// Formats rules in aligned columns: table, chain, number, effect, rule.
fn columns(hops: &[&Hop]) -> String {
    let width = |of: &dyn Fn(&Hop) -> usize| hops.iter().map(|hop| of(hop)).max().unwrap_or(0);
    let chain_width = width(&|hop| hop.chain.len());
    let effect_width = width(&|hop| effect(&hop.effect).len());
    let mut text = String::new();
    for hop in hops {
        let number = hop.number.map_or_else(String::new, |number| number.to_string());
        let (effect, Hop { table, chain, rule, .. }) = (effect(&hop.effect), hop);
        let rule = printable(rule);
        let _ = writeln!(text, "  {table:<6} {chain:<chain_width$} {number:>3}  {effect:<effect_width$}  {rule}");
    }
    text
}

fn effect(effect: &Effect) -> String {
    match effect {
        Effect::NoMatch { condition } => format!("no match: {condition}"),
        Effect::Undetermined { condition } => format!("not known here: {condition}"),
        Effect::Match { action } => action.clone(),
    }
}

fn hop_json(hop: &Hop) -> Value {
    let Hop { table, chain, number, rule, effect: of_rule } = hop;
    let matches = match of_rule {
        Effect::Match { .. } => json!(true),
        Effect::NoMatch { .. } => json!(false),
        Effect::Undetermined { .. } => Value::Null,
    };
    json!({
        "table": table, "chain": chain, "number": number, "rule": rule, "matches": matches, "effect": effect(of_rule),
    })
}

/// Returns the verdict as one word, for programs.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Direct => "direct",
        Verdict::Redirected { .. } => "redirected",
        Verdict::Transparent { .. } => "transparent",
        Verdict::Rewritten { .. } => "rewritten",
        Verdict::Dropped => "dropped",
        Verdict::Undetermined => "undetermined",
    }
}

/// Returns the port of the pod that accepts a redirected connection.
fn accepted_on(verdict: &Verdict) -> Option<u16> {
    match verdict {
        Verdict::Redirected { port } | Verdict::Transparent { port } => Some(*port),
        _ => None,
    }
}

fn sentence(verdict: &Verdict, connection: &Connection) -> String {
    let destination = connection.destination;
    match verdict {
        Verdict::Direct => format!("not redirected: the listener on {destination} accepts it"),
        Verdict::Redirected { port } => format!("redirected to port {port} of the pod{}", purpose(*port)),
        Verdict::Transparent { port } => {
            format!("redirected to port {port} of the pod{}, with its source and destination", purpose(*port))
        }
        Verdict::Rewritten { to } => format!("sent to {to} instead, by a rule that is not Istio's"),
        Verdict::Dropped => "dropped".to_owned(),
        Verdict::Undetermined => "undetermined: the last rule depends on state that only the kernel has".to_owned(),
    }
}

/// Returns the purpose of a usual port of the proxy or the agent, to complete a sentence; empty for other ports.
fn purpose(port: u16) -> &'static str {
    match port {
        port::OUTBOUND => ", the proxy's for outbound connections",
        port::INBOUND => ", the proxy's for inbound connections",
        port::DNS => ", the agent's for DNS",
        _ => "",
    }
}
