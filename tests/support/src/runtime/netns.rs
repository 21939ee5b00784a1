//! Doing something inside a network namespace of the node's: serving, asking, looking at rules.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use istio_cni::netns;

/// A network namespace, kept open.
#[derive(Debug)]
pub struct Netns(netns::Netns);

impl Netns {
    /// Opens the one at `path`.
    pub fn open(path: &Path) -> Result<Self> {
        Ok(Self(netns::Netns::open(path)?))
    }

    /// Runs `action` inside, on a thread that ends with it.
    pub fn visit<T: Send>(&self, action: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.0.enter(action)?)
    }

    /// Runs a command inside and returns what it printed; it must succeed.
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

    /// Everything that netfilter has here: nf_tables' rules, and the names of legacy tables. Empty where nothing is.
    pub fn all_rules(&self) -> Result<String> {
        let tables = ["ip_tables_names", "ip6_tables_names"].map(|name| format!("/proc/thread-self/net/{name}"));
        let legacy: String =
            self.visit(|| tables.iter().filter_map(|path| std::fs::read_to_string(path).ok()).collect())?;
        Ok(self.command("nft", &["list", "ruleset"])? + &legacy)
    }
}
