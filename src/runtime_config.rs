//! The directories that a container runtime's own configuration names: network configurations and plugins.
//!
//! `containerd` and `crio` interpret files without I/O; `read` reads those files below a node's root. `check` compares the
//! directories with those that the agent was given.

mod containerd;
mod crio;
mod read;

use std::path::PathBuf;

pub use read::read;

/// The default directory of network configurations, of containerd and of CRI-O.
const CONF_DIR: &str = "/etc/cni/net.d";
/// The default directory of plugins, of containerd and of CRI-O.
const BIN_DIR: &str = "/opt/cni/bin";

/// The directories that a runtime reads, by their paths on the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// The runtime, such as `containerd of k3s`.
    pub runtime: String,
    /// The directory of network configurations.
    pub conf: Named<PathBuf>,
    /// The directories of plugins, in the order in which the runtime searches them.
    pub bin: Named<Vec<PathBuf>>,
}

/// A value and the file that sets it; no file for the runtime's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named<T> {
    pub value: T,
    pub file: Option<PathBuf>,
}

/// A runtime's configuration could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("cannot read {}: {reason}", path.display())]
    Unread { path: PathBuf, reason: String },
    #[error("{}: invalid TOML: {reason}", path.display())]
    Invalid { path: PathBuf, reason: String },
    #[error("{}: {key} is {found}, not {expected}", path.display())]
    Type { path: PathBuf, key: &'static str, found: &'static str, expected: &'static str },
    #[error("{}: a pattern is supported in the last part of an import only: {import:?}", path.display())]
    Pattern { path: PathBuf, import: String },
    #[error("{} and its imports are more than {max} files", path.display())]
    TooMany { path: PathBuf, max: usize },
}

/// A configuration file of a runtime.
#[derive(Debug, Clone, PartialEq)]
struct File {
    path: PathBuf,
    table: toml::Table,
}

impl File {
    fn parse(path: PathBuf, content: &[u8]) -> Result<Self, Error> {
        let invalid = |reason: String| Error::Invalid { path: path.clone(), reason: reason.trim_end().to_owned() };
        let text = std::str::from_utf8(content).map_err(|error| invalid(error.to_string()))?;
        let table = text.parse::<toml::Table>().map_err(|error| invalid(error.to_string()))?;
        Ok(Self { path, table })
    }

    /// The table under these keys, if all of them are tables.
    fn section(&self, keys: &[&str]) -> Option<&toml::Table> {
        keys.iter().try_fold(&self.table, |table, key| table.get(*key)?.as_table())
    }

    /// The text of a key; `None` if the section lacks it.
    fn text(&self, section: &toml::Table, key: &'static str) -> Result<Option<String>, Error> {
        section.get(key).map(|value| self.as_text(value, key)).transpose()
    }

    /// The list of texts of a key; `None` if the section lacks it.
    fn texts(&self, section: &toml::Table, key: &'static str) -> Result<Option<Vec<String>>, Error> {
        let Some(value) = section.get(key) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| self.wrong(value, key, "a list of strings"))?;
        list.iter().map(|element| self.as_text(element, key)).collect::<Result<_, _>>().map(Some)
    }

    fn as_text(&self, value: &toml::Value, key: &'static str) -> Result<String, Error> {
        value.as_str().map(str::to_owned).ok_or_else(|| self.wrong(value, key, "a string"))
    }

    fn wrong(&self, value: &toml::Value, key: &'static str, expected: &'static str) -> Error {
        Error::Type { path: self.path.clone(), key, found: value.type_str(), expected }
    }
}

impl<T> Named<T> {
    fn default(value: T) -> Self {
        Self { value, file: None }
    }

    fn by(file: &File, value: T) -> Self {
        Self { value, file: Some(file.path.clone()) }
    }
}
