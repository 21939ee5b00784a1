//! The request to shut down, which all tasks of a daemon receive.

use tokio::sync::watch;

/// The receiving end; clones share the request. Tasks wait for the request while they work, and then finish.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// The sending end; dropping it requests shutdown, too.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Shutdown {
    pub fn new() -> (Trigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (Trigger(sender), Self(receiver))
    }

    /// Returns once shutdown is requested.
    pub async fn requested(&self) {
        // An error means that the trigger was dropped, which requests shutdown, too.
        let _ = self.0.clone().wait_for(|requested| *requested).await;
    }

    pub fn is_requested(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl Trigger {
    /// Requests shutdown.
    pub fn trigger(&self) {
        let _ = self.0.send(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn early_and_late_receivers_get_the_request() {
        let (trigger, early) = Shutdown::new();
        let late = early.clone();
        assert!(!early.is_requested());
        trigger.trigger();
        early.requested().await;
        late.requested().await;
        assert!(late.is_requested());
    }

    #[tokio::test]
    async fn dropping_the_trigger_requests_shutdown() {
        let (trigger, shutdown) = Shutdown::new();
        drop(trigger);
        shutdown.requested().await;
        assert!(shutdown.is_requested());
    }
}
