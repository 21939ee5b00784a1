//! Runs Multus on a test node: its thin plugin, and `thin_entrypoint`, the program of its DaemonSet that writes its configuration and
//! its kubeconfig.

use std::fs::{self, File};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::node::Node;
use super::service::child_of;
use super::{signals, wait};

/// The program that writes the configuration, and the name of its process.
const ENTRYPOINT: &str = "thin_entrypoint";
/// The service account's directory in a pod, from which the program takes token and CA.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
/// The directory of Multus' cache.
const CACHE: &str = "/var/lib/cni/multus";

/// Multus on a node. Its files are removed when the value is dropped.
pub struct Multus<'n> {
    node: &'n Node,
    programs: PathBuf,
    entrypoint: Option<Child>,
}

impl<'n> Multus<'n> {
    /// Links the plugin, which is in `programs`, into the node's plugin directory, and creates a service account's directory.
    pub fn install(node: &'n Node, programs: &Path) -> Result<Self> {
        let multus = Self { node, programs: programs.to_owned(), entrypoint: None };
        symlink(programs.join("multus"), node.plugins().join("multus"))?;
        let account = format!("mkdir -p {ACCOUNT} && echo token > {ACCOUNT}/token && : > {ACCOUNT}/ca.crt");
        succeed(node.command(Path::new("sh")).args(["-c", &account]))?;
        Ok(multus)
    }

    /// Starts the DaemonSet's program and waits until it has written the configuration, which by default embeds a copy of the first file in
    /// the configuration directory.
    pub fn start(&mut self, api_server: SocketAddr, args: &[&str]) -> Result<()> {
        let (networks, log) = (self.node.networks(), self.log());
        let written = File::create(&log)?;
        let mut command = self.node.command(&self.programs.join(ENTRYPOINT));
        for (flag, path) in [
            ("cni-bin-dir", &self.node.plugins()),
            ("cni-conf-dir", &networks),
            ("multus-autoconfig-dir", &networks),
            ("multus-cni-conf-dir", &self.node.dir().join("multus")),
            ("multus-kubeconfig-file-host", &self.kubeconfig()),
            ("multus-bin-file", &self.programs.join("multus")),
            ("multus-log-file", &self.node.dir().join("multus-plugin.log")),
        ] {
            command.arg(format!("--{flag}={}", path.display()));
        }
        command.args(["--multus-log-level=verbose", "--skip-multus-binary-copy", "--skip-tls-verify"]).args(args);
        command.env("KUBERNETES_SERVICE_PROTOCOL", "http");
        // The program writes the host in brackets, where the Go version that builds Multus here accepts only IPv6 addresses.
        let host = match api_server.ip() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        command.env("KUBERNETES_SERVICE_HOST", host.to_string());
        command.env("KUBERNETES_SERVICE_PORT", api_server.port().to_string());
        command.stdin(Stdio::null()).stdout(written.try_clone()?).stderr(written);
        self.entrypoint = Some(signals::spawn(&mut command).context("nsenter")?);
        wait::until("Multus is configured", || {
            let text = fs::read_to_string(&log)?;
            ensure!(text.contains("multus config file"), "{text}");
            Ok(())
        })
    }

    /// Sends SIGTERM to the DaemonSet's program and waits until it has exited.
    pub fn end(&mut self) -> Result<()> {
        let Some(mut nsenter) = self.entrypoint.take() else { return Ok(()) };
        kill(child_of(Pid::from_raw(i32::try_from(nsenter.id())?), ENTRYPOINT)?, Signal::SIGTERM)?;
        let status = wait::until("Multus has ended", || nsenter.try_wait()?.context("it still runs"))?;
        ensure!(status.success(), "{ENTRYPOINT} ended with {status}");
        Ok(())
    }

    /// Returns the path of the kubeconfig that the DaemonSet's program writes.
    pub fn kubeconfig(&self) -> PathBuf {
        self.node.networks().join("multus.d/multus.kubeconfig")
    }

    /// Returns the path of the configuration for CNI 1.0.0.
    pub fn list(&self) -> PathBuf {
        self.node.networks().join("00-multus.conflist")
    }

    /// Returns the path of the configuration for earlier CNI versions.
    pub fn single(&self) -> PathBuf {
        self.node.networks().join("00-multus.conf")
    }

    fn log(&self) -> PathBuf {
        self.node.dir().join("multus.log")
    }
}

impl Drop for Multus<'_> {
    fn drop(&mut self) {
        let _ = self.end();
        for file in [self.list(), self.single(), self.node.plugins().join("multus")] {
            let _ = fs::remove_file(file);
        }
        let _ = fs::remove_dir_all(self.node.networks().join("multus.d"));
        let _ = self.node.command(Path::new("rm")).args(["-rf", CACHE, ACCOUNT]).status();
    }
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
