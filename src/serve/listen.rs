//! Listeners: TCP ports on all interfaces, and Unix sockets for root alone.
//!
//! `daemon` and `agent` bind them, `http` accepts. A socket's path is replaced by `rename`, so that a process can follow
//! another without a moment in which nobody listens; a path that another live process has taken is never removed.
#![expect(clippy::disallowed_methods, reason = "owns the sockets' files")]

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::geteuid;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::http::Listener;

/// Why nobody can be listened to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A TCP port.
    #[error("cannot listen on port {port}: {cause}; another process may have it")]
    Port {
        /// The port.
        port: u16,
        /// Why not.
        cause: io::Error,
    },
    /// A directory for sockets.
    #[error("directory {} cannot be made root's own: {cause}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
    /// A Unix socket.
    #[error("cannot listen on {}: {cause}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why not.
        cause: io::Error,
    },
}

/// Listens on all interfaces, of both families where the kernel has both.
pub async fn port(port: u16) -> Result<TcpListener, Error> {
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port)).await;
    match both {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).await
        }
        both => both,
    }
    .map_err(|cause| Error::Port { port, cause })
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// A Unix socket that root alone connects to: mode 0600, in a directory of mode 0750, and peers say who they are.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: UnixListener,
    name: Name,
}

/// The name under which a process listens, as long as no other has taken it.
#[derive(Debug, Clone)]
pub struct Name {
    path: PathBuf,
    identity: (u64, u64),
}

impl PrivateSocket {
    /// Listens under `path`. Whoever listened there keeps the connections that it has, and gets no further ones.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        own_directory(parent).map_err(|cause| Error::Directory { path: parent.to_owned(), cause })?;
        Self::take(path, parent).map_err(|cause| Error::Socket { path: path.to_owned(), cause })
    }

    fn take(path: &Path, parent: &Path) -> io::Result<Self> {
        let bound = tempfile::Builder::new().prefix(".listen.").make_in(parent, |path| UnixListener::bind(path))?;
        fs::set_permissions(bound.path(), Permissions::from_mode(0o600))?;
        let identity = identity(bound.path())?;
        let listener = bound.persist(path)?;
        Ok(Self { listener, name: Name { path: path.to_owned(), identity } })
    }

    /// The name, for whoever has to know whether it is still this process's.
    pub fn name(&self) -> Name {
        self.name.clone()
    }
}

impl Name {
    /// Whether connections under this name still come here.
    pub fn is_ours(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// Whether another process listens under the name. A file that a dead process left behind is not another's.
    pub async fn is_anothers(&self) -> bool {
        !self.is_ours() && is_served(&self.path).await
    }

    /// Gives the name up. It stays where another process has taken it; without that it goes, once for all.
    pub fn remove(&self) -> io::Result<()> {
        if self.is_ours() { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// How long a connection to a listener is held before another one is made.
const HOLD: Duration = Duration::from_secs(2);
/// Between two connections, at least.
const BETWEEN: Duration = Duration::from_millis(20);

/// What a connection to a Unix socket's path finds.
enum Peer {
    /// A listener, which may not have accepted the connection yet.
    Listens(UnixStream),
    /// A listener whose backlog is full, or a failure that says nothing about the listener.
    Unknown,
    /// No file, or no process behind the file.
    Absent,
}

/// Connects without waiting: the kernel refuses or queues a connection at once.
async fn connect(path: &Path) -> Peer {
    match UnixStream::connect(path).await {
        Ok(stream) => Peer::Listens(stream),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Peer::Absent
        }
        Err(_) => Peer::Unknown,
    }
}

/// Whether a live process listens under a path.
pub async fn is_served(path: &Path) -> bool {
    !matches!(connect(path).await, Peer::Absent)
}

/// Returns once no process listens under a path. The kernel closes the connection that is held meanwhile when the listener
/// dies, so that its death is noticed at once.
pub async fn abandoned(path: &Path) {
    loop {
        match connect(path).await {
            Peer::Absent => return,
            Peer::Unknown => sleep(HOLD).await,
            Peer::Listens(mut stream) => {
                let _ = timeout(HOLD, stream.read(&mut [0])).await;
                sleep(BETWEEN).await;
            }
        }
    }
}

/// Removes the name of a socket on which nobody listens any more, where there is one.
pub fn remove_dead(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Listener for PrivateSocket {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        loop {
            let (stream, _) = self.listener.accept().await?;
            let peer = stream.peer_cred().map(|peer| peer.uid());
            if peer.as_ref().is_ok_and(|uid| may_connect(*uid, geteuid().as_raw())) {
                return Ok(stream);
            }
            tracing::warn!(?peer, path = %self.name.path.display(), "a peer is not root and is not answered");
        }
    }
}

/// Root, and the user that the daemon itself is.
fn may_connect(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// The kubelet makes directories that all may enter.
fn own_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(path)?;
    // Setting the mode that a directory has is an event for its watchers, too.
    if fs::metadata(path)?.permissions().mode() & 0o7777 == 0o750 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(0o750))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_the_daemons_own_user_may_connect() {
        assert!(may_connect(0, 0));
        assert!(may_connect(0, 1000));
        assert!(may_connect(1000, 1000));
        assert!(!may_connect(1000, 0));
        assert!(!may_connect(1001, 1000));
    }

    #[tokio::test]
    async fn a_socket_is_roots_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/agent.sock");
        let _socket = PrivateSocket::bind(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o750));
    }

    #[tokio::test]
    async fn a_name_that_another_has_taken_stays() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        fs::write(&path, "left by a process that was killed").unwrap();
        let old = PrivateSocket::bind(&path).unwrap();
        assert!(old.name().is_ours());
        let new = PrivateSocket::bind(&path).unwrap();
        assert!(!old.name().is_ours());
        old.name().remove().unwrap();
        assert!(new.name().is_ours());
        new.name().remove().unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[tokio::test]
    async fn a_file_without_a_listener_is_nobodys_and_a_listeners_death_is_noticed_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let old = PrivateSocket::bind(&path).unwrap();
        let new = PrivateSocket::bind(&path).unwrap();
        assert!(old.name().is_anothers().await && is_served(&path).await);
        let abandoned = abandoned(&path);
        tokio::pin!(abandoned);
        let early = timeout(Duration::from_millis(200), &mut abandoned).await;
        assert!(early.is_err(), "a process listens");
        // As by SIGKILL: the file stays.
        drop(new);
        timeout(HOLD / 2, abandoned).await.expect("a death is noticed before the connection is made anew");
        assert!(path.exists() && !old.name().is_anothers().await && !is_served(&path).await);
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_named() {
        let taken = port(0).await.unwrap();
        let number = taken.local_addr().unwrap().port();
        let error = port(number).await.unwrap_err().to_string();
        assert!(error.contains(&format!("port {number}")), "{error}");
    }
}
