//! Sends reviews over HTTPS on several persistent connections, one review at a time on each, and measures rate and
//! durations.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::resource::UsageWho;

use crate::input::Reviews;
use crate::process;
use crate::program::Program;
use test_support::client::Connection;

/// The time for which one load sends reviews.
const LASTS: Duration = Duration::from_secs(1);

/// The measurements of all repetitions of a load: the same reviews on the same number of connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    /// The reviews per second of each repetition.
    rates: Vec<f64>,
    /// The durations of all reviews, in milliseconds.
    took: Vec<f64>,
    /// The server's processor time for all reviews, in milliseconds.
    program: f64,
    /// The processor time of this process, which generates the load, for all reviews, in milliseconds.
    generator: f64,
}

impl Shown {
    /// Returns the reviews per second of the median repetition.
    pub(crate) fn rate(&mut self) -> f64 {
        of_hundred(&mut self.rates, 50)
    }

    /// Returns a percentile of the reviews' durations, in milliseconds.
    pub(crate) fn within(&mut self, percent: usize) -> f64 {
        of_hundred(&mut self.took, percent)
    }

    /// Returns the server's and the generator's processor time for one review, in milliseconds. Other load on the
    /// machine affects them less than the rate.
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    pub(crate) fn cost(&self) -> (f64, f64) {
        let reviews = self.took.len() as f64;
        (self.program / reviews, self.generator / reviews)
    }
}

fn of_hundred(values: &mut [f64], percent: usize) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() * percent / 100]
}

/// The number of the next review, unique within an invocation.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Sends one review and returns the response; fails if the response has no patch.
pub(crate) async fn once(program: &Program, reviews: &Reviews) -> Result<String> {
    let mut connection = Connection::open(program.address, &program.trust).await?;
    send(&mut connection, reviews).await
}

async fn send(connection: &mut Connection, reviews: &Reviews) -> Result<String> {
    let text = reviews.text(NEXT.fetch_add(1, Ordering::Relaxed));
    let (status, body) = connection.post(reviews.mesh.path(), &text).await?;
    ensure!(status == 200 && body.contains("\"patch\":"), "{status}: {body}");
    Ok(body)
}

/// Runs one load with this number of connections.
pub(crate) async fn run(program: &Program, reviews: &Reviews, connections: usize, shown: &mut Shown) -> Result<()> {
    let mut opened = Vec::new();
    for _ in 0..connections {
        opened.push(Connection::open(program.address, &program.trust).await?);
    }
    let (of_program, of_generator) = (program.processor_time()?, process::processor_time(UsageWho::RUSAGE_SELF));
    let (reviews, begin) = (Arc::new(reviews.clone()), Instant::now());
    let tasks: Vec<_> = opened
        .into_iter()
        .map(|mut connection| {
            let reviews = Arc::clone(&reviews);
            tokio::spawn(async move {
                let mut took = Vec::new();
                while begin.elapsed() < LASTS {
                    let start = Instant::now();
                    send(&mut connection, &reviews).await?;
                    took.push(start.elapsed().as_secs_f64() * 1e3);
                }
                anyhow::Ok(took)
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await??);
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    shown.rates.push(took.len() as f64 / begin.elapsed().as_secs_f64());
    shown.took.extend(took);
    shown.program += program.processor_time()? - of_program;
    shown.generator += process::processor_time(UsageWho::RUSAGE_SELF) - of_generator;
    Ok(())
}
