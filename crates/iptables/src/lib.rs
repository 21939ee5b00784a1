//! The program `istio-iptables`: programs the netns in which it is started from command line and environment.
//!
//! `bin/istio-iptables` calls [`run`] and passes everything that it reads. This module assigns the exit codes; other
//! modules handle rules, kernel and validation.

mod run;

pub use run::{Invocation, run};

use std::io;

use podnet::{converge, netns};

/// A run that ended early.
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
