//! The command line of `install-cni`, which the binary parses.

use serve::log;

use super::AgentFlags;
use crate::install;

const EXAMPLES: &str = "Examples:
    install-cni --node-name node-1 --pod-namespace kube-system
    install-cni check --mounted-cni-net-dir /etc/cni/net.d --mounted-cni-bin-dir /opt/cni/bin
    install-cni uninstall --mounted-cni-net-dir /etc/cni/net.d --mounted-cni-bin-dir /opt/cni/bin --mounted-cni-cache-dir /var/lib/cni";

/// Installs Istio's CNI plugin on this node, restores it after changes, and serves its requests
#[derive(clap::Parser)]
#[command(name = "install-cni", version, args_override_self = true, args_conflicts_with_subcommands = true)]
#[command(after_help = EXAMPLES)]
pub struct Program {
    #[command(subcommand)]
    pub command: Option<Command>,
    #[command(flatten)]
    pub daemon: AgentFlags,
}

#[derive(clap::Subcommand)]
pub enum Command {
    /// Removes plugin, chain entry and kubeconfig from this node, on which no agent runs
    Uninstall(Box<Uninstall>),
    /// Checks kernel, runtime, chain, SELinux and cgroups of this node, and changes nothing; fails if a check does
    Check(Box<Check>),
}

#[derive(clap::Args)]
pub struct Uninstall {
    #[command(flatten)]
    pub install: install::InstallFlags,
    #[command(flatten)]
    pub log: log::LogFlags,
}

#[derive(clap::Args)]
pub struct Check {
    /// Text for people, or JSON
    #[arg(long, short, default_value = "text")]
    pub output: Output,
    #[command(flatten)]
    pub install: install::InstallFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    Text,
    Json,
}
