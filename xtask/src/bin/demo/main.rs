//! `make demo`: redirects the traffic of real pods in a real container runtime, and cleans up.
//!
//! Starts containerd in its own namespaces, adds the plugin to its CNI chain, runs two injected pods and one without a
//! sidecar, sends requests in both directions, and prints their paths. Each printed statement is checked; a wrong one
//! ends the demo with exit code 1.
//!
//! Needs root, containerd, runc and the CNI plugins. Finds the programs in Cargo's target directory (`cargo build
//! --bin istio-cni`, `make programs`) or by `ISTIO_CNI` and `POD_PROGRAMS`.

#![expect(clippy::disallowed_methods, reason = "runs programs and changes a node's files")]

mod page;
mod play;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, anyhow, ensure};

use page::Page;
use test_support::outcome;
use test_support::runtime::engine::Engine;
use test_support::runtime::node::Node;
use test_support::runtime::programs::Programs;
use test_support::runtime::signals;
use test_support::runtime::wait::timed;

fn main() -> ExitCode {
    let page = Page::default();
    signals::end_nodes();
    match demo(&page) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            page.failed(&format!("{e:#}"));
            ExitCode::FAILURE
        }
    }
}

fn demo(page: &Page) -> Result<()> {
    let programs = Programs::find(None).map_err(anyhow::Error::msg)?;
    page.title("istio-cni", &programs.istio_cni.display().to_string());
    let (node, took) = timed(|| Node::start(&programs, Engine::Containerd));
    let node = node?;
    let ready = format!("in namespaces of its own, ready after {:.1} s", took.as_secs_f64());
    page.done(&node.cri().version()?, &ready);
    if let Err(e) = outcome::caught(|| play::play(page, &node)) {
        signals::check()?;
        let logs = save_logs(&node).map_or_else(|e| format!("not saved: {e:#}"), |dir| dir.display().to_string());
        let failed = anyhow!("{e:#}\n  The logs: {logs}");
        return outcome::after_cleanup(Err(failed), end(node));
    }
    end(node)?;
    page.done("gone", "pods and containerd are removed without leftovers");
    Ok(())
}

fn end(node: Node) -> Result<()> {
    let left = node.end();
    ensure!(left.is_empty(), "left behind: {left:?}");
    Ok(())
}

/// Saves the logs next to the programs, where `cargo clean` removes them.
fn save_logs(node: &Node) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let dir = program.with_file_name("demo-logs");
    node.save_logs(&dir)?;
    Ok(dir)
}
