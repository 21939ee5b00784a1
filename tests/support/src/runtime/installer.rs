//! Runs `install-cni` on a test node, in the runtime's namespaces and with the node's directories.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use istio_cni::contract;
use istio_cni::install::conflist;
use nix::sys::signal::{Signal, kill};

use super::conflist::AGENT_NAMESPACE;
use super::node::Node;
use super::programs::static_build;
use super::service::child_of;
use super::{signals, wait};

/// The node's name in the API server.
pub const NODE_NAME: &str = "node-1";
/// The address of the readiness endpoint in the node's netns.
const HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);

/// A running daemon, which is killed when the value is dropped.
pub struct Installer<'n> {
    node: &'n Node,
    nsenter: Child,
    run_dir: PathBuf,
}

impl<'n> Installer<'n> {
    /// Starts the daemon on a node without the plugin. `api_server` listens in the node's netns; `args` are additional
    /// flags.
    pub fn start(node: &'n Node, api_server: SocketAddr, args: &[&str]) -> Result<Self> {
        let program = static_build("install-cni").map_err(anyhow::Error::msg)?;
        let (run_dir, image, account) = (node.new_dir("run")?, node.new_dir("image")?, node.new_dir("account")?);
        let linked = node.plugins().join(contract::PLUGIN_NAME);
        fs::copy(fs::canonicalize(&linked)?, image.join(contract::PLUGIN_NAME))?;
        fs::remove_file(&linked)?;
        fs::write(account.join("token"), "token-of-the-node")?;
        fs::write(account.join("ca.crt"), "")?;
        let kubeconfig = account.join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_text(api_server))?;
        let log = File::create(node.dir().join("install-cni.log"))?;
        let mut command = node.command(&program);
        for (flag, path) in [
            ("mounted-cni-net-dir", &node.networks()),
            ("mounted-cni-bin-dir", &node.plugins()),
            ("mounted-cni-cache-dir", &PathBuf::from("/var/lib/cni")),
            ("cni-bin-source-dir", &image),
            ("service-account-dir", &account),
            ("cni-agent-run-dir", &run_dir),
            ("kubeconfig", &kubeconfig),
        ] {
            command.arg(format!("--{flag}={}", path.display()));
        }
        command.arg(format!("--kubernetes-service-host={}", api_server.ip()));
        command.arg(format!("--kubernetes-service-port={}", api_server.port()));
        command.args([&format!("--node-name={NODE_NAME}"), &format!("--pod-namespace={AGENT_NAMESPACE}")]);
        command.args(args).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let nsenter = signals::spawn(&mut command).context("nsenter")?;
        Ok(Self { node, nsenter, run_dir })
    }

    /// Returns the directory of the daemon's sockets.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Waits until the daemon reports readiness and the runtime has loaded the chain.
    pub fn ready(&mut self) -> Result<()> {
        wait::until("install-cni is ready", || {
            if let Some(status) = self.nsenter.try_wait()? {
                bail!("install-cni has ended with {status}");
            }
            let response = self.node.netns().visit(|| get(HEALTH, "/readyz"))??;
            ensure!(response.starts_with("HTTP/1.1 200"), "{response}");
            Ok(())
        })?;
        self.node.loaded("the chain with the plugin", names_plugin)
    }

    /// Sends SIGTERM, as a kubelet does, and waits until the daemon has exited.
    pub fn end(mut self) -> Result<()> {
        let daemon = child_of(nix::unistd::Pid::from_raw(i32::try_from(self.nsenter.id())?), "install-cni")?;
        kill(daemon, Signal::SIGTERM)?;
        let status =
            wait::until("install-cni has ended", || self.nsenter.try_wait()?.context("install-cni still runs"))?;
        ensure!(status.success(), "install-cni ended with {status} (signal {:?})", status.signal());
        Ok(())
    }
}

impl Drop for Installer<'_> {
    fn drop(&mut self) {
        // If `nsenter` is killed, its child may remain; it ends with the runtime's PID namespace.
        let _ = self.nsenter.kill();
        let _ = self.nsenter.wait();
    }
}

/// Whether a configuration list has a chain entry of the plugin. Compares the entries' types, because a search for the
/// plugin's name would also match paths.
pub fn names_plugin(list: &str) -> bool {
    match conflist::Network::parse(list.as_bytes()) {
        Ok(conflist::Network::List(list)) => list.entries().next().is_some(),
        _ => false,
    }
}

fn get(from: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&from, wait::TIMEOUT)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    Ok(response)
}

fn kubeconfig_text(api_server: SocketAddr) -> String {
    format!(
        "apiVersion: v1
kind: Config
clusters: [{{name: local, cluster: {{server: 'http://{api_server}'}}}}]
contexts: [{{name: local, context: {{cluster: local, user: node}}}}]
current-context: local
users: [{{name: node, user: {{token: token-of-the-node}}}}]
"
    )
}
