//! The container runtimes that a test node can have.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::programs::Programs;
use super::{containerd, crio, gvisor};

/// A container runtime.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// The host's containerd.
    Containerd,
    /// containerd 2, from a directory whose `bin` has its programs. The node has gVisor's handler if the machine has gVisor.
    Containerd2(PathBuf),
    /// CRI-O, from a directory that has the programs `crio` and `pinns`.
    Crio(PathBuf),
}

impl Engine {
    /// Returns the name of the runtime's process.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Containerd | Self::Containerd2(_) => "containerd",
            Self::Crio(_) => "crio",
        }
    }

    /// Returns how often the runtime calls a plugin when it starts a pod: once for ADD and, with CRI-O, once for CHECK.
    pub fn calls_at_start(&self) -> usize {
        match self {
            Self::Containerd | Self::Containerd2(_) => 1,
            Self::Crio(_) => 2,
        }
    }

    /// Returns the runtime's `PATH`, which is as for a system service. containerd finds its shims on it.
    pub(super) fn path(&self) -> String {
        const DEFAULT: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        match self {
            Self::Containerd2(dir) => {
                let gvisor = Programs::gvisor().map(|dir| format!(":{}", dir.display())).unwrap_or_default();
                format!("{}/bin:{DEFAULT}{gvisor}", dir.display())
            }
            Self::Containerd | Self::Crio(_) => DEFAULT.to_owned(),
        }
    }

    /// Returns the path of the runtime's log in a node's directory.
    pub(super) fn log(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.log", self.name()))
    }

    /// Returns the path of the CRI's socket.
    pub(super) fn socket(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.sock", self.name()))
    }

    /// Returns the path of the configuration in a test node's directory, and the default paths of configuration and socket on a real node.
    pub(super) fn on_a_node(&self, dir: &Path) -> [PathBuf; 3] {
        match self {
            Self::Containerd | Self::Containerd2(_) => [
                dir.join("config.toml"),
                "/etc/containerd/config.toml".into(),
                "/run/containerd/containerd.sock".into(),
            ],
            Self::Crio(_) => [dir.join("crio.conf"), "/etc/crio/crio.conf".into(), "/run/crio/crio.sock".into()],
        }
    }

    /// Returns the runtime's command line.
    pub(super) fn command(&self, dir: &Path) -> Vec<OsString> {
        match self {
            Self::Containerd | Self::Containerd2(_) => {
                vec!["containerd".into(), "--config".into(), dir.join("config.toml").into()]
            }
            Self::Crio(programs) => vec![
                programs.join("crio").into(),
                "--config".into(),
                dir.join("crio.conf").into(),
                "--config-dir".into(),
                "".into(),
            ],
        }
    }

    /// Writes the configuration into a node's directory.
    pub(super) fn configure(&self, dir: &Path, image: &str, plugins: &Path, runc: &Path) -> Result<()> {
        match self {
            Self::Containerd => {
                fs::write(dir.join("config.toml"), containerd::configuration(dir, image, plugins, runc))?;
            }
            Self::Containerd2(_) => {
                let handler = gvisor::configure(dir)?;
                let text = containerd::configuration(dir, image, plugins, runc) + &handler;
                fs::write(dir.join("config.toml"), text)?;
            }
            Self::Crio(programs) => {
                fs::write(dir.join("policy.json"), crio::POLICY)?;
                fs::write(dir.join("crio.conf"), crio::configuration(dir, image, plugins, runc, programs))?;
            }
        }
        Ok(())
    }
}
