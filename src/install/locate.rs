//! Locates the directories that the container runtime's configuration names: an installation uses them for values that are `auto`,
//! and compares given directories with them.
//!
//! The directories are determined once, at the start of a process, because everything that an agent remembers of its installation
//! is about them. The configuration is read again in each pass: if it then names other directories, the liveness probe fails, and
//! the kubelet restarts the agent.

use std::path::{Path, PathBuf};

use super::settings::{Given, InstallSettings, OfRuntime};
use crate::runtime_config::{self, BIN_DIR, CONF_DIR, Compared, Directories, Named, compare, resolve};

/// The chart's values that can be `auto`, for messages.
const CONF_VALUE: &str = "cniConfDir";
const BIN_VALUE: &str = "cniBinDir";

/// Why the directories of `auto` are not known, or differ from those at the start.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unlocated {
    /// A file of a runtime's configuration cannot be read or parsed.
    #[error("{0}; `auto` reads the runtime's directories there: correct the file, or set cniConfDir and cniBinDir")]
    Configuration(runtime_config::Error),
    /// The configurations of several runtimes, or the versions that one of them may have, name different directories.
    #[error("the runtimes' configurations name different directories ({}): set {value} to the one of the runtime that the kubelet uses", named.join("; "))]
    Several { value: &'static str, named: Vec<String> },
    /// A configuration names a relative path.
    #[error("{named} is no absolute path; `auto` cannot find that directory: set {value}")]
    Relative { value: &'static str, named: String },
    /// The directory cannot be reached.
    #[error("{named} cannot be reached: {reason}; set {value}")]
    Unreached { value: &'static str, named: String, reason: String },
    /// The directories were unknown when the process started.
    #[error(
        "the runtime's directories are known now: {now}; the kubelet restarts the container, which then works in them"
    )]
    Known { now: String },
    /// The configuration, or a link on the way to a directory, has changed.
    #[error(
        "the runtime's directories have changed: {now}, at the agent's start {former}; the kubelet restarts the container, which then \
         works in the new ones"
    )]
    Changed { former: String, now: String },
}

impl Unlocated {
    /// Whether a restarted process would know the directories.
    pub(super) fn ends_by_restart(&self) -> bool {
        matches!(self, Self::Known { .. } | Self::Changed { .. })
    }
}

/// The directories that `auto` stands for; `None` for a given directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Found {
    conf: Option<Dir>,
    bin: Option<Dir>,
    of_runtime: OfRuntime,
}

/// A directory that a runtime's configuration names.
#[derive(Debug, Clone)]
struct Dir {
    /// The path in this process's mounts, with links resolved.
    path: PathBuf,
    /// The path on the node, with the runtime and its file.
    text: String,
}

/// The directories as they were found at the start of the process, and the settings to find them again.
#[derive(Debug, Clone)]
pub struct Located {
    given: Given,
    /// The directories in use, by their paths in this process's mounts.
    conf: PathBuf,
    bin: PathBuf,
    start: Result<Found, Unlocated>,
}

/// The result of a comparison of the directories with the runtimes' present configurations.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) obstacle: Option<Unlocated>,
    /// About given directories that no runtime's configuration names, and about handlers with other directories.
    pub(super) warnings: Vec<String>,
}

impl Located {
    /// Finds the directories and sets those in `settings` that are `auto`. If they are not known, `settings` has the runtimes'
    /// default directories, in which nothing may be changed.
    pub fn at_start(settings: &mut InstallSettings) -> Self {
        let start = find(&settings.given);
        let found = start.clone().unwrap_or_default();
        for (dir, path) in [(&found.conf, &mut settings.net_dir), (&found.bin, &mut settings.bin_dir)] {
            if let Some(Dir { path: found, text }) = dir {
                tracing::info!("the container runtime's directory is used: {text}");
                path.clone_from(found);
            }
        }
        settings.of_runtime = found.of_runtime;
        let (conf, bin) = (settings.net_dir.clone(), settings.bin_dir.clone());
        Self { given: settings.given.clone(), conf, bin, start }
    }

    /// Whether the directories are known.
    pub fn is_known(&self) -> bool {
        self.start.is_ok()
    }

    /// Returns why the directories are not known; `None` if they are.
    pub fn unknown(&self) -> Option<&Unlocated> {
        self.start.as_ref().err()
    }

    /// Compares the directories with those that the runtimes' configurations name now.
    pub(super) fn compare(&self) -> Comparison {
        let obstacle = if self.given.is_auto() { self.obstacle() } else { None };
        let warnings = self.given.root.as_deref().map(|root| self.warnings(root)).unwrap_or_default();
        Comparison { obstacle, warnings }
    }

    fn obstacle(&self) -> Option<Unlocated> {
        match (find(&self.given), &self.start) {
            (Err(unlocated), _) => Some(unlocated),
            (Ok(now), Err(_)) => Some(Unlocated::Known { now: now.text() }),
            (Ok(now), Ok(former)) if now == *former => None,
            (Ok(now), Ok(former)) => Some(Unlocated::Changed { former: former.text(), now: now.text() }),
        }
    }

    /// Returns the warnings about given directories. A runtime that reads them proves that they are right, whatever the other
    /// configurations name, which may be left by removed runtimes.
    fn warnings(&self, root: &Path) -> Vec<String> {
        let (conf, bin) = (self.given.conf.directory(&self.conf), self.given.bin.directory(&self.bin));
        let found = |compared: Compared| Compared {
            is_conf: compared.is_conf || self.given.conf.is_auto,
            is_bin: compared.is_bin || self.given.bin.is_auto,
            ..compared
        };
        let compared: Vec<_> = compare(root, conf, bin).into_iter().map(|compared| compared.map(found)).collect();
        let mut of_node = compared.iter().flatten().filter(|compared| compared.values().is_empty()).peekable();
        if of_node.peek().is_some() || (self.given.conf.is_auto && self.given.bin.is_auto) {
            return of_node.flat_map(handler_warnings).collect();
        }
        let given = |given: runtime_config::Given<'_>| given.on_node.unwrap_or(given.path).display().to_string();
        let given = format!("given: {} and {}", given(conf), given(bin));
        let warning = |compared: &Result<Compared, runtime_config::Error>| match compared {
            Ok(compared) => format!(
                "{}; {given}: if that runtime starts the pods, they are not redirected; set {}",
                compared.read.text(),
                compared.values().join(" and ")
            ),
            Err(error) => format!("{given}, not compared with the runtime's: {error}"),
        };
        compared.iter().map(warning).collect()
    }
}

/// Returns the warnings about handlers whose pods get the networks of another directory.
fn handler_warnings(compared: &Compared) -> Vec<String> {
    let by_name = &compared.read.handlers.by_name;
    let confs = compared.elsewhere.iter().filter_map(|name| Some((name, by_name.get(name)?.conf.as_ref()?)));
    let warning = |(name, conf): (&String, &Named<PathBuf>)| {
        let (dir, place) = (conf.value.display(), conf.place());
        format!("pods of the runtime handler {name} get the network of {dir} ({place}) and are not redirected")
    };
    confs.map(warning).collect()
}

impl Found {
    fn text(&self) -> String {
        let mut texts: Vec<String> =
            [&self.conf, &self.bin].into_iter().flatten().map(|dir| dir.text.clone()).collect();
        let OfRuntime { bin_dirs, network } = &self.of_runtime;
        texts.extend(bin_dirs.iter().skip(1).map(|dir| format!("{}, further plugins", dir.display())));
        texts.extend(network.as_ref().map(|name| format!("the network {name:?}")));
        texts.join(", ")
    }
}

/// Two are equal if they are the same directory, whichever file names it.
impl PartialEq for Dir {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Dir {}

/// Finds the directories that are `auto`.
fn find(given: &Given) -> Result<Found, Unlocated> {
    if !given.is_auto() {
        return Ok(Found::default());
    }
    let root = given.root();
    let read: Result<Vec<_>, _> = runtime_config::read(root).into_iter().collect();
    let read = read.map_err(Unlocated::Configuration)?;
    let named = |dir: &Path, place: String| (dir.to_owned(), place);
    let conf = read.iter().map(|of| named(&of.conf.value, source(&of.runtime, &of.conf)));
    // The runtime searches the plugin directories in their order; if the configuration names none, it uses its default.
    let bin = read.iter().map(|of| {
        named(of.bin.value.first().map_or(Path::new(BIN_DIR), PathBuf::as_path), source(&of.runtime, &of.bin))
    });
    let conf = given.conf.is_auto.then(|| only(root, CONF_VALUE, CONF_DIR, conf)).transpose()?;
    let bin = given.bin.is_auto.then(|| only(root, BIN_VALUE, BIN_DIR, bin)).transpose()?;
    // Without a configuration the runtime's directories are not known: the default ones are a guess.
    let known = bin.iter().filter(|_| !read.is_empty());
    let bin_dirs = known.flat_map(|first| searched(root, first, &read)).collect();
    let network = conf.as_ref().and_then(|_| default_network(&read));
    Ok(Found { conf, bin, of_runtime: OfRuntime { bin_dirs, network } })
}

/// Returns the directories in which the runtimes search plugins, `first` first, without those that cannot be reached.
fn searched(root: &Path, first: &Dir, read: &[Directories]) -> Vec<PathBuf> {
    let mut dirs = vec![first.path.clone()];
    for dir in read.iter().flat_map(|of| &of.bin.value).filter(|dir| dir.is_absolute()) {
        let found = resolve(root, dir).ok().filter(|found| !dirs.contains(found));
        dirs.extend(found);
    }
    dirs
}

/// Returns the name of the network that the runtime uses instead of the first one, if all configurations name the same.
fn default_network(read: &[Directories]) -> Option<String> {
    let name = |of: &Directories| of.networks.default.as_ref().map(|name| name.value.clone());
    let first = read.first().and_then(name)?;
    read.iter().all(|of| name(of).as_ref() == Some(&first)).then_some(first)
}

fn source<T>(runtime: &str, named: &Named<T>) -> String {
    format!("{runtime}, {}", named.place())
}

/// Returns the directory that all of `named`, paths on the node with their sources, lead to; the `default` if there are none.
fn only(
    root: &Path,
    value: &'static str,
    default: &str,
    named: impl Iterator<Item = (PathBuf, String)>,
) -> Result<Dir, Unlocated> {
    let dirs: Vec<Dir> = named.map(|(path, source)| dir(root, value, &path, &source)).collect::<Result<_, _>>()?;
    match dirs.as_slice() {
        [] => dir(root, value, Path::new(default), "the default, because no configuration of a runtime was found"),
        [first, others @ ..] if others.iter().all(|other| other == first) => Ok(first.clone()),
        several => Err(Unlocated::Several { value, named: several.iter().map(|dir| dir.text.clone()).collect() }),
    }
}

fn dir(root: &Path, value: &'static str, path: &Path, source: &str) -> Result<Dir, Unlocated> {
    let text = format!("{} ({source})", path.display());
    if !path.is_absolute() {
        return Err(Unlocated::Relative { value, named: text });
    }
    match resolve(root, path) {
        Ok(path) => Ok(Dir { path, text }),
        Err(error) => Err(Unlocated::Unreached { value, named: text, reason: error.to_string() }),
    }
}

#[cfg(test)]
mod tests;
