//! The shipped `sidecar-injector` as a process, with a certificate that rotates in files.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustls::ClientConfig;
use rustls::pki_types::UnixTime;
use tempfile::TempDir;
use test_support::api::{Api, kubeconfig};
use test_support::client::{Connection, NAME, trusting};
use test_support::daemon::free_ports;
use test_support::program::under_test;
use webhook::{Issued, Lifetime};

/// A running injector, killed on drop.
pub(crate) struct Injector {
    child: Child,
    dir: TempDir,
    pub(crate) address: SocketAddr,
    issued: Mutex<Issued>,
}

impl Injector {
    /// Starts the injector with its built-in configuration and waits until it accepts connections.
    pub(crate) async fn start(api: &Api) -> Self {
        let (dir, [port, monitoring]) = (tempfile::tempdir().unwrap(), free_ports());
        kubeconfig(&dir.path().join("kubeconfig"), &api.url());
        let issued = issue(None);
        write(&dir, &issued);
        let mut command = Command::new(under_test("sidecar-injector"));
        command.env_clear().stdin(Stdio::null());
        for (flag, file) in [
            ("tlsCertFile", "cert.pem"),
            ("tlsKeyFile", "key.pem"),
            ("caCertFile", "root.pem"),
            ("kubeconfig", "kubeconfig"),
        ] {
            command.arg(format!("--{flag}={}", dir.path().join(file).display()));
        }
        command.args(["--reconcileWebhookConfig=false", "--linger=0", "--nativeSidecars=false"]);
        command.args([format!("--port={port}"), format!("--monitoringPort={monitoring}")]);
        let log = File::create(dir.path().join("log")).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        let address = (Ipv4Addr::LOCALHOST, port).into();
        let injector = Self { child, dir, address, issued: Mutex::new(issued) };
        injector.until_serving().await;
        injector
    }

    async fn until_serving(&self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        while Connection::open(self.address, &self.trust()).await.is_err() {
            let log = fs::read_to_string(self.dir.path().join("log")).unwrap();
            assert!(tokio::time::Instant::now() < deadline, "{log}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the TLS configuration of a client that trusts the current CA and the former one.
    pub(crate) fn trust(&self) -> Arc<ClientConfig> {
        trusting(&self.issued.lock().unwrap().authorities)
    }

    /// Replaces the certificate with one for the same name.
    pub(crate) fn rotate(&self) {
        let mut issued = self.issued.lock().unwrap();
        *issued = issue(Some(&issued));
        write(&self.dir, &issued);
    }

    pub(crate) fn process(&self) -> PathBuf {
        format!("/proc/{}", self.child.id()).into()
    }

    pub(crate) fn directory(&self) -> PathBuf {
        self.dir.path().to_owned()
    }
}

impl Drop for Injector {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn issue(former: Option<&Issued>) -> Issued {
    Issued::new(&[NAME.to_owned()], Lifetime(Duration::from_secs(86_400)), UnixTime::now(), former).unwrap()
}

/// Writes the files one after the other, so that the injector also sees a key that does not belong to the certificate.
fn write(dir: &TempDir, issued: &Issued) {
    for (name, text) in [("cert.pem", &issued.certificate), ("key.pem", &issued.key), ("root.pem", &issued.authorities)]
    {
        let temporary = dir.path().join("new");
        fs::write(&temporary, text).unwrap();
        fs::rename(&temporary, dir.path().join(name)).unwrap();
    }
}
