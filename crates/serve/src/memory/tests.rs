//! Tests of the distribution of scarce memory, with a clock that the tests set.

use std::task::{Context, Poll, Waker};

use super::*;

/// A memory of ten bytes, with bodies of at most four.
fn memory() -> Memory {
    Memory::new(10, 4)
}

/// Whether bytes are reserved at once.
fn grows(share: &mut Share, by: usize, now: Instant) -> bool {
    let grown = share.memory.bodies().grow(share.number, by, now);
    share.held += if grown { by } else { 0 };
    grown
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
    // The bytes that the finished body releases suffice for the body that is the oldest then.
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
    assert!(!grows(&mut large, 2, now) && !grows(&mut small, 1, now));
    drop(done);
    assert!(!grows(&mut large, 2, now), "the smaller one is before it");
    assert!(grows(&mut small, 1, now) && !grows(&mut small, 2, now), "it is as large as the other, and younger");
    assert!(grows(&mut large, 2, now));
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
