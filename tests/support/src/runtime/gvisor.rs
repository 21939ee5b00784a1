//! gVisor as a handler of a test node's containerd 2, with which its shim speaks: a sandbox whose network stack rules of the node's kernel do not reach.
//!
//! CRI-O would need an infra container for gVisor, whose OOM score cannot be set without CAP_SYS_RESOURCE.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::programs::Programs;

/// The handler of pods that run in gVisor, where the machine has it.
pub const HANDLER: &str = "secure";
/// The handler's `runtime_type`, from which containerd derives the name of its shim.
pub const TYPE: &str = "io.containerd.runsc.v1";

/// Writes the configuration of gVisor's shim into a node's directory, and returns the part of containerd's configuration about the
/// handler; empty without gVisor. The node's cgroups are those of the runtime, so `runsc` changes none.
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
