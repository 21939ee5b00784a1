//! Creates clients of the API server, from a pod's service account or a kubeconfig.
//!
//! A client reloads the service account's token and CA certificate when they rotate. This module sends no requests.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::sleep;

/// The time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The delay after a failed attempt to create a client.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// No client could be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process is not in a pod, or the pod has no service account token.
    #[error("the API server's address is unknown: {0}; mount the service account's token, or set a kubeconfig")]
    InCluster(kube::config::InClusterError),
    /// There is neither a kubeconfig nor a pod's service account.
    #[error("there is no kubeconfig: no file {0} exists, and this is no pod of a cluster; name one by --kubeconfig")]
    NoKubeconfig(String),
    /// The kubeconfig cannot be read, is not valid, or has no such context.
    #[error("kubeconfig {} cannot be used: {}", path.display(), cause(error))]
    Kubeconfig { path: PathBuf, error: kube::config::KubeconfigError },
    /// The client configuration is invalid.
    #[error("no client for the API server: {0}")]
    Client(Box<kube::Error>),
}

/// Returns the cause without the path, which the message already contains.
fn cause(error: &kube::config::KubeconfigError) -> String {
    match error {
        kube::config::KubeconfigError::ReadConfig(cause, _) => cause.to_string(),
        kube::config::KubeconfigError::CurrentContextNotSet => "it has no current context: name one".to_owned(),
        error => error.to_string(),
    }
}

/// Returns a client for the kubeconfig's cluster or, without a kubeconfig, for the pod's own cluster.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    let mut config = match kubeconfig {
        None => Config::incluster().map_err(Error::InCluster)?,
        Some(path) => from_file(path).await.map_err(|error| Error::Kubeconfig { path: path.to_owned(), error })?,
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Callers have their own retry policies.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))
}

/// Like [`client`], but retries until it succeeds: a service account's files may appear after the process starts.
pub async fn client_at_last(kubeconfig: Option<&Path>) -> Client {
    loop {
        match client(kubeconfig).await {
            Ok(client) => return client,
            Err(error) => tracing::warn!(%error, "no client for the API server yet"),
        }
        sleep(RETRY_INTERVAL).await;
    }
}

async fn from_file(path: &Path) -> Result<Config, kube::config::KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}
