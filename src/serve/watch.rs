//! Tells when files in some directories may have changed.
//!
//! `install` and `webhook` call it. Directories are watched, for a file that is renamed over takes its watch with it, and
//! a mounted ConfigMap changes by the swap of a link. Events only say that it is time to look. The kernel is asked for
//! changes alone: each pod that starts runs half a dozen programs of a directory that `install` watches.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::{FutureExt as _, StreamExt as _};
use inotify::{EventStream, Inotify, WatchDescriptor, WatchMask};

/// So many bytes of events are read at once; one of a file with the longest name has 272.
const BUFFER: usize = 4096;

/// Between two looks where the kernel does not tell of changes: the limits on inotify are shared by all processes of root.
const BLIND: Duration = Duration::from_secs(1);

/// Watches of the directories that matter.
pub struct Watch {
    events: Option<EventStream<[u8; BUFFER]>>,
    directories: BTreeMap<PathBuf, Option<(Identity, WatchDescriptor)>>,
    irrelevant: fn(&OsStr) -> bool,
    /// Why not all directories are watched, as it was logged last.
    trouble: Option<String>,
}

/// A directory's device and inode: another one of the same name needs a new watch.
type Identity = (u64, u64);

impl Watch {
    /// Watches nothing before the first [`renew`](Self::renew). The runtime in which that is called must be the one in which
    /// [`changed`](Self::changed) is.
    pub fn new(directories: impl IntoIterator<Item = PathBuf>) -> Self {
        let directories = directories.into_iter().map(|dir| (dir, None)).collect();
        Self { events: None, directories, irrelevant: |_| false, trouble: None }
    }

    /// The same, but changes of files with these names are passed over.
    #[must_use]
    pub fn except(self, irrelevant: fn(&OsStr) -> bool) -> Self {
        Self { irrelevant, ..self }
    }

    /// Follows directories that came, went or were replaced, and tries again what failed before. To be called before each
    /// look.
    pub fn renew(&mut self) {
        let trouble = self.try_to_renew().err();
        match &trouble {
            Some(trouble) if self.trouble.as_ref() != Some(trouble) => {
                tracing::warn!("{trouble}; changes are found by looking each second");
            }
            None if self.trouble.is_some() => tracing::info!("all directories are watched"),
            _ => {}
        }
        self.trouble = trouble;
    }

    fn try_to_renew(&mut self) -> Result<(), String> {
        if self.events.is_none() {
            self.directories.values_mut().for_each(|watched| *watched = None);
            let events = Inotify::init().and_then(|inotify| inotify.into_event_stream([0; BUFFER]));
            self.events = Some(events.map_err(|error| format!("no directory can be watched: {error}"))?);
        }
        let Some(mut watches) = self.events.as_ref().map(EventStream::watches) else { return Ok(()) };
        let mut trouble = Ok(());
        for (dir, watched) in &mut self.directories {
            let there = identity(dir);
            if there == watched.as_ref().map(|(identity, _)| *identity) {
                continue;
            }
            if let Some((_, gone)) = watched.take() {
                // It went together with the directory, mostly.
                let _ = watches.remove(gone);
            }
            let Some(there) = there else { continue };
            match watches.add(dir, changes()) {
                Ok(watch) => *watched = Some((there, watch)),
                Err(error) => trouble = Err(format!("{} cannot be watched: {error}", dir.display())),
            }
        }
        trouble
    }

    /// Whether the kernel tells of changes in all of the directories.
    pub fn is_complete(&self) -> bool {
        self.events.is_some() && self.directories.values().all(Option::is_some)
    }

    /// Returns when it is time to look again: after `poll` at the latest, and after a second where not all directories are
    /// watched.
    pub async fn changed(&mut self, poll: Duration) {
        let poll = if self.is_complete() { poll } else { poll.min(BLIND) };
        // Running out of time is as good as an event.
        let _ = tokio::time::timeout(poll, self.event()).await;
    }

    /// The first file that has changed, where it has a name; of others that have changed by now nothing more is heard.
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

/// What a directory's files, or it, can do that is worth a look. Reading is no change, and what is being written is looked
/// at when it is closed: a look before would find half of it.
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

    const PATIENCE: Duration = Duration::from_secs(10);

    fn watch(dir: &Path) -> Watch {
        let mut watch = Watch::new([dir.to_owned()]);
        watch.renew();
        watch
    }

    /// What the next event is about.
    async fn next(watch: &mut Watch) -> Option<OsString> {
        tokio::time::timeout(PATIENCE, watch.event()).await.unwrap()
    }

    #[tokio::test]
    async fn changes_are_told_once_they_are_whole_and_reading_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let [file, other, last] = ["file", "other", "last"].map(|name| dir.path().join(name));
        let mut watch = watch(dir.path());
        fs::write(&file, "text").unwrap();
        assert_eq!(next(&mut watch).await.unwrap(), "file");
        fs::read(&file).unwrap();
        fs::read_dir(dir.path()).unwrap().for_each(drop);
        fs::rename(&other, &file).unwrap_err();
        let mut writing = fs::File::options().write(true).truncate(true).open(&file).unwrap();
        fs::write(&other, "text").unwrap();
        assert_eq!(next(&mut watch).await.unwrap(), "other");
        writing.write_all(b"other").unwrap();
        drop(writing);
        assert_eq!(next(&mut watch).await.unwrap(), "file");
        fs::rename(&file, &last).unwrap();
        assert_eq!(next(&mut watch).await.unwrap(), "file");
        fs::remove_file(&last).unwrap();
        assert_eq!(next(&mut watch).await.unwrap(), "last");
    }

    #[tokio::test]
    async fn a_file_of_no_concern_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let mut watch = watch(dir.path()).except(|name| name == "log");
        fs::write(dir.path().join("log"), "line").unwrap();
        fs::write(dir.path().join("list"), "{}").unwrap();
        assert_eq!(next(&mut watch).await.unwrap(), "list");
    }

    #[tokio::test]
    async fn a_directory_that_comes_late_or_is_replaced_is_followed() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("dir");
        let mut watch = watch(&dir);
        for at in ["late", "another"] {
            fs::create_dir(&dir).unwrap();
            watch.renew();
            fs::write(dir.join("first"), "").unwrap();
            // It is told together with the end of the former watch.
            next(&mut watch).await;
            fs::write(dir.join(at), "").unwrap();
            assert_eq!(next(&mut watch).await.unwrap(), at);
            fs::rename(&dir, parent.path().join(at)).unwrap();
            assert_eq!(next(&mut watch).await, None, "its own end has no name");
        }
    }
}
