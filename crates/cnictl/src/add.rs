//! `explain add`: reports the plugin's decision on a saved call.
//!
//! Parses environment and standard input as the plugin does. If the plugin would look up the pod, reads the pod from a
//! file or from the cluster.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use clap::Args;
use cni::{Call, NetConf, Target};
use contract::annotation;
use contract::diagnostics::terminal::{Style, printable};
use plugin::{Early, before_lookup};
use podfacts::SkipReason;
use podfacts::{PodName, is_sandbox};
use serde_json::{Value, json};

use super::configuration::ClusterFlags;
use super::decision::{Explained, Injection, Redirection, actual, redirect};
use super::form::{Detail, Output};
use super::runtime_class::sandbox_of;
use super::workload::read_pod;
use super::{Error, Streams, documents, text};

#[derive(Debug, Clone, Args)]
pub(super) struct AddFlags {
    /// File of the plugin's standard input; `-` is standard input
    #[arg(long, value_name = "FILE")]
    stdin: PathBuf,
    /// File of the plugin's environment: lines NAME=VALUE, or /proc/PID/environ
    #[arg(long, value_name = "FILE")]
    environment: PathBuf,
    /// File of the pod; by default the pod of the cluster that CNI_ARGS names
    #[arg(long, short, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// The pod has IPv6 addresses, too
    #[arg(long)]
    ipv6: bool,
    #[command(flatten)]
    cluster: ClusterFlags,
    #[command(flatten)]
    output: Output,
}

pub(super) async fn run(flags: &AddFlags, mut streams: Streams<'_>) -> Result<(), Error> {
    let environment = environment(&text::read(&flags.environment)?);
    let input = text::read_or_input(&flags.stdin, &mut streams)?;
    let Call::Add(target) = Call::parse(&|name| environment.get(name).cloned())? else { return Err(Error::NoAdd) };
    let conf = NetConf::parse(input.as_bytes())?;
    let decision = match before_lookup(&target.pod, &conf) {
        Early::Skip(reason) => Decision::Early(reason),
        Early::Lookup(pod) => {
            Decision::OfPod(Box::new(of_pod(flags, &pod, &target, conf.settings.refuse_sandboxes, &mut streams).await?))
        }
    };
    let add = [Add { target, network: conf.name.clone(), backend: backend(&conf), decision }];
    flags.output.write(&add, Add::text, Add::json, &mut streams)?;
    match &add[0].decision {
        Decision::Early(_) => Ok(()),
        Decision::OfPod(explained) => Explained::check(std::iter::once(&**explained)),
    }
}

/// Parses lines `NAME=VALUE`, or the NUL-terminated entries of `/proc/PID/environ`.
fn environment(text: &str) -> BTreeMap<String, String> {
    let entries = text.split(['\0', '\n']).filter_map(|entry| entry.split_once('='));
    entries.map(|(name, value)| (name.trim().to_owned(), value.trim_end_matches('\r').to_owned())).collect()
}

/// Returns a description of the packet filter backend that the chain entry selects.
fn backend(conf: &NetConf<'_>) -> &'static str {
    match (conf.settings.native_nftables, conf.settings.iptables_binary) {
        (true, _) => "native tables of nftables",
        (false, Some(contract::IptablesBinary::Legacy)) => "iptables-legacy",
        (false, Some(contract::IptablesBinary::Nft)) => "iptables-nft",
        (false, None) => "chosen by the rules that the network namespace has; usually iptables-nft",
    }
}

/// Explains the decision about the pod of a call. `refuses`: whether the chain entry refuses pods with a sandboxed
/// runtime.
async fn of_pod(
    flags: &AddFlags,
    name: &PodName,
    target: &Target,
    refuses: bool,
    streams: &mut Streams<'_>,
) -> Result<Explained, Error> {
    let (pod, client) = match &flags.filename {
        Some(path) => {
            let found = documents::all(&text::read_or_input(path, streams)?)?.into_iter().next();
            (found.ok_or(Error::NoPod { number: 1 })?, None)
        }
        None => {
            let client = flags.cluster.client(streams).await?;
            (read_pod(client.clone(), &name.namespace, &name.name).await?, Some(client))
        }
    };
    let node = None;
    let is_injected = !pod["metadata"]["annotations"][annotation::STATUS].is_null();
    let injection = match is_injected {
        true => Injection::Already,
        false => Injection::No { rule: "status", reason: format!("it has no annotation {}", annotation::STATUS) },
    };
    let uid = pod["metadata"]["uid"].as_str();
    let redirection = match (&target.pod.uid, uid) {
        (Some(sandbox), Some(uid)) if sandbox != uid => {
            Redirection::Fails(format!("the sandbox is of the pod with UID {sandbox}, and the pod has {uid}"))
        }
        _ => match redirect(&pod, &pod, flags.ipv6) {
            decided @ Redirection::Yes { .. } => {
                let sandbox = sandbox_of(client.as_ref(), &pod).await;
                let refused = if refuses { refusal(sandbox, name, &pod) } else { None };
                refused.map_or_else(|| actual(decided, &pod, sandbox), Redirection::Fails)
            }
            decided => decided,
        },
    };
    let PodName { namespace, name } = name.clone();
    let (ips, warnings) = (Vec::new(), Vec::new());
    Ok(Explained {
        namespace,
        name,
        node,
        ips,
        injection,
        dapr: None,
        warnings,
        redirection,
        live: None,
        validation: None,
    })
}

/// Returns the error of a chain entry that refuses sandboxed runtimes; `None` if the pod's runtime class is not sandboxed. Unlike the
/// node's agent, the command does not know the programs of handlers, so the handler or the name of the class decides.
fn refusal(sandbox: Option<bool>, name: &PodName, pod: &Value) -> Option<String> {
    let class = pod["spec"]["runtimeClassName"].as_str()?;
    let is_refused = sandbox.unwrap_or_else(|| is_sandbox(class));
    let error = || plugin::Error::Sandbox { pod: name.clone(), sandbox: format!("runtime class {class}") };
    is_refused.then(|| error().to_string())
}

/// The explanation of a saved call.
struct Add {
    target: Target,
    network: String,
    backend: &'static str,
    decision: Decision,
}

enum Decision {
    /// The plugin skips the pod without a lookup, because of the request or the plugin's configuration.
    Early(SkipReason),
    OfPod(Box<Explained>),
}

impl Add {
    fn text(&self, detail: Detail, style: Style) -> String {
        let Target { attachment, netns, .. } = &self.target;
        let mut text = format!("ADD of {} in container {}\n", attachment.ifname, printable(&attachment.container_id));
        let _ = writeln!(text, "  netns:      {}", printable(&netns.display().to_string()));
        let _ = writeln!(text, "  network:    {}", printable(&self.network));
        let _ = writeln!(text, "  backend:    {}", self.backend);
        match &self.decision {
            Decision::Early(reason) => {
                let _ = writeln!(text, "  redirected: no: {reason} ({}); the pod is not looked up", reason.meaning());
            }
            Decision::OfPod(explained) => text += &explained.text(detail, style),
        }
        text
    }

    fn json(&self) -> Value {
        let Target { attachment, netns, .. } = &self.target;
        let mut json = json!({
            "container": attachment.container_id, "interface": attachment.ifname, "netns": netns, "network": self.network,
            "backend": self.backend,
        });
        match &self.decision {
            Decision::Early(reason) => {
                json["redirection"] = json!({ "redirected": false, "reason": reason.as_str() });
                json["lookup"] = json!(false);
            }
            Decision::OfPod(explained) => {
                json["pod"] = explained.json();
                json["lookup"] = json!(true);
            }
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environments_are_lines_or_entries_of_proc() {
        let expected = [("CNI_ARGS", "A=b;C=d"), ("CNI_COMMAND", "ADD")];
        let expected: BTreeMap<_, _> =
            expected.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        for text in [
            "CNI_COMMAND=ADD\nCNI_ARGS=A=b;C=d\n",
            "CNI_COMMAND=ADD\0CNI_ARGS=A=b;C=d\0",
            "CNI_ARGS=A=b;C=d\r\n\nCNI_COMMAND=ADD",
        ] {
            assert_eq!(environment(text), expected, "{text:?}");
        }
    }
}
