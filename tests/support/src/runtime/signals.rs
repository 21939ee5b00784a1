//! Ctrl-C in the middle of a test or of the demo leaves nothing behind either.
//!
//! A signal ends the running node's first process, so that whatever is being waited for fails; the failure then takes
//! the usual way out, through everyone's `Drop`.

use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;

/// What a signal must end.
enum Running {
    Nothing,
    Node(Pid),
    /// A signal has come: nothing is started any more.
    Over,
}

static RUNNING: Mutex<Running> = Mutex::new(Running::Nothing);

/// From now on SIGINT and SIGTERM end the node. Called first thing in `main`: later threads inherit the mask, and so do
/// programs that are not run by [`spawn`].
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

/// Runs a program that is to hear its signals.
pub fn spawn(command: &mut Command) -> Result<Child> {
    let hearing = || {
        SigSet::empty().thread_set_mask()?;
        Ok(command.spawn()?)
    };
    std::thread::scope(|scope| scope.spawn(hearing).join())
        .unwrap_or_else(|_| bail!("the thread of a spawn has panicked"))
}

/// Fails once a signal has come.
pub fn check() -> Result<()> {
    if matches!(*RUNNING.lock().unwrap_or_else(PoisonError::into_inner), Running::Over) {
        bail!("interrupted");
    }
    Ok(())
}

/// A node runs, of which this is the first process; `None` when it has ended.
pub(super) fn running(first: Option<Pid>) {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if !matches!(*running, Running::Over) {
        *running = first.map_or(Running::Nothing, Running::Node);
    }
}

fn replace(with: Running) -> Running {
    std::mem::replace(&mut RUNNING.lock().unwrap_or_else(PoisonError::into_inner), with)
}
