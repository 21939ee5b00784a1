//! Runs the real `install-cni` on a node that consists of temporary directories, with an API server double that has the Node object and the
//! agent's DaemonSet.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::DEADLINE;
use crate::api::Api;
use crate::program::{self, under_test};
use test_servers::port;

pub const LIST: &str = "{\"cniVersion\": \"1.0.0\", \"name\": \"net\", \"plugins\": [{\"type\": \"ptp\"}]}\n";
/// The sysctl that limits each user's inotify instances in the user namespace of the process that accesses it.
const INSTANCES: &str = "/proc/sys/user/max_inotify_instances";

/// Waits until `check` succeeds; panics with its last error after a deadline.
#[track_caller]
pub fn until<T>(what: &str, mut check: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match check() {
            Ok(found) => return found,
            Err(last) => {
                assert!(Instant::now() < deadline, "no {what} within {DEADLINE:?}; last: {last}");
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The parts of an installation, as named by [`Node::installed`], that an exiting agent leaves on the node for the agent that follows it or
/// has superseded it.
pub const KEPT: [&str; 3] = ["chain entry", "kubeconfig", "plugin"];
/// A part of the line that an agent logs when another agent supersedes it.
pub const STANDBY: &str = "this one takes over again if that one ends";
/// A part of the last log line of a superseded agent that exits.
pub const SUPERSEDED: &str = "kept: another agent serves this node already";

/// The directories of a node, at first without an installation.
pub struct Node {
    root: TempDir,
}

impl Node {
    pub fn new() -> Self {
        Self::within(tempfile::tempdir().unwrap())
    }

    pub fn within(root: TempDir) -> Self {
        let node = Self { root };
        for dir in ["net", "bin", "run", "image", "account", "cache"] {
            fs::create_dir(node.path(dir)).unwrap();
        }
        fs::write(node.path("bin/ptp"), "").unwrap();
        fs::write(node.path("image/istio-cni"), [0x7f; 1000]).unwrap();
        fs::write(node.path("account/token"), "token-1").unwrap();
        fs::write(node.path("account/ca.crt"), "-----BEGIN CERTIFICATE-----\n").unwrap();
        node.remove_entry();
        node
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }

    /// Writes the network configuration without the chain entry, with a modification time of a minute ago.
    pub fn remove_entry(&self) {
        let path = self.path("net/10-net.conflist");
        fs::write(&path, LIST).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    }

    /// Returns which of these exist: the chain entry, the kubeconfig, the plugin and the agent's two sockets.
    pub fn installed(&self) -> Vec<&'static str> {
        let chain = fs::read_to_string(self.path("net/10-net.conflist")).unwrap_or_default();
        let parts = [
            ("chain entry", chain.contains("istio-cni")),
            ("kubeconfig", self.path("run/istio-cni-kubeconfig").exists()),
            ("plugin", self.path("bin/istio-cni").exists()),
            ("agent.sock", self.path("run/agent.sock").exists()),
            ("log.sock", self.path("run/log.sock").exists()),
        ];
        parts.into_iter().filter_map(|(part, there)| there.then_some(part)).collect()
    }

    /// Waits until everything that [`Self::installed`] can return exists.
    #[track_caller]
    pub fn until_installed(&self) {
        until("a complete installation", || match self.installed() {
            all if all.len() == 5 => Ok(()),
            some => Err(format!("{some:?}")),
        });
    }

    /// Requests a pod in the namespace `shop` from the agent's socket; returns the response's status and body.
    pub fn request(&self, pod: &str, uid: &str) -> (u16, String) {
        exchange_on(&self.path("run/agent.sock"), &format!("GET /pod?namespace=shop&name={pod}&uid={uid}"), "")
    }

    /// Posts log lines to the agent's log socket as the plugin does; returns the status.
    pub fn log(&self, lines: &[Value]) -> u16 {
        let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
        exchange_on(&self.path("run/log.sock"), "POST /log", &serde_json::to_string(&lines).unwrap()).0
    }
}

/// Sends a request to a Unix socket; returns status and body, or status 0 and the error if nothing listens.
pub fn exchange_on(path: &Path, request: &str, body: &str) -> (u16, String) {
    match UnixStream::connect(path) {
        Ok(stream) => exchange(stream, request, body),
        Err(error) => (0, error.to_string()),
    }
}

/// Sends a request on a connection; returns status and body.
pub fn exchange(mut stream: impl std::io::Read + std::io::Write, request: &str, body: &str) -> (u16, String) {
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    // The peer may respond and close before the whole request is written.
    let _ = stream.write_all(format!("{head}{body}").as_bytes());
    read_response(&mut stream)
}

/// Reads a response to its end; returns status and body, or status 0 if there is no response.
pub fn read_response(stream: &mut impl std::io::Read) -> (u16, String) {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(count @ 1..) = stream.read(&mut buffer) {
        bytes.extend_from_slice(&buffer[..count]);
    }
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, body.to_owned())
}

/// A running `install-cni`, killed on drop.
pub struct Daemon {
    child: Child,
    health: u16,
    metrics: u16,
    log: PathBuf,
}

impl Daemon {
    pub fn start(node: &Node, api: &str) -> Self {
        Self::with_variables(node, api, &[])
    }

    pub fn with_variables(node: &Node, api: &str, variables: &[(&str, &str)]) -> Self {
        Self::with_ports(free_ports(), node, api, variables)
    }

    /// Starts a build of the daemon other than the one under test.
    pub fn of_program(program: &Path, node: &Node, api: &str, variables: &[(&str, &str)]) -> Self {
        Self::command(free_ports(), node, api, |command| {
            let mut other = Command::new(program);
            let given = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
            other.args(command.get_args()).env_clear().envs(given).envs(variables.iter().copied());
            *command = other;
        })
    }

    /// Starts the daemon in a user namespace in which root can have this number of inotify instances.
    pub fn with_inotify(node: &Node, api: &str, instances: u32) -> Self {
        let enter = format!("echo {instances} > {INSTANCES} && exec \"$@\"");
        let inside = ["unshare", "--user", "--map-root-user", "sh", "-c", &enter, "sh"];
        Self::command(free_ports(), node, api, |command| *command = run_by(&inside, command))
    }

    /// Starts the daemon in a mount namespace, with the node's directories mounted below `mounted`, as in a container.
    pub fn with_mounts(node: &Node, api: &str) -> Self {
        let dirs = [
            ("mounted-cni-net-dir", "net"),
            ("mounted-cni-bin-dir", "bin"),
            ("mounted-cni-cache-dir", "cache"),
            ("cni-agent-run-dir", "run"),
        ];
        let root = node.root.path().display().to_string();
        let enter = "cd $0 && for d in net bin cache run; do mkdir -p mounted/$d && mount --bind $d mounted/$d || exit; done; exec \"$@\"";
        Self::command(free_ports(), node, api, |command| {
            command.args(dirs.map(|(flag, dir)| format!("--{flag}={root}/mounted/{dir}")));
            *command = run_by(&["unshare", "--mount", "sh", "-c", enter, &root], command);
        })
    }

    /// Starts the daemon with additional flags under [`strace`].
    pub fn traced(node: &Node, api: &str, flags: &[String], calls: &str, log: &Path) -> Self {
        Self::command(free_ports(), node, api, |command| *command = strace(command.args(flags), calls, log))
    }

    /// Changes the limit on inotify instances in the daemon's user namespace.
    pub fn allow_inotify(&self, instances: u32) {
        let pid = self.child.id().to_string();
        let write = format!("echo {instances} > {INSTANCES}");
        let done = Command::new("nsenter").args(["--user", "--target", &pid, "sh", "-c", &write]).status();
        assert!(done.unwrap().success());
    }

    /// Starts the daemon with additional flags, which follow the flags for the node.
    pub fn with_flags(node: &Node, api: &str, flags: &[String]) -> Self {
        Self::command(free_ports(), node, api, |command| {
            command.args(flags);
        })
    }

    /// Starts the daemon with these ports for health and metrics, and these environment variables.
    pub fn with_ports(ports: [u16; 2], node: &Node, api: &str, variables: &[(&str, &str)]) -> Self {
        Self::command(ports, node, api, |command| {
            command.envs(variables.iter().copied());
        })
    }

    fn command([health, metrics]: [u16; 2], node: &Node, api: &str, extend: impl FnOnce(&mut Command)) -> Self {
        let config = node.path("kubeconfig");
        crate::api::kubeconfig(&config, api);
        let log = node.path(&format!("log.{health}"));
        let mut command = Command::new(under_test("install-cni"));
        command.env_clear().args(directories(node)).arg("--kubeconfig").arg(&config);
        command.arg(format!("--health-port={health}")).arg(format!("--monitoring-port={metrics}"));
        command.args(["--node-name=n1", "--pod-namespace=istio-system", "--pod-name=agent", "--log_as_json"]);
        command.env("KUBERNETES_SERVICE_HOST", "10.0.0.1").env("KUBERNETES_SERVICE_PORT", "443");
        extend(&mut command);
        let output = File::create(&log).unwrap();
        let child = command.stderr(output.try_clone().unwrap()).stdout(output).spawn().unwrap();
        Self { child, health, metrics, log }
    }

    /// Returns the port that serves metrics and the status page.
    pub fn monitoring(&self) -> u16 {
        self.metrics
    }

    /// Requests a path from the daemon; returns status and body, or status 0 and the error if nothing listens.
    pub fn get(&self, path: &str) -> (u16, String) {
        let is_monitoring = ["/metrics", "/status"].iter().any(|part| path.starts_with(part));
        let port = if is_monitoring { self.metrics } else { self.health };
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
            Ok(stream) => exchange(stream, &format!("GET {path}"), ""),
            Err(error) => (0, error.to_string()),
        }
    }

    /// Waits until `/readyz` has this status and contains `part`.
    #[track_caller]
    pub fn readyz(&self, status: u16, part: &str) {
        until(&format!("{status} {part} of /readyz"), || match self.get("/readyz") {
            (found, text) if found == status && text.contains(part) => Ok(()),
            (found, text) => Err(format!("{found} {text}; log: {}", self.log_text())),
        });
    }

    #[track_caller]
    pub fn ready(&self) {
        self.readyz(200, "ok");
    }

    /// Returns the daemon's log so far.
    pub fn log_text(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Waits for a log line that contains `words`, and returns the first one.
    #[track_caller]
    pub fn line(&self, words: &str) -> Value {
        until(words, || {
            let log = self.log_text();
            let line = log.lines().find(|line| line.contains(words)).ok_or_else(|| log.clone())?;
            serde_json::from_str(line).map_err(|_| log.clone())
        })
    }

    /// Returns the peak resident memory in KiB.
    pub fn peak(&self) -> u64 {
        self.memory("VmHWM:")
    }

    /// Returns the value of a line in `/proc/PID/status`, such as `VmRSS:`, in KiB.
    pub fn memory(&self, line: &str) -> u64 {
        let status = fs::read_to_string(self.process().join("status")).unwrap();
        let line = status.lines().find_map(|found| found.strip_prefix(line)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Returns the process's directory in `/proc`.
    pub fn process(&self) -> PathBuf {
        format!("/proc/{}", self.child.id()).into()
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Sends SIGTERM, waits until the daemon has exited, and returns exit code and log.
    #[track_caller]
    pub fn end(mut self) -> (Option<i32>, String) {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Ends a superseded daemon, asserts that it keeps the installation, and returns the log.
    #[track_caller]
    pub fn end_superseded(self) -> String {
        let (code, log) = self.end();
        assert!(code == Some(0) && log.contains(SUPERSEDED), "{code:?} {log}");
        log
    }

    #[track_caller]
    fn ended(&mut self) -> (Option<i32>, String) {
        let log = self.log.clone();
        let status = until("the daemon's end", || {
            let ended = self.child.try_wait().unwrap();
            ended.ok_or_else(|| fs::read_to_string(&log).unwrap())
        });
        let log = self.log_text();
        assert!(!log.contains("token-1"), "the log contains a token: {log}");
        (status.code(), log)
    }
}

/// Returns the command run under strace, which writes the system calls named by `calls` to `log`. Strings are written
/// in full and in hexadecimal, and descriptors are followed by their paths. The spawned process is the command; strace
/// runs as its child.
pub fn strace(command: &Command, calls: &str, log: &Path) -> Command {
    let (calls, log) = (format!("trace={calls}"), log.display().to_string());
    run_by(&["strace", "-D", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "1000000", "-e", &calls, "-o", &log], command)
}

/// Returns a command that runs `program` with the given command appended to its arguments, and with the same
/// environment variables and `PATH`.
fn run_by(program: &[&str], command: &Command) -> Command {
    let mut outside = Command::new(program[0]);
    outside.args(&program[1..]).arg(command.get_program()).args(command.get_args()).env_clear();
    let variables = command.get_envs().filter_map(|(key, value)| Some((key, value?)));
    outside.envs(variables).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    outside
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        program::show_log_of_failure("install-cni", &self.log);
    }
}

/// Returns the flags that name the directories of the node.
pub fn directories(node: &Node) -> Vec<String> {
    [
        ("mounted-cni-net-dir", "net"),
        ("mounted-cni-bin-dir", "bin"),
        ("mounted-cni-cache-dir", "cache"),
        ("cni-bin-source-dir", "image"),
        ("service-account-dir", "account"),
        ("cni-agent-run-dir", "run"),
    ]
    .map(|(flag, dir)| format!("--{flag}={}", node.path(dir).display()))
    .to_vec()
}

/// Returns two free ports, for health and for metrics.
pub fn free_ports() -> [u16; 2] {
    [port::free(), port::free()]
}

/// Starts an API server double that has the node and the agent's DaemonSet.
pub async fn cluster() -> Api {
    let api = Api::start().await;
    api.put(json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "labels": { "os": "linux" } }, "spec": {} }));
    api.put(daemon_set());
    api
}

/// Returns the agent's DaemonSet, which selects the node.
pub fn daemon_set() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet",
        "metadata": { "namespace": "istio-system", "name": "istio-cni-node" },
        "spec": {
            "selector": {},
            "template": { "spec": { "nodeSelector": { "os": "linux" }, "containers": [{ "name": "install-cni" }] } },
        },
    })
}

/// Returns the agent's own pod, in the namespace of its DaemonSet.
pub fn own_pod() -> Value {
    let mut own = pod("agent", "own");
    own["metadata"]["namespace"] = "istio-system".into();
    own
}

/// Returns an injected pod on this node.
pub fn pod(name: &str, uid: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": name, "uid": uid, "annotations": { "sidecar.istio.io/status": "{}" },
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true }],
        },
        "spec": { "nodeName": "n1", "containers": [{ "name": "istio-proxy", "args": ["proxy", "sidecar"] }] },
        "status": { "phase": "Pending" },
    })
}
