//! The CNI protocol as data: what a runtime asks (environment, standard input) and what it is answered.
//!
//! `plugin` hands in values and prints what comes back; nothing here reads the environment, a file or a clock.
//! Error codes are assigned in `error` and nowhere else.
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
