//! The tasks with which an agent detects and reports pods in sandboxed runtimes, whose kernels the node's rules do not reach.

use std::path::PathBuf;

use k8s_openapi::api::node::v1::RuntimeClass;
use kube::Client;
use kube::runtime::reflector::store::Writer;
use tokio::sync::mpsc::{Receiver, Sender};

use crate::agent::Handlers;
use crate::agent::events::{self, Notice};
use crate::agent::handlers;

/// The parts that the servers of the plugin's sockets use.
#[derive(Clone)]
pub(super) struct Sandboxes {
    pub(super) handlers: Handlers,
    pub(super) notices: Sender<Notice>,
}

/// The parts that the tasks use.
pub(super) struct Tasks {
    classes: Writer<RuntimeClass>,
    notices: Receiver<Notice>,
}

/// Creates both parts. `root`: the directory at which the node's root is mounted, if it is.
pub(super) fn new(root: Option<PathBuf>) -> (Sandboxes, Tasks) {
    let (handlers, classes) = Handlers::new(root);
    let (sender, notices) = events::channel();
    (Sandboxes { handlers, notices: sender }, Tasks { classes, notices })
}

impl Tasks {
    /// Watches the RuntimeClasses and writes Events. Never returns.
    pub(super) async fn run(self, client: impl Future<Output = Client>, node: String) {
        let client = client.await;
        tokio::join!(handlers::watch(client.clone(), self.classes), events::write_events(client, &node, self.notices));
    }
}
