//! Prints the completion of the program's commands and flags for a shell.

use std::io::Write;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Error, Program};

const EXAMPLES: &str = "Examples:
    istio-cnictl completion bash > /etc/bash_completion.d/istio-cnictl
    istio-cnictl completion zsh > \"${fpath[1]}/_istio-cnictl\"
    istio-cnictl completion fish > ~/.config/fish/completions/istio-cnictl.fish";

/// The flags of `completion`.
#[derive(Debug, Clone, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionFlags {
    /// Shell that completes commands and flags
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn run(flags: &CompletionFlags, out: &mut dyn Write) -> Result<(), Error> {
    let mut program = Program::command();
    let (name, mut text) = (program.get_name().to_owned(), Vec::new());
    clap_complete::generate(flags.shell, &mut program, name, &mut text);
    out.write_all(&text).map_err(|cause| Error::Stream { what: "standard output", cause })
}
