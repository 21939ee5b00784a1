//! Runs `istio-cnictl kube-inject` within the process.

use clap::Parser;
use istio_cni::cnictl::{self, Command, Streams};
use istio_cni::diagnostics::terminal::Style;
use libtest_mimic::Failed;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Returns standard output for these arguments and this input.
pub(crate) fn kube_inject(arguments: &[&str], mut input: &[u8]) -> Result<String, Failed> {
    let all = ["istio-cnictl", "kube-inject", "-f", "-"].iter().chain(arguments);
    let command = Arguments::try_parse_from(all)?.command;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { input: &mut input, out: &mut out, err: &mut err, style: Style::PLAIN };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(cnictl::run(&command, streams))?;
    Ok(String::from_utf8(out)?)
}
