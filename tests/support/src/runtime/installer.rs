//! Runs `install-cni` on a test node, in the runtime's namespaces and with the node's directories.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use libcni::conflist;
use nix::sys::signal::{Signal, kill};

use super::conflist::AGENT_NAMESPACE;
use super::node::Node;
use super::programs::static_build;
use super::service::child_of;
use super::{signals, wait};

/// The node's name in the API server.
pub const NODE_NAME: &str = "node-1";
/// The name of the daemon's log in the node's directory.
const LOG: &str = "install-cni.log";
/// The address of the readiness endpoint in the node's netns.
const HEALTH: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 8000);

/// Mounts the root at `$0` with an empty `/etc` and `/run`, so that the machine's own configurations and sockets are hidden. Copies the
/// runtime's configuration `$1` to `$2` in it, and creates an empty file in place of the socket `$3`.
const MOUNT_ROOT: &str = r#"
mount --rbind / "$0"
mount -t tmpfs tmpfs "$0/etc"
mount -t tmpfs tmpfs "$0/run"
mkdir -p "$0${2%/*}" "$0${3%/*}"
cp "$1" "$0$2"
: > "$0$3"
shift 3
exec "$@"
"#;

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
        Self::start_in(node, &node.networks(), api_server, args)
    }

    /// Starts the daemon with another directory of network configurations.
    pub fn start_in(node: &'n Node, networks: &Path, api_server: SocketAddr, args: &[&str]) -> Result<Self> {
        let program = static_build("install-cni").map_err(anyhow::Error::msg)?;
        let dirs = [("mounted-cni-net-dir", networks.to_owned()), ("mounted-cni-bin-dir", node.plugins())];
        let dirs = dirs.map(|(flag, path)| format!("--{flag}={}", path.display()));
        Self::run(node, node.command(&program), api_server, dirs.iter().map(String::as_str).chain(args.iter().copied()))
    }

    /// Starts the daemon like [`start`](Self::start), but in a mount namespace in which it sees the node's root as a container does. The
    /// daemon takes the directories of networks and plugins from the runtime's configuration there. `args` are additional flags.
    pub fn finding(node: &'n Node, api_server: SocketAddr, args: &[&str]) -> Result<Self> {
        let program = static_build("install-cni").map_err(anyhow::Error::msg)?;
        let (root, [config, at, socket]) = (node.new_dir("root")?, node.engine().on_a_node(node.dir()));
        let mut command = node.command("unshare".as_ref());
        command.args(["--mount", "sh", "-ec", MOUNT_ROOT]).args([&root, &config, &at, &socket]).arg(&program);
        let root = format!("--host-root={}", root.display());
        let found = ["--mounted-cni-net-dir=auto", "--mounted-cni-bin-dir=auto", root.as_str()];
        Self::run(node, command, api_server, found.into_iter().chain(args.iter().copied()))
    }

    fn run<'a>(
        node: &'n Node,
        mut command: Command,
        api_server: SocketAddr,
        args: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        let (run_dir, image, account) = (node.new_dir("run")?, node.new_dir("image")?, node.new_dir("account")?);
        let linked = node.plugins().join(contract::PLUGIN_NAME);
        fs::copy(fs::canonicalize(&linked)?, image.join(contract::PLUGIN_NAME))?;
        fs::remove_file(&linked)?;
        fs::write(account.join("token"), "token-of-the-node")?;
        fs::write(account.join("ca.crt"), "")?;
        let kubeconfig = account.join("kubeconfig");
        fs::write(&kubeconfig, kubeconfig_text(api_server))?;
        let log = File::create(node.dir().join(LOG))?;
        for (flag, path) in [
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
        self.installed()?;
        self.node.loaded("the chain with the plugin", names_plugin)
    }

    /// Waits until the daemon reports readiness.
    pub fn installed(&mut self) -> Result<()> {
        self.reports("install-cni is ready", |response| response.starts_with("HTTP/1.1 200"))
    }

    /// Waits until the daemon's response to a readiness probe satisfies the predicate.
    pub fn reports(&mut self, condition: &str, holds: impl Fn(&str) -> bool) -> Result<()> {
        wait::until(condition, || {
            if let Some(status) = self.nsenter.try_wait()? {
                bail!("install-cni has ended with {status}");
            }
            let response = self.node.netns().visit(|| get(HEALTH, "/readyz"))??;
            ensure!(holds(&response), "{response}");
            Ok(())
        })
    }

    /// Stops the daemon's process.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)
    }

    /// Continues the daemon's process, and `nsenter`, which stops itself when its child stops.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)?;
        Ok(kill(nix::unistd::Pid::from_raw(i32::try_from(self.nsenter.id())?), Signal::SIGCONT)?)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let daemon = child_of(nix::unistd::Pid::from_raw(i32::try_from(self.nsenter.id())?), "install-cni")?;
        Ok(kill(daemon, signal)?)
    }

    /// Returns the daemon's log.
    pub fn log(&self) -> Result<String> {
        let path = self.node.dir().join(LOG);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    }

    /// Sends SIGTERM, as a kubelet does, and waits until the daemon has exited.
    pub fn end(mut self) -> Result<()> {
        self.signal(Signal::SIGTERM)?;
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
