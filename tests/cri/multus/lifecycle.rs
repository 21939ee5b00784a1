//! Tests of the order in which Multus and the plugin are installed, restarted and removed.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use contract::PLUGIN_NAME;
use serde_json::Value;

use super::stage::{NAMED, Stage};
use crate::stage::Case;
use test_support::runtime::conflist;
use test_support::runtime::installer::names_plugin;
use test_support::runtime::node::Node;
use test_support::runtime::pod::Pod;
use test_support::runtime::wait;

pub(super) const CASES: &[Case] = &[
    ("each_new_configuration_of_multus_names_the_plugin", restarts),
    ("a_writer_that_keeps_changing_the_configuration_of_multus_is_named", contended),
    ("multus_is_installed_after_the_plugin_and_removed_after_it", outlives),
    ("multus_is_removed_before_the_plugin", removed_first),
];

/// With this flag, Multus removes its configuration on exit, and copies the chain again whenever the chain changes.
const CLEANUP: &str = "--cleanup-config-on-exit";

fn restarts(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    stage.copy_chain(&[CLEANUP])?;
    let mut agent = stage.install(&[])?;
    stage.chained_into(&mut agent, &stage.multus.list())?;
    for name in ["web-0", "web-1", "web-2"] {
        // The agent does not run while Multus writes its configuration.
        agent.pause()?;
        stage.multus.end()?;
        let written = stage.copy_chain(&[CLEANUP]).and_then(|()| Ok(fs::read_to_string(stage.multus.list())?));
        agent.resume()?;
        let written: Value = serde_json::from_str(&written?)?;
        let copied = written["plugins"][0]["delegates"][0]["plugins"].as_array().cloned().unwrap_or_default();
        ensure!(copied.iter().any(|plugin| plugin["type"] == PLUGIN_NAME), "{written}");
        stage.chained_into(&mut agent, &stage.multus.list())?;
        stage.run_redirected(&agent, &Pod::injected("shop", name))?.remove()?;
    }
    stage.uninstall(agent)?;
    stage.starts_without_the_plugin("web-3")
}

fn contended(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    stage.copy_chain(&[])?;
    let copy = fs::read_to_string(stage.multus.list())?;
    let mut agent = stage.install(&[])?;
    stage.chained_into(&mut agent, &stage.multus.list())?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<()> {
        let writer = scope.spawn(|| -> Result<()> {
            while !is_over.load(Ordering::Relaxed) {
                conflist::replace(&stage.multus.list(), &copy)?;
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(())
        });
        let named = wait::until("the agent names the file", || {
            let log = agent.log()?;
            let is_named =
                |line: &str| line.contains("keeps changing") && line.contains("00-multus.conflist (entry_missing)");
            ensure!(log.lines().any(is_named), "{}", log.lines().last().unwrap_or_default());
            Ok(())
        });
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        named
    })?;
    wait::until("the entry is restored", || {
        ensure!(names_plugin(&fs::read_to_string(stage.multus.list())?), "it is missing");
        Ok(())
    })?;
    stage.chained_into(&mut agent, &stage.multus.list())?;
    stage.run_redirected(&agent, &Pod::injected("shop", "web-0"))?.remove()?;
    stage.uninstall(agent)?;
    assert_eq!(fs::read_to_string(stage.multus.list())?, copy);
    stage.starts_without_the_plugin("web-1")
}

/// Without [`CLEANUP`], Multus does not notice that the plugin is removed from the chain that it copied. The removal must change the copy,
/// too.
fn outlives(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    let mut agent = stage.install(&[NAMED])?;
    agent.ready()?;
    let before = stage.run_redirected(&agent, &Pod::injected("shop", "web-0"))?;
    stage.copy_chain(&[])?;
    agent.installed()?;
    let delegated = stage.run_redirected(&agent, &Pod::injected("shop", "web-1"))?;
    stage.uninstall(agent)?;
    stage.assert_copy_is_bare()?;
    before.remove()?;
    delegated.remove()?;
    stage.starts_without_the_plugin("web-2")?;

    stage.multus.end()?;
    fs::remove_file(stage.multus.list())?;
    node.loaded("the chain without Multus", |list| list == stage.chain)?;
    stage.starts_without_the_plugin("web-3")
}

fn removed_first(node: &Node) -> Result<()> {
    let mut stage = Stage::new(node)?;
    stage.copy_chain(&[CLEANUP])?;
    let mut agent = stage.install(&[])?;
    stage.chained_into(&mut agent, &stage.multus.list())?;
    let by_multus = stage.run_redirected(&agent, &Pod::injected("shop", "web-0"))?;
    stage.multus.end()?;
    ensure!(!stage.multus.list().exists(), "Multus has left its configuration");
    agent.ready()?;
    let without = stage.run_redirected(&agent, &Pod::injected("shop", "web-1"))?;
    by_multus.remove()?;
    stage.uninstall(agent)?;
    without.remove()?;
    stage.starts_without_the_plugin("web-2")
}
