//! `install-cni` on a node of the tests: in containerd's namespaces, with the node's directories.

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
use super::containerd::child_of;
use super::node::Node;
use super::programs::static_build;
use super::{signals, wait};

/// The name by which the API server knows the node.
pub const NODE_NAME: &str = "node-1";
/// Where it tells whether the node is ready; the network namespace is the node's own.
const HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);

/// The running daemon; dropping it kills it.
pub struct Installer<'n> {
    node: &'n Node,
    nsenter: Child,
    run_dir: PathBuf,
}

impl<'n> Installer<'n> {
    /// Starts it on a node without the plugin. `api_server` listens in the node's network namespace; `args` are further
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

    /// The directory of its sockets.
    pub fn run_dir(&self) -> &Path {
        &self.run_dir
    }

    /// Waits until the node is ready by its own word, and the runtime has loaded the chain.
    pub fn ready(&mut self) -> Result<()> {
        wait::until("install-cni is ready", || {
            if let Some(status) = self.nsenter.try_wait()? {
                bail!("it has ended with {status}");
            }
            let answer = self.node.netns().visit(|| get(HEALTH, "/readyz"))??;
            ensure!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            Ok(())
        })?;
        self.node.loaded("the chain with the plugin", names_plugin)
    }

    /// Tells it to end, as a kubelet does, and waits for that.
    pub fn end(mut self) -> Result<()> {
        let daemon = child_of(nix::unistd::Pid::from_raw(i32::try_from(self.nsenter.id())?))?;
        kill(daemon, Signal::SIGTERM)?;
        let status = wait::until("install-cni has ended", || self.nsenter.try_wait()?.context("it runs"))?;
        ensure!(status.success(), "install-cni ended with {status} (signal {:?})", status.signal());
        Ok(())
    }
}

impl Drop for Installer<'_> {
    fn drop(&mut self) {
        // nsenter takes its child with it only where it can; containerd's namespace takes the rest.
        let _ = self.nsenter.kill();
        let _ = self.nsenter.wait();
    }
}

/// Whether a list names the plugin; its name alone is part of many paths.
pub fn names_plugin(list: &str) -> bool {
    match conflist::Network::parse(list.as_bytes()) {
        Ok(conflist::Network::List(list)) => list.entries().next().is_some(),
        _ => false,
    }
}

fn get(from: SocketAddr, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&from, wait::PATIENCE)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
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
