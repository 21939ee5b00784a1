//! Configures containerd, and imports images into it.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Imports an image archive into the containerd whose socket is in `dir`. `path` is the runtime's `PATH`.
pub(super) fn import(dir: &Path, archive: &Path, path: &str) -> Result<()> {
    let output = Command::new("env")
        .arg(format!("PATH={path}"))
        .args(["ctr", "--address"])
        .arg(dir.join("containerd.sock"))
        .args(["--namespace", "k8s.io", "images", "import"])
        .arg(archive)
        .output()
        .context("ctr")?;
    ensure!(output.status.success(), "ctr images import: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Returns the configuration. It sets `restrict_oom_score_adj`, because pause containers require a low OOM score, which
/// cannot be set without CAP_SYS_RESOURCE.
pub(super) fn configuration(dir: &Path, sandbox_image: &str, plugins: &Path, runc: &Path) -> String {
    let (dir, plugins, runc) = (dir.display(), plugins.display(), runc.display());
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
temp = "{dir}/tmp"
oom_score = 0
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.internal.v1.tracing",
  "io.containerd.tracing.processor.v1.otlp", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{dir}/containerd.sock"
[ttrpc]
  address = "{dir}/containerd.sock.ttrpc"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  stream_server_address = "127.0.0.1"
  stream_server_port = "0"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{dir}/net.d"
    max_conf_num = 1
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "{runc}"
      Root = "{dir}/state/runc"
      SystemdCgroup = false
"#
    )
}
