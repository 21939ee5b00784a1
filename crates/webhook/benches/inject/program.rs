//! The shipped `sidecar-injector` as a process, with its configuration and certificate in files.

use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rustls::ClientConfig;
use rustls::pki_types::UnixTime;
use tempfile::TempDir;
use webhook::{Issued, Lifetime};

use crate::echo;
use crate::input::Reviews;
use crate::load;
use crate::process::DAPR;
use test_servers::port;
use test_support::api::{Api, kubeconfig};
use test_support::client::{NAME, trusting};

/// The number of clock ticks per second in `/proc/PID/stat`, which is the same on all machines.
const USER_HZ: f64 = 100.0;

/// A running injector, killed when the value is dropped.
pub(crate) struct Program {
    child: Child,
    dir: TempDir,
    pub(crate) address: SocketAddr,
    /// The address of the monitoring port, which serves probes.
    pub(crate) monitoring: SocketAddr,
    pub(crate) trust: Arc<ClientConfig>,
}

impl Program {
    /// Starts the injector and waits until it injects the pods of both probes.
    pub(crate) async fn start(api: &Api, input: &Path, probes: [&Reviews; 2]) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let issued = Issued::new(&[NAME.to_owned()], Lifetime(Duration::from_secs(86_400)), UnixTime::now(), None)?;
        let file = |name: &str, text: &str| -> Result<PathBuf> {
            let path = dir.path().join(name);
            fs::write(&path, text)?;
            Ok(path)
        };
        kubeconfig(&dir.path().join("kubeconfig"), &api.url());
        let files = [
            ("--tlsCertFile", file("cert.pem", &issued.certificate)?),
            ("--tlsKeyFile", file("key.pem", &issued.key)?),
            ("--caCertFile", file("root.pem", &issued.authorities)?),
            ("--kubeconfig", dir.path().join("kubeconfig")),
            ("--daprTrustAnchors", file("ca.crt", "ANCHORS")?),
            ("--injectConfig", input.join("config.yaml")),
            ("--injectValues", input.join("values.json")),
            ("--meshConfig", input.join("mesh.yaml")),
        ];
        let (address, monitoring) = (free(), free());
        let binary =
            std::env::var_os("SIDECAR_INJECTOR").context("SIDECAR_INJECTOR names the program; see `make bench`")?;
        let mut command = Command::new(binary);
        command.env_clear().envs(DAPR).args([
            "--dapr",
            "--reconcileWebhookConfig=false",
            "--linger=0",
            "--nativeSidecars=false",
        ]);
        command.arg(format!("--port={}", address.port())).arg(format!("--monitoringPort={}", monitoring.port()));
        command.args(files.iter().flat_map(|(flag, path)| [OsStr::new(flag), path.as_os_str()]));
        let log = fs::File::create(dir.path().join("log"))?;
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        let program = Self { child, dir, address, monitoring, trust: trusting(&issued.authorities) };
        for reviews in probes {
            program.until_injecting(reviews).await?;
        }
        Ok(program)
    }

    /// Starts this program as an [`echo`] server with an injector's response.
    pub(crate) async fn echo(response: &str, reviews: &Reviews) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let issued = Issued::new(&[NAME.to_owned()], Lifetime(Duration::from_secs(86_400)), UnixTime::now(), None)?;
        let address = free();
        let files = [
            ("cert.pem", &issued.certificate),
            ("key.pem", &issued.key),
            ("root.pem", &issued.authorities),
            ("port", &address.port().to_string()),
            ("response", &response.to_owned()),
        ];
        files.into_iter().try_for_each(|(name, text)| fs::write(dir.path().join(name), text))?;
        let mut command = Command::new(std::env::current_exe()?);
        let child = command.env(echo::DIRECTORY, dir.path()).stdin(Stdio::null()).spawn()?;
        let program = Self { child, dir, address, monitoring: address, trust: trusting(&issued.authorities) };
        program.until_injecting(reviews).await?;
        Ok(program)
    }

    async fn until_injecting(&self, reviews: &Reviews) -> Result<()> {
        let begin = Instant::now();
        while let Err(error) = load::once(self, reviews).await {
            ensure!(begin.elapsed() < Duration::from_secs(20), "{error}\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// Returns the processor time of the process in milliseconds, with the resolution of [`USER_HZ`].
    pub(crate) fn processor_time(&self) -> Result<f64> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        // In `/proc/PID/stat` the second field is the program's name in parentheses, and the fields 14 and 15 are the
        // user and system times (utime and stime) in clock ticks.
        let (_, fields) = stat.rsplit_once(") ").context("no name in stat")?;
        let ticks: f64 = fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse().unwrap_or(0.0)).sum();
        Ok(ticks * 1e3 / USER_HZ)
    }

    /// Returns the peak resident memory in MiB.
    pub(crate) fn peak(&self) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port::free()).into()
}
