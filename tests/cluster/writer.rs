//! A writer that repeatedly replaces the node's network configuration with one that lacks the plugin.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::time::ClockId;

use crate::agent::Agent;
use crate::chain::NETWORK;
use test_support::runtime::wait::TIMEOUT;

/// The interval between replacements.
const PERIOD: Duration = Duration::from_secs(2);
/// The pause between two checks of the chain.
const PAUSE: Duration = Duration::from_micros(200);

/// Replaces the configuration as long as `goes_on` returns true for the number of replacements so far. Returns the time
/// without the plugin after each replacement.
pub(crate) fn overwrite(agent: &Agent<'_>, goes_on: impl Fn(usize) -> bool) -> Result<Vec<Duration>> {
    let mut gaps = Vec::new();
    while goes_on(gaps.len()) {
        let gap = once(agent)?;
        gaps.push(gap);
        thread::sleep(PERIOD.saturating_sub(gap));
    }
    Ok(gaps)
}

fn once(agent: &Agent<'_>) -> Result<Duration> {
    let temporary = Path::new(NETWORK).with_extension("other");
    fs::write(&temporary, &agent.original)?;
    let (before, start) = (now()?, Instant::now());
    fs::rename(&temporary, NETWORK)?;
    while let Err(seen) = agent.is_chained() {
        ensure!(start.elapsed() < TIMEOUT, "the chain is not restored: {seen:#}");
        thread::sleep(PAUSE);
    }
    // On a busy machine this thread may see the restored file late. The file's ctime is exact up to one tick of the coarse clock. The
    // shorter of the two times is used.
    let (seen, tick) = (start.elapsed(), Duration::from(ClockId::CLOCK_REALTIME_COARSE.res()?));
    let file = fs::metadata(NETWORK)?;
    let renamed = Duration::new(file.ctime().try_into()?, file.ctime_nsec().try_into()?);
    Ok(seen.min(renamed.saturating_sub(before) + tick))
}

/// Returns the time since the epoch, which can be compared with file timestamps.
fn now() -> Result<Duration> {
    Ok(ClockId::CLOCK_REALTIME.now()?.into())
}
