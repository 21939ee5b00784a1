//! `explain`: reports the injection and redirection of a pod, and the rules that decide them.
//!
//! Calls the functions of the webhook and the plugin. A pod without a sidecar is injected first, as by the webhook.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use ::dapr::{Decision, Skip, User, review};
use clap::{Args, Subcommand};
use contract::annotation;
use inject::apply;
use inject::istio::policy::Reason;
use inject::istio::{Injected, InjectionOutcome, Request, with_derived_resources};
use kube::Client;
use serde_json::Value;

use super::configuration::{self, Loaded};
use super::decision::{Explained, Injection, Redirection, actual, redirect};
use super::form::Output;
use super::live::Live;
use super::runtime_class::sandbox_of;
use super::validation::FailedValidation;
use super::workload::{Workload, pods_of, read_pod};
use super::{Error, Streams, add, dapr, documents, status, text};

const EXAMPLES: &str = "Examples:
    istio-cnictl explain web-0 -n shop
    istio-cnictl explain deployment/web -n shop
    istio-cnictl explain pod deployment.yaml --builtIn -o wide
    istio-cnictl explain node worker-1
    istio-cnictl explain add --stdin stdin.json --environment environ --filename pod.yaml";

#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true, after_help = EXAMPLES)]
pub struct ExplainFlags {
    #[command(subcommand)]
    subject: Option<Subject>,
    #[command(flatten)]
    pod: Box<PodFlags>,
}

#[derive(Debug, Clone, Subcommand)]
enum Subject {
    /// Explain pods and workloads of files, standard input or the cluster; as without `pod`
    Pod(Box<PodFlags>),
    /// Explain the state of a node: its agent, its pods by verdict and reason, and the next steps
    Node(status::NodeFlags),
    /// Explain the plugin's decision on a saved call: its environment and standard input
    Add(Box<add::AddFlags>),
}

#[derive(Debug, Clone, Args)]
struct PodFlags {
    #[command(flatten)]
    pods: Pods,
    #[command(flatten)]
    output: Output,
}

/// The pods of a command, and how they are injected.
#[derive(Debug, Clone, Args)]
pub(super) struct Pods {
    /// File of pods, or of workloads with a template of pods; `-` is standard input
    #[arg(long, short, value_name = "FILE", conflicts_with = "pod")]
    filename: Option<PathBuf>,
    /// A pod of the cluster, or a workload as `deployment/NAME`; or `-`, another path with a slash, or a name that ends with .yaml, .yml or .json, for a file
    #[arg(value_name = "POD")]
    pod: Option<String>,
    /// The pod's namespace, where it names none
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// The pod has IPv6 addresses, too
    #[arg(long)]
    ipv6: bool,
    #[command(flatten)]
    configuration: configuration::ConfigurationFlags,
    #[command(flatten)]
    dapr: dapr::DaprFlags,
}

pub(super) async fn run(flags: &ExplainFlags, mut streams: Streams<'_>) -> Result<(), Error> {
    match &flags.subject {
        Some(Subject::Add(flags)) => add::run(flags, streams).await,
        Some(Subject::Node(flags)) => status::explain_node(flags, &mut streams).await,
        Some(Subject::Pod(flags)) => flags.run(&mut streams).await,
        None => flags.pod.run(&mut streams).await,
    }
}

impl PodFlags {
    async fn run(&self, streams: &mut Streams<'_>) -> Result<(), Error> {
        let (mut explained, client) = self.pods.read(streams).await?;
        // A pod from a workload's template has no node, like a pod that is not scheduled yet, so no agent reports a
        // state of it.
        for pod in &mut explained {
            if let (Some(client), Some(node)) = (&client, &pod.node) {
                pod.live = Some(Live::request(client.clone(), node, &pod.subject()).await);
            }
        }
        self.output.write(&explained, Explained::text, Explained::json, streams)?;
        Explained::check(explained.iter())
    }
}

/// The source of the pods that the command line names.
enum Named<'a> {
    File(&'a Path),
    Pod(&'a str),
    Workload(Workload<'a>),
}

impl Pods {
    /// Reads the pods, and decides on the injection and redirection of each. Returns at least one explanation.
    pub(super) async fn explain(&self, streams: &mut Streams<'_>) -> Result<Vec<Explained>, Error> {
        Ok(self.read(streams).await?.0)
    }

    /// Like [`Self::explain`], and also returns the client of the cluster if the pods are from the cluster.
    async fn read(&self, streams: &mut Streams<'_>) -> Result<(Vec<Explained>, Option<Client>), Error> {
        let named = self.named()?;
        let loaded = self.configuration.load(!matches!(named, Named::File(_)), streams).await?;
        let (documents, client) = match (named, loaded.client.clone()) {
            (Named::File(path), _) => (documents::all(&text::read_or_input(path, streams)?)?, None),
            (_, None) => return Err(Error::NoFile),
            (Named::Pod(name), Some(client)) => {
                (vec![read_pod(client.clone(), &self.namespace, name).await?], Some(client))
            }
            (Named::Workload(workload), Some(client)) => {
                (vec![workload.read(client.clone(), &self.namespace).await?], Some(client))
            }
        };
        let injectors = Injectors { dapr: self.dapr.load_to_explain(&documents)?, istio: loaded };
        let pods: Vec<Value> = documents.into_iter().flat_map(pods_of).collect();
        if pods.is_empty() {
            return Err(Error::NoPod { number: 1 });
        }
        let mut explained = Vec::new();
        for pod in &pods {
            let sandbox = sandbox_of(injectors.istio.client.as_ref(), pod).await;
            explained.push(explain(pod, sandbox, self, &injectors)?);
        }
        Ok((explained, client))
    }

    fn named(&self) -> Result<Named<'_>, Error> {
        let name = match (&self.filename, &self.pod) {
            (Some(path), _) => return Ok(Named::File(path)),
            (None, Some(name)) => name,
            (None, None) => return Err(Error::NoFile),
        };
        if name == "-" || is_document(name) {
            return Ok(Named::File(Path::new(name)));
        }
        Ok(match (Workload::parse(name), name.strip_prefix("pod/")) {
            (Some(workload), _) => Named::Workload(workload),
            (None, Some(pod)) => Named::Pod(pod),
            (None, None) if name.contains('/') => Named::File(Path::new(name)),
            (None, None) => Named::Pod(name),
        })
    }
}

fn is_document(name: &str) -> bool {
    [".yaml", ".yml", ".json"].iter().any(|extension| name.ends_with(extension))
}

/// The injectors of Istio's and Dapr's sidecars.
struct Injectors {
    istio: Loaded,
    dapr: dapr::Loaded,
}

fn explain(pod: &Value, sandbox: Option<bool>, flags: &Pods, injectors: &Injectors) -> Result<Explained, Error> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or(&flags.namespace);
    let name = ["name", "generateName"].iter().find_map(|key| pod["metadata"][*key].as_str()).unwrap_or("?");
    let mut warnings = Vec::new();
    let (injection, injected) = inject_istio((pod, sandbox), namespace, &injectors.istio, &mut warnings);
    let (dapr, injected) = inject_dapr(injected, namespace, &injectors.dapr, &mut warnings)?;
    let fails = |injection: &Injection| matches!(injection, Injection::Fails(_));
    let refused = fails(&injection) || dapr.as_ref().is_some_and(fails);
    let redirection = match redirect(&injected, pod, flags.ipv6) {
        _ if refused => Redirection::NoPod,
        redirection => actual(redirection, &injected, sandbox),
    };
    let checked = match injection {
        Injection::Already => injectors.istio.injector.check(pod, namespace, sandbox),
        _ => Ok(()),
    };
    let redirection = checked.map_or_else(|error| Redirection::Fails(error.to_string()), |()| redirection);
    let (namespace, name, ips) = (namespace.to_owned(), name.to_owned(), ips(&injected));
    let node = pod["spec"]["nodeName"].as_str().map(str::to_owned);
    let validation = FailedValidation::of(pod);
    Ok(Explained { namespace, name, node, ips, injection, dapr, warnings, redirection, live: None, validation })
}

/// Returns the pod's addresses; none before the pod has a network.
fn ips(pod: &Value) -> Vec<IpAddr> {
    let all = pod["status"]["podIPs"].as_array().into_iter().flatten();
    all.filter_map(|entry| entry["ip"].as_str()?.parse().ok()).collect()
}

/// Returns the webhook's decision and the injected pod. `sandbox`: see [`Request::sandbox`].
fn inject_istio(
    (pod, sandbox): (&Value, Option<bool>),
    namespace: &str,
    loaded: &Loaded,
    warnings: &mut Vec<String>,
) -> (Injection, Value) {
    if !pod["metadata"]["annotations"][annotation::STATUS].is_null() {
        warnings.extend(loaded.injector.warnings(pod, namespace, sandbox));
        if let Reason::IgnoredNamespace(_) = loaded.injector.decide(pod, namespace).reason {
            warnings.push(in_system_namespace(namespace));
        }
        return (Injection::Already, pod.clone());
    }
    let native_sidecars = loaded.nodes.have_native_sidecars(pod["spec"]["nodeName"].as_str());
    let pod = &with_derived_resources(pod);
    let request = Request { native_sidecars, sandbox, ..Request::new(pod, namespace) };
    match loaded.injector.review(&request) {
        Ok(InjectionOutcome::Skipped(decision)) => {
            warnings.extend(decision.warnings.iter().map(ToString::to_string));
            (Injection::No { rule: decision.reason.label(), reason: decision.reason.to_string() }, pod.clone())
        }
        Ok(InjectionOutcome::Injected { decision, injected: Injected { pod: injected, warnings: ignored, .. } }) => {
            warnings.extend(decision.warnings.iter().map(ToString::to_string).chain(ignored));
            let (rule, reason) = (decision.reason.label(), decision.reason.to_string());
            (Injection::Yes { rule, reason, added: added(pod, &injected) }, injected)
        }
        Err(error) => (Injection::Fails(error.to_string()), pod.clone()),
    }
}

fn in_system_namespace(namespace: &str) -> String {
    format!(
        "namespace {namespace} is a system namespace, in which no pod is injected; the plugin skips the pods of its \
         excludeNamespaces, by default those of kube-system"
    )
}

/// Returns the decision of Dapr's webhook, if the pod uses Dapr, and the injected pod.
fn inject_dapr(
    pod: Value,
    namespace: &str,
    loaded: &dapr::Loaded,
    warnings: &mut Vec<String>,
) -> Result<(Option<Injection>, Value), Error> {
    if pod["metadata"]["annotations"][contract::dapr::ENABLED].is_null() {
        return Ok((None, pod));
    }
    let request = ::dapr::Request { kind: "Pod", namespace, user: User::master(), object: Some(&pod) };
    let outcome = review(&request, &loaded.settings, &loaded.facts());
    warnings.extend(outcome.warnings);
    let (rule, reason) = (outcome.decision.reason(), outcome.decision.to_string());
    Ok(match outcome.decision {
        Decision::Inject { .. } => {
            let injected = apply(pod.clone(), &outcome.patch)?;
            (Some(Injection::Yes { rule, reason, added: added(&pod, &injected) }), injected)
        }
        Decision::Skip(Skip::AlreadyInjected(_)) => (Some(Injection::Already), pod),
        Decision::Skip(_) => (Some(Injection::No { rule, reason }), pod),
        Decision::Refuse(_) => (Some(Injection::Fails(reason)), pod),
    })
}

/// Returns the names of the injected containers.
fn added(before: &Value, after: &Value) -> Vec<String> {
    let names = |pod: &Value| -> Vec<String> {
        let lists = ["initContainers", "containers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
        lists.flatten().filter_map(|container| container["name"].as_str().map(str::to_owned)).collect()
    };
    let injectors = names(before);
    names(after).into_iter().filter(|name| !injectors.contains(name)).collect()
}
