//! Retries an attempt that failed because another process changed the rules of the same netns.

use netfilter::{self, Retry};

use super::Error;

/// Maximum number of attempts if other writers change the rules. The error of the last attempt is returned.
const ATTEMPTS: usize = 5;

/// Calls `attempt` again if another writer changed the ruleset between our read and our write. A restore may also fail
/// because that writer deleted a rule that the restore was to delete. Other errors are returned.
pub(super) fn retry_on_contention<T>(mut attempt: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..ATTEMPTS {
        match attempt() {
            Err(Error::Netfilter(
                netfilter::Error::Contended | netfilter::Error::Program { retry: Retry::AfterReading, .. },
            )) => {}
            done => return done,
        }
    }
    attempt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of attempts that are made if each attempt ends with `error`.
    fn attempts(error: impl Fn() -> netfilter::Error) -> usize {
        let mut count = 0;
        let last = retry_on_contention(|| -> Result<(), Error> {
            count += 1;
            Err(error().into())
        });
        assert_eq!(last.unwrap_err().to_string(), error().to_string());
        count
    }

    #[test]
    fn only_interference_of_another_writer_is_retried() {
        let program = |retry| move || netfilter::Error::Program { program: "x", what: String::new(), retry };
        assert_eq!(attempts(|| netfilter::Error::Contended), ATTEMPTS);
        assert_eq!(attempts(program(Retry::AfterReading)), ATTEMPTS);
        // A retry would be useless: a kernel without legacy tables rejects every restore, after a search for modules.
        assert_eq!(attempts(program(Retry::Never)), 1);
        assert_eq!(attempts(program(Retry::Later)), 1);
    }

    #[test]
    fn a_success_ends_the_attempts() {
        let mut left = 2;
        let done = retry_on_contention(|| {
            left -= 1;
            if left > 0 { Err(netfilter::Error::Contended.into()) } else { Ok(left) }
        });
        assert_eq!(done.unwrap(), 0);
    }
}
