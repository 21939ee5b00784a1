//! The flags of in-place repair.

use repair::{Given, switch};

/// Flags of the search for a pod's netns and of the rules in it.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "Repair")]
#[group(skip)]
pub struct InPlaceFlags {
    /// The node's procfs
    #[arg(long, env, default_value = "/host/proc")]
    pub repair_proc: String,
    /// Directories with the runtime's bind mounts of network namespaces, as mounted in this container
    #[arg(long, env, default_value = "/host/var/run/netns,/host/run/netns,/host/var/run/docker/netns")]
    pub repair_netns_dirs: String,
    /// Use native nftables tables for in-place repair
    #[arg(long, env = "NATIVE_NFTABLES", default_value = "false", value_parser = switch, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub repair_native_nftables: Given<bool>,
    /// `legacy` or `nft` for in-place repair, instead of the backend that the pod's netns uses
    #[arg(long, env = "FORCE_IPTABLES_BINARY", default_value = "", hide_default_value = true)]
    pub repair_force_iptables_binary: String,
}
