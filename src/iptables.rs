//! The program `istio-iptables`: programs the netns in which it is started from command line and environment.
//!
//! `bin/istio-iptables` calls [`run`] and passes everything that it reads. This module assigns the exit codes; other
//! modules handle rules, kernel and validation.

mod etc;
mod flags;
mod run;
mod settings;

pub use etc::Etc;
pub use flags::Flags;
#[cfg(test)]
pub(crate) use flags::variable_of;
pub use run::{Invocation, run};
pub use settings::{Action, Settings};

use std::io;

use crate::{converge, netns, redirect};

/// A run that ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Redirect(#[from] redirect::Error),
    /// The value is not a number in the valid range.
    #[error("{flag}: {given:?} is not allowed: expected {allowed}")]
    Number {
        flag: &'static str,
        given: String,
        /// The valid values.
        allowed: &'static str,
    },
    /// Unknown implementation of iptables.
    #[error("--force-iptables-binary: {given:?} is not allowed: expected `legacy`, `nft` or nothing")]
    Flavour { given: String },
    /// Only DNS to the servers in the file is captured, unless all DNS is.
    #[error("/etc/resolv.conf cannot be read; without --capture-all-dns, only DNS to its servers is captured")]
    ResolvConf(#[source] io::Error),
    /// The image has no such user or group.
    #[error("{name:?} is not in {file}; give its numeric id")]
    NoSuchOwner {
        name: String,
        /// The file that was searched.
        file: &'static str,
    },
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
