//! The handlers of RuntimeClasses: their networks, and whether they are sandboxed runtimes, whose pods have a kernel of their own
//! that the node's rules do not reach.

use std::collections::BTreeMap;
use std::path::PathBuf;

use podfacts::is_sandbox;

use super::Named;

/// CRI-O's `runtime_type` of virtual machines, which have a kernel of their own.
const VM: &str = "vm";

/// The handlers of one runtime.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handlers {
    /// The handler of pods without a RuntimeClass.
    pub default: Option<Named<String>>,
    pub by_name: BTreeMap<String, Handler>,
}

/// A handler.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Handler {
    /// containerd's `cni_conf_dir`: the directory of the networks of the handler's pods, if that is not the directory for all pods.
    pub conf: Option<Named<PathBuf>>,
    /// containerd's `cni_max_conf_num`
    pub max: Option<Named<i64>>,
    /// The values that name the handler's program, by key, such as `runtime_type`, `runtime_path`, and containerd's `BinaryName`.
    pub programs: BTreeMap<&'static str, Named<String>>,
}

impl Handlers {
    /// Returns the runtime's own default, without handlers.
    pub(super) fn with_default(name: &str) -> Self {
        Self { default: Some(Named::default(name.to_owned())), by_name: BTreeMap::new() }
    }
}

impl Handler {
    /// Returns the value that shows that the handler is a sandboxed runtime: a type, or a program's path.
    ///
    /// gVisor is a sandboxed runtime even with `network = "host"`: its sockets belong to the sentry's user, so rules cannot
    /// distinguish the proxy's sockets from others.
    pub fn sandbox(&self) -> Option<&Named<String>> {
        self.programs.values().find(|program| is_sandbox_program(&program.value))
    }
}

/// Whether a value names the program of a sandboxed runtime.
pub(super) fn is_sandbox_program(value: &str) -> bool {
    value == VM || value.rsplit('/').next().is_some_and(is_sandbox)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sandbox_is_known_by_the_handlers_programs() {
        for (programs, expected) in [
            (&[("runtime_type", "io.containerd.runc.v2")][..], None),
            (&[("runtime_type", "io.containerd.runc.v2"), ("BinaryName", "/usr/bin/crun")], None),
            (&[("runtime_type", "io.containerd.runc.v2"), ("BinaryName", "/usr/bin/runsc")], Some("/usr/bin/runsc")),
            (&[("runtime_type", "io.containerd.runsc.v1")], Some("io.containerd.runsc.v1")),
            (&[("runtime_type", "io.containerd.kata-qemu.v2")], Some("io.containerd.kata-qemu.v2")),
            (&[("runtime_type", "aws.firecracker")], Some("aws.firecracker")),
            (
                &[("runtime_path", "/opt/kata/bin/containerd-shim-kata-v2")],
                Some("/opt/kata/bin/containerd-shim-kata-v2"),
            ),
            (&[("runtime_type", "io.containerd.runc.v2"), ("BinaryName", "/opt/kata/bin/runc")], None),
            (&[("runtime_type", "vm"), ("runtime_path", "/usr/bin/shim")], Some("vm")),
            (&[("runtime_type", "oci"), ("runtime_path", "/usr/libexec/crio/crun")], None),
            (&[], None),
        ] {
            let named = |value: &str| Named { value: value.to_owned(), file: None };
            let programs = programs.iter().map(|(key, value)| (*key, named(value))).collect();
            let handler = Handler { programs, ..Handler::default() };
            assert_eq!(handler.sandbox().map(|found| found.value.as_str()), expected, "{handler:?}");
        }
    }
}
