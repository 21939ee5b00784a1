//! `install-cni`: installs the CNI plugin on a node, maintains it, serves it and uninstalls it.

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser as _};
use istio_cni::daemon::{self, Command, Program, Uninstall};
use istio_cni::serve::log::{self, Log};

fn main() -> ExitCode {
    let Program { command, daemon } = Program::parse();
    let ended = match command {
        Some(Command::Uninstall(flags)) => uninstall(*flags),
        None => serve(daemon),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: daemon::Flags) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let ended = runtime.block_on(async {
        let log = start_log(&flags.log);
        let (settings, warnings) = daemon::Settings::parse(flags)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        Ok(daemon::run(settings, log).await?)
    });
    // A thread that hangs in the node's file system must not block the process's exit.
    runtime.shutdown_background();
    ended
}

fn uninstall(flags: Uninstall) -> anyhow::Result<()> {
    start_log(&flags.log);
    Ok(daemon::uninstall(&flags.install.removal())?)
}

/// Starts the log. Without it, errors could not be reported, so a failure exits like invalid arguments.
fn start_log(flags: &log::Flags) -> Log {
    Log::start(flags).unwrap_or_else(|error| Program::command().error(ErrorKind::Io, error).exit())
}
