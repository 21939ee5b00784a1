//! The verbs of the CNI plugin: from a request to an answer.
//!
//! `bin/istio-cni` hands in environment and standard input, prints the answer and then writes the log. Nothing here
//! prints, ends the process or touches the plugin's own netns.

mod log;
mod verbs;
mod verdict;

pub use log::Log;
pub use verdict::{Early, SkipReason, Verdict, before_lookup, of_pod};

use std::io::Read;
use std::path::PathBuf;

use crate::cni::{self, Call, Code, NetConf, Version, reply};
use crate::contract;
use crate::diagnostics::{Level, causes};
use crate::{converge, netfilter, netns, pod, redirect};

/// What the process is to leave behind.
#[derive(Debug)]
pub struct Answer {
    /// For standard output, all of it.
    pub stdout: String,
    /// For standard error, besides the log.
    pub stderr: String,
    /// The exit code.
    pub success: bool,
    /// Written last, to the sinks in the run directory.
    pub log: Log,
    /// The run directory.
    pub run_dir: PathBuf,
}

/// Why a verb failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request itself.
    #[error(transparent)]
    Request(#[from] cni::Error),
    /// The pod cannot be looked up.
    #[error("{0}; the pod does not start, because it might need redirection")]
    Lookup(Box<pod::lookup::Error>),
    /// The pod asks for what cannot be.
    #[error("pod {pod} asks for what cannot be: {error}; correct the pod and create it again")]
    Annotation {
        /// Namespace and name.
        pod: pod::PodName,
        /// Which annotation.
        error: redirect::Error,
    },
    /// The netns cannot be visited.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    /// The runtime passed the plugin's own netns.
    #[error("CNI_NETNS {} is the plugin's own network namespace; the pod needs one of its own", .0.display())]
    OwnNetns(PathBuf),
    /// The rules cannot be set.
    #[error("redirection of pod {pod} cannot be set up: {error}")]
    Converge {
        /// Namespace and name.
        pod: pod::PodName,
        /// Why.
        error: converge::Error,
    },
    /// CHECK found something else than intended.
    #[error("pod {pod} is not redirected as intended: {differences}; delete the pod so that it is set up anew")]
    Differs {
        /// Namespace and name.
        pod: pod::PodName,
        /// What differs, a sentence each.
        differences: String,
    },
    /// STATUS: no way to set rules.
    #[error("ADD cannot be served: {0}")]
    NoBackend(netfilter::Unavailable),
    /// STATUS: the kernel does not even answer.
    #[error("ADD cannot be served: {0}")]
    Kernel(netfilter::Error),
}

impl Error {
    fn code(&self) -> Code {
        match self {
            Self::Request(error) => error.code(),
            Self::Netns(netns::Error::Gone { .. }) => Code::UnknownContainer,
            Self::OwnNetns(_) => Code::InvalidNetns,
            Self::Kernel(error) if error.is_temporary() => Code::TryAgainLater,
            Self::NoBackend(_) | Self::Kernel(_) => Code::Unavailable,
            Self::Lookup(error) if error.is_temporary() => Code::TryAgainLater,
            Self::Converge { error, .. } if error.is_temporary() => Code::TryAgainLater,
            Self::Lookup(_)
            | Self::Annotation { .. }
            | Self::Netns(_)
            | Self::Converge { .. }
            | Self::Differs { .. } => Code::Plugin,
        }
    }

    /// Log field and metric label.
    fn reason(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Lookup(_) => "lookup",
            Self::Annotation { .. } => "annotation",
            Self::Netns(_) => "netns",
            Self::OwnNetns(_) => "own_netns",
            Self::Converge { .. } => "converge",
            Self::Differs { .. } => "differs",
            Self::NoBackend(_) => "no_backend",
            Self::Kernel(_) => "kernel",
        }
    }

    fn failure(&self) -> reply::Failure {
        match self {
            Self::Request(error) => error.into(),
            error => reply::Failure { code: error.code(), msg: error.to_string(), details: causes(error) },
        }
    }
}

/// Answers one invocation. `env` tells a variable, `stdin` is read at most once.
pub fn run(env: &impl Fn(&str) -> Option<String>, stdin: impl Read) -> Answer {
    let mut log = Log::new(Level::Info);
    let mut run_dir = PathBuf::from(contract::RUN_DIR);
    let mut version = None;
    let said = match Call::parse(env) {
        Err(cni::Error::NoCommand) => {
            let stderr = reply::about(env!("CARGO_PKG_VERSION"));
            return Answer { stdout: String::new(), stderr, success: true, log, run_dir };
        }
        Err(error) => Err(error.into()),
        Ok(call) => answer(&call, stdin, &mut log, &mut run_dir, &mut version),
    };
    let (stdout, success) = match said {
        Ok(stdout) => (stdout, true),
        Err(error) => {
            let failure = error.failure();
            let fields = [
                ("verdict", "failed".into()),
                ("reason", error.reason().into()),
                ("code", failure.code.number().into()),
                log.elapsed(),
            ];
            log.line(Level::Error, &failure.msg, &fields);
            (failure.to_json(version), false)
        }
    };
    Answer { stdout, stderr: String::new(), success, log, run_dir }
}

/// The answer to a panic, whose words a runtime shows to the operator.
pub fn panicked(message: &str) -> String {
    let msg = format!("istio-cni panicked, which is a fault in it: please report {message:?}");
    reply::Failure { code: Code::Plugin, msg, details: String::new() }.to_json(None)
}

fn answer(
    call: &Call,
    stdin: impl Read,
    log: &mut Log,
    run_dir: &mut PathBuf,
    version: &mut Option<Version>,
) -> Result<String, Error> {
    if *call == Call::Version {
        return Ok(reply::versions());
    }
    if let Call::Del { .. } = call {
        return Ok(verbs::del(stdin)?);
    }
    let stdin = cni::read(stdin)?;
    let conf = NetConf::parse(&stdin)?;
    *version = Some(conf.version);
    run_dir.clone_from(&conf.settings.run_dir);
    log.threshold(conf.settings.log_level);
    call.command().allowed_by(conf.version)?;
    match call {
        Call::Add(target) => verbs::add(target, &conf, log),
        Call::Check(target) => verbs::check(target, &conf, log),
        Call::Status => verbs::status(&conf),
        Call::Gc | Call::Version | Call::Del { .. } => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_answer_that_a_runtime_can_read() {
        let answer: serde_json::Value = serde_json::from_str(&panicked("at \"x\"\nline 2")).unwrap();
        assert_eq!(answer["code"], 999);
        assert!(answer["msg"].as_str().unwrap().contains("panicked"), "{answer}");
    }

    #[test]
    fn a_status_that_the_kernel_may_answer_next_time_is_not_an_unavailable_network() {
        use nix::errno::Errno;
        let kernel = |cause| {
            let protocol = "netfilter";
            Error::Kernel(crate::netlink::Error::Open { protocol, cause }.into()).failure().code.number()
        };
        assert_eq!((kernel(Errno::EMFILE), kernel(Errno::ENOMEM), kernel(Errno::EPERM)), (11, 11, 50));
    }

    #[test]
    fn an_error_says_code_message_and_causes_once() {
        let gone = Error::Netns(netns::Error::Gone { path: "/x".into() });
        let failure = gone.failure();
        assert_eq!((failure.code.number(), failure.details.as_str()), (3, ""));
        assert_eq!(failure.msg, "netns /x: nothing is there (any more)");
        let source = nix::errno::Errno::EPERM;
        let refused = Error::Netns(netns::Error::Enter { path: "/x".into(), source }).failure();
        assert_eq!((refused.code.number(), refused.msg.as_str()), (999, "netns /x: cannot be entered"));
        assert!(refused.details.contains("EPERM"), "{}", refused.details);
    }
}
