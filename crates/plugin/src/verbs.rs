//! The implementations of ADD, CHECK, STATUS and DEL.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use cni::{Command, NetConf, Target, reply};
use contract::diagnostics::{Documented as _, Level};
use lookup::{Found, Lookup, LookupBudget};
use podfacts::{PodFacts, PodName, SkipReason, Verdict};
use podnet::converge::{self, Checked, OnDifference, View};
use podnet::netns::Netns;
use redirect::{Redirect, istio, rules};

use super::early::{self, Early};
use super::{Error, Log};

/// The result of ADD or CHECK for a pod.
enum Done<T> {
    Skipped(SkipReason),
    /// The pod needs redirection; holds the result of the visit to its netns, and its sandboxed runtime, if it has one.
    Visited(PodName, T, Option<String>),
}

/// ADD: programs the pod's netns if it needs redirection; replies prevResult in either case.
pub(super) fn add(target: &Target, conf: &NetConf<'_>, log: &mut Log) -> Result<String, Error> {
    log.label("cmd", "ADD");
    // The reply is built before any change: if that fails, the pod must stay unchanged.
    let reply = reply::add(conf)?;
    let visit = Visit {
        options: options(conf, OnDifference::Reconcile),
        budget: LookupBudget::default(),
        annotations: None,
        on_sandbox: match conf.settings.refuse_sandboxes {
            true => OnSandbox::Refuse,
            false => OnSandbox::Report,
        },
    };
    let done = visit
        .run(target, conf, log, |view, redirect| Ok((view.apply(&redirect.desired())?, rules::warning(redirect))))?;
    match done {
        Done::Skipped(reason) => skipped(reason, log),
        Done::Visited(_, (outcome, of_settings), sandbox) => {
            for difference in outcome.change.reconciled() {
                let difference = ("difference", difference.to_string().into());
                log.line(Level::Warn, "redirection differed and was reconciled", &[difference]);
            }
            let warnings = of_settings.map(|warning| warning.to_string()).into_iter();
            for warning in warnings.chain(outcome.warning.map(|warning| warning.to_string())) {
                log.line(Level::Warn, "not all traffic is redirected", &[("warning", warning.into())]);
            }
            let mut fields = vec![
                ("verdict", "redirected".into()),
                ("backend", outcome.backend.as_str().into()),
                ("change", outcome.change.as_str().into()),
                ("ipv6", outcome.ipv6.into()),
                log.elapsed(),
            ];
            match sandbox {
                None => log.verdict(Level::Info, "pod redirected", &fields),
                // The agent creates an Event about the pod.
                Some(sandbox) => {
                    fields.extend([("reason", contract::SANDBOX.into()), (contract::SANDBOX, sandbox.into())]);
                    log.verdict(Level::Warn, "the pod runs in a sandbox that its rules do not reach", &fields);
                }
            }
        }
    }
    Ok(reply)
}

/// CHECK: fails only if redirection is missing.
///
/// CRI-O calls CHECK after each ADD and, when CRI-O restarts, for every sandbox, and replaces a pod whose CHECK fails. Rules
/// other than the intended ones are not a reason to fail: the pod's annotations may have changed, another version may have
/// added the rules, another program may have added its own. Nor is it a reason that the pod cannot be verified.
pub(super) fn check(target: &Target, conf: &NetConf<'_>, log: &mut Log) -> Result<String, Error> {
    log.label("cmd", "CHECK");
    let visit = Visit {
        options: options(conf, OnDifference::Refuse),
        budget: LookupBudget::CHECK,
        // The annotations of ADD, if the runtime passes any: the pod's annotations may have changed since.
        annotations: conf.pod_annotations.clone(),
        on_sandbox: OnSandbox::Ignore,
    };
    match visit.run(target, conf, log, |view, redirect| view.check(&redirect.desired())) {
        Ok(Done::Skipped(reason)) => skipped(reason, log),
        Ok(Done::Visited(pod, Checked { missing, .. }, _)) if !missing.is_empty() => {
            return Err(Error::NotRedirected { pod, missing: converge::list(&missing) });
        }
        Ok(Done::Visited(pod, checked, _)) => verified(&pod, &checked, log),
        Err(error) if error.prevents_verification() => unverified(&error, log),
        Err(error) => return Err(error),
    }
    Ok(String::new())
}

fn verified(pod: &PodName, checked: &Checked, log: &mut Log) {
    if checked.differences.is_empty() {
        return log.verdict(Level::Info, "pod verified", &[("verdict", "verified".into()), log.elapsed()]);
    }
    let message =
        format!("the redirection of pod {pod} differs from the intended one: {}", converge::list(&checked.differences));
    let fields = [("verdict", "verified".into()), ("reason", contract::DIFFERS.into()), log.elapsed()];
    log.verdict(Level::Warn, &message, &fields);
}

fn unverified(error: &Error, log: &mut Log) {
    let fields = [
        ("verdict", "unverified".into()),
        ("reason", error.reason().into()),
        ("error", error.without_consequence().into()),
        ("docs", error.page().into()),
        log.elapsed(),
    ];
    log.verdict(Level::Warn, "the pod's redirection could not be verified", &fields);
}

/// Handles CHECK, STATUS or GC with a setting that this version does not know: only ADD needs the settings.
pub(super) fn unknown_setting(command: Command, error: &Error, log: &mut Log) -> String {
    log.label("cmd", command.to_string());
    match command {
        Command::Check => unverified(error, log),
        _ => log.line(Level::Warn, "the chain entry has an invalid setting", &[("error", error.to_string().into())]),
    }
    String::new()
}

fn skipped(reason: SkipReason, log: &mut Log) {
    let fields = [("verdict", "skipped".into()), ("reason", reason.as_str().into()), log.elapsed()];
    log.verdict(Level::Info, "pod skipped", &fields);
}

/// STATUS: succeeds, and reports to the agent whether a backend is available.
///
/// If STATUS fails, a runtime reports its network as not ready, and the kubelet then starts only pods with the host's
/// network. The agent is not such a pod: an agent with a corrected setting, or one that installs what the node lacks,
/// could not start any more. ADD refuses the pods that need redirection, and the agent is not ready.
pub(super) fn status(conf: &NetConf<'_>, log: &mut Log) -> String {
    log.label("cmd", "STATUS");
    match converge::available(options(conf, OnDifference::Refuse)) {
        Ok(backend) => {
            let fields = [("verdict", "available".into()), ("backend", backend.as_str().into())];
            log.report(Level::Info, "pods can be redirected", &fields);
        }
        // A lack of descriptors or memory passes by itself.
        Err(error) if error.is_temporary() => {
            log.line(Level::Warn, "the backend could not be determined", &[("error", error.to_string().into())]);
        }
        Err(error) => {
            let lack = (contract::LACK, error.to_string().into());
            let fields = [("verdict", "failed".into()), ("reason", contract::NO_BACKEND.into()), lack];
            log.report(Level::Error, "pods cannot be redirected", &fields);
        }
    }
    String::new()
}

/// DEL: undoes nothing, because the rules are deleted with their netns. If DEL failed, the pod's address would leak, so
/// DEL accepts any configuration of any size, and refuses only input that is not a JSON object.
pub(super) fn del(stdin: impl Read) -> Result<String, cni::Error> {
    cni::skip(stdin)?;
    Ok(String::new())
}

/// How a verb visits a pod's netns.
struct Visit {
    options: converge::Options,
    budget: LookupBudget,
    /// Annotations that replace those from the lookup.
    annotations: Option<BTreeMap<String, String>>,
    on_sandbox: OnSandbox,
}

type ViewResult = Result<View, converge::Error>;

/// What a verb does about a pod with a sandboxed runtime, which the rules do not reach.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OnSandbox {
    Ignore,
    Report,
    /// Also refuses a pod if it is not known whether its runtime is sandboxed.
    Refuse,
}

impl Visit {
    /// Looks the pod up and, if it needs redirection, calls `act` with the view of its netns, which the thread has entered.
    fn run<T>(
        mut self,
        target: &Target,
        conf: &NetConf<'_>,
        log: &mut Log,
        act: impl FnOnce(View, &Redirect) -> Result<T, converge::Error>,
    ) -> Result<Done<T>, Error> {
        let args = &target.pod;
        if let (Some(namespace), Some(name)) = (&args.namespace, &args.name) {
            log.label("pod", format!("{namespace}/{name}"));
        }
        if let Some(uid) = &args.uid {
            log.label("uid", uid.as_str());
        }
        let pod = match early::before_lookup(args, conf) {
            Early::Skip(reason) => return Ok(Done::Skipped(reason)),
            Early::Lookup(pod) => pod,
        };
        let (mut found, view) = self.look_up(target, &conf.settings.run_dir, &pod)?;
        log.label("source", found.source.to_string());
        found.facts.annotations = self.annotations.take().unwrap_or(found.facts.annotations);
        let redirect = match podfacts::of_pod(&found.facts) {
            Err(error) => return Err(Error::Annotation { pod, error }),
            Ok(Verdict::Skip(reason)) => return Ok(Done::Skipped(reason)),
            Ok(Verdict::Redirect { redirect, warnings }) => {
                for warning in warnings {
                    log.line(Level::Warn, "invalid value ignored", &[("warning", warning.to_string().into())]);
                }
                redirect
            }
        };
        let sandbox = self.on_sandbox.judge(&pod, &found.facts)?;
        match view.and_then(|view| act(view, &redirect)) {
            Ok(done) => Ok(Done::Visited(pod, done, sandbox)),
            Err(error) => Err(Error::Converge { pod, error }),
        }
    }

    /// Looks the pod up; while the agent responds, enters and reads the pod's netns. The thread returns to the node's netns only
    /// to query the API server.
    fn look_up(&self, target: &Target, run_dir: &Path, pod: &PodName) -> Result<(Found, ViewResult), Error> {
        let lookup = Lookup::start(run_dir, pod, target.pod.uid.as_deref(), self.budget);
        let (own, netns) = (Netns::own()?, Netns::open(&target.netns)?);
        if !target.netns_override && netns.is_same(&own)? {
            return Err(Error::OwnNetns(target.netns.clone()));
        }
        netns.join()?;
        let view = View::take(self.options);
        match lookup.response() {
            Ok(found) => Ok((found, view)),
            Err(lookup) => {
                own.join()?;
                let found = lookup.fall_back_to_api().map_err(|error| Error::Lookup(Box::new(error)))?;
                netns.join()?;
                Ok((found, View::take(self.options)))
            }
        }
    }
}

impl OnSandbox {
    /// Returns the sandboxed runtime to report; fails if the pod is refused.
    fn judge(self, pod: &PodName, facts: &PodFacts) -> Result<Option<String>, Error> {
        match (self, facts.sandbox()) {
            (Self::Ignore, _) => Ok(None),
            (Self::Report, sandbox) => Ok(sandbox),
            (Self::Refuse, Some(sandbox)) => Err(Error::Sandbox { pod: pod.clone(), sandbox }),
            (Self::Refuse, None) => match facts.unknown_handler() {
                Some(reason) => Err(Error::UnknownSandbox { pod: pod.clone(), reason }),
                None => Ok(None),
            },
        }
    }
}

fn options(conf: &NetConf<'_>, on_difference: OnDifference) -> converge::Options {
    let forced = conf.settings.iptables_binary;
    converge::Options { native_nftables: conf.settings.native_nftables, forced, on_difference, owned: &istio::OWNED }
}
