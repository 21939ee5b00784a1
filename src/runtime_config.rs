//! Reads from a container runtime's own configuration the directories of network configurations and plugins, and the handlers of
//! RuntimeClasses.
//!
//! `containerd` and `crio` interpret files without I/O; `read` reads those files below a node's root, where `root` resolves links.
//! `install` uses these directories for values that are `auto`, and `compare` compares them with given ones, for `install` and
//! `check`.

mod compare;
mod containerd;
mod crio;
mod handlers;
mod read;
mod root;

use std::path::PathBuf;

pub use compare::{Compared, Given, compare};
pub use handlers::{Handler, Handlers};
pub use read::read;
pub use root::resolve;

/// The default directory of network configurations, of containerd and of CRI-O.
pub const CONF_DIR: &str = "/etc/cni/net.d";
/// The default directory of plugins, of containerd and of CRI-O.
pub const BIN_DIR: &str = "/opt/cni/bin";

/// The directories that a runtime reads, by their paths on the node, and its handlers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directories {
    /// The runtime, such as `containerd of k3s`.
    pub runtime: String,
    /// The directory of network configurations.
    pub conf: Named<PathBuf>,
    /// The directories of plugins, in the order in which the runtime searches them.
    pub bin: Named<Vec<PathBuf>>,
    pub networks: Networks,
    pub handlers: Handlers,
}

/// Settings other than the directories that change which networks pods get.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Networks {
    /// containerd's `max_conf_num`: how many networks of the directory a pod gets. The default is 1, and 0 stands for all.
    pub max: Option<Named<i64>>,
    /// containerd's `conf_template`, from which containerd writes a network if there is none.
    pub template: Option<Named<PathBuf>>,
    /// The name of CRI-O's network (`cni_default_network`), instead of the first file.
    pub default: Option<Named<String>>,
    /// The template from which k3s renders containerd's file when it starts.
    pub rendered_from: Option<PathBuf>,
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
        let invalid = |reason: String| Error::Invalid { path: path.clone(), reason };
        let text = std::str::from_utf8(content).map_err(|error| invalid(error.to_string()))?;
        let table = text.parse::<toml::Table>().map_err(|error| invalid(one_line(text, &error)))?;
        Ok(Self { path, table })
    }

    /// Returns the table under these keys, if all of them are tables.
    fn section(&self, keys: &[&str]) -> Option<&toml::Table> {
        keys.iter().try_fold(&self.table, |table, key| table.get(*key)?.as_table())
    }

    /// Returns the string under a key; `None` if the section lacks the key.
    fn text(&self, section: &toml::Table, key: &'static str) -> Result<Option<String>, Error> {
        section.get(key).map(|value| self.as_text(value, key)).transpose()
    }

    /// Returns the list of strings under a key; `None` if the section lacks the key.
    fn texts(&self, section: &toml::Table, key: &'static str) -> Result<Option<Vec<String>>, Error> {
        let Some(value) = section.get(key) else { return Ok(None) };
        let list = value.as_array().ok_or_else(|| self.wrong(value, key, "a list of strings"))?;
        list.iter().map(|element| self.as_text(element, key)).collect::<Result<_, _>>().map(Some)
    }

    /// Returns the integer under a key; `None` if the section lacks the key.
    fn integer(&self, section: &toml::Table, key: &'static str) -> Result<Option<i64>, Error> {
        let integer = |value: &toml::Value| value.as_integer().ok_or_else(|| self.wrong(value, key, "an integer"));
        section.get(key).map(integer).transpose()
    }

    fn as_text(&self, value: &toml::Value, key: &'static str) -> Result<String, Error> {
        value.as_str().map(str::to_owned).ok_or_else(|| self.wrong(value, key, "a string"))
    }

    fn wrong(&self, value: &toml::Value, key: &'static str, expected: &'static str) -> Error {
        Error::Type { path: self.path.clone(), key, found: value.type_str(), expected }
    }
}

/// Returns the error on one line, without the excerpt of `text` that its own format has.
fn one_line(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count() + 1;
    format!("line {line}: {}", error.message().replace('\n', ", "))
}

impl Directories {
    /// Describes the directories, and the files that name them, in one sentence.
    pub fn text(&self) -> String {
        let Self { runtime, conf, bin, .. } = self;
        let dirs = compare::list(&bin.value);
        format!(
            "{runtime} reads {} ({}) and runs plugins of {dirs} ({})",
            conf.value.display(),
            conf.place(),
            bin.place()
        )
    }
}

impl<T> Named<T> {
    /// Returns the file's path, or `default`.
    pub fn place(&self) -> String {
        self.file.as_ref().map_or_else(|| "default".to_owned(), |file| file.display().to_string())
    }

    fn default(value: T) -> Self {
        Self { value, file: None }
    }

    fn by(file: &File, value: T) -> Self {
        Self { value, file: Some(file.path.clone()) }
    }
}
