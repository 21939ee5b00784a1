//! Runs the program in its arguments and writes that program's peak resident memory, in KiB, to the file descriptor 2.
//!
//! A child's peak includes the memory of its parent at the fork, so this is a small static program. The child's standard
//! error is discarded.

#![expect(clippy::disallowed_methods, reason = "runs the program whose memory is asked for")]
#![expect(clippy::print_stderr, reason = "the answer")]

use std::process::{Command, ExitCode, Stdio};

use nix::sys::resource::{UsageWho, getrusage};

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let Some(program) = words.next() else { return ExitCode::FAILURE };
    let Ok(status) = Command::new(program).args(words).stderr(Stdio::null()).status() else { return ExitCode::FAILURE };
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return ExitCode::FAILURE };
    eprint!("{}", usage.max_rss());
    if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
