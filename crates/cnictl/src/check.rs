//! `check`: whether a cluster is ready for redirection, before and after the installation.
//!
//! `gather` reads from the API server, `decide` derives the findings. The check changes nothing. `install-cni check`
//! checks a node in the same way.
#![expect(clippy::disallowed_methods, reason = "reads the clock, by which certificates end")]

mod decide;
mod gather;
mod rights;

use std::time::SystemTime;

use clap::Args;

use super::configuration::ClusterFlags;
use super::text::Output;
use super::{Error, Streams, text};
use decide::decide;

const EXAMPLES: &str = "Examples:
    istio-cnictl check
    istio-cnictl check -n istio-system --context staging -o json";

#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CheckFlags {
    /// Namespace of the DaemonSet
    #[arg(long, short, default_value = "kube-system")]
    namespace: String,
    #[command(flatten)]
    cluster: ClusterFlags,
    /// Text for people, or JSON
    #[arg(long, short, default_value = "text")]
    output: Output,
}

pub(super) async fn run(flags: &CheckFlags, mut streams: Streams<'_>) -> Result<(), Error> {
    let client = flags.cluster.client(&mut streams).await?;
    let facts = gather::gather(&client, &flags.namespace).await;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let report = decide(&facts, i64::try_from(now).unwrap_or(i64::MAX));
    let output = match flags.output {
        Output::Text => report.text(streams.style),
        Output::Json => format!("{:#}\n", report.json()),
    };
    text::write(None, &output, &mut streams)?;
    match report.failed() {
        0 => Ok(()),
        failed => Err(Error::Checks(failed)),
    }
}
