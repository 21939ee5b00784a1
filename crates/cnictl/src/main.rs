//! `istio-cnictl`: the command line tool for injection and redirection.

#![expect(clippy::disallowed_methods, reason = "reads the environment's settings of terminals")]

use std::env;
use std::io::{self, IsTerminal as _, Write as _};
use std::process::ExitCode;

use clap::Parser as _;
use cnictl::{Program, Streams, run};
use contract::diagnostics::terminal::Style;

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
    let style = Style::of(out.is_terminal(), env::var_os("NO_COLOR").as_deref(), env::var_os("TERM").as_deref());
    // Only the width of standard output is used: it may be a pipe while another stream is a terminal.
    let width = terminal_size::terminal_size_of(&out).map(|(width, _)| usize::from(width.0));
    let style = style.with_width(width);
    let streams = Streams { input: &mut input, out: &mut out, err: &mut err, style };
    match run(&program.command, streams).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(err, "Error: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}
