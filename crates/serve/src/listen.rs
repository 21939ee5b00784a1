//! Listeners: TCP ports on all interfaces, and Unix sockets for root only.
//!
//! The daemons bind them; `http` accepts connections. A socket is renamed over its predecessor, so that the path always
//! leads to a listener. A path that another running process has taken over is never removed.
#![expect(clippy::disallowed_methods, reason = "creates and removes the sockets' files")]

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use contract::diagnostics::without_path;
use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};
use nix::unistd::geteuid;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::sleep;

use super::http::Listener;

/// The name prefix of sockets that have not been renamed yet.
const UNFINISHED: &str = ".listen.";
/// The age from which a socket that was never renamed is removed, if no process listens on it.
const UNFINISHED_AGE: Duration = Duration::from_secs(10);

/// A listener could not be created.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cannot listen on port {port}: {cause}; another process may have it")]
    Port { port: u16, cause: io::Error },
    /// The directory of the socket cannot be created, or its mode cannot be set.
    #[error("directory {} cannot be created with access for root only: {cause}", path.display())]
    Directory { path: PathBuf, cause: io::Error },
    #[error("cannot listen on {}: {cause}", path.display())]
    Socket { path: PathBuf, cause: io::Error },
}

/// Listens on all interfaces, for both address families if the kernel has both.
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

/// A Unix socket for root only: mode 0600, in a directory of mode 0750, with a check of each peer's credentials.
#[derive(Debug)]
pub struct PrivateSocket {
    listener: UnixListener,
    name: Name,
}

/// The path of a socket, and the socket's device and inode, by which a replacement is detected.
#[derive(Debug, Clone)]
pub struct Name {
    path: PathBuf,
    identity: (u64, u64),
}

impl PrivateSocket {
    /// Binds `path`. A process that listened there keeps its accepted connections and gets no new ones.
    pub fn bind(path: &Path) -> Result<Self, Error> {
        Self::bind_with(path, |path| UnixListener::bind(path))
    }

    /// Binds `path` as [`bind`](Self::bind) does, with the type `SOCK_SEQPACKET`. Accepted connections have that type,
    /// too, and must not be read or written as streams.
    pub fn bind_seqpacket(path: &Path) -> Result<Self, Error> {
        Self::bind_with(path, seqpacket)
    }

    fn bind_with(path: &Path, bind: impl FnMut(&Path) -> io::Result<UnixListener>) -> Result<Self, Error> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        own_directory(parent).map_err(|cause| Error::Directory { path: parent.to_owned(), cause })?;
        remove_unfinished(parent, UNFINISHED_AGE);
        Self::take(path, parent, bind).map_err(|cause| Error::Socket { path: path.to_owned(), cause })
    }

    fn take(path: &Path, parent: &Path, bind: impl FnMut(&Path) -> io::Result<UnixListener>) -> io::Result<Self> {
        let bound = tempfile::Builder::new().prefix(UNFINISHED).make_in(parent, bind).map_err(without_path)?;
        fs::set_permissions(bound.path(), Permissions::from_mode(0o600))?;
        let identity = identity(bound.path())?;
        let listener = bound.persist(path)?;
        Ok(Self { listener, name: Name { path: path.to_owned(), identity } })
    }

    /// Returns the name, by which the owner detects a takeover while the listener is in use.
    pub fn name(&self) -> Name {
        self.name.clone()
    }
}

impl Name {
    /// Whether the path still leads to this process's socket.
    pub fn is_ours(&self) -> bool {
        identity(&self.path).is_ok_and(|found| found == self.identity)
    }

    /// Whether another process listens on the path. The socket of a process that has ended is not a takeover.
    pub async fn is_taken_over(&self) -> bool {
        !self.is_ours() && is_served(&self.path).await
    }

    /// Removes the path unless another process has taken it over.
    pub fn remove(&self) -> io::Result<()> {
        if self.is_ours() { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

/// The shortest interval between two connections of [`until_abandoned`].
const BETWEEN: Duration = Duration::from_millis(20);

/// The result of a connection attempt to a Unix socket's path.
enum Peer {
    /// A process listens; it may not have accepted the connection yet.
    Listens(UnixStream),
    /// The listener's backlog is full, or the attempt failed for a reason unrelated to the listener.
    Unknown,
    /// The file is missing, or no process listens.
    Absent,
}

/// Connects. Does not wait, because the kernel refuses or queues a connection at once.
async fn connect(path: &Path) -> Peer {
    match UnixStream::connect(path).await {
        Ok(stream) => Peer::Listens(stream),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            Peer::Absent
        }
        Err(_) => Peer::Unknown,
    }
}

/// Whether a process listens on a path.
pub async fn is_served(path: &Path) -> bool {
    !matches!(connect(path).await, Peer::Absent)
}

/// Returns false once no process listens on a path, or true once `hold` returns true. `hold` gets a connection; it returns when the
/// connection is closed, which the kernel does at once when the listening process ends, or after some seconds. A new connection then
/// shows whether a process still listens. `pause` is the delay after an attempt that does not show it.
pub async fn until_abandoned(path: &Path, pause: Duration, hold: impl AsyncFn(UnixStream) -> bool) -> bool {
    loop {
        match connect(path).await {
            Peer::Absent => return false,
            Peer::Unknown => sleep(pause).await,
            Peer::Listens(stream) => {
                if hold(stream).await {
                    return true;
                }
                sleep(BETWEEN).await;
            }
        }
    }
}

/// Removes the path of a socket, if it exists. The caller ensures that no process listens on it.
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
            tracing::warn!(?peer, path = %self.name.path.display(), "a peer is not root and is refused");
        }
    }
}

/// The maximum number of connections of a [`seqpacket`] socket that wait to be accepted.
const BACKLOG: i32 = 128;

/// Binds a socket of the type `SOCK_SEQPACKET`, for which tokio has no listener. A `UnixListener` accepts its
/// connections as it does those of a stream socket.
fn seqpacket(path: &Path) -> io::Result<UnixListener> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::SeqPacket, flags, None)?;
    bind(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    listen(&socket, Backlog::new(BACKLOG)?)?;
    UnixListener::from_std(std::os::unix::net::UnixListener::from(socket))
}

/// Removes sockets in a directory whose process was killed before it renamed them. A socket younger than `age` stays, because its
/// process may be about to listen.
pub fn remove_unfinished(directory: &Path, age: Duration) {
    let is_old = |path: &Path| {
        let changed = fs::symlink_metadata(path).and_then(|found| found.modified());
        changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|passed| passed >= age))
    };
    let is_dead = |path: &Path| {
        let connected = std::os::unix::net::UnixStream::connect(path);
        connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    };
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let unfinished = entries.filter(|entry| entry.file_name().as_encoded_bytes().starts_with(UNFINISHED.as_bytes()));
    for path in unfinished.map(|entry| entry.path()).filter(|path| is_old(path) && is_dead(path)) {
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(%error, path = %path.display(), "a socket cannot be removed");
        }
    }
}

/// Whether a peer is root or the daemon's own user.
fn may_connect(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

/// Creates a directory of mode 0750, or sets that mode: the kubelet creates `hostPath` directories with 0755.
fn own_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o750).create(path)?;
    // Setting an unchanged mode would still cause an inotify event.
    if fs::metadata(path)?.permissions().mode() & 0o7777 == 0o750 {
        return Ok(());
    }
    fs::set_permissions(path, Permissions::from_mode(0o750))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;
    use tokio::time::timeout;

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
    async fn a_socket_is_accessible_to_root_only() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/agent.sock");
        let _socket = PrivateSocket::bind(&path).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o750));
    }

    #[tokio::test]
    async fn a_socket_of_packets_is_accessible_to_root_only_and_keeps_their_bounds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ztunnel/ztunnel.sock");
        let listener = PrivateSocket::bind_seqpacket(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        // A stream socket cannot connect to a socket of packets (EPROTOTYPE), so `is_served` leaves no connection in
        // the backlog.
        assert!(is_served(&path).await);
        assert!(matches!(connect(&path).await, Peer::Unknown));
        let client = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None).unwrap();
        nix::sys::socket::connect(client.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        let accepted = Listener::accept(&listener).await.unwrap();
        for packet in [&b"a"[..], b"bc"] {
            nix::unistd::write(&client, packet).unwrap();
        }
        accepted.readable().await.unwrap();
        let sizes = [(); 2].map(|()| accepted.try_read(&mut [0; 16]).unwrap());
        assert_eq!(sizes, [1, 2], "a stream would have joined them");
        drop(listener);
        assert!(path.exists() && !is_served(&path).await);
    }

    #[tokio::test]
    async fn a_path_that_another_listener_has_taken_over_stays() {
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
    async fn sockets_of_a_process_that_was_killed_before_the_rename_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let [dead, alive, young] = ["a", "b", "c"].map(|name| dir.path().join(format!("{UNFINISHED}{name}")));
        for path in [&dead, &young] {
            drop(std::os::unix::net::UnixListener::bind(path).unwrap());
        }
        let _listener = std::os::unix::net::UnixListener::bind(&alive).unwrap();
        let past = nix::sys::time::TimeSpec::new(1, 0);
        for path in [&dead, &alive] {
            let follow = nix::sys::stat::UtimensatFlags::NoFollowSymlink;
            nix::sys::stat::utimensat(nix::fcntl::AT_FDCWD, path, &past, &past, follow).unwrap();
        }
        let _socket = PrivateSocket::bind(&dir.path().join("agent.sock")).unwrap();
        assert_eq!([&dead, &alive, &young].map(|path| path.exists()), [false, true, true]);
        remove_unfinished(dir.path(), Duration::ZERO);
        assert_eq!([&alive, &young].map(|path| path.exists()), [true, false]);
    }

    #[tokio::test]
    async fn the_end_of_a_listener_is_detected_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent.sock");
        let old = PrivateSocket::bind(&path).unwrap();
        let new = PrivateSocket::bind(&path).unwrap();
        assert!(old.name().is_taken_over().await && is_served(&path).await);
        // Waits without a limit, so that the connection is not replaced while the test runs.
        let hold = async |mut stream: UnixStream| stream.read(&mut [0]).await.is_ok_and(|read| read > 0);
        let abandoned = until_abandoned(&path, Duration::from_secs(3600), hold);
        tokio::pin!(abandoned);
        let early = timeout(Duration::from_millis(200), &mut abandoned).await;
        assert!(early.is_err(), "a process listens");
        // The file stays, as after SIGKILL.
        drop(new);
        let is_held = timeout(Duration::from_secs(60), abandoned).await.expect("the kernel closes the connection");
        assert!(!is_held);
        assert!(path.exists() && !old.name().is_taken_over().await && !is_served(&path).await);
    }

    #[tokio::test]
    async fn the_error_of_a_port_in_use_names_it() {
        let taken = port(0).await.unwrap();
        let number = taken.local_addr().unwrap().port();
        let error = port(number).await.unwrap_err().to_string();
        assert!(error.contains(&format!("port {number}")), "{error}");
    }
}
