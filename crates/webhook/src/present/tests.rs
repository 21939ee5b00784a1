//! Tests of the intervals between patches.

use super::*;

#[test]
fn a_patch_of_a_new_certificate_does_not_wait_for_the_intervals_of_the_former_one() {
    let mut pace = Pace::new();
    let mut now = Instant::now();
    for _ in 0..20 {
        assert!(pace.take(now));
        now += MAX_PATCH_INTERVAL;
    }
    let patched = now - MAX_PATCH_INTERVAL;
    assert!(pace.is_again() && !pace.take(patched + MAX_PATCH_INTERVAL / 2));
    pace.reset();
    assert!(!pace.is_again() && !pace.take(patched + RETRY_INTERVAL / 2), "patches never come faster");
    assert!(pace.take(patched + RETRY_INTERVAL));
}

#[test]
fn the_interval_doubles_with_each_patch_up_to_its_limit() {
    let mut pace = Pace::new();
    let mut now = Instant::now();
    assert!(pace.take(now));
    let mut interval = RETRY_INTERVAL;
    while interval < MAX_PATCH_INTERVAL * 4 {
        let wait = interval.min(MAX_PATCH_INTERVAL);
        assert!(!pace.take(now + wait - Duration::from_millis(1)), "{wait:?}");
        now += wait;
        assert!(pace.take(now), "{wait:?}");
        interval *= 2;
    }
}
