//! Watches with selectors, which start from a resource version or send all objects first.

use std::sync::Arc;

use hyper::Response;
use serde_json::json;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::response::{self, Body, Failure};
use super::route::Target;
use super::select::Query;
use super::store::{Change, Store, Stored};

/// An open watch.
pub(super) struct Watch {
    pub(super) resource: String,
    namespace: Option<String>,
    api_version: String,
    query: Query,
    lines: UnboundedSender<String>,
}

impl Watch {
    pub(super) fn is_open(&self) -> bool {
        !self.lines.is_closed()
    }

    /// Sends a change to the client if the watch selects it. Returns false once the connection is closed.
    pub(super) fn tell(&self, change: &Change) -> bool {
        let elsewhere = self.namespace.as_ref().is_some_and(|wanted| *wanted != change.namespace);
        if change.resource != self.resource || elsewhere {
            return self.is_open();
        }
        let selected = |stored: &&Arc<Stored>| self.query.selects(&stored.object);
        match (change.before.as_ref().filter(selected), change.after.as_ref().filter(selected)) {
            (None, None) => self.is_open(),
            (None, Some(after)) => self.send("ADDED", &after.json),
            (Some(_), Some(after)) => self.send("MODIFIED", &after.json),
            (Some(_), None) => change.ended().is_some_and(|ended| self.send("DELETED", &ended.json)),
        }
    }

    pub(super) fn bookmark(&self, revision: u64, initial_end: bool) -> bool {
        if !self.query.is("allowWatchBookmarks") {
            return self.is_open();
        }
        let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
        if initial_end {
            metadata["annotations"] = json!({ "k8s.io/initial-events-end": "true" });
        }
        let kind = if self.resource == "pods" { "Pod" } else { "Bookmark" };
        self.send(
            "BOOKMARK",
            &json!({ "kind": kind, "apiVersion": self.api_version, "metadata": metadata }).to_string(),
        )
    }

    pub(super) fn expire(self) {
        self.send("ERROR", &Failure::expired().object().to_string());
    }

    fn send(&self, kind: &str, object: &str) -> bool {
        self.lines.send(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n")).is_ok()
    }
}

/// Opens a watch. When the watch is dropped, the response and its connection end.
pub(super) fn open(store: &mut Store, target: &Target, query: &Query) -> Result<Response<Body>, Failure> {
    let (lines, receiver) = unbounded_channel();
    let Target { resource, namespace, api_version, .. } = target;
    let (resource, namespace, api_version) = (resource.clone(), namespace.clone(), api_version.clone());
    let watch = Watch { resource, namespace, api_version, query: query.clone(), lines };
    let version = query.get("resourceVersion").filter(|version| *version != "0");
    match version {
        None => {
            for stored in store.list(&watch.resource, watch.namespace.as_deref(), query) {
                watch.send("ADDED", &stored.json);
            }
            if query.is("sendInitialEvents") {
                watch.bookmark(store.revision(), true);
            }
        }
        Some(version) => {
            let version = version.parse().map_err(|_| Failure::status(400, "BadRequest", "no resource version"))?;
            for change in store.since(version).ok_or_else(Failure::expired)? {
                watch.tell(change);
            }
        }
    }
    store.watch(watch);
    Ok(response::stream(receiver))
}
