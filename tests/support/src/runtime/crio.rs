//! Configures CRI-O, imports images into it, and waits until it has loaded its networks.
//!
//! CRI-O calls CHECK after each ADD and, for all sandboxes, when it starts. It calls DEL with the list that libcni cached at ADD.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, ensure};

use super::wait;

/// CRI-O's image storage in the node's mount namespace, in the notation of `skopeo`.
pub(super) const STORAGE: &str = "[vfs@/var/lib/containers/storage+/run/containers/storage]";

/// Imports an image archive into CRI-O's storage. `skopeo` is a command in CRI-O's namespaces that runs that program.
pub fn import(mut skopeo: Command, archive: &Path, storage: &str, name: &str) -> Result<()> {
    let from = format!("oci-archive:{}", archive.display());
    let output =
        skopeo.args(["--insecure-policy", "copy", &from, &format!("containers-storage:{storage}{name}")]).output()?;
    ensure!(output.status.success(), "skopeo copy: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Waits until CRI-O has handled all changes in its directory of networks. CRI-O handles changes in order, logs each, and then logs the
/// network that it uses, so a new file marks the end of the earlier changes.
pub fn synced(networks: &Path, log: &Path) -> Result<()> {
    static MARKS: AtomicU32 = AtomicU32::new(0);
    let mark = networks.join(format!("{}.mark", MARKS.fetch_add(1, Ordering::Relaxed)));
    fs::write(&mark, "")?;
    let name = mark.display().to_string();
    let handled = wait::until("CRI-O has read its networks", || {
        let text = fs::read_to_string(log)?;
        let after = text.rsplit_once(&name).map_or("", |(_, after)| after);
        ensure!(after.contains("Updated default CNI network name"), "{}", text.lines().last().unwrap_or_default());
        Ok(())
    });
    fs::remove_file(&mark)?;
    handled
}

/// Returns the configuration. `programs` is the directory of CRI-O's own programs. Seccomp and AppArmor are off, because a machine
/// may lack them; pods have no infra container, whose OOM score cannot be set without CAP_SYS_RESOURCE.
pub(super) fn configuration(dir: &Path, image: &str, plugins: &Path, runc: &Path, programs: &Path) -> String {
    let (dir, plugins, runc, programs) = (dir.display(), plugins.display(), runc.display(), programs.display());
    format!(
        r#"[crio]
root = "/var/lib/containers/storage"
runroot = "/run/containers/storage"
storage_driver = "vfs"
log_dir = "{dir}/logs"
version_file = "/run/crio/version"
version_file_persist = ""
clean_shutdown_file = "/var/lib/crio/clean.shutdown"
internal_wipe = false
[crio.api]
listen = "{dir}/crio.sock"
stream_port = "0"
[crio.runtime]
conmon_cgroup = "pod"
cgroup_manager = "cgroupfs"
default_runtime = "runc"
pinns_path = "{programs}/pinns"
namespaces_dir = "/run"
apparmor_profile = "unconfined"
seccomp_profile = "unconfined"
drop_infra_ctr = true
log_level = "info"
[crio.runtime.runtimes.runc]
runtime_path = "{runc}"
runtime_root = "/run/runc"
monitor_path = "/usr/bin/conmon"
monitor_cgroup = "pod"
[crio.image]
pause_image = "{image}"
signature_policy = "{dir}/policy.json"
[crio.network]
network_dir = "{dir}/net.d"
plugin_dirs = ["{plugins}"]
[crio.metrics]
enable_metrics = false
[crio.nri]
enable_nri = false
"#
    )
}

/// The signature policy, which accepts the unsigned image of the test.
pub(super) const POLICY: &str = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
