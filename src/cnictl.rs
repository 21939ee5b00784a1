//! The commands of `istio-cnictl`: inject and explain pods from files or a cluster.
//!
//! Only the binary calls it. It applies the decisions of other modules and writes only the requested output file.

mod configuration;
mod dapr;
mod dapr_inject;
mod describe;
mod documents;
mod explain;
mod kube_inject;
mod text;
mod trace;

use std::io::{self, Read, Write};
use std::path::PathBuf;

use crate::inject;
use crate::inject::istio;
use crate::serve::cluster;

pub use dapr_inject::Flags as DaprInject;
pub use explain::Flags as Explain;
pub use kube_inject::Flags as KubeInject;
pub use trace::Flags as Trace;

/// Injects sidecars into documents, and explains what becomes of pods.
#[derive(clap::Parser)]
#[command(name = "istio-cnictl", args_override_self = true, arg_required_else_help = true)]
pub struct Program {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
pub enum Command {
    /// Put the sidecar into the pods of YAML documents
    #[command(name = "kube-inject")]
    KubeInject(KubeInject),
    /// Put Dapr's sidecar into the pods of YAML documents that ask for it
    #[command(name = "dapr-inject")]
    DaprInject(DaprInject),
    /// Say whether pods get a sidecar and are redirected, by which rule, and to which kernel rules
    Explain(Explain),
    /// Say which rule takes a connection of a pod to which port
    Trace(Trace),
}

/// The process's standard streams.
pub struct Streams<'a> {
    pub input: &'a mut dyn Read,
    pub out: &'a mut dyn Write,
    pub err: &'a mut dyn Write,
}

/// The command failed.
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
    /// The text cannot be split into documents.
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
    /// Dapr's injection refuses a workload.
    #[error("{kind} {name:?}: {refusal}")]
    Dapr { kind: String, name: String, refusal: String },
    #[error("the trust anchors of Dapr's mesh are not known: name their file (--daprTrustAnchors)")]
    NoTrustAnchors,
    /// Invalid settings of Dapr's injection.
    #[error("{0} (--daprImage, --daprNamespace, --daprSet)")]
    DaprSettings(crate::inject::dapr::SettingsError),
    #[error(transparent)]
    Patch(#[from] inject::PatchError),
    /// The injected document cannot be serialized.
    #[error(transparent)]
    Write(#[from] inject::WriteError),
    /// Invalid injection configuration.
    #[error("loading {what}: {cause}")]
    Configuration {
        /// The flag or ConfigMap.
        what: String,
        cause: istio::Error,
    },
    /// A part of the configuration has neither a file nor a cluster.
    #[error(
        "{flags} must be set, or a cluster be named that has ConfigMap {map:?} (--kubeconfig): no cluster is known"
    )]
    NotGiven {
        /// The flags that name its file.
        flags: &'static str,
        /// The ConfigMap that contains it.
        map: String,
    },
    #[error(
        "--webhookConfig is not supported, for no webhook is called for its templates: name them by --injectConfigFile, or \
         their ConfigMap by --revision or --injectConfigMapName"
    )]
    WebhookConfig,
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// An object cannot be read from the API server.
    #[error(
        "could not read {what}: {reason}; name files instead (--injectConfigFile), or --kubeconfig another cluster"
    )]
    Ask {
        /// The object, for messages.
        what: String,
        reason: String,
    },
    #[error(transparent)]
    Pod(#[from] crate::pod::ExtractError),
    /// The rules to trace cannot be parsed.
    #[error("{what}: {cause}")]
    Rules { what: String, cause: crate::trace::Error },
    #[error(transparent)]
    Netns(#[from] crate::netns::Error),
    /// The rules of a netns cannot be read.
    #[error(transparent)]
    Converge(#[from] crate::converge::Error),
    #[error("the answer cannot be written: {0}")]
    Json(serde_json::Error),
}

/// Runs a command.
///
/// # Errors
/// The command failed; only warnings have been written.
pub async fn run(command: &Command, streams: Streams<'_>) -> Result<(), Error> {
    match command {
        Command::KubeInject(flags) => kube_inject::run(flags, streams).await,
        Command::DaprInject(flags) => dapr_inject::run(flags, streams),
        Command::Explain(flags) => explain::run(flags, streams).await,
        Command::Trace(flags) => trace::run(flags, streams).await,
    }
}
