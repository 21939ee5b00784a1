//! Runs `istio-cnictl` within the process.

use clap::Parser;
use cnictl::{self, Command, Error, Streams};
use contract::diagnostics::terminal::Style;
use libtest_mimic::Failed;

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// Returns the standard output of `kube-inject` for these arguments and this input.
pub(crate) fn kube_inject(arguments: &[&str], input: &[u8]) -> Result<String, Failed> {
    let (out, result) = run("kube-inject", arguments, input)?;
    result?;
    Ok(out)
}

/// Checks by `explain` that each pod in these documents can start.
pub(crate) fn explain(arguments: &[&str], input: &[u8]) -> Result<(), Failed> {
    let arguments: Vec<&str> = ["-n", "shop"].iter().chain(arguments).copied().collect();
    let (out, result) = run("explain", &arguments, input)?;
    result.map_err(|error| format!("{error}\n{out}").into())
}

/// Returns the standard output of a command that reads this input, and its result.
fn run(command: &str, arguments: &[&str], mut input: &[u8]) -> Result<(String, Result<(), Error>), Failed> {
    let all = ["istio-cnictl", command, "-f", "-"].into_iter().chain(arguments.iter().copied());
    let command = Arguments::try_parse_from(all)?.command;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let streams = Streams { input: &mut input, out: &mut out, err: &mut err, style: Style::PLAIN };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(cnictl::run(&command, streams));
    Ok((String::from_utf8(out)?, result))
}
