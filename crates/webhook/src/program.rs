//! The command line of `sidecar-injector`, which the binary parses.

use serve::log;

use super::{WebhookFlags, dapr};

const EXAMPLES: &str = "Examples:
    sidecar-injector --kubeconfig /etc/kubernetes/admin.conf
    sidecar-injector --log_output_level default:debug";

/// Puts Istio's sidecar, or one of your own, into pods as they are created.
#[derive(clap::Parser)]
#[command(name = "sidecar-injector", version, args_override_self = true, after_help = EXAMPLES)]
pub struct Program {
    #[command(flatten)]
    pub webhook: WebhookFlags,
    #[command(flatten)]
    pub dapr: dapr::DaprFlags,
    #[command(flatten)]
    pub log: log::LogFlags,
}
