//! `explain`: reports the injection and redirection of a pod, and the rules that decide them.
//!
//! Calls the functions of the webhook and the plugin. A pod without a sidecar is injected first, as the webhook would.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use serde_json::{Value, json};

use super::configuration::{self, Loaded, in_time};
use super::describe::{Explained, Injection, Redirection};
use super::{Error, Streams, dapr, documents, text};
use crate::contract::{self, annotation};
use crate::inject::dapr::{Decision, Skip, User, review};
use crate::inject::istio::{Injected, InjectionOutcome, Request};
use crate::inject::{self, apply};
use crate::plugin::{self, Verdict};
use crate::pod::PodFacts;
use crate::rules;

#[derive(Debug, Clone, Args)]
pub struct Flags {
    #[command(flatten)]
    pods: Pods,
    /// Text for people, or JSON
    #[arg(long, short, default_value = "text")]
    output: Output,
}

/// The pods of a command, and how they are injected.
#[derive(Debug, Clone, Args)]
pub(super) struct Pods {
    /// File of pods, or of workloads with a template of pods; `-` is standard input
    #[arg(long, short, value_name = "FILE", conflicts_with = "pod")]
    filename: Option<PathBuf>,
    /// A pod of the cluster
    #[arg(value_name = "POD")]
    pod: Option<String>,
    /// The pod's namespace, where it names none
    #[arg(long, short, default_value = "default")]
    namespace: String,
    /// The pod has IPv6 addresses, too
    #[arg(long)]
    ipv6: bool,
    #[command(flatten)]
    configuration: configuration::Flags,
    #[command(flatten)]
    dapr: dapr::Flags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    Text,
    Json,
}

pub(super) async fn run(flags: &Flags, mut streams: Streams<'_>) -> Result<(), Error> {
    let explained = flags.pods.explain(&mut streams).await?;
    let answer = match flags.output {
        Output::Text => explained.iter().map(Explained::text).collect::<Vec<_>>().join("\n"),
        Output::Json => text::json(&explained.iter().map(Explained::json).collect::<Vec<Value>>())?,
    };
    text::write(None, &answer, &mut streams)
}

impl Pods {
    /// Reads the pods, and decides on the injection and redirection of each; at least one.
    pub(super) async fn explain(&self, streams: &mut Streams<'_>) -> Result<Vec<Explained>, Error> {
        let loaded = self.configuration.load(self.pod.is_some(), streams).await?;
        let documents = match (&self.pod, &loaded.client) {
            (Some(name), Some(client)) => vec![live(client.clone(), &self.namespace, name).await?],
            _ => documents::all(&text::read_or_input(self.filename.as_deref().ok_or(Error::NoFile)?, streams)?)?,
        };
        let injectors = Injectors { dapr: self.dapr.load_to_explain(&documents)?, istio: loaded };
        let pods: Vec<Value> = documents.into_iter().flat_map(pods_of).collect();
        if pods.is_empty() {
            return Err(Error::NoPod { number: 1 });
        }
        pods.iter().map(|pod| explain(pod, self, &injectors)).collect()
    }
}

async fn live(client: kube::Client, namespace: &str, name: &str) -> Result<Value, Error> {
    let pods = Api::<Pod>::namespaced(client, namespace);
    let pod = in_time(|| format!("pod {namespace}/{name}"), pods.get(name)).await?;
    serde_json::to_value(pod).map_err(Error::Json)
}

/// The injectors.
struct Injectors {
    istio: Loaded,
    dapr: dapr::Loaded,
}

/// Returns the pods of a document: itself, its items or its template.
fn pods_of(document: Value) -> Vec<Value> {
    if let Some(items) = document.get("items").and_then(Value::as_array) {
        return items.iter().cloned().flat_map(pods_of).collect();
    }
    let templates = ["/spec/jobTemplate/spec/template", "/spec/template"];
    match templates.iter().find_map(|pointer| document.pointer(pointer)) {
        Some(template) => {
            let mut pod = template.clone();
            // A template has no name, so the workload's name identifies it.
            let (name, namespace) = (&document["metadata"]["name"], &document["metadata"]["namespace"]);
            if let Some(metadata) = pod.as_object_mut().map(|pod| pod.entry("metadata").or_insert_with(|| json!({})))
                && let Some(metadata) = metadata.as_object_mut()
            {
                metadata.insert("name".to_owned(), name.clone());
                metadata.insert("namespace".to_owned(), namespace.clone());
                metadata.retain(|_, value| !value.is_null());
            }
            vec![pod]
        }
        None if document.pointer("/spec/containers").is_some() => vec![document],
        None => Vec::new(),
    }
}

fn explain(pod: &Value, flags: &Pods, injectors: &Injectors) -> Result<Explained, Error> {
    let namespace = pod["metadata"]["namespace"].as_str().unwrap_or(&flags.namespace);
    let name = ["name", "generateName"].iter().find_map(|key| pod["metadata"][*key].as_str()).unwrap_or("?");
    let subject = format!("{namespace}/{name}");
    let mut warnings = Vec::new();
    let (injection, pod) = inject_istio(pod, namespace, &injectors.istio, &mut warnings);
    let (dapr, pod) = inject_dapr(pod, namespace, &injectors.dapr, &mut warnings)?;
    let fails = |injection: &Injection| matches!(injection, Injection::Fails(_));
    let refused = fails(&injection) || dapr.as_ref().is_some_and(fails);
    let redirection = if refused { Redirection::NoPod } else { redirect(&pod, flags.ipv6)? };
    Ok(Explained { subject, ips: ips(&pod), injection, dapr, warnings, redirection })
}

/// Returns the addresses of a pod that has a network.
fn ips(pod: &Value) -> Vec<IpAddr> {
    let all = pod["status"]["podIPs"].as_array().into_iter().flatten();
    all.filter_map(|entry| entry["ip"].as_str()?.parse().ok()).collect()
}

/// Returns the webhook's decision and the injected pod.
fn inject_istio(pod: &Value, namespace: &str, loaded: &Loaded, warnings: &mut Vec<String>) -> (Injection, Value) {
    if !pod["metadata"]["annotations"][annotation::STATUS].is_null() {
        return (Injection::Already, pod.clone());
    }
    let native_sidecars = loaded.nodes.have_native_sidecars(pod["spec"]["nodeName"].as_str());
    let request = Request { native_sidecars, ..Request::new(pod, namespace) };
    match loaded.injector.review(&request) {
        Ok(InjectionOutcome::Skipped(decision)) => {
            warnings.extend(decision.warning.iter().map(ToString::to_string));
            (Injection::No { rule: decision.reason.label(), reason: decision.reason.to_string() }, pod.clone())
        }
        Ok(InjectionOutcome::Injected { decision, injected: Injected { pod: injected, warnings: ignored, .. } }) => {
            warnings.extend(decision.warning.iter().map(ToString::to_string).chain(ignored));
            let (rule, reason) = (decision.reason.label(), decision.reason.to_string());
            (Injection::Yes { rule, reason, added: added(pod, &injected) }, injected)
        }
        Err(error) => (Injection::Fails(error.to_string()), pod.clone()),
    }
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
    let request = inject::dapr::Request { kind: "Pod", namespace, user: User::master(), object: Some(&pod) };
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

/// Returns the plugin's decision.
fn redirect(pod: &Value, ipv6: bool) -> Result<Redirection, Error> {
    let facts = PodFacts::from_pod_json(pod.to_string().as_bytes())?;
    Ok(match plugin::of_pod(&facts) {
        Err(error) => Redirection::Fails(error.to_string()),
        Ok(Verdict::Skip(reason)) => Redirection::No(reason),
        Ok(Verdict::Redirect { redirect, warnings }) => {
            let built = rules::build(&redirect, ipv6);
            let warnings = warnings.iter().map(ToString::to_string);
            let warnings = warnings.chain(built.warnings.iter().map(ToString::to_string)).collect();
            Redirection::Yes { redirect, rules: built.rules, warnings }
        }
    })
}
