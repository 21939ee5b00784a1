//! The file operations that make up a plan. Pure.

use std::fmt;
use std::path::{Path, PathBuf};

/// A change of one file.
#[derive(Clone, PartialEq, Eq)]
pub enum Operation {
    /// Copies a program from the image to the node.
    Copy { from: PathBuf, to: PathBuf, mode: u32 },
    /// Creates or replaces a file.
    Write {
        path: PathBuf,
        content: Vec<u8>,
        mode: u32,
        /// The content that the plan read. The write fails if another writer has changed it since then.
        expected: Option<Vec<u8>>,
        /// The other file from which the content was derived. The write fails if it has changed.
        source: Option<Source>,
    },
    /// Removes a file.
    Remove {
        path: PathBuf,
        /// The content that the plan read. The removal fails if another writer has changed it since then.
        expected: Option<Vec<u8>>,
        /// The file that takes the removed file's place. The removal fails unless it has this content.
        replaced_by: Option<Source>,
    },
}

/// A file as a plan read it, or as an earlier step of the plan has written it.
#[derive(Clone, PartialEq, Eq)]
pub struct Source {
    pub path: PathBuf,
    pub content: Vec<u8>,
}

impl Operation {
    /// Returns the changed file.
    pub fn path(&self) -> &Path {
        match self {
            Self::Copy { to: path, .. } | Self::Write { path, .. } | Self::Remove { path, .. } => path,
        }
    }

    /// Returns the verb for logs and errors.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Copy { .. } => "copy",
            Self::Write { .. } => "write",
            Self::Remove { .. } => "remove",
        }
    }
}

/// Omits contents, because a kubeconfig holds a token.
impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb(), self.path().display())
    }
}
