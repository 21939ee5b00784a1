//! A long run of the shipped agent, injector and plugin under load. It fails if memory, descriptors, threads, inotify
//! watches, files or the log of a daemon grow with time.
//!
//! Pods are created and deleted, reviews are sent, certificates and tokens rotate, chain entries are removed and watches
//! end. The first third of the samples is warm-up; the last third must not exceed the second one.

#![expect(
    clippy::disallowed_methods,
    reason = "starts processes, reads files, holds the clock, sets the pace of the load"
)]
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "an unexpected result ends the run")]
#![expect(clippy::print_stdout, reason = "its report")]

mod injector;
mod load;
mod sample;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use injector::Injector;
use load::{Load, Rate};
use sample::{Process, Samples};
use test_support::daemon::{Daemon, Node, cluster};

/// The number of samples of a run.
const SAMPLES: u32 = 90;

#[tokio::main]
async fn main() -> ExitCode {
    let seconds = std::env::var("SOAK_SECONDS").map_or(60, |text| text.parse().expect("SOAK_SECONDS is a number"));
    let api = cluster().await;
    let node = Node::new();
    let daemon = Daemon::start(&node, &api.url());
    tokio::task::block_in_place(|| daemon.ready());
    let injector = Injector::start(&api).await;
    let load = Load { api: &api, node: &node, injector: &injector, done: AtomicBool::new(false) };
    let agent = Process { name: "install-cni", proc: daemon.process(), directory: node.path("") };
    let webhook = Process { name: "sidecar-injector", proc: injector.process(), directory: injector.directory() };
    let mut samples = [Samples::of(agent), Samples::of(webhook)];
    let counts = load::Counts::default();
    let runtime = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        thread::scope(|scope| {
            scope.spawn(|| load.pods(Rate::each_second(5), &counts.pods));
            scope.spawn(|| runtime.block_on(load.reviews(Rate::each_second(50), &counts.reviews)));
            scope.spawn(|| load.rotations(&counts.rotations));
            scope.spawn(|| load.disturbances(&counts.disturbances));
            let ended = scope.spawn(|| observe(&load, &mut samples, Duration::from_secs(seconds)));
            let complete = ended.join();
            load.done.store(true, Ordering::Relaxed);
            complete.expect("every sample can be read");
        });
    });
    let [pods, reviews, rotations, disturbances] =
        [&counts.pods, &counts.reviews, &counts.rotations, &counts.disturbances]
            .map(|count| count.load(Ordering::Relaxed));
    println!("{seconds} s: {pods} pods, {reviews} reviews, {rotations} rotations, {disturbances} disturbances");
    let growth: Vec<String> = samples.iter().flat_map(Samples::report).collect();
    assert!(pods.min(reviews).min(rotations).min(disturbances) > 0, "a part of the load did not run");
    for line in &growth {
        println!("GROWS  {line}");
    }
    // `main` returns the exit code and does not call `exit`, which would leave the processes and their directories
    // behind.
    if growth.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Samples all processes at equal intervals.
fn observe(load: &Load<'_>, samples: &mut [Samples], duration: Duration) {
    let begin = Instant::now();
    for number in 1..=SAMPLES {
        let due = begin + duration * number / SAMPLES;
        thread::sleep(due.saturating_duration_since(Instant::now()));
        if load.done.load(Ordering::Relaxed) {
            return;
        }
        samples.iter_mut().for_each(Samples::take);
    }
}

/// Counts one unit of work.
fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
