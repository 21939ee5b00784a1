//! The wish to end, as every task of a daemon sees it.

use tokio::sync::watch;

/// Told once, heard by all: tasks wait for it beside their work and then finish.
#[derive(Debug, Clone)]
pub struct Shutdown(watch::Receiver<bool>);

/// Whoever holds it can wish the end; dropping it wishes it, too.
#[derive(Debug)]
pub struct Trigger(watch::Sender<bool>);

impl Shutdown {
    /// A wish that is not yet told, and the one who can tell it.
    pub fn new() -> (Trigger, Self) {
        let (sender, receiver) = watch::channel(false);
        (Trigger(sender), Self(receiver))
    }

    /// Returns once the end is wished.
    pub async fn wished(&self) {
        // An error means that the trigger is gone: nobody will need the daemon any more.
        let _ = self.0.clone().wait_for(|wished| *wished).await;
    }

    /// Whether it already is.
    pub fn is_wished(&self) -> bool {
        *self.0.borrow() || self.0.has_changed().is_err()
    }
}

impl Trigger {
    /// Wishes the end.
    pub fn wish(&self) {
        let _ = self.0.send(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn every_listener_hears_it_even_late() {
        let (trigger, early) = Shutdown::new();
        let late = early.clone();
        assert!(!early.is_wished());
        trigger.wish();
        early.wished().await;
        late.wished().await;
        assert!(late.is_wished());
    }

    #[tokio::test]
    async fn a_trigger_that_is_gone_wishes_the_end() {
        let (trigger, shutdown) = Shutdown::new();
        drop(trigger);
        shutdown.wished().await;
        assert!(shutdown.is_wished());
    }
}
