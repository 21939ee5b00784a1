//! Serializes JSON patches up to a length limit. The limit is needed because escapes can make a patch several times as
//! long as the pod.
//!
//! `istio` and `dapr` serialize the patches of their injections with it.

use std::io::{self, Write};

use serde::Serialize;

use super::review::{AdmissionOutcome, OVER_BUDGET, Verdict};

/// The maximum length of a patch in a response, in bytes of Base64; longer patches are refused. For comparison, etcd
/// stores no object of more than 1.5 MiB.
const LIMIT: usize = 4 << 20;
/// The length limit of a patch as JSON, in bytes.
pub(super) const JSON_LIMIT: usize = LIMIT / 4 * 3;

/// Serializes a patch of at most [`JSON_LIMIT`] bytes, and stops at this limit.
///
/// # Errors
/// The patch is too long or cannot be written. The error is the refusal of the review.
pub(super) fn written(operations: &impl Serialize) -> Result<Verdict, Box<AdmissionOutcome>> {
    let mut text = Limited(Vec::new());
    match serde_json::to_writer(&mut text, operations) {
        Ok(()) => Ok(Verdict::Patch(text.0)),
        Err(error) if error.is_io() => Err(too_long()),
        Err(error) => {
            Err(Box::new(AdmissionOutcome::refused("error", format!("the patch cannot be written: {error}"))))
        }
    }
}

/// Returns the refusal of a patch that is too long, with the rule [`OVER_BUDGET`].
pub(super) fn too_long() -> Box<AdmissionOutcome> {
    let reason = format!("this pod cannot be injected: its patch takes more than {LIMIT} bytes of Base64");
    Box::new(AdmissionOutcome::refused(OVER_BUDGET, reason))
}

/// A buffer of at most [`JSON_LIMIT`] bytes.
struct Limited(Vec<u8>);

impl Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > JSON_LIMIT - self.0.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_limited_by_its_escaped_length() {
        // The string's two quotes and the list's two brackets are part of the patch, too.
        let patch = |text: &str| written(&[text]);
        let Ok(Verdict::Patch(longest)) = patch(&"x".repeat(JSON_LIMIT - 4)) else { panic!("is refused") };
        assert_eq!(longest.len(), JSON_LIMIT);
        for (character, bytes) in [("x", 1), ("\"", 2), ("\u{1}", 6)] {
            let refused = patch(&character.repeat((JSON_LIMIT - 4) / bytes + 1)).unwrap_err();
            assert_eq!((&refused.verdict, refused.rule), (&Verdict::Refuse, "budget"), "{character:?}");
            assert!(
                refused.reason.ends_with("its patch takes more than 4194304 bytes of Base64"),
                "{}",
                refused.reason
            );
        }
        assert!(patch(&"\u{1}".repeat((JSON_LIMIT - 4) / 6)).is_ok());
    }
}
