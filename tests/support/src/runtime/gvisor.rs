//! gVisor as a runtime handler of a test node's containerd 2, the version that gVisor's shim supports. Pods in gVisor have a network stack
//! of their own, which rules in the node's kernel do not affect.
//!
//! CRI-O would need an infra container for gVisor, whose OOM score cannot be set without CAP_SYS_RESOURCE.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::programs::Programs;

/// The name of the handler for pods in gVisor. The node has this handler if the machine has gVisor.
pub const HANDLER: &str = "secure";
/// The handler's `runtime_type`, from which containerd derives the name of its shim.
pub const TYPE: &str = "io.containerd.runsc.v1";

/// Writes the configuration of gVisor's shim into a node's directory, and returns the handler's section of containerd's configuration, or
/// nothing if the machine lacks gVisor. `runsc` leaves cgroups alone, because the node shares those of the runtime.
pub(super) fn configure(dir: &Path) -> Result<String> {
    let Ok(programs) = Programs::gvisor() else { return Ok(String::new()) };
    let (shim, runsc, dir) = (dir.join("runsc.toml"), programs.join("runsc"), dir.display());
    let text = format!(
        r#"binary_name = "{}"
root = "{dir}/state/runsc"
[runsc_config]
platform = "systrap"
ignore-cgroups = "true"
"#,
        runsc.display()
    );
    fs::write(&shim, text)?;
    Ok(format!(
        r#"  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{HANDLER}]
    runtime_type = "{TYPE}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{HANDLER}.options]
      TypeUrl = "{TYPE}.options"
      ConfigPath = "{}"
"#,
        shim.display()
    ))
}
