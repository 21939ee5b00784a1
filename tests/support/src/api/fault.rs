//! Injects faults that a healthy server does not produce on demand.

use std::fmt;

use super::Seen;
use super::response::Failure;

/// A fault to inject: which requests fail, how they fail, and how often.
#[derive(Debug, Clone)]
pub struct Fault {
    method: &'static str,
    part: String,
    left: usize,
    injected: Injected,
}

/// How a request fails.
#[derive(Debug, Clone)]
pub(super) enum Injected {
    Response(Failure),
    Silence,
    Cut,
    Held,
}

/// An error that makes the server close the connection without a response.
#[derive(Debug)]
pub(super) struct Cut;

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cut by the test")
    }
}

impl std::error::Error for Cut {}

impl Fault {
    /// Matches requests with this method whose path and query contain `part`. By default each fails with status 500.
    pub fn on(method: &'static str, part: &str) -> Self {
        let failure = Failure::status(500, "InternalError", "the test's fault");
        Self { method, part: part.to_owned(), left: usize::MAX, injected: Injected::Response(failure) }
    }

    /// Limits how many requests fail.
    pub fn times(self, left: usize) -> Self {
        Self { left, ..self }
    }

    /// Responds with a `Status` of this code.
    pub fn status(self, code: u16) -> Self {
        let (reason, message) = match code {
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "the request is forbidden: the account has no role for it"),
            404 => ("NotFound", "not found"),
            409 => ("Conflict", "the object has been modified"),
            410 => ("Expired", "too old resource version"),
            429 => ("TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget."),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            _ => ("InternalError", "the test's fault"),
        };
        Self { injected: Injected::Response(Failure::status(code, reason, message)), ..self }
    }

    /// Responds with 429 and a retry delay.
    pub fn too_many(self, retry_after: u32) -> Self {
        let mut fault = self.status(429);
        if let Injected::Response(failure) = &mut fault.injected {
            failure.retry_after = Some(retry_after);
        }
        fault
    }

    /// Never responds.
    pub fn silence(self) -> Self {
        Self { injected: Injected::Silence, ..self }
    }

    /// Closes the connection instead of responding.
    pub fn cut(self) -> Self {
        Self { injected: Injected::Cut, ..self }
    }

    /// Delays the normal response until [`super::Api::release`].
    pub fn held(self) -> Self {
        Self { injected: Injected::Held, ..self }
    }

    fn matches(&self, seen: &Seen) -> bool {
        self.left > 0 && seen.method == self.method && format!("{}?{}", seen.path, seen.query).contains(&self.part)
    }
}

/// The active faults, in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Faults(Vec<Fault>);

impl Faults {
    pub(super) fn push(&mut self, fault: Fault) {
        self.0.push(fault);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn find(&mut self, seen: &Seen) -> Option<Injected> {
        let fault = self.0.iter_mut().find(|fault| fault.matches(seen))?;
        fault.left -= 1;
        Some(fault.injected.clone())
    }
}
