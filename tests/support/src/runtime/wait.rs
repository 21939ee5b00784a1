//! Waiting for a condition: with a deadline, and with the last value seen in the error.

use std::fmt::Display;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Long enough for a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Asks every few milliseconds until `probe` yields a value; its refusals say what was seen instead.
pub fn until<T, E: Display>(what: &str, probe: impl FnMut() -> Result<T, E>) -> Result<T> {
    until_every(Duration::from_millis(5), what, probe)
}

/// The same, where each question costs the asked one something.
pub fn until_every<T, E: Display>(pause: Duration, what: &str, mut probe: impl FnMut() -> Result<T, E>) -> Result<T> {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(value) => return Ok(value),
            Err(seen) if start.elapsed() > PATIENCE => {
                bail!("waited {} s in vain until {what}; last seen: {seen:#}", PATIENCE.as_secs())
            }
            Err(_) => std::thread::sleep(pause),
        }
    }
}

/// A value and how long it took.
pub fn timed<T>(action: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    let value = action();
    (value, start.elapsed())
}
