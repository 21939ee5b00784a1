//! The container runtime interface (CRI), as a kubelet speaks it: gRPC over containerd's socket, one call at a time.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, ensure};
use hyper_util::rt::TokioIo;
use k8s_cri::v1::runtime_service_client::RuntimeServiceClient;
use k8s_cri::v1::{
    ContainerConfig, ContainerFilter, ContainerState, ContainerStatusRequest, CreateContainerRequest, ExecSyncRequest,
    ExecSyncResponse, ListContainersRequest, ListPodSandboxRequest, PodSandbox, PodSandboxConfig,
    PodSandboxStatusRequest, PodSandboxStatusResponse, RemovePodSandboxRequest, RunPodSandboxRequest,
    StartContainerRequest, StatusRequest, StatusResponse, StopPodSandboxRequest, VersionRequest,
};
use tokio::net::UnixStream;
use tokio::runtime::{Builder, Runtime};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

/// No call of the tests takes longer unless something hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// A connection to a container runtime.
pub struct Cri {
    runtime: Runtime,
    service: RuntimeServiceClient<Channel>,
}

impl Cri {
    /// Connects to the socket, on which the runtime must answer already.
    pub fn connect(socket: &Path) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        let endpoint = Endpoint::from_static("http://containerd").timeout(PATIENCE);
        let channel = runtime
            .block_on(endpoint.connect_with_connector(connector))
            .with_context(|| format!("connecting to {}", socket.display()))?;
        Ok(Self { runtime, service: RuntimeServiceClient::new(channel) })
    }

    /// Waits for one call. What the runtime says in refusing is the error's text.
    fn call<T>(&self, what: &str, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T> {
        match self.runtime.block_on(call) {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(anyhow!("{what}: {}", status.message())),
        }
    }

    fn service(&self) -> RuntimeServiceClient<Channel> {
        self.service.clone()
    }

    /// The runtime's name and version.
    pub fn version(&self) -> Result<String> {
        let version = self.call("Version", self.service().version(VersionRequest::default()))?;
        Ok(format!("{} {}", version.runtime_name, version.runtime_version))
    }

    /// Conditions of the runtime and, in `info`, the CNI configuration that it has loaded.
    pub fn status(&self) -> Result<StatusResponse> {
        self.call("Status", self.service().status(StatusRequest { verbose: true }))
    }

    /// Makes a sandbox, which is when ADD happens, and returns its id.
    pub fn run_sandbox(&self, config: &PodSandboxConfig) -> Result<String> {
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: String::new() };
        Ok(self.call("RunPodSandbox", self.service().run_pod_sandbox(request))?.pod_sandbox_id)
    }

    /// State, addresses and, in `info`, the runtime's own account of a sandbox.
    pub fn sandbox_status(&self, id: &str) -> Result<PodSandboxStatusResponse> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        self.call("PodSandboxStatus", self.service().pod_sandbox_status(request))
    }

    /// All sandboxes, ready or not.
    pub fn sandboxes(&self) -> Result<Vec<PodSandbox>> {
        Ok(self.call("ListPodSandbox", self.service().list_pod_sandbox(ListPodSandboxRequest::default()))?.items)
    }

    /// Stops a sandbox, which is when DEL happens.
    pub fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call("StopPodSandbox", self.service().stop_pod_sandbox(request)).map(drop)
    }

    /// Removes a sandbox and its containers; one that is not there is fine.
    pub fn remove_sandbox(&self, id: &str) -> Result<()> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call("RemovePodSandbox", self.service().remove_pod_sandbox(request)).map(drop)
    }

    /// Creates and starts a container, and returns its id.
    pub fn start_container(&self, sandbox: &str, of: &PodSandboxConfig, config: ContainerConfig) -> Result<String> {
        let request = CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(of.clone()),
        };
        let id = self.call("CreateContainer", self.service().create_container(request))?.container_id;
        let request = StartContainerRequest { container_id: id.clone() };
        self.call("StartContainer", self.service().start_container(request))?;
        Ok(id)
    }

    /// A container's exit code, once it has ended.
    pub fn exit_code(&self, id: &str) -> Result<i32> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let status = self.call("ContainerStatus", self.service().container_status(request))?.status;
        let status = status.context("no status")?;
        ensure!(status.state() == ContainerState::ContainerExited, "its state is {:?}", status.state());
        Ok(status.exit_code)
    }

    /// When a container of this name in a sandbox has failed for the first time, of those that are still known.
    pub fn failed_at(&self, sandbox: &str, name: &str) -> Result<SystemTime> {
        let filter = ContainerFilter { pod_sandbox_id: sandbox.to_owned(), ..ContainerFilter::default() };
        let request = ListContainersRequest { filter: Some(filter) };
        let all = self.call("ListContainers", self.service().list_containers(request))?.containers;
        let of_name = all.iter().filter(|one| one.metadata.as_ref().is_some_and(|metadata| metadata.name == name));
        let ends = of_name.map(|one| {
            let request = ContainerStatusRequest { container_id: one.id.clone(), verbose: false };
            self.call("ContainerStatus", self.service().container_status(request))?.status.context("no status")
        });
        let ends = ends.collect::<Result<Vec<_>>>()?;
        let first = ends.iter().filter(|end| end.exit_code != 0).map(|end| end.finished_at).min();
        let nanoseconds = u64::try_from(first.with_context(|| format!("no {name} of {sandbox} has failed"))?)?;
        Ok(UNIX_EPOCH + Duration::from_nanos(nanoseconds))
    }

    /// Runs a command in a container as the container's user.
    pub fn exec(&self, container: &str, command: &[&str]) -> Result<ExecSyncResponse> {
        let request = ExecSyncRequest {
            container_id: container.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: 20,
        };
        self.call("ExecSync", self.service().exec_sync(request))
    }
}
