//! `kube-inject`: YAML in, the same with sidecars out.
//!
//! Documents that nobody injects pass as the text that they were; warnings go to standard error alone.

use std::path::PathBuf;

use clap::Args;

use super::{Error, Streams, configuration, documents, text};
use crate::inject::istio::{Document, Injector, Reason, Skipped};

/// Flags, under the names of Istio's tool.
#[derive(Debug, Clone, Args)]
pub struct Flags {
    /// File of Kubernetes documents; `-` is standard input
    #[arg(long, short, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// File to write instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Accepted for the sake of Istio's command line
    #[arg(long, short, hide = true)]
    namespace: Option<String>,
    #[command(flatten)]
    configuration: configuration::Flags,
}

pub(super) async fn run(flags: &Flags, mut streams: Streams<'_>) -> Result<(), Error> {
    let input = text::read_or_input(flags.filename.as_deref().ok_or(Error::NoFile)?, &mut streams)?;
    let loaded = flags.configuration.load(false, &mut streams).await?;
    let (output, skipped) = inject(&loaded.injector, loaded.native_sidecars, &input)?;
    text::write(flags.output.as_deref(), &output, &mut streams)?;
    let warnings: String = skipped.iter().map(warning).collect();
    if !warnings.is_empty() {
        // The documents are written: nothing that happens to a warning undoes that.
        let _ = write!(streams.err, "\n{warnings}");
    }
    Ok(())
}

/// The documents with their sidecars, and the workloads that get none.
fn inject(injector: &Injector, native_sidecars: bool, input: &str) -> Result<(String, Vec<Skipped>), Error> {
    let mut all = Vec::new();
    let output = documents::each(input, |document| match injector.inject_document(document, native_sidecars)? {
        Document::Workload { document, skipped } => {
            all.extend(skipped);
            Ok(Some(document))
        }
        Document::Untouched => Ok(None),
    })?;
    Ok((output, all))
}

/// In Istio's words.
fn warning(skipped: &Skipped) -> String {
    let Skipped { kind, name, decision } = skipped;
    let why = match decision.reason {
        Reason::HostNetwork => "has host networking enabled",
        _ => "has sidecar injection disabled",
    };
    format!("===> Skipping injection because {kind} \"{name}\" {why}\n")
}
