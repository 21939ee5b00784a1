//! The command line of `install-cni`, which the binary parses.

use super::Flags;
use crate::install;
use crate::serve::log;

/// Installs Istio's CNI plugin on this node, restores it after changes, and serves its requests
#[derive(clap::Parser)]
#[command(name = "install-cni", version, args_override_self = true, args_conflicts_with_subcommands = true)]
pub struct Program {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub daemon: Flags,
}

#[derive(clap::Subcommand)]
pub enum Command {
    /// Removes plugin, chain entry and kubeconfig from this node, on which no agent runs
    Uninstall(Box<Uninstall>),
}

#[derive(clap::Args)]
pub struct Uninstall {
    #[command(flatten)]
    pub install: install::Flags,
    #[command(flatten)]
    pub log: log::Flags,
}
