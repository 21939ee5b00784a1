//! The request that the runtime's environment describes: a verb and the container it applies to.

use std::ffi::OsString;
use std::path::PathBuf;

use super::error::excerpt;
use super::{Command, Error, PodArgs, Version};

impl Command {
    /// Returns [`Error::Verb`] if a configuration of this version does not have the verb.
    pub fn allowed_by(self, version: Version) -> Result<(), Error> {
        if version < self.since() { Err(Error::Verb { command: self, version }) } else { Ok(()) }
    }
}

/// A container's interface on a network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Attachment {
    /// `CNI_CONTAINERID`; in Kubernetes, the ID of the pod sandbox.
    pub container_id: String,
    /// The interface's name in the container.
    pub ifname: String,
}

/// The container, netns and pod of an ADD or CHECK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub attachment: Attachment,
    /// `CNI_NETNS`
    pub netns: PathBuf,
    /// `CNI_NETNS_OVERRIDE`: the container's netns may be the one in which the plugin runs.
    pub netns_override: bool,
    pub pod: PodArgs,
}

/// A request with everything that its verb requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    Add(Target),
    Check(Target),
    /// Missing, malformed or unreadable optional values are ignored: a DEL that fails leaks the pod's address.
    Del {
        attachment: Attachment,
        /// None if the netns is already gone.
        netns: Option<PathBuf>,
        pod: PodArgs,
    },
    Gc,
    Status,
    Version,
}

impl Call {
    /// Parses the `CNI_*` variables; `env` returns a variable's value. An empty value is treated as missing.
    /// [`Error::NoCommand`] means that the process was not started by a runtime.
    pub fn parse<V: Into<OsString>>(env: &impl Fn(&str) -> Option<V>) -> Result<Self, Error> {
        let get = |name: &'static str| {
            let value = env(name).map(Into::into).filter(|value| !value.is_empty());
            value.map(|value| value.into_string().map_err(|_| Error::NotUtf8(name))).transpose()
        };
        let verb = get("CNI_COMMAND")?.ok_or(Error::NoCommand)?;
        let command = Command::ALL.into_iter().find(|c| c.as_str() == verb);
        let command = command.ok_or_else(|| Error::UnknownCommand(excerpt(&verb)))?;

        let missing: Vec<_> = command.required().iter().copied().filter(|name| matches!(get(name), Ok(None))).collect();
        if !missing.is_empty() {
            return Err(Error::MissingEnv(missing));
        }
        match command {
            Command::Add => Ok(Self::Add(target(&get)?)),
            Command::Check => Ok(Self::Check(target(&get)?)),
            Command::Del => Ok(Self::Del {
                attachment: attachment(&get)?,
                netns: get("CNI_NETNS").ok().flatten().map(PathBuf::from),
                pod: args(&get).unwrap_or_default(),
            }),
            Command::Gc => Ok(Self::Gc),
            Command::Status => Ok(Self::Status),
            Command::Version => Ok(Self::Version),
        }
    }

    pub const fn command(&self) -> Command {
        match self {
            Self::Add(_) => Command::Add,
            Self::Check(_) => Command::Check,
            Self::Del { .. } => Command::Del,
            Self::Gc => Command::Gc,
            Self::Status => Command::Status,
            Self::Version => Command::Version,
        }
    }
}

fn target(get: &impl Fn(&'static str) -> Result<Option<String>, Error>) -> Result<Target, Error> {
    let over = get("CNI_NETNS_OVERRIDE")?.unwrap_or_default();
    Ok(Target {
        attachment: attachment(get)?,
        netns: get("CNI_NETNS")?.unwrap_or_default().into(),
        netns_override: over == "1" || over.eq_ignore_ascii_case("true"),
        pod: args(get)?,
    })
}

fn args(get: &impl Fn(&'static str) -> Result<Option<String>, Error>) -> Result<PodArgs, Error> {
    PodArgs::parse(&get("CNI_ARGS")?.unwrap_or_default())
}

fn attachment(get: &impl Fn(&'static str) -> Result<Option<String>, Error>) -> Result<Attachment, Error> {
    let container_id = get("CNI_CONTAINERID")?.unwrap_or_default();
    if !is_identifier(&container_id) {
        return Err(Error::ContainerId(excerpt(&container_id)));
    }
    let ifname = get("CNI_IFNAME")?.unwrap_or_default();
    match interface_fault(&ifname) {
        Some(fault) => Err(Error::InterfaceName(fault)),
        None => Ok(Attachment { container_id, ifname }),
    }
}

/// Whether a container id or network name matches `^[a-zA-Z0-9][a-zA-Z0-9_.-]*$`.
pub(super) fn is_identifier(text: &str) -> bool {
    let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric()) && text.bytes().all(rest)
}

/// Returns why the kernel would refuse an interface name (`dev_valid_name`), or `None` if it would accept it.
fn interface_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name.len() > 15 {
        Some("is too long: at most 15 bytes")
    } else if name == "." || name == ".." {
        Some("is . or ..")
    } else if name.contains(|c: char| c == '/' || c == ':' || c.is_whitespace()) {
        Some("contains / or : or whitespace characters")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
