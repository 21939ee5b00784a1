//! The CNI plugin's verbs: builds the reply to a request.
//!
//! `main.rs` passes environment and standard input in, prints the reply and then writes the log. This module neither
//! prints nor ends the process.

mod early;
mod log;
mod stub;
mod verbs;

pub use early::{Early, before_lookup};
pub use log::Log;
pub use stub::Stub;

use std::ffi::OsString;
use std::io::Read;
use std::path::PathBuf;

use cni::{Call, Code, NetConf, Version, reply};
use contract::diagnostics::{Documented, Level, causes, chain};
use podnet::{converge, netns};

/// The outputs of the process.
#[derive(Debug)]
pub struct Output {
    /// The complete standard output.
    pub stdout: String,
    /// Standard error, in addition to the log.
    pub stderr: String,
    /// Whether the exit code is 0.
    pub success: bool,
    /// Written last, to standard error and to the sinks in the run directory.
    pub log: Log,
    pub run_dir: PathBuf,
}

/// A verb failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] cni::Error),
    #[error("{0}; the pod does not start, because it might need redirection")]
    Lookup(Box<lookup::Error>),
    /// An annotation of the pod is invalid.
    #[error("pod {pod} has an invalid annotation: {error}; correct the pod and create it again")]
    Annotation { pod: podfacts::PodName, error: redirect::Error },
    /// The pod has a sandboxed runtime, which the rules do not reach, and the chain entry refuses such pods.
    #[error(
        "pod {pod} runs in a sandbox ({sandbox}) that the rules of the node's kernel do not reach, and this node refuses such pods; \
         use another runtime class, or create the pod without a sidecar"
    )]
    Sandbox { pod: podfacts::PodName, sandbox: String },
    /// It is not known whether the pod has a sandboxed runtime, and the chain entry refuses pods that have one.
    #[error(
        "it is not known whether the rules of the node's kernel reach pod {pod}, and this node refuses pods that they do not reach: {reason}"
    )]
    UnknownSandbox { pod: podfacts::PodName, reason: String },
    /// The netns cannot be entered or read.
    #[error(transparent)]
    Netns(#[from] netns::Error),
    #[error("CNI_NETNS {} is the plugin's own network namespace; the pod needs one of its own", .0.display())]
    OwnNetns(PathBuf),
    #[error("redirection of pod {pod} cannot be set up: {}", chain(error))]
    Converge { pod: podfacts::PodName, error: converge::Error },
    /// CHECK found that redirection is missing.
    #[error("pod {pod} is not redirected: {missing}; delete the pod so that it is recreated")]
    NotRedirected {
        pod: podfacts::PodName,
        /// What is missing, as sentences.
        missing: String,
    },
}

impl Documented for Error {
    const ENTRY: &'static str = "plugin-error";

    fn transparent(&self) -> Option<String> {
        match self {
            Self::Request(error) => Some(error.page()),
            Self::Netns(error) => Some(error.page()),
            _ => None,
        }
    }
}

impl Error {
    fn code(&self) -> Code {
        match self {
            Self::Request(error) => error.code(),
            Self::Netns(netns::Error::Gone { .. }) => Code::UnknownContainer,
            Self::OwnNetns(_) => Code::InvalidNetns,
            Self::Lookup(error) if error.is_temporary() => Code::TryAgainLater,
            Self::Converge { error, .. } if error.is_temporary() => Code::TryAgainLater,
            Self::UnknownSandbox { .. } => Code::TryAgainLater,
            Self::Lookup(_)
            | Self::Annotation { .. }
            | Self::Sandbox { .. }
            | Self::Netns(_)
            | Self::Converge { .. }
            | Self::NotRedirected { .. } => Code::Plugin,
        }
    }

    /// Returns the log field and metric label of the error.
    fn reason(&self) -> &'static str {
        match self {
            Self::Request(_) => "request",
            Self::Lookup(_) => "lookup",
            Self::Annotation { .. } => "annotation",
            Self::Sandbox { .. } => contract::SANDBOX,
            Self::UnknownSandbox { .. } => "unknown_sandbox",
            Self::Netns(_) => "netns",
            Self::OwnNetns(_) => "own_netns",
            Self::Converge { .. } if self.lack().is_some() => contract::NO_BACKEND,
            Self::Converge { .. } => "converge",
            Self::NotRedirected { .. } => contract::NOT_REDIRECTED,
        }
    }

    /// Returns what is lacking if no backend is usable.
    fn lack(&self) -> Option<netfilter::Unavailable> {
        match self {
            Self::Converge { error: converge::Error::NoBackend(lack), .. } => Some(*lack),
            _ => None,
        }
    }

    /// Whether the error leaves open whether an existing pod is redirected; false for invalid requests and a netns that is gone.
    fn prevents_verification(&self) -> bool {
        match self {
            Self::Request(_) | Self::OwnNetns(_) | Self::Netns(netns::Error::Gone { .. }) => false,
            Self::NotRedirected { .. } | Self::Sandbox { .. } | Self::UnknownSandbox { .. } => false,
            Self::Lookup(_) | Self::Annotation { .. } | Self::Netns(_) | Self::Converge { .. } => true,
        }
    }

    /// Formats the error without its consequence for ADD.
    fn without_consequence(&self) -> String {
        match self {
            Self::Lookup(error) => error.to_string(),
            Self::Annotation { pod, error } => format!("pod {pod} has an invalid annotation: {error}"),
            Self::Converge { pod, error } => format!("rules of pod {pod} cannot be compared: {}", chain(error)),
            error => chain(error),
        }
    }

    fn failure(&self) -> reply::Failure {
        match self {
            Self::Request(error) => error.into(),
            error => reply::Failure { code: error.code(), msg: error.to_string(), details: causes(error) },
        }
    }
}

/// Handles one invocation. `env` returns a variable; `stdin` is read at most once. A `stub` replies in place of a removed plugin.
pub fn run(env: &impl Fn(&str) -> Option<OsString>, stdin: impl Read, stub: Option<&Stub>) -> Output {
    let mut log = Log::new(Level::Info);
    let mut run_dir = PathBuf::from(contract::RUN_DIR);
    let mut version = None;
    let result = match Call::parse(env) {
        Err(cni::Error::NoCommand) => {
            let stderr = reply::about(env!("CARGO_PKG_VERSION"));
            return Output { stdout: String::new(), stderr, success: true, log, run_dir };
        }
        Err(error) => Err(error.into()),
        Ok(call) => reply_to(&call, stdin, stub, &mut log, &mut run_dir, &mut version),
    };
    let (stdout, success) = match result {
        Ok(stdout) => (stdout, true),
        Err(error) => {
            let failure = error.failure();
            let lack = error.lack().map(|lack| (contract::LACK, lack.to_string().into()));
            let fields = [
                ("verdict", "failed".into()),
                ("reason", error.reason().into()),
                ("code", failure.code.number().into()),
                ("docs", error.page().into()),
                log.elapsed(),
            ];
            let fields: Vec<_> = fields.into_iter().chain(lack).collect();
            log.verdict(Level::Error, &failure.msg, &fields);
            (failure.to_json(version), false)
        }
    };
    Output { stdout, stderr: String::new(), success, log, run_dir }
}

/// Builds the reply to a panic, with its message, because runtimes show it to the operator.
pub fn panicked(message: &str) -> String {
    let msg = format!("istio-cni panicked, which is a fault in it: please report {message:?}");
    reply::Failure { code: Code::Plugin, msg, details: String::new() }.to_json(None)
}

fn reply_to(
    call: &Call,
    stdin: impl Read,
    stub: Option<&Stub>,
    log: &mut Log,
    run_dir: &mut PathBuf,
    version: &mut Option<Version>,
) -> Result<String, Error> {
    if *call == Call::Version {
        return Ok(reply::versions());
    }
    match (call, stub) {
        (Call::Del { attachment, .. }, Some(stub)) => return Ok(stub.del(&attachment.container_id, stdin)),
        (Call::Del { .. }, None) => return Ok(verbs::del(stdin)?),
        _ => {}
    }
    let stdin = cni::read(stdin)?;
    if let Some(removed) = stub.and_then(|_| stub::removed(&stdin)) {
        run_dir.clone_from(&removed.run_dir);
        log.line(Level::Warn, "istio-cni was removed from this node, and the runtime still calls it", &[]);
        return Ok(stub::reply(call, &removed));
    }
    let conf = match NetConf::parse(&stdin) {
        // A chain entry from another version of the installer must not fail CHECK of running pods, nor STATUS of the network.
        Err(error) if error.is_of_setting() && !matches!(call, Call::Add(_)) => {
            return Ok(verbs::unknown_setting(call.command(), &error.into(), log));
        }
        conf => conf?,
    };
    *version = Some(conf.version);
    run_dir.clone_from(&conf.settings.run_dir);
    log.threshold(conf.settings.log_level);
    call.command().allowed_by(conf.version)?;
    match call {
        Call::Add(target) => verbs::add(target, &conf, log),
        Call::Check(target) => verbs::check(target, &conf, log),
        Call::Status => Ok(verbs::status(&conf, log)),
        Call::Gc | Call::Version | Call::Del { .. } => Ok(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_reply_that_a_runtime_can_read() {
        let reply: serde_json::Value = serde_json::from_str(&panicked("at \"x\"\nline 2")).unwrap();
        assert_eq!(reply["code"], 999);
        assert!(reply["msg"].as_str().unwrap().contains("panicked"), "{reply}");
    }

    #[test]
    fn an_error_has_code_message_and_causes_once() {
        let gone = Error::Netns(netns::Error::Gone { path: "/x".into() });
        let failure = gone.failure();
        assert_eq!((failure.code.number(), failure.details.as_str()), (3, ""));
        assert_eq!(failure.msg, "netns /x: does not exist (any more)");
        let source = nix::errno::Errno::EPERM;
        let refused = Error::Netns(netns::Error::Enter { path: "/x".into(), source }).failure();
        assert_eq!((refused.code.number(), refused.msg.as_str()), (999, "netns /x: cannot be entered"));
        assert!(refused.details.contains("EPERM"), "{}", refused.details);
    }

    #[test]
    fn a_failure_to_converge_names_each_cause_once() {
        let fails = |error| {
            let pod = podfacts::PodName { namespace: "shop".into(), name: "web-0".into() };
            let failure = Error::Converge { pod, error }.failure();
            (failure.msg, failure.details)
        };
        let refused = || netlink::Error::Open { protocol: "rtnetlink", cause: nix::errno::Errno::EPERM };
        let cause = "cannot open a rtnetlink socket: EPERM: Operation not permitted";
        let (msg, details) = fails(netns::Error::from(refused()).into());
        assert_eq!(msg, format!("redirection of pod shop/web-0 cannot be set up: {cause}"));
        assert_eq!(details, "");
        let (msg, details) = fails(netns::Error::Ipv6Disabled(refused()).into());
        assert!(msg.contains("IPv6 is disabled") && msg.ends_with(cause), "{msg}");
        assert_eq!(details, "");
    }
}
