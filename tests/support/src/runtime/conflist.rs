//! The CNI configuration list of a node: `ptp` with `host-local`, followed by chained plugins.

use std::fs;
use std::path::Path;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::client::Cri;
use super::wait;

/// The namespace of the agent's own pods.
pub const AGENT_NAMESPACE: &str = "istio-system";
/// A namespace that the plugin excludes.
pub const EXCLUDED_NAMESPACE: &str = "kube-system";

/// The name of the CNI network.
pub const NAME: &str = "pods";

/// Address families of the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 only.
    V4,
    /// IPv4 and IPv6. An ADD takes two seconds, because `ptp` waits for duplicate address detection.
    Dual,
}

/// Returns a configuration list as JSON. `leases` is the directory in which `host-local` records allocated addresses; `chained` is added as
/// the last plugin.
pub fn text(families: Families, leases: &Path, chained: Option<&Value>) -> String {
    let (ranges, routes) = match families {
        Families::V4 => (json!([[{ "subnet": "10.222.0.0/24" }]]), json!([{ "dst": "0.0.0.0/0" }])),
        Families::Dual => (
            json!([[{ "subnet": "10.222.0.0/24" }], [{ "subnet": "fd00:222::/64" }]]),
            json!([{ "dst": "0.0.0.0/0" }, { "dst": "::/0" }]),
        ),
    };
    let ptp = json!({
        "type": "ptp", "ipMasq": false,
        "ipam": { "type": "host-local", "dataDir": leases, "ranges": ranges, "routes": routes },
    });
    let plugins: Vec<&Value> = std::iter::once(&ptp).chain(chained).collect();
    json!({ "cniVersion": "1.0.0", "name": NAME, "plugins": plugins }).to_string()
}

/// Returns the plugin's chain entry as the installer writes it.
pub fn plugin(run_dir: &Path) -> Value {
    json!({
        "type": contract::PLUGIN_NAME,
        "plugin_log_level": "debug",
        "cni_agent_run_dir": run_dir,
        "ambient_enabled": false,
        "enablement_selectors": [],
        "exclude_namespaces": [EXCLUDED_NAMESPACE],
        "pod_namespace": AGENT_NAMESPACE,
        "native_nftables": false,
        "enable_ambient_detection_retry": false,
        "capabilities": { contract::POD_ANNOTATIONS_CAPABILITY: true },
    })
}

/// Replaces a configuration list.
pub fn replace(path: &Path, text: &str) -> Result<()> {
    // The new file is written to the same directory, because containerd does not notice files that are moved in from another directory.
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, path)?;
    Ok(())
}

/// Replaces a configuration list and waits until containerd has loaded it.
pub fn load(cri: &Cri, path: &Path, text: &str) -> Result<()> {
    replace(path, text)?;
    loaded(cri, "containerd has loaded the chain", |source| source == text)
}

/// Waits until containerd has loaded a list that satisfies the predicate.
pub fn loaded(cri: &Cri, condition: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
    wait::until(condition, || {
        let status = cri.status()?;
        let loaded: Value = serde_json::from_str(status.info.get("cniconfig").map_or("null", String::as_str))?;
        let networks = loaded["Networks"].as_array().map_or(&[][..], Vec::as_slice);
        if networks.iter().filter_map(|network| network["Config"]["Source"].as_str()).any(&holds) {
            return Ok(());
        }
        bail!("{loaded}")
    })
}
