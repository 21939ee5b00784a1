//! Measures the processor time of reviews of hostile pods. The environment variable `HOSTILE_PODS` is their number for
//! each profile (1000 by default).
//!
//! Measures the thread's processor time, which other programs affect only through the caches. A slow review is
//! repeated, and its shortest time is used. Prints percentiles, the slowest reviews, and the slowest review of each
//! shape (see [`hostile::SHAPES`]).

#![expect(clippy::disallowed_methods, reason = "reads files, holds the clock")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what a bench does not expect ends it")]
#![expect(clippy::print_stdout, reason = "its report")]

mod drawn;
#[allow(dead_code, reason = "the other programs use the rest")]
mod input;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use dapr::{Era, Settings};
use nix::time::{ClockId, clock_gettime};
use test_support::hostile;
use webhook::dapr::{Mesh, route};
use webhook::{ClusterState, Native, Profile, Review, Texts, istio};

/// The allocator of the shipped program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The target for every review, in milliseconds.
const AIM: f64 = 100.0;
/// The time in milliseconds above which a review is repeated.
const SLOW: f64 = AIM / 2.0;
/// The number of repetitions.
const REPEATED: usize = 4;
/// The number of printed slowest reviews.
const SHOWN: usize = 8;

/// The processor times of all reviews, in milliseconds.
#[derive(Default)]
struct Times {
    all: Vec<f64>,
    /// The slowest reviews with their descriptions, the slowest first.
    slowest: Vec<(f64, String)>,
    by_shape: BTreeMap<&'static str, f64>,
}

fn main() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (count, seed) = (number("HOSTILE_PODS", 1000), number("HOSTILE_SEED", 1));
    let (profiles, mut times, begin) = (profiles(), Times::default(), cpu());
    for seed in seed..seed + count {
        // Each pod has a seed of its own, so that a single pod can be generated again.
        let (pod, shapes) = drawn::pod(seed);
        let text = hostile::review(&pod);
        drop(pod);
        for (profile, name) in &profiles {
            let (mut took, said) = timed(&**profile, &text);
            if took > SLOW {
                took = (0..REPEATED).map(|_| timed(&**profile, &text).0).fold(took, f64::min);
            }
            let said: String = said.chars().take(160).collect();
            times.add(took, &shapes, || format!("{name}, seed {seed}, {} KiB of {shapes:?}: {said}", text.len() >> 10));
        }
    }
    times.print(count, (cpu() - begin) / 1e3);
}

impl Times {
    fn add(&mut self, took: f64, shapes: &[&'static str], what: impl FnOnce() -> String) {
        self.all.push(took);
        for shape in shapes {
            let slowest = self.by_shape.entry(shape).or_default();
            *slowest = slowest.max(took);
        }
        if self.slowest.len() < SHOWN || self.slowest.last().is_some_and(|(least, _)| *least < took) {
            self.slowest.push((took, what()));
            self.slowest.sort_by(|left, right| right.0.total_cmp(&left.0));
            self.slowest.truncate(SHOWN);
        }
    }

    fn print(mut self, count: u64, seconds: f64) {
        self.all.sort_by(f64::total_cmp);
        let within = |per_mille: usize| self.all[(self.all.len() - 1) * per_mille / 1000];
        let (worst, met) = (within(1000), if within(1000) <= AIM { "reached" } else { "missed" });
        println!("injection, the slowest of {count} hostile pods {worst:>8.1} ms  (aim {AIM} ms: {met})");
        let [p50, p99, p999] = [500, 990, 999].map(within);
        println!(
            "  {} reviews, p50 {p50:.2} ms, p99 {p99:.1} ms, p99.9 {p999:.1} ms; {seconds:.0} s in all",
            self.all.len()
        );
        self.slowest.iter().for_each(|(took, what)| println!("  {took:>8.1} ms  {what}"));
        let mut by_shape: Vec<_> = self.by_shape.into_iter().collect();
        by_shape.sort_by(|left, right| right.1.total_cmp(&left.1));
        println!("  the slowest review with each shape");
        by_shape.iter().for_each(|(shape, took)| println!("  {took:>8.1} ms  {shape}"));
    }
}

/// Reviews a pod; returns the processor time in milliseconds and the result of [`response`].
fn timed(profile: &dyn Profile, text: &str) -> (f64, String) {
    let before = cpu();
    let said = response(profile, text);
    (cpu() - before, said)
}

/// Reviews a pod and returns the rule that decided about injection, with the reason, or the error if the review cannot
/// be parsed.
fn response(profile: &dyn Profile, text: &str) -> String {
    match Review::parse(text.as_bytes(), BTreeMap::new()) {
        Ok(review) => {
            let outcome = review.decided_by(profile);
            drop(review.response(&outcome));
            format!("{}: {}", outcome.rule, outcome.reason)
        }
        Err(unreadable) => unreadable.error.to_string(),
    }
}

/// Returns the measured profiles with their names: Istio's injection with the built-in configuration, with the one in
/// the bench's input directory if it exists, and with a legacy one; and Dapr's injection.
fn profiles() -> Vec<(Arc<dyn Profile>, &'static str)> {
    let istio = |texts: &Texts| -> Arc<dyn Profile> {
        istio::build(istio::Options::default(), ClusterState::new(Native::Off))(texts).unwrap().into()
    };
    let mut profiles = vec![(istio(&Texts::default()), "compiled in")];
    let read = |name: &str| std::fs::read_to_string(input::directory().join(name)).ok();
    if let Some(config) = read("config.yaml") {
        let texts = Texts { config: Some(config), values: read("values.json"), mesh: read("mesh.yaml") };
        profiles.push((istio(&texts), "Istio's"));
    }
    let legacy = Texts { config: Some(include_str!("legacy.yaml").to_owned()), ..Texts::default() };
    profiles.push((istio(&legacy), "legacy"));
    let env = [("NAMESPACE", "dapr-system"), ("SIDECAR_IMAGE", "daprd")];
    let env = env.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let settings = Settings::from_env(&env, "", Era::Current).unwrap();
    profiles.push((route(Arc::new(settings), Mesh::trusting("PEM".to_owned())).profile, "Dapr's"));
    profiles
}

/// Returns the processor time of this thread in milliseconds.
fn cpu() -> f64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("the kernel has a clock for each thread");
    Duration::from(time).as_secs_f64() * 1e3
}
