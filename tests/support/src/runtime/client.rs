//! A client of the container runtime interface (CRI): gRPC over a runtime's socket, one call at a time.

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

/// The timeout of a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(120);

/// A connection to a container runtime.
pub struct Cri {
    runtime: Runtime,
    service: RuntimeServiceClient<Channel>,
}

impl Cri {
    /// Connects to the socket, on which the runtime must already listen.
    pub fn connect(socket: &Path) -> Result<Self> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let path = socket.to_owned();
        let connector = tower::service_fn(move |_| {
            let path = path.clone();
            async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
        });
        let endpoint = Endpoint::from_static("http://runtime").timeout(CALL_TIMEOUT);
        let channel = runtime
            .block_on(endpoint.connect_with_connector(connector))
            .with_context(|| format!("connecting to {}", socket.display()))?;
        Ok(Self { runtime, service: RuntimeServiceClient::new(channel) })
    }

    /// Performs one call. An error consists of the method and the runtime's message.
    fn call<T>(&self, method: &str, call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T> {
        match self.runtime.block_on(call) {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(anyhow!("{method}: {}", status.message())),
        }
    }

    fn service(&self) -> RuntimeServiceClient<Channel> {
        self.service.clone()
    }

    /// Returns the runtime's name and version.
    pub fn version(&self) -> Result<String> {
        let version = self.call("Version", self.service().version(VersionRequest::default()))?;
        Ok(format!("{} {}", version.runtime_name, version.runtime_version))
    }

    /// Returns the conditions of the runtime and, in `info`, the loaded CNI configuration.
    pub fn status(&self) -> Result<StatusResponse> {
        self.call("Status", self.service().status(StatusRequest { verbose: true }))
    }

    /// Creates a sandbox with a runtime handler, for which the runtime calls ADD, and returns its ID. An empty `handler` selects the
    /// default.
    pub fn run_sandbox(&self, config: &PodSandboxConfig, handler: &str) -> Result<String> {
        let request = RunPodSandboxRequest { config: Some(config.clone()), runtime_handler: handler.to_owned() };
        Ok(self.call("RunPodSandbox", self.service().run_pod_sandbox(request))?.pod_sandbox_id)
    }

    /// Returns the state, the addresses and, in `info`, the runtime's details of a sandbox.
    pub fn sandbox_status(&self, id: &str) -> Result<PodSandboxStatusResponse> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        self.call("PodSandboxStatus", self.service().pod_sandbox_status(request))
    }

    /// Returns all sandboxes, ready or not.
    pub fn sandboxes(&self) -> Result<Vec<PodSandbox>> {
        Ok(self.call("ListPodSandbox", self.service().list_pod_sandbox(ListPodSandboxRequest::default()))?.items)
    }

    /// Stops a sandbox, for which the runtime calls DEL.
    pub fn stop_sandbox(&self, id: &str) -> Result<()> {
        let request = StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call("StopPodSandbox", self.service().stop_pod_sandbox(request)).map(drop)
    }

    /// Removes a sandbox and its containers. A sandbox that does not exist is not an error.
    pub fn remove_sandbox(&self, id: &str) -> Result<()> {
        let request = RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call("RemovePodSandbox", self.service().remove_pod_sandbox(request)).map(drop)
    }

    /// Creates and starts a container and returns its ID.
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

    /// Returns the exit code of a container; fails if the container has not exited.
    pub fn exit_code(&self, id: &str) -> Result<i32> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: false };
        let status = self.call("ContainerStatus", self.service().container_status(request))?.status;
        let status = status.context("no status")?;
        ensure!(status.state() == ContainerState::ContainerExited, "the container's state is {:?}", status.state());
        Ok(status.exit_code)
    }

    /// Returns the time of the first failure among the remaining containers with this name in a sandbox.
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

    /// Runs a command in a container, as the container's user.
    pub fn exec(&self, container: &str, command: &[&str]) -> Result<ExecSyncResponse> {
        let request = ExecSyncRequest {
            container_id: container.to_owned(),
            cmd: command.iter().map(|word| (*word).to_owned()).collect(),
            timeout: 100,
        };
        self.call("ExecSync", self.service().exec_sync(request))
    }
}
