//! The CNI protocol's requests (environment, standard input) and replies as types.
//!
//! The crate `plugin` passes values in and prints the replies; this crate reads no environment, file or clock. Only the
//! module `error` assigns error codes. Sources: CNI specification 1.1.0, and `pkg/skel` of `containernetworking/cni`
//! 1.3 for the details that the specification leaves open.

mod args;
mod call;
mod command;
mod conf;
mod error;
mod object;
pub mod reply;
mod version;

pub use args::PodArgs;
pub use call::{Attachment, Call, Target};
pub use command::Command;
pub use conf::{NetConf, PluginSettings, Removed, read, skip};
pub use error::{Code, Error};
pub use version::Version;

/// The size limit of standard input for verbs that use the configuration, in bytes.
///
/// The configuration includes all annotations of the pod: at most 256 KiB, which Go's JSON encoder expands sixfold if
/// it escapes each byte (`<` becomes `\u003c`).
pub const MAX_STDIN: usize = 8 << 20;
