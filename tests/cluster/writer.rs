//! Another program that keeps replacing the node's network with one that knows nothing of the plugin.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::time::ClockId;

use crate::agent::Agent;
use crate::chain::NETWORK;
use test_support::runtime::wait::PATIENCE;

/// From one replacement to the next.
const PERIOD: Duration = Duration::from_secs(2);
/// Between two looks at the chain.
const PAUSE: Duration = Duration::from_micros(200);

/// Replaces it as long as `goes_on` says, given the number of times so far. For how long the plugin was then missing.
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
        ensure!(start.elapsed() < PATIENCE, "the chain is not healed: {seen:#}");
        thread::sleep(PAUSE);
    }
    // Whoever watches waits for a processor, too. The file knows when it came to its name, by a clock that ticks.
    let (seen, tick) = (start.elapsed(), Duration::from(ClockId::CLOCK_REALTIME_COARSE.res()?));
    let file = fs::metadata(NETWORK)?;
    let renamed = Duration::new(file.ctime().try_into()?, file.ctime_nsec().try_into()?);
    Ok(seen.min(renamed.saturating_sub(before) + tick))
}

/// Since 1970, as files have it.
fn now() -> Result<Duration> {
    Ok(ClockId::CLOCK_REALTIME.now()?.into())
}
