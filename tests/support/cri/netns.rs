//! Doing something inside a network namespace, on a thread that ends with the visit.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, anyhow};
use nix::sched::{CloneFlags, setns};

/// A network namespace, kept open.
#[derive(Debug)]
pub struct Netns {
    path: PathBuf,
    file: File,
}

impl Netns {
    /// Opens the one at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// The file that names it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs `action` inside.
    pub fn visit<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T> {
        let visit = || {
            setns(&self.file, CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("entering {}", self.path.display()))
                .map(|()| action())
        };
        std::thread::scope(|scope| scope.spawn(visit).join())
            .map_err(|_| anyhow!("the visit of {} panicked", self.path.display()))?
    }

    /// Runs a command inside and returns what it printed; it must succeed.
    pub fn command(&self, program: &str, args: &[&str]) -> Result<String> {
        let output: Output =
            self.visit(|| Command::new(program).args(args).output())?.with_context(|| program.to_owned())?;
        anyhow::ensure!(
            output.status.success(),
            "{program} {}: {}: {}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?)
    }
}
