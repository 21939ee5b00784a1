//! The program `istio-iptables`: programs the redirection rules of the netns in which it runs, as its command line and
//! environment request.
//!
//! `main.rs` passes command line, environment and standard streams to [`run`]. This crate chooses the exit code; other
//! crates handle rules, kernel and validation.

mod run;

pub use run::{Invocation, run};

use std::io;

use podnet::{converge, netns};

/// An error that ends a run with exit code 1.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Command line, environment or a file of `/etc` has an invalid value.
    #[error(transparent)]
    Settings(#[from] redirect::iptables::Error),
    /// The families cannot be determined from the netns's addresses.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// The rules could not be added or removed.
    #[error(transparent)]
    Converge(#[from] converge::Error),
    /// The mangle table of iptables-legacy exists, but the programs that read it are not installed.
    #[error(
        "the cleanup is incomplete: rules of nf_tables are removed, but this netns also has a mangle table of iptables-legacy, \
         which cannot be read without iptables-legacy-save and iptables-legacy-restore (IPv6: ip6tables-legacy-save and \
         ip6tables-legacy-restore); rules of iptables-legacy and the routes of TPROXY remain; install these programs and repeat \
         the cleanup"
    )]
    MangleUnread,
    #[error("{path}: the rules cannot be written there")]
    Print {
        /// A file, or standard output.
        path: String,
        source: io::Error,
    },
}
