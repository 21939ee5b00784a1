//! Errors of a request, and their mapping to the protocol's error codes.

use std::io;

use super::{Command, MAX_STDIN, Version};
use contract::config_key;
use contract::diagnostics::Documented;

/// Error codes of the CNI specification 1.1.0 (section 5, "Error"), and Istio's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// The configuration's version is not supported, or does not have the verb.
    IncompatibleVersion = 1,
    /// The container is unknown or gone.
    UnknownContainer = 3,
    /// An environment variable is missing or malformed.
    InvalidEnvironment = 4,
    /// Reading or writing failed.
    Io = 5,
    /// A value is not JSON, or not of the expected type.
    Decode = 6,
    /// The configuration is JSON, but not a valid configuration.
    InvalidConfig = 7,
    /// The netns is the plugin's own (`ErrInvalidNetNS` of the Go library).
    InvalidNetns = 8,
    /// A temporary condition: the runtime should try the request again.
    TryAgainLater = 11,
    /// Any other failure; Istio's plugin uses the same number.
    Plugin = 999,
}

impl Code {
    /// Returns the code's number in the protocol.
    pub const fn number(self) -> u32 {
        self as u32
    }
}

/// An invalid request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The process was started by hand and not by a container runtime. It prints its versions, see
    /// [`about`](super::reply::about), and succeeds.
    #[error("required env variables [CNI_COMMAND] missing")]
    NoCommand,
    /// All variables that the verb requires and that are missing or empty.
    #[error("required env variables [{}] missing", .0.join(","))]
    MissingEnv(Vec<&'static str>),
    /// A variable that the verb needs is not UTF-8. It must not be treated as missing: without `CNI_ARGS`, a pod would be
    /// taken for a container outside of Kubernetes.
    #[error("env variable {0} is not valid UTF-8")]
    NotUtf8(&'static str),
    #[error("unknown CNI_COMMAND: {0}")]
    UnknownCommand(String),
    /// The container id does not match `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`.
    #[error("invalid characters in containerID")]
    ContainerId(String),
    /// The kernel would refuse this interface name.
    #[error("invalid CNI_IFNAME: interface name {0}")]
    InterfaceName(&'static str),
    /// An element of `CNI_ARGS` is not a `key=value` pair.
    #[error("CNI_ARGS: invalid pair {0:?}: expected key=value, separated by `;`")]
    ArgsPair(String),
    /// `CNI_ARGS` has unknown keys and no `IgnoreUnknown=1`.
    #[error("CNI_ARGS: unknown args {0:?}; set IgnoreUnknown=1 to pass keys that are not for this plugin")]
    ArgsUnknown(Vec<String>),
    /// A value in `CNI_ARGS` is not valid for its key.
    #[error("CNI_ARGS: {key}={value:?} is not allowed: expected {allowed}")]
    ArgsValue {
        key: &'static str,
        /// The value, truncated.
        value: String,
        /// The valid values.
        allowed: &'static str,
    },
    #[error("error reading from stdin: {0}")]
    Read(io::Error),
    #[error("the network config on stdin is larger than {} bytes", MAX_STDIN)]
    TooLarge,
    #[error("error unmarshall network config: {0}")]
    Json(serde_json::Error),
    #[error("network config: cannot decode {key:?}: {error}")]
    Key { key: &'static str, error: serde_json::Error },
    /// `name` is missing or empty.
    #[error("missing network name")]
    MissingName,
    /// The network name does not match `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`.
    #[error("invalid characters found in network name")]
    NetworkName(String),
    #[error("network config: {key}={value:?} is not allowed: expected {allowed}")]
    Value {
        key: &'static str,
        /// The value, truncated.
        value: String,
        /// The valid values.
        allowed: &'static str,
    },
    /// The version is not supported.
    #[error("incompatible CNI versions")]
    Version(String),
    /// The configuration's version is older than the verb.
    #[error("config version does not allow {command}")]
    Verb { command: Command, version: Version },
    /// `prevResult` is not a JSON object.
    #[error("cannot decode prevResult, the result of the previous plugin: {0}")]
    PrevResult(serde_json::Error),
    /// `prevResult` has an unsupported version.
    #[error("prevResult has the unsupported cniVersion {0:?}")]
    PrevResultVersion(String),
}

impl Documented for Error {
    const ENTRY: &'static str = "cni-error";
}

impl Error {
    /// Whether the request itself is valid, and only a value that the installer writes into the chain entry is invalid.
    pub fn is_of_setting(&self) -> bool {
        match self {
            Self::Key { key, .. } | Self::Value { key, .. } => config_key::ALL.iter().any(|(name, _)| name == key),
            _ => false,
        }
    }

    /// Returns the error's code in the protocol.
    pub fn code(&self) -> Code {
        match self {
            Self::NoCommand
            | Self::MissingEnv(_)
            | Self::NotUtf8(_)
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

    /// Returns the reply's `details`, which supplement its message; empty if the message is complete.
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

/// Truncates a value to 120 characters for an error message, which logs and events repeat.
pub(super) fn excerpt(text: &str) -> String {
    text.chars().take(120).collect()
}
