//! All measurements of one invocation, interleaved in a random order so that other load affects all subjects alike.

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

/// The number of runs after which the removal of dropped namespaces is awaited.
const BLOCK: usize = 32;
/// The number of rounds of a rate, each with all subjects in a new order.
const ROUNDS: usize = 3;
/// The minimum of runs of each worker.
const EACH: usize = 6;
/// The numbers of concurrent runs.
pub(crate) const WIDTHS: [usize; 3] = [1, 4, 16];

/// Sequential runs of each subject, by the index of its stage.
pub(crate) type Alone = BTreeMap<(usize, Subject), Vec<Taken>>;
/// Rounds of concurrent runs.
pub(crate) type AtOnce = BTreeMap<(usize, Subject, usize), Vec<Round>>;

/// Concurrent runs of one subject.
#[derive(Debug, Clone)]
pub(crate) struct Round {
    /// From the first start to the last end.
    pub(crate) wall: Duration,
    /// Each run.
    pub(crate) runs: Vec<Duration>,
}

/// Times each subject of each stage `runs` times.
pub(crate) fn alone(stages: &[Stage<'_>], runs: usize, shuffle: &mut Shuffle) -> Result<Alone> {
    let mut plan = Vec::new();
    for at in 0..stages.len() {
        // DEL and VERSION do not depend on the pod.
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

/// Times `runs` of each parallel subject, so many at once, split into rounds.
pub(crate) fn at_once(stages: &[Stage<'_>], runs: usize, shuffle: &mut Shuffle) -> Result<AtOnce> {
    let mut rounds = AtOnce::new();
    for _ in 0..ROUNDS {
        let mut plan = Vec::new();
        for at in 0..stages.len() {
            plan.extend(Subject::PARALLEL.iter().flat_map(|s| WIDTHS.map(|width| (at, *s, width))));
        }
        shuffle.order(&mut plan);
        for (at, subject, width) in plan {
            // With fewer runs of each worker the rate is that of a burst and of its end.
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
