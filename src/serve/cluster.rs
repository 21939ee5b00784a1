//! The API server's client: from inside a pod, or by a kubeconfig.
//!
//! Tokens and authorities are read again when they rotate. Nothing is asked here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tokio::time::sleep;

/// Longer than this nobody waits for a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// After an attempt in vain to make a client.
const PAUSE: Duration = Duration::from_secs(5);

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not in a pod, or without its service account.
    #[error("no API server is known: {0}; mount the service account's token, or name a kubeconfig")]
    InCluster(kube::config::InClusterError),
    /// The kubeconfig is of no use.
    #[error("kubeconfig {} is of no use: {error}", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        error: kube::config::KubeconfigError,
    },
    /// What is known makes no client.
    #[error("no client for the API server: {0}")]
    Client(Box<kube::Error>),
}

/// A client for the kubeconfig's API server, else for that of the cluster that this pod is in.
pub async fn client(kubeconfig: Option<&Path>) -> Result<Client, Error> {
    let mut config = match kubeconfig {
        None => Config::incluster().map_err(Error::InCluster)?,
        Some(path) => from_file(path).await.map_err(|error| Error::Kubeconfig { path: path.to_owned(), error })?,
    };
    config.connect_timeout = Some(CONNECT);
    // Whoever asks knows how often and for how long it is worth while.
    config.default_retry = false;
    Client::try_from(config).map_err(|error| Error::Client(Box::new(error)))
}

/// The same, as soon as there can be one: a service account's files may come later than the process.
pub async fn client_at_last(kubeconfig: Option<&Path>) -> Client {
    loop {
        match client(kubeconfig).await {
            Ok(client) => return client,
            Err(error) => tracing::warn!(%error, "the API server cannot be asked yet"),
        }
        sleep(PAUSE).await;
    }
}

async fn from_file(path: &Path) -> Result<Config, kube::config::KubeconfigError> {
    let kubeconfig = Kubeconfig::read_from(path)?;
    Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await
}
