//! Takes all measurements of one invocation, interleaved in a random order so that other load of the machine affects
//! all subjects alike.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use crate::netns;
use crate::run::Taken;
use crate::subject::{Stage, Subject};
use test_support::shuffle::Shuffle;

/// The number of runs after which the bench drops their namespaces and waits until the kernel has removed them.
const BLOCK: usize = 32;
/// The number of rounds in which rates are measured. Each round runs all subjects in a new order.
const ROUNDS: usize = 3;
/// The minimum number of runs for each thread of a rate measurement.
const EACH: usize = 6;
/// The numbers of threads for which rates are measured.
pub(crate) const WIDTHS: [usize; 3] = [1, 4, 16];

/// The times of sequential runs, by the stage's index and the subject.
pub(crate) type Alone = BTreeMap<(usize, Subject), Vec<Taken>>;
/// The rounds of concurrent runs, by the stage's index, the subject and the number of threads.
pub(crate) type AtOnce = BTreeMap<(usize, Subject, usize), Vec<Round>>;

/// The times of one round of concurrent runs of a subject.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    /// The time from the start of the first run to the end of the last one.
    pub(crate) wall: Duration,
    /// The duration of each run.
    pub(crate) runs: Vec<Duration>,
}

/// Times each subject of each stage `runs` times.
pub(crate) fn alone(stages: &[Stage<'_>], runs: usize, shuffle: &mut Shuffle) -> Result<Alone> {
    let mut plan = Vec::new();
    for at in 0..stages.len() {
        // DEL and VERSION do not depend on the pod, so they are measured for the first stage only.
        let subjects = Subject::ALL.iter().filter(|s| at == 0 || !matches!(s, Subject::Del | Subject::Version));
        plan.extend(subjects.flat_map(|subject| std::iter::repeat_n((at, *subject), runs)));
    }
    shuffle.order(&mut plan);
    let mut taken = Alone::new();
    for block in plan.chunks(BLOCK) {
        let mut used = Vec::with_capacity(block.len());
        for &(at, subject) in block {
            let prepared = stages[at].prepare(subject)?;
            taken.entry((at, subject)).or_default().push(prepared.run()?);
            used.push(prepared);
        }
        drop(used);
        netns::settle()?;
    }
    Ok(taken)
}

/// Times about `runs` runs of each subject in [`Subject::PARALLEL`] for each number of threads in [`WIDTHS`], split
/// into [`ROUNDS`] rounds.
pub(crate) fn at_once(stages: &[Stage<'_>], runs: usize, shuffle: &mut Shuffle) -> Result<AtOnce> {
    let mut rounds = AtOnce::new();
    for _ in 0..ROUNDS {
        let mut plan = Vec::new();
        for at in 0..stages.len() {
            plan.extend(Subject::PARALLEL.iter().flat_map(|s| WIDTHS.map(|width| (at, *s, width))));
        }
        shuffle.order(&mut plan);
        for (at, subject, width) in plan {
            // With fewer runs for each thread, the start and the end of the round, when some threads are idle, would
            // determine the rate.
            let count = (runs / ROUNDS).max(EACH * width);
            rounds.entry((at, subject, width)).or_default().push(round(&stages[at], subject, width, count)?);
            netns::settle()?;
        }
    }
    Ok(rounds)
}

fn round(stage: &Stage<'_>, subject: Subject, width: usize, count: usize) -> Result<Round> {
    let dir = tempfile::tempdir_in("/run")?;
    let prepare = |number: usize| stage.prepare(subject)?.among_others(dir.path().join(number.to_string()));
    let prepared = (0..count).map(prepare).collect::<Result<Vec<_>>>()?;
    let (next, runs) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(count)));
    let work = || -> Result<()> {
        while let Some(run) = prepared.get(next.fetch_add(1, Ordering::Relaxed)) {
            let clock = Instant::now();
            run.run()?;
            runs.lock().unwrap_or_else(PoisonError::into_inner).push(clock.elapsed());
        }
        Ok(())
    };
    let clock = Instant::now();
    let ended = thread::scope(|scope| {
        let workers: Vec<_> = (0..width).map(|_| scope.spawn(work)).collect();
        workers.into_iter().map(|worker| worker.join().ok().context("a worker panicked")).collect::<Result<Vec<_>>>()
    })?;
    let wall = clock.elapsed();
    ended.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(Round { wall, runs: runs.into_inner().unwrap_or_else(PoisonError::into_inner) })
}
