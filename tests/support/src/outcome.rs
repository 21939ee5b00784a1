//! Combines the results of a trial and of its clean-up. A report states the trial's own error first.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context as _, Result, anyhow};

/// Runs the body of a trial; a panic becomes an error with the panic's message.
pub fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|cause| Err(anyhow!(message(&*cause))))
}

/// Returns the message of a panic.
fn message(cause: &(dyn Any + Send)) -> String {
    let text = cause.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| cause.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

/// Returns the result of a trial, or of the clean-up if only that failed. If both failed, the error states the trial's failure first.
pub fn after_cleanup(trial: Result<()>, cleanup: Result<()>) -> Result<()> {
    match (trial, cleanup) {
        (Ok(()), cleanup) => cleanup.context("the clean-up after the trial has failed"),
        (failed, Ok(())) => failed,
        (Err(own), Err(left)) => Err(anyhow!("{own:#}\nThe clean-up has failed, too: {left:#}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(result: Result<()>) -> String {
        format!("{:#}", result.unwrap_err())
    }

    #[test]
    fn the_trials_own_error_is_the_first() {
        let both = after_cleanup(Err(anyhow!("a pod is not redirected")), Err(anyhow!("link veth1 is left")));
        assert_eq!(text(both), "a pod is not redirected\nThe clean-up has failed, too: link veth1 is left");
        let one = after_cleanup(Ok(()), Err(anyhow!("link veth1 is left")));
        assert_eq!(text(one), "the clean-up after the trial has failed: link veth1 is left");
        assert!(after_cleanup(Ok(()), Ok(())).is_ok());
    }

    #[test]
    fn an_error_keeps_its_type_if_the_clean_up_succeeds() {
        let missing = after_cleanup(Err(std::fmt::Error.into()), Ok(()));
        assert!(missing.unwrap_err().is::<std::fmt::Error>());
    }

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        assert_eq!(text(caught(|| panic!("left {} right {}", 1, 2))), "left 1 right 2");
        assert_eq!(text(caught(|| panic!("constant"))), "constant");
        assert_eq!(text(caught(|| std::panic::panic_any(1))), "a panic without a message");
    }
}
