//! What can be wrong with a request, and the one place that knows the protocol's error codes.

use std::io;

use super::{Command, Version, conf::MAX_STDIN};

/// Error codes of the CNI specification 1.1.0 (section 5, "Error"), and Istio's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// The configuration's version is not supported, or does not have the verb.
    IncompatibleVersion = 1,
    /// A field of the configuration asks for something that this plugin does not do.
    UnsupportedField = 2,
    /// The container is not known, or is gone.
    UnknownContainer = 3,
    /// An environment variable is missing or malformed.
    InvalidEnvironment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// Something is not the JSON that it should be.
    Decode = 6,
    /// The configuration is JSON, but not a valid configuration.
    InvalidConfig = 7,
    /// The netns is the plugin's own (`ErrInvalidNetNS` of the Go library).
    InvalidNetns = 8,
    /// A passing condition: the runtime may repeat the request.
    TryAgainLater = 11,
    /// STATUS: the plugin cannot serve ADD.
    Unavailable = 50,
    /// STATUS: it cannot, and the pods that exist have limited connectivity.
    LimitedConnectivity = 51,
    /// Everything that only this plugin can say; Istio's plugin uses this number.
    Plugin = 999,
}

impl Code {
    /// The number on the wire.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// Why a request cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody asks anything: a person has started the plugin. Not a failure, see [`about`](super::reply::about).
    #[error("required env variables [CNI_COMMAND] missing")]
    NoCommand,
    /// Variables that the verb needs, all that are missing or empty.
    #[error("required env variables [{}] missing", .0.join(","))]
    MissingEnv(Vec<&'static str>),
    /// A verb that no specification has.
    #[error("unknown CNI_COMMAND: {0}")]
    UnknownCommand(String),
    /// The container id does not match `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`.
    #[error("invalid characters in containerID")]
    ContainerId(String),
    /// The kernel would refuse this interface name.
    #[error("invalid CNI_IFNAME: interface name {0}")]
    InterfaceName(&'static str),
    /// `CNI_ARGS` holds something else than pairs.
    #[error("CNI_ARGS: invalid pair {0:?}: expected key=value, separated by `;`")]
    ArgsPair(String),
    /// `CNI_ARGS` holds keys that this plugin does not know, and no `IgnoreUnknown=1`.
    #[error("CNI_ARGS: unknown args {0:?}; set IgnoreUnknown=1 to pass keys that are not for this plugin")]
    ArgsUnknown(Vec<String>),
    /// A value of `CNI_ARGS` that cannot be what its key says.
    #[error("CNI_ARGS: {key}={value:?} is not allowed: expected {allowed}")]
    ArgsValue {
        /// The key.
        key: &'static str,
        /// What was given, cut.
        value: String,
        /// What would have been allowed.
        allowed: &'static str,
    },
    /// Standard input broke off.
    #[error("error reading from stdin: {0}")]
    Read(io::Error),
    /// Standard input is larger than any configuration.
    #[error("the network config on stdin is larger than {} bytes", MAX_STDIN)]
    TooLarge,
    /// Standard input is no JSON object.
    #[error("error unmarshall network config: {0}")]
    Json(serde_json::Error),
    /// A key has a value of another type.
    #[error("network config: cannot decode {key:?}: {error}")]
    Key {
        /// The key.
        key: &'static str,
        /// What the decoder says.
        error: serde_json::Error,
    },
    /// No `name`, or an empty one.
    #[error("missing network name")]
    MissingName,
    /// The name does not match `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`.
    #[error("invalid characters found in network name")]
    NetworkName(String),
    /// A key has a value that it cannot have.
    #[error("network config: {key}={value:?} is not allowed: expected {allowed}")]
    Value {
        /// The key.
        key: &'static str,
        /// What was given, cut.
        value: String,
        /// What would have been allowed.
        allowed: &'static str,
    },
    /// A version that this plugin does not speak.
    #[error("incompatible CNI versions")]
    Version(String),
    /// The configuration's version is older than the verb.
    #[error("config version does not allow {command}")]
    Verb {
        /// The verb.
        command: Command,
        /// The configuration's version.
        version: Version,
    },
    /// `prevResult` is no JSON object.
    #[error("cannot decode prevResult, the answer of the plugin before this one: {0}")]
    PrevResult(serde_json::Error),
    /// `prevResult` is of a version that this plugin does not speak.
    #[error("prevResult has the unsupported cniVersion {0:?}")]
    PrevResultVersion(String),
}

impl Error {
    /// The code on the wire.
    pub fn code(&self) -> Code {
        match self {
            Self::NoCommand
            | Self::MissingEnv(_)
            | Self::UnknownCommand(_)
            | Self::ContainerId(_)
            | Self::InterfaceName(_)
            | Self::ArgsPair(_)
            | Self::ArgsUnknown(_)
            | Self::ArgsValue { .. } => Code::InvalidEnvironment,
            Self::Read(_) => Code::Io,
            Self::TooLarge | Self::Json(_) | Self::Key { .. } | Self::PrevResult(_) => Code::Decode,
            Self::MissingName | Self::NetworkName(_) | Self::Value { .. } | Self::PrevResultVersion(_) => {
                Code::InvalidConfig
            }
            Self::Version(_) | Self::Verb { .. } => Code::IncompatibleVersion,
        }
    }

    /// What goes into `details` beside the message; empty where the message says all.
    pub fn details(&self) -> String {
        match self {
            Self::ContainerId(text) | Self::NetworkName(text) => text.clone(),
            Self::Version(config) => {
                let supported: Vec<_> = Version::ALL.map(|version| format!("{:?}", version.as_str())).into();
                format!("config is {config:?}, plugin supports [{}]", supported.join(" "))
            }
            Self::Verb { command, version } => {
                format!("config is {version}, {command} exists since {}", command.since())
            }
            _ => String::new(),
        }
    }
}
