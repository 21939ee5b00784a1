//! The repair controller as a process on the node, with the rights of one mode only.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use anyhow::{Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::account::Account;
use crate::cluster::NODE;
use crate::enter::LOGS;
use crate::stage::Stage;
use test_support::runtime::programs;

/// Returns the RBAC rules that the controller needs in a mode.
pub(crate) fn rules(mode: &str) -> Value {
    let mut rules = vec![
        json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"] }),
        json!({ "apiGroups": [""], "resources": ["events"], "verbs": ["create"] }),
    ];
    match mode {
        "evict" => rules.push(json!({ "apiGroups": [""], "resources": ["pods/eviction"], "verbs": ["create"] })),
        "delete" => rules.push(json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["delete"] })),
        "label" => rules.push(json!({ "apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"] })),
        _ => {}
    }
    rules.into()
}

/// A running controller, which is killed when the value is dropped.
pub(crate) struct Controller {
    child: Child,
    log: PathBuf,
    /// The directory of the controller's kubeconfig, deleted on drop.
    _dir: TempDir,
}

impl Controller {
    /// Starts the controller in a mode, with the rights of that mode.
    pub(crate) fn start(stage: &Stage<'_>, mode: &str) -> Result<Self> {
        Self::with_rights_of(stage, mode, mode)
    }

    /// Starts the controller in a mode, with the rights of another mode.
    pub(crate) fn with_rights_of(stage: &Stage<'_>, rights: &str, mode: &str) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let kubeconfig = dir.path().join("kubeconfig");
        Account::new(stage, &format!("{rights}-for-{mode}"), &rules(rights))?.write_kubeconfig(&kubeconfig)?;
        let mut command = Command::new(programs::host_program("repair").map_err(anyhow::Error::msg)?);
        command.env_clear().env("KUBECONFIG", kubeconfig).env("NO_COLOR", "1");
        command.args(["--repair-node-name", NODE, "--repair-mode", mode]);
        // The controller runs on the node itself and not in a container, so these are the node's own paths.
        command.args(["--repair-proc", "/proc", "--repair-netns-dirs", "/run/netns"]);
        let log = Path::new(LOGS).join(format!("repair-{}.log", stage.namespace));
        let child = command.stderr(File::create(&log)?).spawn()?;
        Ok(Self { child, log, _dir: dir })
    }

    /// Returns the controller's log.
    pub(crate) fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(&self.log)?)
    }

    /// Waits until the log has a line that contains all of `words`, and returns the line.
    pub(crate) fn wait_for_log(&self, stage: &Stage<'_>, words: &[&str]) -> Result<String> {
        stage.cluster.until(&format!("a line with {words:?}"), |_| {
            let log = self.log()?;
            let line = log.lines().find(|line| words.iter().all(|word| line.contains(word)));
            match line {
                Some(line) => Ok(line.to_owned()),
                None => bail!("{log}"),
            }
        })
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
