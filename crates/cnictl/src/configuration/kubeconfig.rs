//! Finds the kubeconfig as kubectl does: the files that `KUBECONFIG` names, or `.kube/config` in the home directory.
//!
//! The module `cluster` calls it for commands without `--kubeconfig`. If several files contain an entry of the same name, or a current
//! context, the first file wins. Files that do not exist are skipped; a file that cannot be read is an error, because it may be the file
//! that the user means.

#![expect(clippy::disallowed_methods, reason = "reads the environment")]

use std::env;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use kube::config::{Kubeconfig, KubeconfigError};
use serve::cluster::Error;

/// The paths at which a kubeconfig is expected, in order of precedence. The files may not exist.
pub(super) struct Files {
    paths: Vec<PathBuf>,
    /// Whether `KUBECONFIG` names the files.
    pub(super) are_given: bool,
}

/// A kubeconfig and the files that it was read from, for messages.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) kubeconfig: Kubeconfig,
    pub(super) files: PathBuf,
}

impl Files {
    /// Returns the files that `KUBECONFIG` names or, if it is unset or empty, the file in the home directory.
    pub(super) fn of_environment() -> Self {
        let given = env::var_os("KUBECONFIG").filter(|given| !given.is_empty());
        let are_given = given.is_some();
        let paths = match given {
            Some(given) => env::split_paths(&given).filter(|path| !path.as_os_str().is_empty()).collect(),
            None => env::home_dir().map(|home| home.join(".kube/config")).into_iter().collect(),
        };
        Self { paths, are_given }
    }

    /// Reads the files that exist and merges them; `None` if none exists.
    pub(super) fn read(&self) -> Result<Option<Found>, Error> {
        let mut merged: Option<(Kubeconfig, Vec<&Path>)> = None;
        for path in &self.paths {
            let wrong = |error| Error::Kubeconfig { path: path.clone(), error };
            let next = match Kubeconfig::read_from(path) {
                Ok(next) => next,
                Err(KubeconfigError::ReadConfig(cause, _)) if cause.kind() == ErrorKind::NotFound => continue,
                Err(error) => return Err(wrong(error)),
            };
            // An empty `current-context` does not hide that of another file.
            let next = Kubeconfig { current_context: next.current_context.filter(|name| !name.is_empty()), ..next };
            merged = Some(match merged {
                None => (next, vec![path]),
                Some((first, files)) => (first.merge(next).map_err(wrong)?, [files, vec![path]].concat()),
            });
        }
        Ok(merged.map(|(kubeconfig, files)| Found { kubeconfig, files: list(files.into_iter()).into() }))
    }

    /// Returns the paths of the files for messages.
    pub(super) fn names(&self) -> String {
        list(self.paths.iter().map(PathBuf::as_path))
    }
}

fn list<'p>(paths: impl Iterator<Item = &'p Path>) -> String {
    paths.map(|path| path.display().to_string()).collect::<Vec<_>>().join(":")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn missing_files_are_skipped_and_the_first_value_wins() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let first = file("a", "{kind: Config, current-context: '', contexts: [{name: c, context: {cluster: one}}]}");
        let second = file("b", "{kind: Config, current-context: c, contexts: [{name: c, context: {cluster: two}}]}");
        let read = |paths: &[&Path]| {
            Files { paths: paths.iter().map(|path| (*path).to_owned()).collect(), are_given: true }.read()
        };
        let missing = dir.path().join("missing");
        let found = read(&[&missing, &first, &second]).unwrap().unwrap();
        let cluster = &found.kubeconfig.contexts[0].context.as_ref().unwrap().cluster;
        assert_eq!((found.kubeconfig.current_context.as_deref(), &**cluster), (Some("c"), "one"));
        assert_eq!(found.files.display().to_string(), format!("{}:{}", first.display(), second.display()));
        assert!(read(&[&missing]).unwrap().is_none());
        let broken = file("c", "contexts: [");
        let error = read(&[&first, &broken]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("kubeconfig {} cannot be used: ", broken.display())), "{error}");
        let error = read(&[dir.path(), &first]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("kubeconfig {} cannot be used: ", dir.path().display())), "{error}");
    }
}
