//! Waits for conditions, with a deadline and the last observed value in the error.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The time limit of a wait. A success returns at once, so the limit is far above what a loaded machine needs.
pub const TIMEOUT: Duration = Duration::from_secs(180);

/// Polls `probe` until it returns a value. Its error is the last observed state, which the error of a timeout
/// contains.
pub fn until<T, E: Display>(condition: &str, probe: impl FnMut() -> Result<T, E>) -> Result<T> {
    until_every(Duration::from_millis(5), condition, probe)
}

/// Polls `probe` like [`until`], with this pause between the attempts.
pub fn until_every<T, E: Display>(
    pause: Duration,
    condition: &str,
    mut probe: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(seen) if start.elapsed() > TIMEOUT => {
                bail!("timed out after {} s waiting until {condition}; last seen: {seen:#}", TIMEOUT.as_secs())
            }
            Err(_) => std::thread::sleep(pause),
        }
    }
}

/// Returns the result of an action and its duration.
pub fn timed<T>(action: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = action();
    (value, start.elapsed())
}
