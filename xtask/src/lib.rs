//! Parts that programs of the repository's Makefile share.

pub mod reference;

use clap::{Command, CommandFactory as _};
use istio_cni::daemon;
use redirect::iptables;

/// Returns the command lines of all programs that have one.
pub fn commands() -> [Command; 4] {
    [daemon::Program::command(), iptables::Flags::command(), webhook::Program::command(), cnictl::Program::command()]
}
