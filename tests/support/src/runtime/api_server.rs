//! A double of the API server: HTTPS with its own CA, a bearer token, and `GET` of one pod.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use nix::sys::socket::{Shutdown, shutdown};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;

use super::cluster::Cluster;
use super::http::{self, Request};
use super::netns::Netns;

/// The read timeout, after which the thread of a silent client ends.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// A running double.
pub struct ApiServer {
    address: SocketAddr,
    authority: String,
    token: String,
    listener: TcpListener,
    thread: Option<JoinHandle<()>>,
}

impl ApiServer {
    /// Starts a double on the loopback interface of `netns`, in which the runtime runs the plugin.
    pub fn start(netns: &Netns, cluster: Arc<Cluster>) -> Result<Self> {
        let listener = netns.visit(|| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?.context("API server")?;
        let address = listener.local_addr()?;
        let (authority, config) = tls(&address.ip().to_string())?;
        let token = format!("token-of-{}", address.port());
        let (accepting, expected) = (listener.try_clone()?, format!("Bearer {token}"));
        let thread = std::thread::spawn(move || {
            // The loop ends when the listener is shut down. An error affects one connection only.
            while let Ok((stream, _)) = accepting.accept() {
                let (config, expected, cluster) = (Arc::clone(&config), expected.clone(), Arc::clone(&cluster));
                std::thread::spawn(move || serve(stream, &config, &expected, &cluster));
            }
        });
        Ok(Self { address, authority, token, listener, thread: Some(thread) })
    }

    /// Writes the plugin's kubeconfig to the run directory.
    pub fn write_kubeconfig(&self, run_dir: &Path) -> Result<()> {
        use std::os::unix::fs::PermissionsExt as _;
        let (address, token) = (self.address, &self.token);
        let authority = STANDARD.encode(&self.authority);
        let text = format!(
            "apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: {authority}
    server: https://{address}
  name: local
contexts:
- context:
    cluster: local
    user: istio-cni
  name: istio-cni-context
current-context: istio-cni-context
kind: Config
users:
- name: istio-cni
  user:
    token: {token}
"
        );
        let path = run_dir.join(contract::KUBECONFIG);
        std::fs::write(&path, text).with_context(|| path.display().to_string())?;
        Ok(std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?)
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Creates a CA and a server certificate; returns the CA's certificate (PEM) and the server's configuration.
fn tls(name: &str) -> Result<(String, Arc<ServerConfig>)> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "authority of the tests");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    let authority_pem = authority.self_signed(&authority_key)?.pem();
    let key = KeyPair::generate()?;
    let certificate =
        CertificateParams::new([name.to_owned()])?.signed_by(&key, &Issuer::new(authority, authority_key))?;
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))?;
    Ok((authority_pem, Arc::new(config)))
}

fn serve(stream: TcpStream, config: &Arc<ServerConfig>, authorization: &str, cluster: &Cluster) -> Result<()> {
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    let mut stream = StreamOwned::new(ServerConnection::new(config.clone())?, stream);
    let request = Request::read(&mut stream)?;
    cluster.record("API server", &request.line);
    let (status, body) = respond(&request, authorization, cluster);
    http::respond(&mut stream, status, &body)?;
    stream.conn.send_close_notify();
    Ok(stream.conn.complete_io(&mut stream.sock).map(drop)?)
}

fn respond(request: &Request, authorization: &str, cluster: &Cluster) -> (&'static str, String) {
    if request.authorization.as_deref() != Some(authorization) {
        return ("401 Unauthorized", refusal("Unauthorized", 401));
    }
    let path: Vec<&str> = request.target().unwrap_or_default().split('/').collect();
    let pod = match path.as_slice() {
        ["", "api", "v1", "namespaces", namespace, "pods", name] => cluster.pod(namespace, name),
        _ => None,
    };
    pod.map_or_else(|| ("404 Not Found", refusal("NotFound", 404)), |pod| ("200 OK", pod.object().to_string()))
}

fn refusal(reason: &str, code: u16) -> String {
    json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": reason, "code": code })
        .to_string()
}
