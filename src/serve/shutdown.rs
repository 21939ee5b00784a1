//! The request to shut down, which all tasks of a daemon receive.

use tokio::sync::watch;

/// The receiving end; clones share the request. Tasks wait for it beside their work and then finish.
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
    pub async fn wished(&self) {
        // An error means that the trigger was dropped, which requests shutdown, too.
        let _ = self.0.clone().wait_for(|wished| *wished).await;
    }

    pub fn is_wished(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl Trigger {
    /// Requests shutdown.
    pub fn wish(&self) {
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
        assert!(!early.is_wished());
        trigger.wish();
        early.wished().await;
        late.wished().await;
        assert!(late.is_wished());
    }

    #[tokio::test]
    async fn dropping_the_trigger_requests_shutdown() {
        let (trigger, shutdown) = Shutdown::new();
        drop(trigger);
        shutdown.wished().await;
        assert!(shutdown.is_wished());
    }
}
