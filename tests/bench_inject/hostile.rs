//! The time that hostile pods take, from a review's text to its answer: `HOSTILE_PODS` of them (2000), of which the slowest are
//! shown. The time is the processor's, and the time on the clock stands beside it. Other programs lengthen both; so a slow review
//! is repeated, and its shortest time counts.

#![expect(clippy::disallowed_methods, reason = "reads files, holds the clock")]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what a bench does not expect ends it")]
#![expect(clippy::print_stdout, reason = "its report")]

mod drawn;
#[path = "../support/hostile.rs"]
mod hostile;
#[allow(dead_code, reason = "the other programs use the rest")]
mod input;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use istio_cni::inject::dapr::{Era, Settings};
use istio_cni::webhook::dapr::{Mesh, route};
use istio_cni::webhook::{Native, Profile, Review, Surroundings, Texts, istio};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;

/// The shipped program's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// No review takes longer, in milliseconds.
const AIM: f64 = 100.0;
/// Slower reviews are repeated, in milliseconds.
const SLOW: f64 = AIM / 4.0;
/// How often.
const REPEATED: usize = 4;
/// So many of the slowest are shown.
const SHOWN: usize = 8;

fn main() {
    let number = |name: &str, default: u64| std::env::var(name).map_or(default, |text| text.parse().expect("a number"));
    let (count, seed) = (number("HOSTILE_PODS", 2000), number("HOSTILE_SEED", 1));
    let profiles = profiles();
    let mut slowest: Vec<(f64, f64, String)> = Vec::new();
    for at in 0..count {
        // Each pod has numbers of its own, so that it can be drawn again alone.
        let (pod, shapes) = drawn::pod(seed + at);
        let text = hostile::review(&pod);
        for (profile, name) in &profiles {
            let (mut took, mut clock, said) = timed(&**profile, &text);
            if took > SLOW {
                for (again, by_clock, _) in (0..REPEATED).map(|_| timed(&**profile, &text)) {
                    (took, clock) = (took.min(again), clock.min(by_clock));
                }
            }
            let said: String = said.chars().take(160).collect();
            let what = format!("{name}, seed {}, {} KiB of {shapes:?}: {said}", seed + at, text.len() >> 10);
            slowest.push((took, clock, what));
        }
        slowest.sort_by(|left, right| right.0.total_cmp(&left.0));
        slowest.truncate(SHOWN);
    }
    let worst = slowest.first().map_or(0.0, |(took, ..)| *took);
    let met = if worst <= AIM { "reached" } else { "missed" };
    println!("injection, the slowest of {count} hostile pods {worst:>8.1} ms  (aim {AIM} ms: {met})");
    slowest.iter().for_each(|(took, clock, what)| println!("  {took:>8.1} ms  {clock:>8.1} ms by the clock  {what}"));
}

/// Milliseconds of a processor and by the clock, and what was answered.
fn timed(profile: &dyn Profile, text: &str) -> (f64, f64, String) {
    let (before, start) = (cpu(), Instant::now());
    let said = answer(profile, text);
    (cpu() - before, start.elapsed().as_secs_f64() * 1e3, said)
}

/// The rule that decided, and its reason.
fn answer(profile: &dyn Profile, text: &str) -> String {
    match Review::parse(text.as_bytes(), BTreeMap::new()) {
        Ok(review) => {
            let outcome = review.decided_by(profile);
            drop(review.answer(&outcome));
            format!("{}: {}", outcome.rule, outcome.reason)
        }
        Err(unreadable) => unreadable.error.to_string(),
    }
}

/// Istio's injection by the configuration in the bench's input, by the one that is compiled in and by a legacy one; and Dapr's.
fn profiles() -> Vec<(Arc<dyn Profile>, &'static str)> {
    let istio = |texts: &Texts| -> Arc<dyn Profile> {
        istio::build(istio::Options::default(), Surroundings::new(Native::Off))(texts).unwrap().into()
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

/// Milliseconds that this thread has had of processors.
fn cpu() -> f64 {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("the kernel knows every thread");
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a short program")]
    let micros = (usage.user_time() + usage.system_time()).num_microseconds() as f64;
    micros / 1e3
}
