//! Runs functions and commands in a netns of the node, and reads its rules.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use podnet::netns;

/// An open network namespace.
#[derive(Debug)]
pub struct Netns(netns::Netns);

impl Netns {
    /// Opens the netns at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self(netns::Netns::open(path)?))
    }

    /// Runs `action` in the netns, on a new thread.
    pub fn visit<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.0.enter(action)?)
    }

    /// Runs a command in the netns, which must succeed, and returns its standard output.
    pub fn command(&self, program: &str, args: &[&str]) -> Result<String> {
        let output = self.visit(|| Command::new(program).args(args).output())?.with_context(|| program.to_owned())?;
        anyhow::ensure!(
            output.status.success(),
            "{program} {}: {}: {}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Returns all rules of nf_tables and the names of the legacy tables; empty if there are none.
    pub fn all_rules(&self) -> Result<String> {
        let tables = ["ip_tables_names", "ip6_tables_names"].map(|name| format!("/proc/thread-self/net/{name}"));
        let legacy: String =
            self.visit(|| tables.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect())?;
        Ok(self.command("nft", &["list", "ruleset"])? + &legacy)
    }
}
