//! Follows watches of the API server's resources.

use futures::{Stream, StreamExt as _};
use kube::runtime::watcher::{self, Event};

/// Passes the events of a watch to `learn` until the stream ends. The first failure is logged as a warning.
pub async fn watch_list<K>(
    what: &'static str,
    events: impl Stream<Item = watcher::Result<Event<K>>>,
    mut learn: impl FnMut(Event<K>),
) {
    let mut events = std::pin::pin!(events);
    let mut warned = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => learn(event),
            // A cluster without Istio's CRDs returns an error for each attempt, so only the first error is a warning.
            Err(error) if !warned => {
                warned = true;
                tracing::warn!(%error, "{what} cannot be watched");
            }
            Err(error) => tracing::debug!(%error, "{what} cannot be watched"),
        }
    }
}
