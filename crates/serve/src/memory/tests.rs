//! Tests of the distribution of scarce memory, with a clock that the tests set.

use std::task::{Context, Poll, Waker};

use super::*;

/// A memory of ten bytes, with bodies of at most four.
fn memory() -> Memory {
    Memory::new(10, 4)
}

/// Reserves bytes without waiting, or else evicts a slow body. Returns whether the bytes were reserved.
fn grows(share: &mut Share, by: usize, now: Instant) -> bool {
    share.reserve_or_evict(by, now, now + MEMORY_TIMEOUT)
}

fn free(memory: &Memory) -> usize {
    memory.bodies().free
}

#[tokio::test]
async fn bytes_are_released_when_a_body_is_dropped_and_not_when_it_is_complete() {
    let memory = memory();
    let mut body = memory.share();
    body.grow_to(3).await.unwrap();
    body.grow_to(4).await.unwrap();
    assert_eq!(free(&memory), 6);
    body.finish();
    assert_eq!(free(&memory), 6);
    drop(body);
    assert_eq!((free(&memory), memory.bodies().unfinished.len()), (10, 0));
}

#[tokio::test]
async fn the_oldest_body_can_always_grow_to_the_largest_size() {
    let (memory, now) = (memory(), Instant::now());
    let [mut oldest, mut second, mut third] = [(); 3].map(|()| memory.share());
    assert!(grows(&mut oldest, 1, now) && grows(&mut second, 4, now) && grows(&mut third, 2, now));
    assert!(!grows(&mut third, 1, now), "three bytes are the oldest body's");
    assert!(grows(&mut oldest, 3, now));
    // The second body is the oldest now. It has the largest size already, so no bytes must stay free for it.
    oldest.finish();
    drop(oldest);
    assert!(grows(&mut third, 2, now), "the second is as large as can be");
    assert_eq!(free(&memory), 2);
}

#[tokio::test]
async fn the_smallest_waiting_body_grows_first() {
    let (memory, now) = (memory(), Instant::now());
    let [_oldest, mut large, mut small, mut done] = [(); 4].map(|()| memory.share());
    assert!(grows(&mut large, 2, now) && grows(&mut small, 1, now) && grows(&mut done, 3, now));
    done.finish();
    assert!(!grows(&mut large, 2, now) && !grows(&mut small, 2, now));
    drop(done);
    assert!(!grows(&mut large, 2, now), "three bytes are free, and the smaller one waits for two of them");
    assert!(grows(&mut small, 2, now) && !grows(&mut small, 1, now), "it is larger than the other");
    assert!(!grows(&mut large, 2, now) && grows(&mut large, 1, now));
}

#[tokio::test]
async fn no_body_is_evicted_if_the_free_bytes_suffice() {
    let (memory, start) = (memory(), Instant::now());
    let [mut oldest, mut slow, mut large, mut small, mut done] = [(); 5].map(|()| memory.share());
    assert!(grows(&mut oldest, 4, start) && grows(&mut slow, 1, start));
    assert!(grows(&mut large, 2, start) && grows(&mut small, 1, start) && grows(&mut done, 2, start));
    done.finish();
    assert!(!grows(&mut small, 1, start) && !grows(&mut large, 1, start), "no byte is free");
    drop(done);
    memory.bodies().wait_for_peer(slow.number, start);
    let later = start + Duration::from_secs(1);
    assert!(grows(&mut large, 1, later), "one byte remains for the smaller one");
    assert!(grows(&mut small, 1, later));
    assert_eq!(memory.bodies().unfinished.len(), 4, "the bytes sufficed");
    assert!(!large.reserve_or_evict(1, later, later));
    assert_eq!(memory.bodies().unfinished.len(), 4, "a body that gives up evicts none");
    assert!(!grows(&mut large, 1, later));
    assert_eq!(slow.next(std::future::pending::<()>(), Duration::from_secs(60)).await, Err(Ended::Evicted));
    drop(slow);
    assert!(grows(&mut large, 1, later));
}

#[tokio::test]
async fn only_the_slowest_body_is_evicted_for_another() {
    let (memory, start) = (memory(), Instant::now());
    let [mut quick, mut slow, mut slower, mut late] = [(); 4].map(|()| memory.share());
    for body in [&mut quick, &mut slow, &mut slower] {
        assert!(grows(body, 2, start));
    }
    let after = |milliseconds| start + Duration::from_millis(milliseconds);
    memory.bodies().wait_for_peer(slow.number, after(100));
    memory.bodies().wait_for_peer(slower.number, start);
    assert!(!grows(&mut late, 3, after(250)), "no peer has been slow yet");
    assert_eq!(memory.bodies().unfinished.len(), 4);
    memory.bodies().end_wait_for_peer(slow.number, after(400));
    for _ in 0..2 {
        assert!(!grows(&mut late, 3, after(500)), "nothing is free before the other body is dropped");
    }
    assert_eq!(slower.next(std::future::pending::<()>(), Duration::from_secs(60)).await, Err(Ended::Evicted));
    assert_eq!(memory.bodies().unfinished.len(), 3, "one was enough");
    drop(slower);
    assert!(grows(&mut late, 3, after(500)));
    assert_eq!(memory.bodies().evicted, 0);
}

#[tokio::test]
async fn waits_for_a_peer_and_for_memory_are_limited_in_total() {
    let memory = Memory::new(4, 4);
    let limit = Duration::from_secs(3600);
    let [mut first, mut second] = [(); 2].map(|()| memory.share());
    first.grow_to(4).await.unwrap();
    let start = Instant::now();
    memory.bodies().wait_for_peer(first.number, start);
    memory.bodies().end_wait_for_peer(first.number, start + limit);
    let patience = Duration::from_secs(120);
    let next = tokio::time::timeout(patience, first.next(std::future::pending::<()>(), limit)).await;
    assert_eq!(next.expect("the wait before has used up the limit"), Err(Ended::TimedOut));
    first.finish();
    let begin = Instant::now();
    assert_eq!(second.grow_to(1).await, Err(Ended::Exhausted));
    assert!(begin.elapsed() >= MEMORY_TIMEOUT);
    drop(second);
    let mut third = memory.share();
    let waiting = tokio::spawn(async move { third.grow_to(1).await });
    tokio::task::yield_now().await;
    drop(first);
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_wait_for_memory_is_limited_over_all_growths() {
    let memory = Memory::new(4, 4);
    let [mut first, mut second] = [(); 2].map(|()| memory.share());
    first.grow_to(4).await.unwrap();
    first.finish();
    let waited = MEMORY_TIMEOUT / 8;
    let drops = async {
        sleep(waited).await;
        drop(first);
    };
    let (grown, ()) = tokio::join!(second.grow_to(1), drops);
    grown.unwrap();
    assert!(second.remaining_wait <= MEMORY_TIMEOUT - waited, "{:?}", second.remaining_wait);
    // The test takes all free bytes, as if another body held them.
    memory.bodies().free = 0;
    assert_eq!((second.grow_to(2).await, second.remaining_wait), (Err(Ended::Exhausted), Duration::ZERO));
    let mut again = std::pin::pin!(second.grow_to(2));
    let polled = again.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(Err(Ended::Exhausted)), "no time remains");
}

/// Pauses of a task on a busy machine, of up to `longest` milliseconds each, in a sequence that `seed` determines.
struct Pauses {
    seed: u64,
    longest: u64,
}

impl Pauses {
    async fn pause(&mut self) {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        sleep(Duration::from_millis((self.seed >> 33) % (self.longest + 1))).await;
    }
}

/// Receives a body of `bytes` bytes in parts as `body::read` does: the reservation doubles up to `largest`.
async fn receive(share: &mut Share, bytes: usize, largest: usize, pauses: &mut Pauses) -> Result<(), Ended> {
    let mut reserved = 3;
    loop {
        share.next(pauses.pause(), Duration::from_secs(60)).await?;
        share.grow_to(reserved).await?;
        if reserved >= bytes {
            return Ok(());
        }
        reserved = (reserved * 2).min(largest);
    }
}

/// Receives a part of a body whose peer then sends nothing more. Returns how the body ends.
async fn stall(memory: Memory, mut pauses: Pauses) -> Result<(), Ended> {
    pauses.pause().await;
    let mut share = memory.share();
    receive(&mut share, 48, 96, &mut pauses).await?;
    let ended = share.next(std::future::pending::<()>(), Duration::from_secs(600)).await;
    pauses.pause().await;
    ended
}

#[tokio::test(start_paused = true)]
async fn as_many_slow_bodies_stay_as_fit_into_the_memory_with_a_large_one() {
    for seed in 0..200 {
        let memory = Memory::new(256, 96);
        let pauses = |number| Pauses { seed: seed * 100 + number, longest: seed };
        let mut stalled: tokio::task::JoinSet<_> =
            (0..20).map(|number| stall(memory.clone(), pauses(number))).collect();
        stalled.join_next().await.unwrap().unwrap().unwrap_err();
        for number in 20..23 {
            let mut pauses = pauses(number);
            // Peers repeat a request that is refused for lack of memory.
            loop {
                let mut share = memory.share();
                if receive(&mut share, 80, 80, &mut pauses).await.is_ok() {
                    share.finish();
                    break;
                }
            }
        }
        while stalled.try_join_next().is_some() {}
        // The oldest body may grow to 96 bytes, the other holds 48, and the large one 80. A third stalled body would
        // exceed 256 bytes.
        assert_eq!(stalled.len(), 2, "pauses of up to {seed} ms");
    }
}
