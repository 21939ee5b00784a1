//! Memory for the bodies of requests: a number of bytes that all connections of a server share.
//!
//! `body` reserves bytes before it stores them, and dropping the body releases them. An announced length reserves no
//! bytes. If the memory is exhausted:
//! - The oldest unfinished body can always grow to the largest size, because all other bodies leave that many bytes
//!   free for it. This prevents a deadlock of bodies that each hold a part of the memory.
//! - Among the other bodies the smallest grows first: most bodies are small, and they do not wait behind large ones. A
//!   larger body may grow before it if the bytes suffice for both.
//! - A body for whose peer the server has waited longer than [`SLOW`] is evicted when another body lacks bytes.

#![expect(clippy::disallowed_methods, reason = "owns the clock of the waits for memory and peers")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

/// The total wait for a peer's body above which the peer is slow: its body is evicted when another body lacks memory.
const SLOW: Duration = Duration::from_millis(250);
/// The total time that a body waits for memory; its request is then refused.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(2);
/// The interval between two searches for slow peers.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The memory for the bodies of a server's requests; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Memory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    bodies: Mutex<Bodies>,
    /// Notified when bytes are released or another body becomes the oldest.
    changed: Notify,
}

/// The free bytes and the unfinished bodies.
#[derive(Debug)]
struct Bodies {
    /// The free memory in bytes.
    free: usize,
    /// The largest permitted body, in bytes.
    largest: usize,
    /// The bytes of evicted bodies that are not dropped yet.
    evicted: usize,
    /// The last assigned number.
    next: u64,
    /// The bodies by number, the oldest first.
    unfinished: BTreeMap<u64, Unfinished>,
}

/// A body that is not complete.
#[derive(Debug, Default)]
struct Unfinished {
    /// Reserved bytes.
    held: usize,
    /// The number of additional bytes that the body waits for.
    wanted: usize,
    /// The time for which the server has waited for the peer, up to `since`.
    waited: Duration,
    /// The start of the current wait for the peer.
    since: Option<Instant>,
    /// Notifies the [`Share`] of its eviction.
    eviction: Arc<Notify>,
}

/// One body's part of the memory, which is released on drop.
#[derive(Debug)]
pub(super) struct Share {
    memory: Memory,
    number: u64,
    held: usize,
    /// The rest of [`MEMORY_TIMEOUT`].
    remaining_wait: Duration,
    is_finished: bool,
    eviction: Arc<Notify>,
}

/// Why the reading of a body ended early.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// No memory became free in time.
    Exhausted,
    /// Another body needed the memory, and this body's peer was slow.
    Evicted,
    /// The peer exceeded its time limit.
    TimedOut,
}

impl Memory {
    /// Creates a memory of `bytes`, or of `largest` if that is more.
    pub(super) fn new(bytes: usize, largest: usize) -> Self {
        let free = bytes.max(largest);
        let bodies = Bodies { free, largest, evicted: 0, next: 0, unfinished: BTreeMap::new() };
        Self(Arc::new(Shared { bodies: Mutex::new(bodies), changed: Notify::new() }))
    }

    /// Creates the share of a new body, without reserved bytes.
    pub(super) fn share(&self) -> Share {
        let eviction = Arc::new(Notify::new());
        let number = self.bodies().begin(Arc::clone(&eviction));
        Share { memory: self.clone(), number, held: 0, remaining_wait: MEMORY_TIMEOUT, is_finished: false, eviction }
    }

    fn bodies(&self) -> MutexGuard<'_, Bodies> {
        self.0.bodies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Grows the reservation to `bytes` and waits for them if necessary. All waits of a body together are limited by
    /// [`MEMORY_TIMEOUT`], so that it is refused for lack of memory before the time limit of its request.
    ///
    /// # Errors
    /// The bytes do not become free in time, or this body is evicted for another.
    pub(super) async fn grow_to(&mut self, bytes: usize) -> Result<(), Ended> {
        let by = bytes.saturating_sub(self.held);
        if by == 0 {
            return Ok(());
        }
        let begin = Instant::now();
        let reserved = self.reserve(by, begin + self.remaining_wait).await;
        self.remaining_wait = self.remaining_wait.saturating_sub(begin.elapsed());
        reserved
    }

    async fn reserve(&mut self, by: usize, deadline: Instant) -> Result<(), Ended> {
        let memory = self.memory.clone();
        loop {
            // Created before the check, so that no later change is missed.
            let changed = memory.0.changed.notified();
            let now = Instant::now();
            if self.reserve_or_evict(by, now, deadline) {
                return Ok(());
            }
            if now >= deadline {
                return Err(Ended::Exhausted);
            }
            tokio::select! {
                () = self.eviction.notified() => return Err(Ended::Evicted),
                () = changed => {}
                () = sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Reserves `by` more bytes if they are free. Otherwise evicts a slow body, unless this body is at its deadline.
    /// Returns whether the bytes were reserved.
    fn reserve_or_evict(&mut self, by: usize, now: Instant, deadline: Instant) -> bool {
        let mut bodies = self.memory.bodies();
        let grown = bodies.grow(self.number, by);
        if grown {
            self.held += by;
        } else if now < deadline {
            bodies.evict_for(self.number, now);
        }
        grown
    }

    /// Waits for the next part of the body. All waits for the peer together are limited by `limit`.
    ///
    /// # Errors
    /// The limit is exceeded, or this body is evicted for another.
    pub(super) async fn next<T>(&self, part: impl Future<Output = T>, limit: Duration) -> Result<T, Ended> {
        let waited = self.memory.bodies().wait_for_peer(self.number, Instant::now());
        let next = tokio::select! {
            biased;
            part = part => Ok(part),
            () = self.eviction.notified() => Err(Ended::Evicted),
            () = sleep(limit.saturating_sub(waited)) => Err(Ended::TimedOut),
        };
        self.memory.bodies().end_wait_for_peer(self.number, Instant::now());
        next
    }

    /// Marks the body as complete: its bytes stay reserved, and it can no longer be evicted.
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
    fn begin(&mut self, eviction: Arc<Notify>) -> u64 {
        self.next += 1;
        self.unfinished.insert(self.next, Unfinished { eviction, ..Unfinished::default() });
        self.next
    }

    /// Reserves `by` more bytes if this body may have them; otherwise records that it waits for them. Returns whether
    /// they were reserved.
    fn grow(&mut self, number: u64, by: usize) -> bool {
        let admitted = self.admits(number, by);
        let (granted, wanted) = if admitted { (by, 0) } else { (0, by) };
        if let Some(body) = self.unfinished.get_mut(&number) {
            body.held += granted;
            body.wanted = wanted;
        }
        self.free -= granted;
        admitted
    }

    /// Evicts the body with the slowest peer, if a peer is slow, for body `number`, which lacks bytes. Evicts none while
    /// an evicted body is not dropped yet.
    fn evict_for(&mut self, number: u64, now: Instant) {
        if self.evicted == 0
            && let Some(slowest) = self.slowest(number, now)
            && let Some(body) = self.unfinished.remove(&slowest)
        {
            self.evicted = body.held;
            body.eviction.notify_one();
        }
    }

    /// Whether a body may reserve `by` more bytes. Unless it is the oldest body, the bytes that the oldest body needs to
    /// reach the largest size, and the bytes that smaller bodies wait for, must stay free.
    fn admits(&self, number: u64, by: usize) -> bool {
        let Some(own) = self.unfinished.get(&number) else { return false };
        let Some((oldest, first)) = self.unfinished.first_key_value() else { return false };
        if *oldest == number {
            return by <= self.free;
        }
        let before =
            |(other, body): &(&u64, &Unfinished)| *other != oldest && (body.held, **other) < (own.held, number);
        let wanted: usize = self.unfinished.iter().filter(before).map(|(_, body)| body.wanted).sum();
        by + self.largest.saturating_sub(first.held) + wanted <= self.free
    }

    /// Returns the number of the body with the slowest peer, among bodies other than `except` that hold bytes and whose
    /// peers are slow.
    fn slowest(&self, except: u64, now: Instant) -> Option<u64> {
        let holding = self.unfinished.iter().filter(|(number, body)| **number != except && body.held > 0);
        let slow = holding.map(|(number, body)| (body.waited(now), *number)).filter(|(waited, _)| *waited > SLOW);
        slow.max().map(|(_, number)| number)
    }

    /// Starts a wait for the peer; returns the total time of earlier waits.
    fn wait_for_peer(&mut self, number: u64, now: Instant) -> Duration {
        let Some(body) = self.unfinished.get_mut(&number) else { return Duration::ZERO };
        body.since = Some(now);
        body.waited
    }

    fn end_wait_for_peer(&mut self, number: u64, now: Instant) {
        if let Some(body) = self.unfinished.get_mut(&number) {
            body.waited = body.waited(now);
            body.since = None;
        }
    }

    /// Removes a body that is complete or dropped. An evicted body is no longer in `unfinished`.
    fn finish(&mut self, number: u64, held: usize) {
        if self.unfinished.remove(&number).is_none() {
            self.evicted = self.evicted.saturating_sub(held);
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
