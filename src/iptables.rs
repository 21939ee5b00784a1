//! The program `istio-iptables`: from command line and environment to rules in the netns that it is started in.
//!
//! `bin/istio-iptables` calls [`run`] with everything that it may know of the world. Here is decided which exit code
//! means what; rules, kernel and validation are other rooms'.

pub(crate) mod duration;
mod etc;
mod flags;
mod run;
mod settings;

pub use etc::Etc;
pub use flags::Flags;
pub use run::{World, run};
pub use settings::{Action, Settings};

use std::io;

use crate::{converge, netns, redirect};

/// Why a run ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A value that no rule can hold.
    #[error(transparent)]
    Redirect(#[from] redirect::Error),
    /// Not the number that it must be.
    #[error("{flag}: {given:?} is not allowed: {allowed}")]
    Number {
        /// The flag.
        flag: &'static str,
        /// Its value.
        given: String,
        /// What would have been allowed.
        allowed: &'static str,
    },
    /// An unknown flavour of iptables.
    #[error("--force-iptables-binary: {given:?} is not allowed: `legacy`, `nft` or nothing")]
    Flavour {
        /// What was given.
        given: String,
    },
    /// DNS is to be captured by server, and the servers are not known.
    #[error("/etc/resolv.conf cannot be read; --capture-all-dns needs no list of servers")]
    ResolvConf(#[source] io::Error),
    /// A user or group that the image does not have.
    #[error("{name:?} is not in {file}; give its number")]
    NoSuchOwner {
        /// The name.
        name: String,
        /// Where it was looked for.
        file: &'static str,
    },
    /// The netns' addresses say nothing of its families.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// The rules could not be brought into the kernel, or out of it.
    #[error(transparent)]
    Converge(#[from] converge::Error),
    /// What was to be printed could not be.
    #[error("{path}: the rules cannot be written there")]
    Print {
        /// File, or standard output.
        path: String,
        /// Why.
        source: io::Error,
    },
}
