//! `kube-inject`: YAML in, the same with sidecars out.
//!
//! Documents that nobody injects pass as the text that they were; warnings go to standard error alone.

use std::path::PathBuf;

use clap::Args;

use super::configuration::{self, Loaded};
use super::{Error, Streams, documents, text};
use crate::inject::istio::Document;

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
    let (output, told) = inject(&loaded, &input)?;
    text::write(flags.output.as_deref(), &output, &mut streams)?;
    if !told.is_empty() {
        // The documents are written: nothing that happens to a warning undoes that.
        let _ = write!(streams.err, "\n{told}");
    }
    Ok(())
}

/// The documents with their sidecars, and what is said about those that get none and about annotations that were passed over.
fn inject(loaded: &Loaded, input: &str) -> Result<(String, String), Error> {
    let mut told = String::new();
    let native = |node: Option<&str>| loaded.nodes.have_native_sidecars(node);
    let output = documents::each(input, |document| match loaded.injector.inject_document(document, &native)? {
        Document::Workload { document, skipped, warnings } => {
            told.extend(skipped.iter().map(|skipped| format!("===> {skipped}\n")));
            told.extend(warnings.iter().map(|warning| format!("===> {warning}\n")));
            Ok(Some(document))
        }
        Document::Untouched => Ok(None),
    })?;
    Ok((output, told))
}
