//! The commands of `istio-cnictl`: inject and explain pods from files or a cluster, and check a cluster.
//!
//! Only the binary calls this crate. The commands write no file except the output file that a flag names.

mod add;
mod check;
mod completion;
mod configuration;
mod dapr;
mod dapr_inject;
mod decision;
mod describe;
mod documents;
mod explain;
mod form;
mod kube_inject;
mod live;
mod next;
mod parameters;
mod purpose;
mod runtime_class;
mod status;
mod text;
mod trace;
mod validation;
mod workload;

use std::io::{self, Read, Write};
use std::path::PathBuf;

use contract::diagnostics::chain;
use contract::diagnostics::terminal::Style;
use inject::istio;
use serve::cluster;

pub use check::CheckFlags;
pub use completion::CompletionFlags;
pub use dapr_inject::DaprInjectFlags;
pub use explain::ExplainFlags;
pub use kube_inject::KubeInjectFlags;
pub use status::StatusFlags;
pub use trace::TraceFlags;

const EXAMPLES: &str = "Examples:
    istio-cnictl check
    istio-cnictl explain web-0 -n shop
    istio-cnictl trace web-0 -n shop --outbound 198.51.100.7:80
    istio-cnictl kube-inject -f web.yaml";

/// Injects sidecars into documents, and explains the decisions about pods.
#[derive(clap::Parser)]
#[command(name = "istio-cnictl", version, args_override_self = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Program {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Put the sidecar into the pods of YAML documents
    #[command(name = "kube-inject")]
    KubeInject(Box<KubeInjectFlags>),
    /// Inject Dapr's sidecar into the pods of YAML documents that request it
    #[command(name = "dapr-inject")]
    DaprInject(DaprInjectFlags),
    /// Say whether pods get a sidecar and are redirected, by which rule, and to which kernel rules; ends with exit code 3 if a pod cannot start
    Explain(ExplainFlags),
    /// Show whether the agents of all nodes, or of one, are well, and what they have done; also as `kubectl istiocni status`
    Status(StatusFlags),
    /// Say which rule takes a connection of a pod to which port
    Trace(Box<TraceFlags>),
    /// Say whether the cluster is ready for redirection, before and after the installation; fails if a check does
    Check(CheckFlags),
    /// Print the completion of commands and flags for a shell
    Completion(CompletionFlags),
}

/// The process's standard streams.
pub struct Streams<'a> {
    pub input: &'a mut dyn Read,
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
    /// The style of `out`.
    pub style: Style,
}

/// The reason why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("filename not specified (see --filename or -f)")]
    NoFile,
    #[error("no connection specified (see --inbound and --outbound)")]
    NoConnection,
    #[error("{what} {}: {cause}", path.display())]
    File {
        /// The operation.
        what: &'static str,
        path: PathBuf,
        cause: io::Error,
    },
    #[error("{what}: {cause}")]
    Stream {
        /// The operation and stream.
        what: &'static str,
        cause: io::Error,
    },
    /// The input cannot be split into documents.
    #[error(transparent)]
    Separator(#[from] inject::Separator),
    /// A document is invalid YAML or a workload that the API server would refuse.
    #[error("document {number} {cause}")]
    Document {
        /// The document's number, from 1.
        number: usize,
        cause: inject::ReadError,
    },
    #[error("document {number} has no pod: expected a Pod, or a workload with a template of pods")]
    NoPod {
        /// The document's number, from 1.
        number: usize,
    },
    #[error(transparent)]
    Inject(#[from] istio::Error),
    /// A workload in a document cannot be injected.
    #[error("document {number}: {cause}")]
    InjectDocument {
        /// The document's number, from 1.
        number: usize,
        cause: Box<istio::Error>,
    },
    /// Dapr's injection refuses a workload.
    #[error("document {number}: {kind} {name:?}: {refusal}")]
    Dapr {
        /// The document's number, from 1.
        number: usize,
        kind: String,
        name: String,
        refusal: String,
    },
    #[error("the trust anchors of Dapr's mesh are not known: name their file (--daprTrustAnchors)")]
    NoTrustAnchors,
    /// Invalid settings of Dapr's injection.
    #[error(
        "{}; --daprImage sets SIDECAR_IMAGE, --daprNamespace sets NAMESPACE, and --daprSet any variable",
        chain(.0)
    )]
    DaprSettings(::dapr::SettingsError),
    #[error(transparent)]
    Patch(#[from] inject::PatchError),
    /// A value cannot be serialized.
    #[error(transparent)]
    Write(#[from] inject::WriteError),
    /// An injected document cannot be serialized.
    #[error("document {number}: {cause}")]
    WriteDocument {
        /// The document's number, from 1.
        number: usize,
        cause: Box<inject::WriteError>,
    },
    /// Invalid injection configuration.
    #[error("loading {what}: {cause}")]
    Configuration {
        /// The flag or ConfigMap that contains it.
        what: String,
        cause: istio::Error,
    },
    /// A part of the configuration is in no file, and no cluster is known.
    #[error("ConfigMap {map:?} cannot be read, because no cluster is known: set {flags}, or --kubeconfig")]
    NotGiven {
        /// The flags that name its file.
        flags: &'static str,
        /// The ConfigMap that contains it.
        map: String,
    },
    /// A flag names a ConfigMap that is not read, because files contain all of its parts.
    #[error("{flag} names a ConfigMap that is not read, because {files} replace all of it: omit {flag} or these files")]
    MapNotRead {
        flag: &'static str,
        /// The flags that name the files.
        files: &'static str,
    },
    /// A flag names a ConfigMap, but no cluster is known.
    #[error("{flag} names ConfigMap {map:?}, but no cluster is known: set --kubeconfig")]
    MapWithoutCluster { flag: &'static str, map: String },
    #[error(
        "--webhookConfig is not supported, because istio-cnictl reads no templates from a webhook: name them with \
         --injectConfigFile, or their ConfigMap with --revision or --injectConfigMapName"
    )]
    WebhookConfig,
    /// There is no file, no cluster, and no flag that requests the built-in configuration.
    #[error(
        "no configuration of the injection is known: {0}, or all files \
         (--injectConfigFile, --valuesFile, --meshConfigFile), or use the configuration that is compiled in (--builtIn)"
    )]
    NoConfiguration(cluster::Error),
    /// A command with several files failed at this file.
    #[error("{}: {cause}", path.display())]
    InFile { path: PathBuf, cause: Box<Error> },
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The agents' state cannot be shown, or some agents have problems.
    #[error(transparent)]
    Status(#[from] status::Error),
    /// An object cannot be read from the API server.
    #[error(
        "could not read {what}: {reason}; name files instead (--injectConfigFile), or another cluster (--kubeconfig)"
    )]
    Unread {
        /// The object, for messages.
        what: String,
        reason: String,
    },
    #[error(transparent)]
    Pod(#[from] podfacts::ExtractError),
    /// The rules to trace cannot be parsed.
    #[error("{what}: {cause}")]
    Rules { what: String, cause: redirect::trace::Error },
    #[error(transparent)]
    Netns(#[from] podnet::netns::Error),
    /// The rules of a netns cannot be read.
    #[error(transparent)]
    Converge(#[from] podnet::converge::Error),
    #[error("the output cannot be written: {0}")]
    Json(serde_json::Error),
    /// A saved call of the plugin cannot be parsed.
    #[error(transparent)]
    Call(#[from] cni::Error),
    #[error("CNI_COMMAND of the saved environment is not ADD: save the environment of an ADD")]
    NoAdd,
    /// The webhook or the plugin refuses pods, or their validation failed. The command has printed the explanations.
    #[error("{unstartable} of {explained} pods cannot start as they are")]
    Unstartable { unstartable: usize, explained: usize },
    /// Checks failed. The printed report names the remedies.
    #[error("checks failed: {0}")]
    Checks(usize),
}

impl Error {
    /// Returns the process's exit code: 3 if explained pods cannot start, otherwise 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Unstartable { .. } => 3,
            _ => 1,
        }
    }
}

/// Runs a command.
///
/// # Errors
/// The command failed, or wrote a report of pods that cannot start, agents with problems or failed checks.
pub async fn run(command: &Command, streams: Streams<'_>) -> Result<(), Error> {
    match command {
        Command::KubeInject(flags) => kube_inject::run(flags, streams).await,
        Command::DaprInject(flags) => dapr_inject::run(flags, streams),
        Command::Explain(flags) => explain::run(flags, streams).await,
        Command::Status(flags) => status::run(flags, streams).await,
        Command::Trace(flags) => trace::run(flags, streams).await,
        Command::Check(flags) => check::run(flags, streams).await,
        Command::Completion(flags) => completion::run(flags, streams.out),
    }
}
