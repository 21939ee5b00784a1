//! `istio-cnictl`: what people ask of injection and redirection, answered from files or from a cluster.
//!
//! Only the binary calls it. It shows what the other rooms decide, and changes nothing but the file that it is told to write.

mod configuration;
mod dapr;
mod dapr_inject;
mod describe;
mod documents;
mod explain;
mod kube_inject;
mod text;

use std::io::{self, Read, Write};
use std::path::PathBuf;

use crate::inject;
use crate::inject::istio;
use crate::serve::cluster;

pub use dapr_inject::Flags as DaprInject;
pub use explain::Flags as Explain;
pub use kube_inject::Flags as KubeInject;

/// What is asked.
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
}

/// The streams of the process.
pub struct Streams<'a> {
    /// Standard input, for `-`.
    pub input: &'a mut dyn Read,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing to read was named.
    #[error("filename not specified (see --filename or -f)")]
    NoFile,
    /// A file cannot be read or written.
    #[error("{what} {}: {cause}", path.display())]
    File {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// Standard input or output.
    #[error("{what}: {cause}")]
    Stream {
        /// Which.
        what: &'static str,
        /// Why not.
        cause: io::Error,
    },
    /// The text is not one of documents.
    #[error(transparent)]
    Separator(#[from] inject::Separator),
    /// A document is no YAML, or a workload that the API server would refuse.
    #[error("document {number} {cause}")]
    Document {
        /// Counted from 1.
        number: usize,
        /// Why not.
        cause: inject::ReadError,
    },
    /// A document has no pod.
    #[error("document {number} has no pod: expected a Pod, or a workload with a template of pods")]
    NoPod {
        /// Counted from 1.
        number: usize,
    },
    /// The injection.
    #[error(transparent)]
    Inject(#[from] istio::Error),
    /// Dapr's injection.
    #[error("{kind} {name:?}: {refusal}")]
    Dapr {
        /// Of the workload.
        kind: String,
        /// Of the workload.
        name: String,
        /// Why not.
        refusal: String,
    },
    /// Sidecars of Dapr would not know whom to trust.
    #[error("the trust anchors of Dapr's mesh are not known: name their file (--daprTrustAnchors)")]
    NoTrustAnchors,
    /// The settings of Dapr's injection.
    #[error("{0} (--daprImage, --daprNamespace, --daprSet)")]
    DaprSettings(crate::inject::dapr::SettingsError),
    /// A patch of ours.
    #[error(transparent)]
    Misfit(#[from] inject::Misfit),
    /// What was injected cannot be written.
    #[error(transparent)]
    Write(#[from] inject::WriteError),
    /// The configuration.
    #[error("loading {what}: {cause}")]
    Configuration {
        /// Flag or ConfigMap.
        what: String,
        /// Why not.
        cause: istio::Error,
    },
    /// A part of the configuration is given by nobody.
    #[error(
        "{flags} must be set, or a cluster be named that has ConfigMap {map:?} (--kubeconfig): no cluster is known"
    )]
    NotGiven {
        /// The flags of files that give it.
        flags: &'static str,
        /// The ConfigMap that gives it.
        map: String,
    },
    /// Templates are never asked of a webhook.
    #[error(
        "--webhookConfig is not supported, for no webhook is called for its templates: name them by --injectConfigFile, or \
         their ConfigMap by --revision or --injectConfigMapName"
    )]
    WebhookConfig,
    /// There is no way to the API server.
    #[error(transparent)]
    Cluster(#[from] cluster::Error),
    /// The API server does not give it.
    #[error(
        "could not read {what}: {reason}; name files instead (--injectConfigFile), or --kubeconfig another cluster"
    )]
    Ask {
        /// What was asked for.
        what: String,
        /// Why not.
        reason: String,
    },
    /// A pod's facts.
    #[error(transparent)]
    Pod(#[from] crate::pod::ExtractError),
    /// JSON that cannot be written.
    #[error("the answer cannot be written: {0}")]
    Json(serde_json::Error),
}

/// Answers.
///
/// # Errors
/// There is no answer; nothing but warnings has been written then.
pub async fn run(command: &Command, streams: Streams<'_>) -> Result<(), Error> {
    match command {
        Command::KubeInject(flags) => kube_inject::run(flags, streams).await,
        Command::DaprInject(flags) => dapr_inject::run(flags, streams),
        Command::Explain(flags) => explain::run(flags, streams).await,
    }
}
