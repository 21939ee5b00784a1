//! The program `istio-iptables`: programs the netns in which it is started from command line and environment.
//!
//! `bin/istio-iptables` calls [`run`] and passes everything that it reads. This module assigns the exit codes; other
//! modules handle rules, kernel and validation.

pub(crate) mod duration;
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
    #[error("{flag}: {given:?} is not allowed: {allowed}")]
    Number {
        flag: &'static str,
        given: String,
        /// The valid values.
        allowed: &'static str,
    },
    /// Unknown implementation of iptables.
    #[error("--force-iptables-binary: {given:?} is not allowed: `legacy`, `nft` or nothing")]
    Flavour { given: String },
    /// DNS is to be captured by resolver, but the resolvers are unknown.
    #[error("/etc/resolv.conf cannot be read; --capture-all-dns needs no list of servers")]
    ResolvConf(#[source] io::Error),
    /// The image has no such user or group.
    #[error("{name:?} is not in {file}; give its number")]
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
    /// Rules of TPROXY may be in tables that cannot be read.
    #[error(
        "only rules by nf_tables are removed: this netns has a mangle table of iptables-legacy, and neither iptables-legacy-save \
         and iptables-legacy-restore nor their plain names are installed; rules of Istio in tables of iptables-legacy stay, and so \
         do the routes of TPROXY; repeat the cleanup with these programs (ip6tables-legacy-save and ip6tables-legacy-restore for \
         IPv6)"
    )]
    MangleUnread,
    #[error("{path}: the rules cannot be written there")]
    Print {
        /// A file, or standard output.
        path: String,
        source: io::Error,
    },
}
