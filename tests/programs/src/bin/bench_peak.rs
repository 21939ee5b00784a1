//! Runs the program that its arguments name and writes that program's peak resident memory, in KiB, to standard error.
//!
//! The peak of a child process includes the memory of its parent at the fork, so the parent is this small static
//! program. The child's standard error is discarded.

#![expect(clippy::disallowed_methods, reason = "runs the program whose peak memory is measured")]
#![expect(clippy::print_stderr, reason = "prints the result")]

use std::process::{Command, ExitCode, Stdio};

use nix::sys::resource::{UsageWho, getrusage};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else { return ExitCode::FAILURE };
    let Ok(status) = Command::new(program).args(arguments).stderr(Stdio::null()).status() else {
        return ExitCode::FAILURE;
    };
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return ExitCode::FAILURE };
    eprint!("{}", usage.max_rss());
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
