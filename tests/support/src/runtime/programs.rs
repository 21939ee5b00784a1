//! Finds the programs that a test node needs, those of this repository and those of the host, before anything is
//! started.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use contract::PLUGIN_NAME;
use nix::unistd::Uid;

use super::engine::Engine;

/// The paths of the programs that a test node needs.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The plugin.
    pub istio_cni: PathBuf,
    /// The static program of this name for the pods' image.
    pub pod_app: PathBuf,
    /// The static program of this name for the pods' image.
    pub pod_proxy: PathBuf,
    /// The static program that the container `istio-validation` runs.
    pub istio_iptables: PathBuf,
    /// The directory of `ptp`, `host-local` and `loopback`.
    pub cni_plugins: PathBuf,
    /// The OCI runtime.
    pub runc: PathBuf,
}

impl Programs {
    /// Finds all programs, or returns what is missing and how to get it. `istio_cni` is Cargo's build of the plugin
    /// for this run; the variable `ISTIO_CNI` overrides it, and `POD_PROGRAMS` is the directory of the pods' programs.
    pub fn find(istio_cni: Option<&str>) -> Result<Self, String> {
        if !Uid::effective().is_root() {
            return Err("creating namespaces needs root".to_owned());
        }
        for tool in ["containerd", "ctr", "unshare", "setpriv", "nsenter", "ip", "mount", "iptables-save", "nft"] {
            on_path(tool)?;
        }
        can_create_namespaces()?;
        let istio_cni = env::var_os("ISTIO_CNI").map(PathBuf::from).or_else(|| istio_cni.map(PathBuf::from));
        Ok(Self {
            istio_cni: istio_cni.map_or_else(plugin, existing)?,
            pod_app: pod_program("pod_app")?,
            pod_proxy: pod_program("pod_proxy")?,
            istio_iptables: static_build("istio-iptables")?,
            cni_plugins: cni_plugins()?,
            runc: on_path("runc")?,
        })
    }

    /// Finds CRI-O.
    pub fn crio() -> Result<Engine, String> {
        Self::crio_dir().map(Engine::Crio)
    }

    /// Finds the directory of `crio` and `pinns`, which the variable `CRIO` names. CRI-O also needs `conmon` and `skopeo`.
    pub fn crio_dir() -> Result<PathBuf, String> {
        for tool in ["conmon", "skopeo"] {
            on_path(tool)?;
        }
        let dir = env::var_os("CRIO").map(PathBuf::from).ok_or("CRIO names no directory of CRI-O")?;
        existing(dir.join("crio"))?;
        Ok(dir)
    }

    /// Finds the directory of `multus` and `thin_entrypoint`, which the variable `MULTUS` names.
    pub fn multus() -> Result<PathBuf, String> {
        let dir = env::var_os("MULTUS").map(PathBuf::from).ok_or("MULTUS names no directory of Multus")?;
        for program in ["multus", "thin_entrypoint"] {
            existing(dir.join(program))?;
        }
        Ok(dir)
    }

    /// Finds the directory of containerd 2 and of CNI plugins that support version 1.1.0, which the variable `CONTAINERD2` names.
    pub fn containerd2() -> Result<PathBuf, String> {
        let dir =
            env::var_os("CONTAINERD2").map(PathBuf::from).ok_or("CONTAINERD2 names no directory of containerd 2")?;
        existing(dir.join("bin/containerd"))?;
        Ok(dir)
    }

    /// Finds the directory of gVisor's `runsc` and its shim, which the variable `GVISOR` names.
    pub fn gvisor() -> Result<PathBuf, String> {
        let dir = env::var_os("GVISOR").map(PathBuf::from).ok_or("GVISOR names no directory of gVisor")?;
        existing(dir.join("runsc"))?;
        Ok(dir)
    }

    /// Returns the programs of the pods' image; the first is the entry point.
    pub fn in_image(&self) -> [(&'static str, &Path); 3] {
        [("pod_app", &self.pod_app), ("pod_proxy", &self.pod_proxy), ("istio-iptables", &self.istio_iptables)]
    }
}

/// Fails if namespaces cannot be created, as is often the case in a container.
fn can_create_namespaces() -> Result<(), String> {
    let tried = Command::new("unshare").args(["--net", "--mount", "--pid", "--fork", "true"]).output();
    let output = tried.map_err(|e| format!("unshare: {e}"))?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()) }
}

/// Finds an executable of the host.
pub fn on_path(name: &str) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .map(|dir| dir.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| format!("{name} is not on the PATH"))
}

fn cni_plugins() -> Result<PathBuf, String> {
    let needed = ["ptp", "host-local", "loopback"];
    ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"]
        .into_iter()
        .map(PathBuf::from)
        .find(|dir| needed.iter().all(|name| dir.join(name).is_file()))
        .ok_or_else(|| format!("the CNI plugins {} are not installed (containernetworking-plugins)", needed.join(", ")))
}

/// Finds a program for pods. It must be static, because the image has no dynamic linker.
pub fn pod_program(name: &str) -> Result<PathBuf, String> {
    if let Some(dir) = env::var_os("POD_PROGRAMS") {
        return existing(Path::new(&dir).join(name));
    }
    newest(&target()?.join(musl()), name).ok_or_else(|| format!("{name} is not built; make programs"))
}

/// Finds the newest build of a test program for the host.
pub fn host_program(name: &str) -> Result<PathBuf, String> {
    newest(&target()?, name).ok_or_else(|| format!("{name} is not built; make programs"))
}

/// Finds the newest static build of a binary, for an image.
pub fn static_build(name: &str) -> Result<PathBuf, String> {
    newest(&target()?.join(musl()), name)
        .ok_or_else(|| format!("{name} is not built; cargo build --target {} --bin {name}", musl()))
}

/// Finds the plugin: the static build, as on nodes, or else a dynamic one, which also runs on this machine.
fn plugin() -> Result<PathBuf, String> {
    let target = target()?;
    newest(&target.join(musl()), PLUGIN_NAME)
        .or_else(|| newest(&target, PLUGIN_NAME))
        .ok_or_else(|| format!("{PLUGIN_NAME} is not built; cargo build --package plugin"))
}

fn musl() -> String {
    format!("{}-unknown-linux-musl", env::consts::ARCH)
}

/// Returns Cargo's target directory, which contains this program.
fn target() -> Result<PathBuf, String> {
    let this = env::current_exe().map_err(|e| e.to_string())?;
    target_of(&this).ok_or_else(|| format!("{} is not in a directory of Cargo's profiles", this.display()))
}

/// Returns the target directory of a program that Cargo has built: `TARGET[/TRIPLE]/PROFILE/[deps/]PROGRAM`. No file marks
/// the target directory reliably: Cargo writes `CACHEDIR.TAG` only to one that it has created itself.
fn target_of(program: &Path) -> Option<PathBuf> {
    let profile = program.ancestors().skip(1).find(|dir| dir.join("deps").is_dir())?;
    let above = profile.parent()?;
    let is_triple = above.file_name().is_some_and(|name| name == musl().as_str());
    if is_triple { above.parent().map(Path::to_owned) } else { Some(above.to_owned()) }
}

/// Returns the newest build of a program among those of all profiles.
fn newest(root: &Path, name: &str) -> Option<PathBuf> {
    let builds = ["plugin", "release", "debug"].map(|profile| root.join(profile).join(name));
    builds.into_iter().filter_map(|path| Some((modified(&path)?, path))).max().map(|(_, path)| path)
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

fn existing(path: PathBuf) -> Result<PathBuf, String> {
    if path.is_file() { Ok(path) } else { Err(format!("{} does not exist", path.display())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_a_target_directory_that_existed_before_cargo() {
        let target = tempfile::tempdir().unwrap();
        let native = target.path().join("debug");
        let fixed = target.path().join(musl()).join("plugin");
        for profile in [&native, &fixed] {
            fs::create_dir_all(profile.join("deps")).unwrap();
        }
        fs::write(fixed.join("istio-iptables"), "").unwrap();
        for program in
            [native.join("deps/cri-0123"), native.join("demo"), fixed.join("deps/pod-0123"), fixed.join("pod")]
        {
            let found = target_of(&program).unwrap_or_else(|| panic!("{}", program.display()));
            assert_eq!(found, target.path(), "{}", program.display());
            assert_eq!(newest(&found.join(musl()), "istio-iptables"), Some(fixed.join("istio-iptables")));
        }
        assert_eq!(target_of(Path::new("/usr/bin/true")), None);
    }
}
