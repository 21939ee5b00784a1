//! Pods that are made to keep a reviewer busy, and reviews that are not: each is answered within the time that a listener's
//! worker can do without it. The time is the processor's of an instrumented build, which is slower than what is shipped.
//!
//! The input chooses the shapes and sizes of the pod.
#![no_main]

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use istio_cni::webhook::{Native, Profile, Review, Surroundings, Texts, istio};
use libfuzzer_sys::fuzz_target;
use nix::time::{ClockId, clock_gettime};

#[path = "../../tests/support/hostile.rs"]
mod hostile;

/// Milliseconds; the bench of the shipped build says whether a tenth of a second is kept.
const LONGEST: i64 = 1000;

static PROFILE: LazyLock<Arc<dyn Profile>> = LazyLock::new(|| {
    let build = istio::build(istio::Options::default(), Surroundings::new(Native::Off));
    Arc::from(build(&Texts::default()).expect("the configuration that is compiled in"))
});

/// Eight bytes a number; zeros at the end.
struct Bytes<'i>(&'i [u8]);

impl hostile::Numbers for Bytes<'_> {
    fn next(&mut self) -> u64 {
        let (number, rest) = self.0.split_at(self.0.len().min(8));
        self.0 = rest;
        number.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

fn milliseconds() -> i64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("every thread has a clock");
    time.tv_sec() * 1000 + time.tv_nsec() / 1_000_000
}

fuzz_target!(|input: &[u8]| {
    let (pod, shapes) = hostile::pod(&mut Bytes(input));
    let text = hostile::review(&pod);
    let begin = milliseconds();
    let answer = match Review::parse(text.as_bytes(), BTreeMap::new()) {
        Ok(review) => review.answer(&PROFILE.review(&review)),
        Err(unreadable) => unreadable.error.to_string(),
    };
    let took = milliseconds() - begin;
    assert!(took <= LONGEST, "{took} ms for {} bytes of {shapes:?}: {}", text.len(), &answer[..answer.len().min(200)]);
});
