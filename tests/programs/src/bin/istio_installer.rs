//! A stand-in for Istio's `install-cni` in the migration trials, which installs, restores and removes as Istio's does
//! in sidecar mode.
//!
//! It installs the plugin of its image. After each change of the node it rewrites the binary and the kubeconfig and
//! restores a missing chain entry; if the previous time was less than five seconds ago, it first waits up to a second.
//! At SIGTERM it removes chain entry, kubeconfig and binary, even during an upgrade, and unlinks the path of its log
//! socket.
#![expect(clippy::disallowed_methods, reason = "a program of its own: it reads its environment and changes the node")]

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::signal::{SigSet, Signal};
use serde_json::{Value, json};

const SOURCE: &str = "/opt/cni/bin/istio-cni";
const PLUGIN: &str = "/host/opt/cni/bin/istio-cni";
const NETWORKS: &str = "/host/etc/cni/net.d";
const RUN: &str = "/var/run/istio-cni";
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.thread_block()?;
    let log = Path::new(RUN).join("log.sock");
    let _ = fs::remove_file(&log);
    let listener = UnixListener::bind(&log)?;
    fs::set_permissions(&log, Permissions::from_mode(0o666))?;
    thread::spawn(move || listener.incoming().flatten().for_each(|mut stream| drop(stream.read(&mut [0; 4096]))));
    let (ready, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let health = Arc::clone(&ready);
    let port = TcpListener::bind(("0.0.0.0", 8000))?;
    thread::spawn(move || port.incoming().flatten().for_each(|stream| probe(stream, health.load(Ordering::Relaxed))));
    let end = Arc::clone(&ended);
    let installing = thread::spawn(move || keep(&ready, &end));
    signals.wait()?;
    ended.store(true, Ordering::Relaxed);
    let _ = installing.join();
    // Go's listener unlinks the path of its socket on close, even if the path is another process's socket by then.
    let _ = fs::remove_file(&log);
    remove()
}

fn probe(mut stream: std::net::TcpStream, ready: bool) {
    let _ = stream.read(&mut [0; 1024]);
    let status = if ready { "200 OK" } else { "503 Service Unavailable" };
    let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
}

/// Installs, and installs again after each change of the node, until SIGTERM.
fn keep(ready: &AtomicBool, ended: &AtomicBool) {
    let mut last = None::<Instant>;
    while !ended.load(Ordering::Relaxed) {
        if let Some(last) = last {
            // Istio's rate limiter allows one installation in five seconds, and Istio's installer waits for it at most
            // a second.
            let left = Duration::from_secs(5).saturating_sub(last.elapsed());
            thread::sleep(left.min(Duration::from_secs(1)));
        }
        last = Some(Instant::now());
        let _ = install();
        let seen = state();
        while !ended.load(Ordering::Relaxed) && state() == seen && is_valid() {
            ready.store(true, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(20));
        }
        ready.store(false, Ordering::Relaxed);
    }
}

/// Returns the inodes and change times of the files that Istio's installer watches by inotify: the binary, the network
/// directory and its configuration, the token.
fn state() -> Vec<Option<(u64, i64, i64)>> {
    let look = |path: &Path| fs::metadata(path).ok().map(|file| (file.ino(), file.ctime(), file.ctime_nsec()));
    let network = network().unwrap_or_default();
    [Path::new(PLUGIN), Path::new(NETWORKS), &network, &Path::new(ACCOUNT).join("token")].map(look).to_vec()
}

fn network() -> Option<PathBuf> {
    let entries = fs::read_dir(NETWORKS).ok()?.flatten().map(|entry| entry.path());
    entries.filter(|path| path.extension().is_some_and(|extension| extension == "conflist")).min()
}

fn read(path: &Path) -> Outcome<Value> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn is_ours(plugin: &Value) -> bool {
    plugin["type"] == "istio-cni"
}

fn is_valid() -> bool {
    let list = network().and_then(|path| read(&path).ok());
    list.is_some_and(|list| list["plugins"].as_array().is_some_and(|plugins| plugins.iter().any(is_ours)))
}

fn install() -> Outcome<()> {
    replace(Path::new(PLUGIN), &fs::read(SOURCE)?, 0o755)?;
    replace(&Path::new(RUN).join("istio-cni-kubeconfig"), kubeconfig()?.as_bytes(), 0o600)?;
    if is_valid() {
        return Ok(());
    }
    let path = network().ok_or("no network")?;
    let mut list = read(&path)?;
    let plugins = list["plugins"].as_array_mut().ok_or("no plugins")?;
    plugins.push(json!({
        "type": "istio-cni", "name": "istio-cni", "plugin_log_level": "info", "cni_agent_run_dir": RUN,
        "ambient_enabled": false, "enablement_selectors": [], "exclude_namespaces": ["kube-system"],
        "pod_namespace": "kube-system", "native_nftables": false, "enable_ambient_detection_retry": false,
        "ipam": {}, "dns": {},
    }));
    write_list(&path, &list)
}

fn kubeconfig() -> Outcome<String> {
    let account = Path::new(ACCOUNT);
    let (host, port) = (std::env::var("KUBERNETES_SERVICE_HOST")?, std::env::var("KUBERNETES_SERVICE_PORT")?);
    let authority = STANDARD.encode(fs::read(account.join("ca.crt"))?);
    let token = fs::read_to_string(account.join("token"))?;
    let cluster = json!({ "certificate-authority-data": authority, "server": format!("https://{host}:{port}") });
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "istio-cni-context",
        "clusters": [{ "cluster": cluster, "name": "local" }],
        "contexts": [{ "context": { "cluster": "local", "user": "istio-cni" }, "name": "istio-cni-context" }],
        "users": [{ "name": "istio-cni", "user": { "token": token } }],
    });
    Ok(config.to_string())
}

fn write_list(path: &Path, list: &Value) -> Outcome<()> {
    replace(path, serde_json::to_string_pretty(list)?.as_bytes(), fs::metadata(path)?.mode() & 0o7777)
}

fn replace(path: &Path, content: &[u8], mode: u32) -> Outcome<()> {
    let name = path.file_name().ok_or("no name")?.to_string_lossy();
    let temporary = path.with_file_name(format!("{name}.tmp.{}", std::process::id()));
    let mut file = File::create(&temporary)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content)?;
    drop(file);
    Ok(fs::rename(temporary, path)?)
}

/// Removes chain entry, kubeconfig and binary.
fn remove() -> Outcome<()> {
    if let Some(path) = network() {
        let mut list = read(&path)?;
        let plugins = list["plugins"].as_array_mut().ok_or("no plugins")?;
        if let Some(at) = plugins.iter().position(is_ours) {
            plugins.remove(at);
        }
        write_list(&path, &list)?;
    }
    fs::remove_file(Path::new(RUN).join("istio-cni-kubeconfig"))?;
    Ok(fs::remove_file(PLUGIN)?)
}
