//! The findings of a validation, and how they are printed.

use std::fmt;
use std::net::SocketAddr;

use nix::errno::Errno;
use ruleset::Family;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// One entry for each probed family.
    pub families: Vec<FamilyReport>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FamilyReport {
    pub family: Family,
    /// The number of attempted connections.
    pub attempts: u32,
    /// The listeners that could not be opened. One open listener is enough for a probe.
    pub unopened: Vec<(SocketAddr, Errno)>,
    pub outcome: Outcome,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// A connection arrived at our own listener.
    Proven {
        /// The original destination according to the kernel.
        original: SocketAddr,
        listener: SocketAddr,
    },
    /// Why the last attempt failed.
    Failed(Reason),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// Other processes use both ports, or the family is unavailable.
    NoListener,
    /// The connection was not redirected.
    Refused { target: SocketAddr },
    /// The connection was dropped.
    TimedOut { target: SocketAddr },
    /// Another process accepted the connection.
    WrongListener { target: SocketAddr },
    /// The connection arrived, but according to the kernel it was not redirected from `target`.
    WrongDestination {
        target: SocketAddr,
        /// The original destination according to the kernel.
        original: Option<SocketAddr>,
    },
    /// No connection was made, for another reason, such as a missing route.
    Unreachable { target: SocketAddr, source: Errno },
    /// The probe panicked.
    Panicked,
}

impl Report {
    /// Whether redirection is proven in all probed families, and at least one was probed.
    pub fn is_proven(&self) -> bool {
        let proven = |report: &FamilyReport| matches!(report.outcome, Outcome::Proven { .. });
        !self.families.is_empty() && self.families.iter().all(proven)
    }
}

impl FamilyReport {
    pub(super) fn panicked(family: Family) -> Self {
        Self { family, attempts: 0, unopened: Vec::new(), outcome: Outcome::Failed(Reason::Panicked) }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_proven() {
            writeln!(f, "Redirection works.")?;
        } else {
            writeln!(f, "iptables validation failed: this pod's traffic does not reach its proxy.")?;
        }
        for family in &self.families {
            writeln!(f, "  {family}")?;
        }
        if self.is_proven() {
            return Ok(());
        }
        f.write_str(ADVICE)
    }
}

/// The advice after a failed validation. It contains the strings that people search logs for, such as the settings that
/// make the repair controller replace such a pod.
const ADVICE: &str = "\
With Istio CNI this happens to a pod that started before its node had the plugin.
With cni.repair.deletePods=true (or cni.repair.repairPods=true) the repair controller takes care of this pod.
Without it, delete the pod, so that it starts anew on a node where istio-cni runs.
";

impl fmt::Display for FamilyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.family {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        };
        write!(f, "{family}: {}; attempts: {}", self.outcome, self.attempts)?;
        for (address, errno) in &self.unopened {
            write!(f, "; could not listen on {address}: {}", errno.desc())?;
        }
        Ok(())
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proven { original, listener } => write!(f, "a connection to {original} arrived at {listener}"),
            Self::Failed(reason) => reason.fmt(f),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoListener => f.write_str("no listener could be opened"),
            Self::Refused { target } => write!(
                f,
                "a connection to {target} was refused: there are no rules, or this process does not run as the user \
                 that they name as the proxy's"
            ),
            Self::TimedOut { target } => write!(f, "a connection to {target} timed out: it was dropped on its way"),
            Self::WrongListener { target } => write!(
                f,
                "a connection to {target} was accepted by another program: does one hold the proxy's ports or the probe port?"
            ),
            Self::WrongDestination { target, original: None } => {
                write!(f, "a connection to {target} arrived, but the kernel has no record of a redirection")
            }
            Self::WrongDestination { target, original: Some(original) } => {
                write!(f, "a connection to {target} arrived as one to {original}")
            }
            Self::Unreachable { target, source } => write!(f, "no connection to {target}: {}", source.desc()),
            Self::Panicked => f.write_str("the validator itself failed; its message is above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(outcomes: &[Outcome]) -> Report {
        let families = outcomes
            .iter()
            .map(|outcome| FamilyReport { outcome: outcome.clone(), ..FamilyReport::panicked(Family::V4) });
        Report { families: families.collect() }
    }

    fn proven() -> Outcome {
        Outcome::Proven { original: "127.0.0.6:15002".parse().unwrap(), listener: "127.0.0.1:15006".parse().unwrap() }
    }

    #[test]
    fn all_families_must_be_proven_and_at_least_one() {
        let refused = Outcome::Failed(Reason::Refused { target: "127.0.0.6:15002".parse().unwrap() });
        assert!(report(&[proven()]).is_proven());
        assert!(report(&[proven(), proven()]).is_proven());
        assert!(!report(&[proven(), refused]).is_proven());
        assert!(!report(&[]).is_proven());
    }

    #[test]
    fn a_failure_reports_findings_and_advice() {
        let target = "[::6]:15002".parse().unwrap();
        let mut report = report(&[Outcome::Failed(Reason::Refused { target })]);
        report.families[0].unopened = vec![("[::1]:15001".parse().unwrap(), Errno::EADDRINUSE)];
        let text = report.to_string();
        for wanted in ["[::6]:15002 was refused", "[::1]:15001: Address already in use", "cni.repair.deletePods=true"] {
            assert!(text.contains(wanted), "{wanted} is not in\n{text}");
        }
    }

    #[test]
    fn a_success_has_no_advice() {
        assert!(!report(&[proven()]).to_string().contains("repair"));
    }
}
