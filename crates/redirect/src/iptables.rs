//! Parses the command line and environment of `istio-iptables` into [`Settings`].

mod etc;
mod flags;
mod settings;

pub use etc::Etc;
pub use flags::{Flags, variable_of};
pub use settings::{Action, Settings};

use std::io;

/// A setting is invalid or cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Redirect(#[from] crate::Error),
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
    /// `/etc/resolv.conf` cannot be read, although only DNS to its servers is captured.
    #[error("/etc/resolv.conf cannot be read; without --capture-all-dns, only DNS to its servers is captured")]
    ResolvConf(#[source] io::Error),
    /// The image has no such user or group.
    #[error("{name:?} is not in {file}; give its numeric id")]
    NoSuchOwner {
        name: String,
        /// The file that was searched.
        file: &'static str,
    },
}
