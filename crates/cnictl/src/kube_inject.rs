//! `kube-inject`: injects sidecars into YAML documents.
//!
//! Documents that are not injected keep their text; messages go only to standard error.

use std::path::PathBuf;

use clap::Args;
use inject::istio::Document;

use super::configuration::{self, Loaded};
use super::{Error, Streams, documents, text};

/// The flags of `istioctl kube-inject`.
#[derive(Debug, Clone, Args)]
pub struct KubeInjectFlags {
    /// File of Kubernetes documents, which may be given more than once; `-` is standard input
    #[arg(long, short, value_name = "FILE")]
    filename: Vec<PathBuf>,
    /// File to write instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Accepted for the sake of Istio's command line
    #[arg(long, short, hide = true)]
    namespace: Option<String>,
    #[command(flatten)]
    configuration: configuration::ConfigurationFlags,
}

pub(super) async fn run(flags: &KubeInjectFlags, mut streams: Streams<'_>) -> Result<(), Error> {
    if flags.filename.is_empty() {
        return Err(Error::NoFile);
    }
    let read = |path: &PathBuf| text::read_or_input(path, &mut streams);
    let inputs = flags.filename.iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let loaded = flags.configuration.load(false, &mut streams).await?;
    let (mut output, mut messages) = (String::new(), String::new());
    for (path, input) in flags.filename.iter().zip(&inputs) {
        let in_file = |cause| match inputs.len() {
            1 => cause,
            _ => Error::InFile { path: path.clone(), cause: Box::new(cause) },
        };
        let (documents, said) = inject(&loaded, input).map_err(in_file)?;
        output += &documents;
        messages += &said;
    }
    text::write(flags.output.as_deref(), &output, &mut streams)?;
    if !messages.is_empty() {
        // The documents are written, so an unwritable warning must not fail the command.
        let _ = write!(streams.err, "\n{messages}");
    }
    Ok(())
}

/// Returns the documents with their sidecars, and messages: the skipped pods with the reasons, and warnings.
fn inject(loaded: &Loaded, input: &str) -> Result<(String, String), Error> {
    let mut messages = String::new();
    let native = |node: Option<&str>| loaded.nodes.have_native_sidecars(node);
    let output = documents::each(input, |number, document| {
        let injected = loaded.injector.inject_document(document, &native);
        match injected.map_err(|cause| Error::InjectDocument { number, cause: Box::new(cause) })? {
            Document::Workload { document, skipped, warnings } => {
                messages.extend(skipped.iter().map(|skipped| format!("===> {skipped}\n")));
                messages.extend(warnings.iter().map(|warning| format!("===> {warning}\n")));
                Ok(Some(document))
            }
            Document::Untouched => Ok(None),
        }
    })?;
    Ok((output, messages))
}
