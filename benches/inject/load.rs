//! Reviews over HTTPS, on connections that stay open, each with one review at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::resource::UsageWho;

use crate::input::Reviews;
use crate::process;
use crate::program::Program;
use test_support::client::Connection;

/// How long a load lasts.
const LASTS: Duration = Duration::from_secs(1);

/// What loads of one kind have shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shown {
    /// Reviews in a second, of each load.
    rates: Vec<f64>,
    /// Milliseconds of each review of all loads.
    took: Vec<f64>,
    /// Milliseconds of a processor that the program has had.
    program: f64,
    /// The same of the generator, which is this process.
    generator: f64,
}

impl Shown {
    /// Reviews in a second: the median load's.
    pub(crate) fn rate(&mut self) -> f64 {
        of_hundred(&mut self.rates, 50)
    }

    /// Milliseconds within which so many of a hundred reviews were answered.
    pub(crate) fn within(&mut self, percent: usize) -> f64 {
        of_hundred(&mut self.took, percent)
    }

    /// Milliseconds of a processor for one review: the program's and the generator's. Others that use the machine change these
    /// less than the rate.
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

/// No two reviews of one invocation have the same number.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The answer to one review, which has a patch.
pub(crate) async fn once(program: &Program, reviews: &Reviews) -> Result<String> {
    let mut connection = Connection::open(program.address, &program.trust).await?;
    ask(&mut connection, reviews).await
}

async fn ask(connection: &mut Connection, reviews: &Reviews) -> Result<String> {
    let text = reviews.text(NEXT.fetch_add(1, Ordering::Relaxed));
    let (status, body) = connection.post(reviews.mesh.path(), &text).await?;
    ensure!(status == 200 && body.contains("\"patch\":"), "{status}: {body}");
    Ok(body)
}

/// One load of so many connections at once.
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
                    ask(&mut connection, &reviews).await?;
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
