//! Which network namespace a thread is in.
//!
//! `plugin` compares the pod's with its own. What is compared must be seen from inside: that is quicker than looking
//! the namespaces up in `/proc`.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::socket::getsockopt;
use nix::sys::stat::stat;
use nix::{getsockopt_impl, libc, sockopt_impl};

use super::Error;

/// A network namespace, as long as the process runs; equal to itself and to no other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// The kernel's number for it (`SO_NETNS_COOKIE`, since Linux 5.14).
    Cookie(u64),
    /// Device and inode of its file.
    File(u64, u64),
}

sockopt_impl!(
    /// The cookie of a socket's netns.
    NetnsCookie,
    GetOnly,
    libc::SOL_SOCKET,
    libc::SO_NETNS_COOKIE,
    u64
);

impl Identity {
    /// The one that the calling thread is in.
    pub fn here() -> Result<Self, Error> {
        UnixDatagram::unbound()
            .ok()
            .and_then(|socket| getsockopt(&socket, NetnsCookie).ok())
            .map_or_else(file, |cookie| Ok(Self::Cookie(cookie)))
    }
}

fn file() -> Result<Identity, Error> {
    let path = Path::new("/proc/thread-self/ns/net");
    let open = |source: Errno| Error::Open { path: path.to_owned(), source };
    stat(path).map(|file| Identity::File(file.st_dev, file.st_ino)).map_err(open)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_the_same_each_time() {
        assert_eq!(Identity::here().unwrap(), Identity::here().unwrap());
        assert_eq!(file().unwrap(), file().unwrap());
    }
}
