//! Memory for the bodies of requests: a number of bytes that all connections of a server share.
//!
//! `body` reserves bytes before it keeps them, and they return when the body is dropped. A length that a peer announces
//! reserves nothing. Where the memory is exhausted:
//! - The oldest unfinished body can grow to the largest size, for others leave that much free. Bodies that hold a part each
//!   therefore never wait for each other without end.
//! - Of the others the smallest grows first: small bodies, as most are, do not wait behind large ones.
//! - A body whose peer has kept the server waiting for longer than [`SLOW`] is given up when another needs bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The time, in all, that a peer may keep the server waiting for its body while others need memory.
const SLOW: Duration = Duration::from_millis(250);
/// How long a body waits for memory in all.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between two looks for peers that have become slow.
const TICK: Duration = Duration::from_millis(50);

/// The memory; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bodies: Mutex<Bodies>,
    /// Bytes have returned, or another body is the oldest.
    changed: Notify,
}

/// What is free, and who may have it.
#[derive(Debug)]
struct Bodies {
    /// Bytes.
    free: usize,
    /// Bytes of the largest body.
    largest: usize,
    /// Bytes of bodies that are given up and not dropped yet.
    leaving: usize,
    /// The next body's number.
    next: u64,
    /// By number, the oldest first.
    unfinished: BTreeMap<u64, Unfinished>,
}

/// A body that is not complete.
#[derive(Debug, Default)]
struct Unfinished {
    /// Bytes.
    held: usize,
    /// Whether it waits for memory.
    waits: bool,
    /// How long the peer has kept the server waiting, up to `since`.
    waited: Duration,
    /// Since when the server waits for the peer.
    since: Option<Instant>,
    /// Tells its [`Share`] that it is given up.
    given_up: Arc<Notify>,
}

/// One body's part of the memory, which returns when this is dropped.
#[derive(Debug)]
pub(super) struct Share {
    memory: Memory,
    number: u64,
    held: usize,
    /// What is left of [`PATIENCE`].
    patience: Duration,
    is_finished: bool,
    given_up: Arc<Notify>,
}

/// Why a body is not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// No memory became free in time.
    Exhausted,
    /// Another body needed the memory, and the peer of this one was slow.
    GivenUp,
    /// The peer took longer than it may.
    Late,
}

impl Memory {
    /// So many bytes, or those of one of the largest bodies if that is more.
    pub(super) fn new(bytes: usize, largest: usize) -> Self {
        let free = bytes.max(largest);
        let bodies = Bodies { free, largest, leaving: 0, next: 0, unfinished: BTreeMap::new() };
        Self(Arc::new(Shared { bodies: Mutex::new(bodies), changed: Notify::new() }))
    }

    /// The part of a new body, without any bytes.
    pub(super) fn share(&self) -> Share {
        let given_up = Arc::new(Notify::new());
        let number = self.bodies().begin(Arc::clone(&given_up));
        Share { memory: self.clone(), number, held: 0, patience: PATIENCE, is_finished: false, given_up }
    }

    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.0.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Reserves bytes up to so many in all, waiting for them if need be. A body waits for [`PATIENCE`] in all, however often it
    /// grows, so that it is refused for want of memory before the time of its request ends.
    ///
    /// # Errors
    /// They do not become free in time, or this body is given up for another.
    pub(super) async fn grow_to(&mut self, bytes: usize) -> Result<(), Ended> {
        let by = bytes.saturating_sub(self.held);
        if by == 0 {
            return Ok(());
        }
        let begin = Instant::now();
        let reserved = self.reserve(by, begin + self.patience).await;
        self.patience = self.patience.saturating_sub(begin.elapsed());
        reserved
    }

    async fn reserve(&mut self, by: usize, deadline: Instant) -> Result<(), Ended> {
        let memory = self.memory.clone();
        loop {
            // Made before the look: what changes from now on is noticed.
            let changed = memory.0.changed.notified();
            if memory.bodies().grow(self.number, by, Instant::now()) {
                self.held += by;
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(Ended::Exhausted);
            }
            tokio::select! {
                () = self.given_up.notified() => return Err(Ended::GivenUp),
                () = changed => {}
                () = sleep(TICK) => {}
            }
        }
    }

    /// The next part of the body, for which the peer has what it has not used up of `limit` yet.
    ///
    /// # Errors
    /// That is over, or this body is given up for another.
    pub(super) async fn next<T>(&self, part: impl Future<Output = T>, limit: Duration) -> Result<T, Ended> {
        let waited = self.memory.bodies().wait_for_peer(self.number, Instant::now());
        let next = tokio::select! {
            biased;
            part = part => Ok(part),
            () = self.given_up.notified() => Err(Ended::GivenUp),
            () = sleep(limit.saturating_sub(waited)) => Err(Ended::Late),
        };
        self.memory.bodies().heard_from_peer(self.number, Instant::now());
        next
    }

    /// The body is complete: its bytes stay reserved, and it can no longer be given up.
    pub(super) fn finish(&mut self) {
        self.is_finished = true;
        self.memory.bodies().finish(self.number, self.held);
        self.memory.0.changed.notify_waiters();
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut bodies = self.memory.bodies();
        if !self.is_finished {
            bodies.finish(self.number, self.held);
        }
        bodies.free += self.held;
        drop(bodies);
        self.memory.0.changed.notify_waiters();
    }
}

impl Bodies {
    fn begin(&mut self, given_up: Arc<Notify>) -> u64 {
        self.next += 1;
        self.unfinished.insert(self.next, Unfinished { given_up, ..Unfinished::default() });
        self.next
    }

    /// Reserves the bytes; otherwise gives up a slow body, if there is one and none is leaving.
    fn grow(&mut self, number: u64, by: usize, now: Instant) -> bool {
        let admitted = self.admits(number, by);
        if let Some(body) = self.unfinished.get_mut(&number) {
            body.waits = !admitted;
            body.held += if admitted { by } else { 0 };
        }
        if admitted {
            self.free -= by;
        } else if self.leaving == 0
            && let Some(slowest) = self.slowest(number, now)
            && let Some(body) = self.unfinished.remove(&slowest)
        {
            self.leaving = body.held;
            body.given_up.notify_one();
        }
        admitted
    }

    /// Whether a body may have so many bytes more.
    fn admits(&self, number: u64, by: usize) -> bool {
        let Some(own) = self.unfinished.get(&number) else { return false };
        let Some((oldest, first)) = self.unfinished.first_key_value() else { return false };
        if *oldest == number {
            return by <= self.free;
        }
        let before = |(other, body): (&u64, &Unfinished)| {
            body.waits && other != oldest && (body.held, *other) < (own.held, number)
        };
        by + self.largest.saturating_sub(first.held) <= self.free && !self.unfinished.iter().any(before)
    }

    /// Of the bodies that hold bytes and whose peers are slow, the one whose peer is the slowest.
    fn slowest(&self, except: u64, now: Instant) -> Option<u64> {
        let holding = self.unfinished.iter().filter(|(number, body)| **number != except && body.held > 0);
        let slow = holding.map(|(number, body)| (body.waited(now), *number)).filter(|(waited, _)| *waited > SLOW);
        slow.max().map(|(_, number)| number)
    }

    /// How long the peer has kept the server waiting before.
    fn wait_for_peer(&mut self, number: u64, now: Instant) -> Duration {
        let Some(body) = self.unfinished.get_mut(&number) else { return Duration::ZERO };
        body.since = Some(now);
        body.waited
    }

    fn heard_from_peer(&mut self, number: u64, now: Instant) {
        if let Some(body) = self.unfinished.get_mut(&number) {
            body.waited = body.waited(now);
            body.since = None;
        }
    }

    /// A body that is given up is not leaving any more, either.
    fn finish(&mut self, number: u64, held: usize) {
        if self.unfinished.remove(&number).is_none() {
            self.leaving = self.leaving.saturating_sub(held);
        }
    }
}

impl Unfinished {
    fn waited(&self, now: Instant) -> Duration {
        self.waited + self.since.map_or(Duration::ZERO, |since| now.duration_since(since))
    }
}

#[cfg(test)]
mod tests;
