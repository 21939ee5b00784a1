//! The CNI protocol's requests (environment, standard input) and replies as types.
//!
//! `plugin` passes values in and prints the replies; this module reads no environment, file or clock.
//! Only `error` assigns error codes.
//! Sources: CNI specification 1.1.0, and `pkg/skel` of `containernetworking/cni` 1.3 where the specification is silent.

mod args;
mod call;
mod conf;
mod error;
mod object;
pub mod reply;
mod version;

pub use args::PodArgs;
pub use call::{Attachment, Call, Command, Target};
pub use conf::{IptablesBinary, MAX_STDIN, NetConf, Settings, read, skip};
pub use error::{Code, Error};
pub use version::Version;
