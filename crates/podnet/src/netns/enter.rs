//! Enters a netns: daemons on a separate thread that ends afterwards, a single-call process with its own thread.

#![expect(clippy::disallowed_methods, reason = "the one place that changes a namespace")]

use std::any::Any;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use super::Error;

/// An open network namespace, independent of what happens to its path.
#[derive(Debug)]
pub struct Netns {
    path: PathBuf,
    file: OwnedFd,
}

/// The device and inode of a network namespace, which no other namespace has while this one is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Identity {
    device: u64,
    inode: u64,
}

impl Netns {
    /// Opens the netns at `path`, and refuses other files. `O_NONBLOCK` prevents blocking on a FIFO.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = open(path, flags, Mode::empty()).map_err(|errno| unopened(path, errno))?;
        let file_system = fstatfs(&file).map_err(|errno| unopened(path, errno))?;
        if file_system.filesystem_type() != NSFS_MAGIC {
            return Err(Error::NotNetns { path: path.to_owned(), found: "an ordinary file or directory" });
        }
        Ok(Self { path: path.to_owned(), file })
    }

    /// Opens the calling thread's netns.
    pub fn own() -> Result<Self, Error> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Moves the calling thread into the netns permanently. For single-threaded processes, because an additional thread
    /// costs 0.16 ms. To return, join the result of an earlier [`Netns::own`].
    pub fn join(&self) -> Result<(), Error> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|source| refused(&self.path, source))
    }

    /// Whether both are the same network namespace.
    pub fn is_same(&self, other: &Self) -> Result<bool, Error> {
        Ok(self.identity()? == other.identity()?)
    }

    /// Returns the identity of the network namespace.
    pub fn identity(&self) -> Result<Identity, Error> {
        let found = fstat(&self.file).map_err(|errno| unopened(&self.path, errno))?;
        Ok(Identity { device: found.st_dev, inode: found.st_ino })
    }

    /// Runs `visit` in the netns on a separate thread; the caller's netns does not change. Takes about 50 µs.
    pub fn enter<T: Send>(&self, visit: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_thread(&self.path, || {
            self.join()?;
            Ok(visit())
        })
    }

    /// Runs `visit` in a new netns on a separate thread, with which the netns ends; the caller's netns does not change.
    pub fn in_new<T: Send>(visit: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_thread(Path::new("(new)"), || {
            unshare(CloneFlags::CLONE_NEWNET).map_err(Error::Create)?;
            Ok(visit())
        })
    }
}

/// Runs `body` on a separate thread. `path` names the netns in errors.
fn on_thread<T: Send>(path: &Path, body: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    thread::scope(|scope| {
        let thread = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, body);
        let thread = thread.map_err(|source| Error::Thread { path: path.to_owned(), source })?;
        let panicked = |cause| Error::Panicked { path: path.to_owned(), message: panic_message(cause) };
        thread.join().map_err(panicked)?
    })
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Maps errors of open(2), which returns ESRCH for the `/proc/<pid>/ns/net` of a process that has just ended.
fn unopened(path: &Path, source: Errno) -> Error {
    let path = path.to_owned();
    match source {
        Errno::ENOENT | Errno::ESRCH => Error::Gone { path },
        source => Error::Open { path, source },
    }
}

/// Maps errors of setns(2), which returns EINVAL for a namespace of another type.
fn refused(path: &Path, source: Errno) -> Error {
    let path = path.to_owned();
    match source {
        Errno::EINVAL => Error::NotNetns { path, found: "a namespace of another type" },
        source => Error::Enter { path, source },
    }
}

fn panic_message(cause: Box<dyn Any + Send>) -> String {
    match cause.downcast::<String>() {
        Ok(text) => *text,
        Err(cause) => {
            cause.downcast_ref::<&str>().map_or_else(|| "without a message".to_owned(), |text| (*text).to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_is_gone() {
        assert!(matches!(Netns::open(Path::new("/proc/self/ns/nothing")), Err(Error::Gone { .. })));
    }

    #[test]
    fn other_files_are_refused() {
        for path in ["/", "/proc/self/status", "/dev/null"] {
            let error = Netns::open(Path::new(path)).unwrap_err();
            assert!(
                matches!(&error, Error::NotNetns { found, .. } if found.starts_with("an ordinary")),
                "{path}: {error}"
            );
        }
    }

    #[test]
    fn opening_a_fifo_does_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        assert!(matches!(Netns::open(&fifo), Err(Error::NotNetns { .. })));
    }

    #[test]
    fn messages_of_both_panic_payloads_are_read() {
        assert_eq!(panic_message(Box::new("text")), "text");
        assert_eq!(panic_message(Box::new("text".to_owned())), "text");
        assert_eq!(panic_message(Box::new(1)), "without a message");
    }
}
