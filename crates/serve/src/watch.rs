//! Watches directories for changed files.
//!
//! `install`, `daemon` and `webhook` call it. It watches directories because a watch of a file is lost when another file
//! is renamed over it, and because a mounted ConfigMap changes by replacing a symlink. Callers read the files again
//! after each event. Reads are not watched, because each pod that starts executes several programs in a directory that
//! `install` watches.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use inotify::{EventStream, Inotify, WatchDescriptor, WatchMask};

/// The size of the event buffer in bytes; an event with the longest name takes 272.
const BUFFER_SIZE: usize = 4096;

/// The polling interval if a watch is missing, such as when root's inotify limits, which all its processes share, are
/// reached.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// inotify watches of directories.
pub struct Watch {
    events: Option<EventStream<[u8; BUFFER_SIZE]>>,
    directories: BTreeMap<PathBuf, Option<(Identity, WatchDescriptor)>>,
    irrelevant: fn(&OsStr) -> bool,
    /// The last logged reason for missing watches.
    failure: Option<String>,
}

/// A directory's device and inode; a replaced directory needs a new watch.
type Identity = (u64, u64);

impl Watch {
    /// Creates a watch that starts with the first [`renew`](Self::renew). Call `renew` and [`changed`](Self::changed) in
    /// the same Tokio runtime.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        let directories = directories.into_iter().map(|dir| (dir, None)).collect();
        Self { events: None, directories, irrelevant: |_| false, failure: None }
    }

    /// Ignores changes of files for whose names `irrelevant` returns true.
    #[must_use]
    pub fn except(self, irrelevant: fn(&OsStr) -> bool) -> Self {
        Self { irrelevant, ..self }
    }

    /// Updates the watches for created, deleted and replaced directories, and retries failed ones. Call it before
    /// reading the files.
    pub fn renew(&mut self) {
        let failure = self.try_renew().err();
        match &failure {
            Some(failure) if self.failure.as_ref() != Some(failure) => {
                tracing::warn!("{failure}; checking for changes each second");
            }
            None if self.failure.is_some() => tracing::info!("all directories are watched"),
            _ => {}
        }
        self.failure = failure;
    }

    fn try_renew(&mut self) -> Result<(), String> {
        if self.events.is_none() {
            self.directories.values_mut().for_each(|watched| *watched = None);
            let events = Inotify::init().and_then(|inotify| inotify.into_event_stream([0; BUFFER_SIZE]));
            self.events = Some(events.map_err(|error| format!("no directory can be watched: {error}"))?);
        }
        let Some(mut watches) = self.events.as_ref().map(EventStream::watches) else { return Ok(()) };
        let mut failure = Ok(());
        for (dir, watched) in &mut self.directories {
            let current = identity(dir);
            if current == watched.as_ref().map(|(identity, _)| *identity) {
                continue;
            }
            if let Some((_, gone)) = watched.take() {
                // Fails if the watch was removed with its directory, which is the usual case.
                let _ = watches.remove(gone);
            }
            let Some(current) = current else { continue };
            match watches.add(dir, changes()) {
                Ok(watch) => *watched = Some((current, watch)),
                Err(error) => failure = Err(format!("{} cannot be watched: {error}", dir.display())),
            }
        }
        failure
    }

    /// Whether all directories are watched.
    pub fn is_complete(&self) -> bool {
        self.events.is_some() && self.directories.values().all(Option::is_some)
    }

    /// Returns after a change, or after `poll`; after a second at most if not all directories are watched.
    pub async fn changed(&mut self, poll: Duration) {
        let poll = if self.is_complete() { poll } else { poll.min(POLL_INTERVAL) };
        // A timeout has the same effect as an event.
        let _ = tokio::time::timeout(poll, self.event()).await;
    }

    /// Waits for a relevant change, discards the other pending events and returns the file's name, if it has one.
    async fn event(&mut self) -> Option<OsString> {
        let Some(events) = &mut self.events else { return std::future::pending().await };
        while let Some(Ok(event)) = events.next().await {
            if !event.name.as_deref().is_some_and(self.irrelevant) {
                while let Some(Some(Ok(_))) = events.next().now_or_never() {}
                return event.name;
            }
        }
        self.events = None;
        std::future::pending().await
    }
}

/// Returns the watched events. Reading a file is not an event; writing is reported when the file is closed, because its
/// content is incomplete before.
fn changes() -> WatchMask {
    let of_files = WatchMask::CREATE | WatchMask::DELETE | WatchMask::MOVE;
    let of_contents = WatchMask::CLOSE_WRITE | WatchMask::ATTRIB;
    let of_itself = WatchMask::DELETE_SELF | WatchMask::MOVE_SELF;
    of_files | of_contents | of_itself | WatchMask::ONLYDIR
}

fn identity(dir: &Path) -> Option<Identity> {
    let metadata = fs::metadata(dir).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the tests own the files that are watched")]
mod tests {
    use std::io::Write as _;

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    fn watch(dir: &Path) -> Watch {
        let mut watch = Watch::new([dir.to_owned()]);
        watch.renew();
        watch
    }

    /// Returns the file name of the next event.
    async fn next_name(watch: &mut Watch) -> Option<OsString> {
        tokio::time::timeout(DEADLINE, watch.event()).await.unwrap()
    }

    #[tokio::test]
    async fn complete_changes_are_reported_and_reads_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let [file, other, last] = ["file", "other", "last"].map(|name| dir.path().join(name));
        let mut watch = watch(dir.path());
        fs::write(&file, "text").unwrap();
        assert_eq!(next_name(&mut watch).await.unwrap(), "file");
        fs::read(&file).unwrap();
        fs::read_dir(dir.path()).unwrap().for_each(drop);
        fs::rename(&other, &file).unwrap_err();
        let mut writing = fs::File::options().write(true).truncate(true).open(&file).unwrap();
        fs::write(&other, "text").unwrap();
        assert_eq!(next_name(&mut watch).await.unwrap(), "other");
        writing.write_all(b"other").unwrap();
        drop(writing);
        assert_eq!(next_name(&mut watch).await.unwrap(), "file");
        fs::rename(&file, &last).unwrap();
        assert_eq!(next_name(&mut watch).await.unwrap(), "file");
        fs::remove_file(&last).unwrap();
        assert_eq!(next_name(&mut watch).await.unwrap(), "last");
    }

    #[tokio::test]
    async fn an_irrelevant_file_is_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = watch(dir.path()).except(|name| name == "log");
        fs::write(dir.path().join("log"), "line").unwrap();
        fs::write(dir.path().join("list"), "{}").unwrap();
        assert_eq!(next_name(&mut watch).await.unwrap(), "list");
    }

    #[tokio::test]
    async fn a_created_or_replaced_directory_is_watched() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("dir");
        let mut watch = watch(&dir);
        for at in ["late", "another"] {
            fs::create_dir(&dir).unwrap();
            watch.renew();
            fs::write(dir.join("first"), "").unwrap();
            // Consumes the event of this file, and before it the event for the end of a former watch.
            next_name(&mut watch).await;
            fs::write(dir.join(at), "").unwrap();
            assert_eq!(next_name(&mut watch).await.unwrap(), at);
            fs::rename(&dir, parent.path().join(at)).unwrap();
            assert_eq!(next_name(&mut watch).await, None, "its own end has no name");
        }
    }
}
