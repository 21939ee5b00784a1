//! `istio-cnictl`: the command line tool for injection and redirection.

use std::io::{self, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use istio_cni::cnictl::{Program, Streams, run};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for an invalid command line, as in `istioctl`.
const USAGE: u8 = 64;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(help) => {
            let _ = help.print();
            return if help.use_stderr() { ExitCode::from(USAGE) } else { ExitCode::SUCCESS };
        }
    };
    let (mut input, mut out, mut err) = (io::stdin().lock(), io::stdout().lock(), io::stderr().lock());
    let streams = Streams { input: &mut input, out: &mut out, err: &mut err };
    match run(&program.command, streams).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(err, "Error: {error}");
            ExitCode::FAILURE
        }
    }
}
