//! Starts a cluster, if its programs exist, and runs this test program again inside the cluster's namespaces.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::cluster::Cluster;
use test_support::runtime::programs::{self, Programs};

/// The script that starts the components and then this program.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/node/run");
/// The logs of the last run: a directory for each container runtime.
pub(crate) const LOGS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cluster");
/// The environment variable that this program has inside a cluster. Its value is the name of the cluster's container
/// runtime.
const INSIDE: &str = "ISTIO_CNI_TEST_CLUSTER";
/// The oldest Go version that Kubernetes' go.mod allows.
const OLDEST_GO: (u32, u32) = (1, 26);

/// The container runtime of a cluster's node, which also determines the CNI version of the node's network
/// configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// The containerd and the CNI plugins of the host, with a network configuration list of CNI version 1.0.0.
    Host,
    /// containerd 2 with a network configuration list of CNI version 1.1.0, for whose plugins it calls STATUS.
    Containerd2,
    /// CRI-O, with the host's CNI plugins. CRI-O calls CHECK after each ADD and, for all sandboxes, when it starts. It calls DEL with the
    /// list that was cached at ADD.
    Crio,
}

impl Runtime {
    /// All runtimes, in the order of their trials.
    pub(crate) const ALL: [Self; 3] = [Self::Host, Self::Containerd2, Self::Crio];

    /// Returns the runtime's name, which is also the name of its log directory.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Containerd2 => "containerd2",
            Self::Crio => "crio",
        }
    }

    /// Returns the name of the runtime's program, which is also its name as a component of the script `node/run`.
    pub(crate) fn component(self) -> &'static str {
        match self {
            Self::Host | Self::Containerd2 => "containerd",
            Self::Crio => "crio",
        }
    }

    /// Returns the path of the CRI socket.
    pub(crate) fn socket(self) -> &'static Path {
        Path::new(match self {
            Self::Host | Self::Containerd2 => "/run/containerd/containerd.sock",
            Self::Crio => "/run/crio/crio.sock",
        })
    }

    /// Returns the runtime of the cluster in which this program runs; `None` outside of a cluster.
    pub(crate) fn here() -> Option<Self> {
        let name = env::var_os(INSIDE)?;
        Self::ALL.into_iter().find(|runtime| name == runtime.name())
    }

    /// Returns the CNI version of the node's network configuration.
    pub(crate) fn cni_version(self) -> &'static str {
        match self {
            Self::Host | Self::Crio => "1.0.0",
            Self::Containerd2 => "1.1.0",
        }
    }
}

/// Returns the directory of the logs of this cluster's components.
pub(crate) fn logs() -> PathBuf {
    Path::new(LOGS).join(Runtime::here().map_or("", Runtime::name))
}

/// Connects to the cluster in which this program runs.
pub(crate) fn inside() -> Result<Arc<Cluster>, String> {
    let connected = find().map_err(anyhow::Error::msg).and_then(|programs| Cluster::connect(&programs));
    connected.map(Arc::new).map_err(|e| format!("the cluster cannot be used: {e:#}"))
}

/// Runs this program in a cluster with this runtime. Returns whether it succeeded, or why no cluster could be started.
pub(crate) fn enter(runtime: Runtime) -> Result<bool, String> {
    let (programs, kube, helm) = (find()?, kube()?, helm()?);
    let this = env::current_exe().map_err(|e| format!("this program's own path: {e}"))?;
    let logs = Path::new(LOGS).join(runtime.name());
    let _ = std::fs::remove_dir_all(&logs);
    // The cluster ends with this program, even when it is killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", NODE]).args([kube.as_path(), &logs, &this]).args(env::args_os().skip(1));
    command.env("HELM", helm).env("CNI_VERSION", runtime.cni_version()).env(INSIDE, runtime.name());
    command.env("RUNTIME", runtime.component()).env("RUNTIME_SOCKET", runtime.socket());
    match runtime {
        Runtime::Host => command.env("CNI_BIN", &programs.cni_plugins),
        Runtime::Containerd2 => {
            let dir = Programs::containerd2()?;
            command.env("PATH", path_with(&dir.join("bin"))?).env("CNI_BIN", dir.join("cni"))
        }
        Runtime::Crio => command.env("PATH", path_with(&Programs::crio_dir()?)?).env("CNI_BIN", &programs.cni_plugins),
    };
    command.status().map(|status| status.success()).map_err(|e| format!("{NODE}: {e}"))
}

/// Returns the search path of programs with this directory before all others.
fn path_with(dir: &Path) -> Result<OsString, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let dirs = std::iter::once(dir.to_owned()).chain(env::split_paths(&path));
    env::join_paths(dirs).map_err(|e| format!("{}: {e}", dir.display()))
}

fn find() -> Result<Programs, String> {
    Programs::find(Some(env!("CARGO_BIN_EXE_install-cni")))
}

/// Returns the path of the binary that contains all Kubernetes components; otherwise why it is missing and the command that builds it.
fn kube() -> Result<PathBuf, String> {
    let named = env::var_os("KUBE").map(PathBuf::from);
    if let Some(path) = named.filter(|path| path.is_file()) {
        return Ok(path);
    }
    let go = programs::on_path("go").map_err(|e| format!("{e}; with it, `make kube` builds Kubernetes"))?;
    let output = Command::new(go).args(["env", "GOVERSION"]).output().map_err(|e| format!("go: {e}"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if go_version(&version).is_none_or(|version| version < OLDEST_GO) {
        return Err(format!(
            "{version:?} is too old to build Kubernetes, which needs go {}.{}",
            OLDEST_GO.0, OLDEST_GO.1
        ));
    }
    Err("KUBE names no binary of Kubernetes: `make kube` builds it, `make test` names it".to_owned())
}

/// Returns the path of helm; otherwise an error with the command that builds it.
fn helm() -> Result<PathBuf, String> {
    let named = env::var_os("HELM").map(PathBuf::from).filter(|path| path.is_file());
    named.map_or_else(|| programs::on_path("helm").map_err(|e| format!("{e}; `make helm` builds it")), Ok)
}

/// Parses Go's major and minor version: `go1.26.8` is 1.26.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("go")?.split(['.', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
