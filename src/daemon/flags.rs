//! The daemon's command line and environment, including those of the modules that it combines. `settings` parses them.

use std::num::ParseIntError;
use std::path::PathBuf;

use repair::RepairFlags;

use crate::in_place::InPlaceFlags;
use crate::install;

/// All flags of the daemon.
#[derive(Debug, Clone, clap::Args)]
#[group(skip)]
pub struct AgentFlags {
    #[command(flatten)]
    pub(super) own: DaemonFlags,
    #[command(flatten)]
    pub(super) install: install::InstallFlags,
    #[command(flatten)]
    pub(super) repair: RepairFlags,
    #[command(flatten)]
    pub(super) in_place: InPlaceFlags,
    #[command(flatten)]
    pub log: serve::log::LogFlags,
}

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Serving")]
pub(super) struct DaemonFlags {
    /// The node's name
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub(super) node_name: String,
    /// The node's name if the former is empty
    #[arg(long, env, default_value = "", hide = true)]
    pub(super) kubernetes_node_name: String,
    /// The name of the daemon's own pod
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub(super) pod_name: String,
    /// The pod's name if the former is empty; runtimes set it
    #[arg(long, env, default_value = "", hide = true)]
    pub(super) hostname: String,
    /// Service account in this daemon's namespace whose token the plugin's kubeconfig gets; empty: this daemon's own
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub(super) plugin_service_account: String,
    /// Port of /metrics and of the status page; 0: none
    #[arg(long, env, default_value = "15014", value_parser = monitoring_port, allow_negative_numbers = true)]
    pub(super) monitoring_port: u16,
    /// Serve the node's state on the monitoring port, as /status and /status.json, to everybody who reaches the port
    #[arg(long, env, default_value = "false", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub(super) status_page: bool,
    /// Port of /healthz and /readyz
    #[arg(long, env, default_value = "8000", value_parser = health_port)]
    pub(super) health_port: u16,
    /// Key of the taint to remove from this node once pods can start, such as cni.istio.io/not-ready; empty: none
    #[arg(long, env, default_value = "", hide_default_value = true)]
    pub(super) startup_taint: String,
    /// Kubeconfig of the daemon; unset: its service account
    #[arg(long, env)]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Accepted for compatibility with Istio; there is no ControlZ
    #[arg(long = "ctrlz_port", hide = true)]
    ctrlz_port: Option<String>,
    /// Likewise
    #[arg(long = "ctrlz_address", hide = true)]
    ctrlz_address: Option<String>,
}

/// Parses the monitoring port: Istio's default if the string is empty, and 0 (no port) if the number is negative.
fn monitoring_port(text: &str) -> Result<u16, ParseIntError> {
    if text.is_empty() {
        return Ok(15014);
    }
    if text.starts_with('-') {
        return text.parse::<i32>().map(|_| 0);
    }
    text.parse()
}

fn health_port(text: &str) -> Result<u16, ParseIntError> {
    if text.is_empty() { Ok(8000) } else { text.parse() }
}
