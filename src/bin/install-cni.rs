//! `install-cni`: installs the CNI plugin on a node, maintains it, serves it and uninstalls it.

#![expect(clippy::disallowed_methods, reason = "reads the environment's settings of terminals")]

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::{env, io};

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use contract::diagnostics::terminal::Style;
use contract::diagnostics::{Documented, LogScope};
use istio_cni::daemon::{self, Check, Command, Output, Program, Uninstall};
use istio_cni::{agent, check, in_place, install};
use serve::log::{self, Log};

/// The scopes of the program's modules.
const LOG_SCOPES: [LogScope; 7] = [
    LogScope::new(module_path!(), "default"),
    agent::LOG_SCOPE,
    daemon::LOG_SCOPE,
    in_place::LOG_SCOPE,
    install::LOG_SCOPE,
    repair::LOG_SCOPE,
    serve::LOG_SCOPE,
];

fn main() -> ExitCode {
    let Program { command, daemon } = Program::parse();
    let ended = match command {
        Some(Command::Check(flags)) => return check(*flags),
        Some(Command::Uninstall(flags)) => uninstall(*flags),
        None => serve(daemon),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let docs = error.downcast_ref::<daemon::Error>().map(Documented::page);
            tracing::error!(docs = docs.as_deref(), "{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: daemon::AgentFlags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async {
        let log = start_log(&flags.log);
        let (settings, warnings) = daemon::AgentSettings::parse(flags)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(daemon::run(settings, log).await?)
    });
    // A thread that hangs in the node's file system must not block the process's exit.
    runtime.shutdown_background();
    ended
}

fn uninstall(flags: Uninstall) -> anyhow::Result<()> {
    start_log(&flags.log);
    Ok(daemon::uninstall(flags.install.removal())?)
}

/// Checks the node and prints the findings. Fails if a check has failed, or if the findings cannot be printed.
fn check(flags: Check) -> ExitCode {
    let report = check::node::decide(&check::gather(flags.install.removal()));
    let style =
        Style::of(io::stdout().is_terminal(), env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref());
    let text = match flags.output {
        Output::Text => report.text(style),
        Output::Json => format!("{:#}\n", report.json()),
    };
    let printed = io::stdout().write_all(text.as_bytes());
    if printed.is_ok() && report.failed() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Starts the log. Later errors could not be reported without a log, so if it cannot be started, the program exits as
/// it does for invalid arguments.
fn start_log(flags: &log::LogFlags) -> Log {
    Log::start(flags, &LOG_SCOPES).unwrap_or_else(|error| Program::command().error(ErrorKind::Io, error).exit())
}
