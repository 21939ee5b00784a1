//! `make demo`: real pods through a real container runtime, their traffic redirected, and everything cleaned up.
//!
//! Starts a containerd in namespaces of its own, puts the plugin into its CNI chain, runs two injected pods and one that
//! is not, sends requests in and out, and shows who answered. Each claim is checked: it ends with 1 if one is wrong.
//!
//! Needs root, containerd, runc and the CNI plugins; the programs are found below cargo's target directory
//! (`cargo build --bin istio-cni`, `make programs`) or where `ISTIO_CNI` and `POD_PROGRAMS` point.

#![expect(clippy::disallowed_methods, reason = "changes a node's files before the reader's eyes")]

mod cluster;
mod page;
mod play;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};

use page::Page;
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
    let (node, took) = timed(|| Node::start(&programs));
    let node = node?;
    let ready = format!("in namespaces of its own, ready after {:.1} s", took.as_secs_f64());
    page.done(&node.cri().version()?, &ready);
    if let Err(e) = play::play(page, &node) {
        signals::check()?;
        let logs = save_logs(&node).map_or_else(|e| format!("not saved: {e:#}"), |dir| dir.display().to_string());
        bail!("{e:#}\n  The logs: {logs}");
    }
    let left = node.end();
    ensure!(left.is_empty(), "left behind: {left:?}");
    page.done("gone", "pods removed, containerd ended, nothing is left");
    Ok(())
}

/// Beside the programs, where `cargo clean` finds them.
fn save_logs(node: &Node) -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let dir = program.with_file_name("demo-logs");
    node.save_logs(&dir)?;
    Ok(dir)
}
