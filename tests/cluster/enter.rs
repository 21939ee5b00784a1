//! The way into the cluster: what it needs is looked for, then this program becomes the cluster, inside of which it is
//! run again.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::runtime::programs::{self, Programs};

/// Starts the components, and this program inside.
const NODE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cluster/node/run");
/// What the components, and ours, have said in the last run.
pub(crate) const LOGS: &str = concat!(env!("CARGO_TARGET_TMPDIR"), "/cluster");
/// Tells this program that it is inside.
const INSIDE: &str = "ISTIO_CNI_TEST_CLUSTER";
/// As Kubernetes' own go.mod says.
const OLDEST_GO: (u32, u32) = (1, 26);

/// Where this program is.
pub(crate) enum Place {
    /// In the cluster.
    Inside(Arc<Cluster>),
    /// Where there can be none, and why.
    Nowhere(String),
}

/// Returns inside the cluster, or where there can be none.
pub(crate) fn place() -> Place {
    let arrived = if env::var_os(INSIDE).is_some() {
        Programs::find(Some(env!("CARGO_BIN_EXE_istio-cni")))
            .map_err(anyhow::Error::msg)
            .and_then(|programs| Cluster::connect(&programs))
            .map_err(|e| format!("the cluster cannot be used: {e:#}"))
    } else {
        Err(enter())
    };
    match arrived {
        Ok(cluster) => Place::Inside(Arc::new(cluster)),
        Err(reason) => Place::Nowhere(reason),
    }
}

/// Returns where it cannot, with the reason.
fn enter() -> String {
    let found = Programs::find(Some(env!("CARGO_BIN_EXE_istio-cni"))).and_then(|p| Ok((p, kube()?, helm()?)));
    let (programs, kube, helm) = match found {
        Ok(found) => found,
        Err(missing) => return missing,
    };
    let this = match env::current_exe() {
        Ok(this) => this,
        Err(e) => return format!("this program's own path: {e}"),
    };
    let _ = std::fs::remove_dir_all(LOGS);
    let failed = Command::new(NODE)
        .args([kube.as_path(), Path::new(LOGS), &this])
        .args(env::args_os().skip(1))
        .env("CNI_BIN", &programs.cni_plugins)
        .env("HELM", helm)
        .env(INSIDE, "1")
        .exec();
    format!("{NODE}: {failed}")
}

/// The components' binary, or what it takes to have it.
fn kube() -> Result<PathBuf, String> {
    let named = env::var_os("KUBE").map(PathBuf::from);
    if let Some(path) = named.filter(|path| path.is_file()) {
        return Ok(path);
    }
    let go = programs::on_path("go").map_err(|e| format!("{e}; with it, `make kube` builds Kubernetes"))?;
    let said = Command::new(go).args(["env", "GOVERSION"]).output().map_err(|e| format!("go: {e}"))?;
    let version = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    if go_version(&version).is_none_or(|version| version < OLDEST_GO) {
        return Err(format!("{version:?} is too old to build Kubernetes: go {}.{} does", OLDEST_GO.0, OLDEST_GO.1));
    }
    Err("KUBE names no binary of Kubernetes: `make kube` builds it, `make test` names it".to_owned())
}

/// What installs the chart.
fn helm() -> Result<PathBuf, String> {
    let named = env::var_os("HELM").map(PathBuf::from).filter(|path| path.is_file());
    named.map_or_else(|| programs::on_path("helm").map_err(|e| format!("{e}; `make helm` builds it")), Ok)
}

/// `go1.26.8` is 1.26.
fn go_version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("go")?.split(['.', ' ', '-']);
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
