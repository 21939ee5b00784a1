//! Cleans up after SIGINT and SIGTERM in tests and in the demo.
//!
//! A signal kills the first process of the running node, so that pending operations fail and the usual `Drop`
//! implementations clean up.

use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

/// Which process SIGINT and SIGTERM kill.
enum Running {
    Nothing,
    Node(Pid),
    /// A signal was received, so no program may be started any more.
    Over,
}

static RUNNING: Mutex<Running> = Mutex::new(Running::Nothing);

/// Makes SIGINT and SIGTERM end the running node. Must be the first call in `main`: later threads inherit the signal
/// mask, and so do programs that are not started by [`spawn`].
pub fn end_nodes() {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGINT);
    signals.add(Signal::SIGTERM);
    if signals.thread_block().is_ok() {
        std::thread::spawn(move || {
            while signals.wait().is_ok() {
                if let Running::Node(first) = replace(Running::Over) {
                    let _ = kill(first, Signal::SIGKILL);
                }
            }
        });
    }
}

/// Starts a program with an empty signal mask.
pub fn spawn(command: &mut Command) -> Result<Child> {
    let unmasked = || {
        SigSet::empty().thread_set_mask()?;
        Ok(command.spawn()?)
    };
    std::thread::scope(|scope| scope.spawn(unmasked).join())
        .unwrap_or_else(|_| bail!("the thread that starts a program has panicked"))
}

/// Fails if a signal was received.
pub fn check() -> Result<()> {
    if matches!(*RUNNING.lock().unwrap_or_else(PoisonError::into_inner), Running::Over) {
        bail!("interrupted");
    }
    Ok(())
}

/// Sets the process that a signal kills: the first process of the running node, or `None` once the node has ended.
pub(super) fn running(first: Option<Pid>) {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if !matches!(*running, Running::Over) {
        *running = first.map_or(Running::Nothing, Running::Node);
    }
}

fn replace(with: Running) -> Running {
    std::mem::replace(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner), with)
}
