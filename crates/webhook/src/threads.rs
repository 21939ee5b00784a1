//! The threads that run reviews, separate from the runtime's workers.
//!
//! `endpoint` runs each review on one of them.

use std::io;

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

/// A fixed number of threads, which are started on demand.
///
/// The pool of the server's own runtime is not used for reviews: it starts a thread whenever none is idle at that
/// moment, up to hundreds. The allocator keeps memory for each thread, and with so many threads, a thread's memory has
/// left the processor's cache by the time of its next review.
#[derive(Debug)]
pub(super) struct Threads {
    pool: Handle,
    runtime: Option<Runtime>,
}

impl Threads {
    /// Creates a pool of at most `count` threads.
    ///
    /// # Errors
    /// The kernel refuses the runtime's resources.
    pub(super) fn new(count: usize) -> io::Result<Self> {
        // This runtime runs no tasks: only its pool of threads for blocking work is used.
        let runtime = Builder::new_current_thread().max_blocking_threads(count).thread_name("review").build()?;
        Ok(Self { pool: runtime.handle().clone(), runtime: Some(runtime) })
    }

    /// Runs `work` on the next free thread.
    pub(super) fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        self.pool.spawn_blocking(work)
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Dropping a runtime within another runtime panics, because the drop would block until the threads end.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[tokio::test]
    async fn work_stays_on_the_threads_and_survives_a_shutdown() {
        const COUNT: usize = 2;
        let threads = Threads::new(COUNT).unwrap();
        let mut ids = HashSet::new();
        for _ in 0..100 {
            let both = [(); COUNT + 1].map(|()| threads.run(|| thread::current().id()));
            for id in both {
                ids.insert(id.await.unwrap());
            }
        }
        assert!((1..=COUNT).contains(&ids.len()), "{ids:?}");
        let last = threads.run(|| 7);
        let started = last.await.unwrap();
        drop(threads);
        assert_eq!(started, 7);
    }
}
