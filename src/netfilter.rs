//! Rule sets ⇄ kernel.

pub mod batch;
mod compat;
mod describe;
pub mod expr;
pub mod image;
pub mod nft;
pub mod restore;
mod wire;
mod xt;

/// Why a rule cannot be put into the kernel's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unencodable {
    /// The kernel knows numbers only.
    #[error("user or group {0:?} is a name: give its number, or run where the name can be resolved")]
    Name(String),
    /// More ports than one match holds.
    #[error("{given} ports in one match, where iptables takes {limit}")]
    Ports {
        /// Ports given.
        given: usize,
        /// Ports taken.
        limit: usize,
    },
}
