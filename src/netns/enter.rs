//! Entering a netns: daemons on a thread of its own, which ends with the visit; a process that lives for one call by the
//! thread that it has.

#![expect(clippy::disallowed_methods, reason = "the one place that changes a namespace")]

use std::any::Any;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, fstat};
use nix::sys::statfs::{NSFS_MAGIC, fstatfs};

use super::Error;

/// A network namespace, held open: whatever becomes of its path, it is the same to the end.
#[derive(Debug)]
pub struct Netns {
    path: PathBuf,
    file: OwnedFd,
}

impl Netns {
    /// Opens the one at `path`, and refuses what is none. `O_NONBLOCK`: a FIFO under that name must not hold us up.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NONBLOCK;
        let file = open(path, flags, Mode::empty()).map_err(|errno| unopened(path, errno))?;
        let file_system = fstatfs(&file).map_err(|errno| unopened(path, errno))?;
        if file_system.filesystem_type() != NSFS_MAGIC {
            return Err(Error::NotNetns { path: path.to_owned(), found: "an ordinary file or directory" });
        }
        Ok(Self { path: path.to_owned(), file })
    }

    /// The one that the calling thread is in.
    pub fn own() -> Result<Self, Error> {
        Self::open(Path::new("/proc/thread-self/ns/net"))
    }

    /// Takes the calling thread into it, for good: for the only thread of a process, which an additional thread would
    /// cost 0.16 ms. The way back is [`Netns::own`], kept from before.
    pub fn join(&self) -> Result<(), Error> {
        setns(&self.file, CloneFlags::CLONE_NEWNET).map_err(|source| refused(&self.path, source))
    }

    /// Whether both are the same network namespace.
    pub fn is(&self, other: &Self) -> Result<bool, Error> {
        let identity = |netns: &Self| {
            let found = fstat(&netns.file).map_err(|errno| unopened(&netns.path, errno))?;
            Ok::<_, Error>((found.st_dev, found.st_ino))
        };
        Ok(identity(self)? == identity(other)?)
    }

    /// Runs `visit` in it, on a thread of its own; the caller's netns never changes. About 50 µs.
    pub fn enter<T: Send>(&self, visit: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let path = &self.path;
        let body = || {
            self.join()?;
            Ok(visit())
        };
        thread::scope(|scope| {
            let thread = thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, body);
            let thread = thread.map_err(|source| Error::Thread { path: path.clone(), source })?;
            let panicked = |cause| Error::Panicked { path: path.clone(), message: panic_message(cause) };
            thread.join().map_err(panicked)?
        })
    }
}

/// `/proc/<pid>/ns/net` of a process that has just ended says ESRCH.
fn unopened(path: &Path, source: Errno) -> Error {
    let path = path.to_owned();
    match source {
        Errno::ENOENT | Errno::ESRCH => Error::Gone { path },
        source => Error::Open { path, source },
    }
}

/// setns(2) says EINVAL where the descriptor's namespace is not of the type asked for.
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
    fn says_gone_where_nothing_is() {
        assert!(matches!(Netns::open(Path::new("/proc/self/ns/nothing")), Err(Error::Gone { .. })));
    }

    #[test]
    fn refuses_what_is_not_a_namespace() {
        for path in ["/", "/proc/self/status", "/dev/null"] {
            let error = Netns::open(Path::new(path)).unwrap_err();
            assert!(
                matches!(&error, Error::NotNetns { found, .. } if found.starts_with("an ordinary")),
                "{path}: {error}"
            );
        }
    }

    #[test]
    fn does_not_wait_at_a_fifo() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        nix::unistd::mkfifo(&fifo, Mode::S_IRWXU).unwrap();
        assert!(matches!(Netns::open(&fifo), Err(Error::NotNetns { .. })));
    }

    #[test]
    fn reads_the_message_of_either_kind_of_panic() {
        assert_eq!(panic_message(Box::new("text")), "text");
        assert_eq!(panic_message(Box::new("text".to_owned())), "text");
        assert_eq!(panic_message(Box::new(1)), "without a message");
    }
}
