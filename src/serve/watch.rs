//! Tells when files in some directories may have changed.
//!
//! `install` and `webhook` call it. Directories are watched, for a file that is renamed over takes its watch with it, and
//! a mounted ConfigMap changes by the swap of a link. Events only say that it is time to look.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use notify::event::EventKind;
use notify::{Event, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// Watches of the directories that matter.
pub struct Watch {
    changed: Arc<Notify>,
    watcher: Option<RecommendedWatcher>,
    directories: BTreeMap<PathBuf, Option<Identity>>,
}

/// A directory's device and inode: another one of the same name needs a new watch.
type Identity = (u64, u64);

impl Watch {
    /// Watches nothing until it is told to [`renew`](Self::renew).
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        let changed = Arc::new(Notify::new());
        let told = Arc::clone(&changed);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // Reading is no change; an error of the watch is as good a reason to look as any.
            if event.is_ok_and(|event| matches!(event.kind, EventKind::Access(_))) {
                return;
            }
            told.notify_one();
        });
        if let Err(error) = &watcher {
            tracing::warn!(%error, "no directory can be watched; changes are found by looking now and then");
        }
        let directories = directories.into_iter().map(|dir| (dir, None)).collect();
        Self { changed, watcher: watcher.ok(), directories }
    }

    /// Follows directories that came, went or were replaced. To be called before each look.
    pub fn renew(&mut self) {
        let Some(watcher) = &mut self.watcher else { return };
        for (dir, watched) in &mut self.directories {
            let there = identity(dir);
            if there == *watched {
                continue;
            }
            if watched.take().is_some() {
                // It went together with the directory, mostly.
                let _ = watcher.unwatch(dir);
            }
            match watcher.watch(dir, RecursiveMode::NonRecursive) {
                Ok(()) => *watched = there,
                Err(error) if there.is_some() => {
                    tracing::warn!(%error, "{} cannot be watched; changes are found by looking now and then", dir.display());
                }
                Err(_) => {}
            }
        }
    }

    /// Returns when it is time to look again, after `poll` at the latest.
    pub async fn changed(&self, poll: Duration) {
        // Running out of time is as good as an event.
        let _ = tokio::time::timeout(poll, self.changed.notified()).await;
    }
}

fn identity(dir: &Path) -> Option<Identity> {
    let metadata = fs::metadata(dir).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
