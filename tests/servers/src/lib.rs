//! Doubles of the agent and of the API server. Each connection is served by the next script in a list; the last script serves all later
//! connections. A double records the requests that it receives. Its thread ends when the double is dropped.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "in a test, a panic is the report")]
#![allow(clippy::disallowed_methods, reason = "tests start processes, measure time and use files")]
#![allow(clippy::new_without_default, reason = "constructors have effects: directories, namespaces, keys")]

pub mod port;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use podfacts::PodName;
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned, SupportedProtocolVersion};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The time limit of an expected condition. A condition that comes true ends its wait at once, so the limit is far beyond
/// what the slowest machine needs.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// The behaviour of a double on one connection, after it has read the request.
#[derive(Clone)]
pub enum Script {
    /// Send these bytes, then close.
    Send(Vec<u8>),
    /// Send these bytes, then keep the connection open until the client closes it.
    Hold(Vec<u8>),
    /// Send these bytes one by one with this pause before each.
    Drip(Vec<u8>, Duration),
}

impl Script {
    pub fn respond(status: u16, body: impl Into<String>) -> Self {
        let body = body.into();
        Self::Send(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
    }

    fn play(&self, stream: &mut (impl Read + Write)) {
        match self {
            Self::Send(bytes) => drop(stream.write_all(bytes).and_then(|()| stream.flush())),
            Self::Hold(bytes) => {
                drop(stream.write_all(bytes).and_then(|()| stream.flush()));
                while stream.read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
            }
            Self::Drip(bytes, pause) => {
                for byte in bytes {
                    std::thread::sleep(*pause);
                    if stream.write_all(&[*byte]).and_then(|()| stream.flush()).is_err() {
                        return;
                    }
                }
            }
        }
    }
}

fn read_request(stream: &mut impl Read) -> String {
    let mut request = Vec::new();
    let mut chunk = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut chunk) {
            Ok(count) if count > 0 => request.extend_from_slice(&chunk[..count]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&request).into_owned()
}

/// The scripts of a double and the requests that it received.
#[derive(Clone)]
struct Play {
    scripts: Arc<Vec<Script>>,
    requests: Arc<Mutex<Vec<String>>>,
    over: Arc<AtomicBool>,
}

impl Play {
    fn new(scripts: Vec<Script>) -> Self {
        Self { scripts: Arc::new(scripts), requests: Arc::default(), over: Arc::default() }
    }

    fn serve(&self, stream: &mut (impl Read + Write)) {
        let request = read_request(stream);
        if request.is_empty() {
            return;
        }
        let mut requests = self.requests.lock().unwrap();
        let script = self.scripts[requests.len().min(self.scripts.len() - 1)].clone();
        requests.push(request);
        drop(requests);
        script.play(stream);
    }

    /// Serves each stream that `accept` returns in a thread of its own, until the double is dropped.
    fn start<S: Read + Write + Send + 'static>(&self, accept: impl Fn() -> S + Send + 'static) -> JoinHandle<()> {
        let play = self.clone();
        std::thread::spawn(move || {
            loop {
                let mut stream = accept();
                if play.over.load(Ordering::Relaxed) {
                    return;
                }
                let play = play.clone();
                std::thread::spawn(move || play.serve(&mut stream));
            }
        })
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

/// A double of the agent, with a socket in a run directory.
pub struct Agent {
    play: Play,
    path: PathBuf,
    thread: Option<JoinHandle<()>>,
}

impl Agent {
    pub fn start(run_dir: &Path, scripts: Vec<Script>) -> Self {
        let path = run_dir.join("agent.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let play = Play::new(scripts);
        let thread = play.start(move || listener.accept().unwrap().0);
        Self { play, path, thread: Some(thread) }
    }

    pub fn requests(&self) -> Vec<String> {
        self.play.requests()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.play.over.store(true, Ordering::Relaxed);
        drop(UnixStream::connect(&self.path));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A certificate authority.
pub struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pub pem: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: rcgen::Issuer::new(params, key), pem }
    }

    fn server_config(&self, name: &str, versions: &[&'static SupportedProtocolVersion]) -> Arc<ServerConfig> {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate =
            rcgen::CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        Arc::new(config)
    }
}

/// A double of the API server over TLS.
pub struct Api {
    play: Play,
    pub address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Api {
    pub fn start(authority: &Authority, scripts: Vec<Script>) -> Self {
        Self::start_as(authority, "127.0.0.1", rustls::ALL_VERSIONS, scripts)
    }

    pub fn start_as(
        authority: &Authority,
        name: &str,
        versions: &[&'static SupportedProtocolVersion],
        scripts: Vec<Script>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let config = authority.server_config(name, versions);
        let play = Play::new(scripts);
        let thread = play.start(move || {
            let stream = listener.accept().unwrap().0;
            StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream)
        });
        Self { play, address, thread: Some(thread) }
    }

    pub fn requests(&self) -> Vec<String> {
        self.play.requests()
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.play.over.store(true, Ordering::Relaxed);
        drop(TcpStream::connect(self.address));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Creates a run directory with a kubeconfig as the installer writes it. Without `ca` the kubeconfig has
/// `insecure-skip-tls-verify`.
pub fn run_dir(server: SocketAddr, ca: Option<&str>) -> TempDir {
    run_dir_named(server, ca, None)
}

/// Creates a run directory like [`run_dir`]; `name` is the kubeconfig's `tls-server-name`.
pub fn run_dir_named(server: SocketAddr, ca: Option<&str>, name: Option<&str>) -> TempDir {
    let name = name.map(|name| format!("\n    tls-server-name: {name}")).unwrap_or_default();
    let dir = tempfile::tempdir().unwrap();
    let trust = match ca {
        Some(pem) => format!("certificate-authority-data: {}", STANDARD.encode(pem)),
        None => "insecure-skip-tls-verify: true".to_owned(),
    };
    let text = format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    {trust}\n    server: https://{server}{name}\n  name: local\n\
         contexts:\n- context:\n    cluster: local\n    user: istio-cni\n  name: istio-cni-context\n\
         current-context: istio-cni-context\nkind: Config\nusers:\n- name: istio-cni\n  user:\n    token: t0ken\n"
    );
    std::fs::write(dir.path().join("istio-cni-kubeconfig"), text).unwrap();
    dir
}

pub fn web() -> PodName {
    PodName { namespace: "shop".into(), name: "web-0".into() }
}

/// Returns a pod with a sidecar.
pub fn pod(uid: &str) -> Value {
    json!({
        "kind": "Pod",
        "metadata": {"uid": uid, "annotations": {"sidecar.istio.io/status": "{}"}},
        "spec": {"containers": [{"name": "web"}, {"name": "istio-proxy", "args": ["proxy", "sidecar"]}]},
    })
}

/// Returns the body of the agent's response for the pod that [`pod`] returns.
pub fn facts(uid: &str) -> String {
    let facts = podfacts::PodFacts::from_pod_json(pod(uid).to_string().as_bytes()).unwrap();
    serde_json::to_string(&facts).unwrap()
}

/// Returns a script that responds with a Kubernetes `Status` of this code.
pub fn status(code: u16, message: &str) -> Script {
    Script::respond(code, json!({"kind": "Status", "status": "Failure", "message": message, "code": code}).to_string())
}
