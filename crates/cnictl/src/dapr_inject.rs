//! `dapr-inject`: injects Dapr's sidecars into YAML documents as `/mutate` does.
//!
//! Documents that are not injected keep their text; warnings go only to standard error.

use std::path::PathBuf;

use ::dapr::{Decision, WorkloadReview, inject_document};
use clap::Args;

use super::{Error, Streams, dapr, documents, text};

#[derive(Debug, Clone, Args)]
pub struct DaprInjectFlags {
    /// File of Kubernetes documents; `-` is standard input
    #[arg(long, short, value_name = "FILE")]
    filename: Option<PathBuf>,
    /// File to write instead of standard output
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Namespace of workloads that name none
    #[arg(long, short, default_value = "default")]
    namespace: String,
    #[command(flatten)]
    dapr: dapr::DaprFlags,
}

pub(super) fn run(flags: &DaprInjectFlags, mut streams: Streams<'_>) -> Result<(), Error> {
    let input = text::read_or_input(flags.filename.as_deref().ok_or(Error::NoFile)?, &mut streams)?;
    let loaded = flags.dapr.load(&documents::all(&input)?)?;
    let mut reviews = Vec::new();
    let output = documents::each(&input, |number, mut document| {
        let (facts, earlier) = (loaded.facts(), reviews.len());
        let changed = inject_document(&mut document, &flags.namespace, &loaded.settings, &facts, &mut reviews)?;
        match reviews[earlier..].iter().find_map(refused) {
            Some((review, refusal)) => {
                let (kind, name) = (review.kind.clone(), review.name.clone());
                Err(Error::Dapr { number, kind, name, refusal: refusal.to_string() })
            }
            None => Ok(changed.then_some(document)),
        }
    })?;
    text::write(flags.output.as_deref(), &output, &mut streams)?;
    for warning in loaded.settings.warnings.iter().cloned().chain(reviews.iter().flat_map(lines)) {
        // The documents are written, so an unwritable warning must not fail the command.
        let _ = writeln!(streams.err, "===> {warning}");
    }
    Ok(())
}

fn refused(review: &WorkloadReview) -> Option<(&WorkloadReview, &Decision)> {
    (!review.decision.is_allowed()).then_some((review, &review.decision))
}

fn lines(WorkloadReview { kind, name, warnings, .. }: &WorkloadReview) -> impl Iterator<Item = String> {
    warnings.iter().map(move |warning| format!("{kind} {name:?}: {warning}"))
}
