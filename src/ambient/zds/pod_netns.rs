//! A pod's netns, shared by the registry and the requests that hand it to ztunnel.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use podnet::netns::{self, Identity, Netns};

/// An open netns, which is closed when its last clone is dropped: a request that waits to be sent holds a clone, so that the
/// descriptor stays valid. Two values are equal if they are the same network namespace.
#[derive(Debug, Clone)]
pub struct PodNetns {
    netns: Arc<Netns>,
    identity: Identity,
}

impl PodNetns {
    pub fn new(netns: Netns) -> Result<Self, netns::Error> {
        Ok(Self { identity: netns.identity()?, netns: Arc::new(netns) })
    }

    /// Returns the netns, to enter it.
    pub fn netns(&self) -> &Netns {
        &self.netns
    }
}

impl PartialEq for PodNetns {
    fn eq(&self, other: &Self) -> bool {
        self.identity == other.identity
    }
}

impl AsFd for PodNetns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.netns.as_fd()
    }
}
