//! What ADD, CHECK, STATUS and DEL do, each in a page.
#![expect(clippy::disallowed_methods, reason = "ADD logs how long it took")]

use std::time::{Duration, Instant};

use serde::de::IgnoredAny;

use super::verdict::{self, Early, SkipReason, Verdict};
use super::{Error, Log};
use crate::cni::{self, IptablesBinary, LogLevel, NetConf, Target, reply};
use crate::converge::{self, OnDifference};
use crate::netfilter::{self, Forced};
use crate::netns;
use crate::pod::lookup::{LookupBudget, lookup};
use crate::pod::{self, PodName};
use crate::redirect::Redirect;

/// How long STATUS waits for the agent and for the API server: runtimes ask every few seconds.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);

/// What a pod's facts, or their needlessness, lead to.
enum Decided {
    Skip(SkipReason),
    Redirect(PodName, Box<Redirect>),
}

/// Programs the pod's netns, or leaves the pod alone; either way the answer is prevResult.
pub(super) fn add(target: &Target, conf: &NetConf<'_>, log: &mut Log) -> Result<String, Error> {
    let begin = Instant::now();
    log.label("cmd", "ADD");
    // First, because nothing may be done to a pod whose runtime will not understand the answer.
    let answer = reply::add(conf)?;
    refuse_own_netns(target)?;
    let elapsed =
        |begin: Instant| ("elapsed_us", u64::try_from(begin.elapsed().as_micros()).unwrap_or(u64::MAX).into());
    match decide(target, conf, log)? {
        Decided::Skip(reason) => {
            log.line(LogLevel::Info, "pod left alone", &[("reason", reason.as_str().into()), elapsed(begin)]);
        }
        Decided::Redirect(pod, redirect) => {
            let options = options(conf, OnDifference::Mend);
            let outcome = netns::enter(&target.netns, |_| converge::apply(&redirect, options))?;
            let outcome = outcome.map_err(|error| Error::Converge { pod, error })?;
            for difference in outcome.change.mended() {
                log.line(
                    LogLevel::Warn,
                    "redirection differed and was mended",
                    &[("difference", difference.to_string().into())],
                );
            }
            let fields = [
                ("backend", outcome.backend.as_str().into()),
                ("change", outcome.change.as_str().into()),
                ("ipv6", outcome.ipv6.into()),
                elapsed(begin),
            ];
            log.line(LogLevel::Info, "pod redirected", &fields);
        }
    }
    Ok(answer)
}

/// Compares rules, address and routes with the intended ones.
pub(super) fn check(target: &Target, conf: &NetConf<'_>, log: &mut Log) -> Result<String, Error> {
    log.label("cmd", "CHECK");
    refuse_own_netns(target)?;
    let Decided::Redirect(pod, redirect) = decide(target, conf, log)? else { return Ok(String::new()) };
    let options = options(conf, OnDifference::Refuse);
    let found = netns::enter(&target.netns, |_| converge::check(&redirect, options))?;
    match found.map_err(|error| Error::Converge { pod: pod.clone(), error })?.as_slice() {
        [] => Ok(String::new()),
        found => Err(Error::Differs { pod, differences: converge::list(found) }),
    }
}

/// Could ADD be served? Asks what ADD would ask: someone who knows pods, and a kernel that takes rules.
pub(super) fn status(conf: &NetConf<'_>) -> Result<String, Error> {
    pod::available(&conf.settings.run_dir, STATUS_PATIENCE).map_err(Error::NobodyToAsk)?;
    let converge::Options { native_nftables, forced, .. } = options(conf, OnDifference::Refuse);
    let facts = netfilter::probe().map_err(Error::Kernel)?;
    netfilter::choose(native_nftables, forced, &facts).map_err(Error::NoBackend)?;
    Ok(String::new())
}

/// Nothing to undo: rules end with their netns. Whatever the configuration holds, a DEL that failed would leak the
/// pod's address, so that only what is no configuration at all is refused.
pub(super) fn del(stdin: &[u8]) -> Result<String, cni::Error> {
    serde_json::from_slice::<std::collections::BTreeMap<String, IgnoredAny>>(stdin).map_err(cni::Error::Json)?;
    Ok(String::new())
}

fn decide(target: &Target, conf: &NetConf<'_>, log: &mut Log) -> Result<Decided, Error> {
    let args = &target.pod;
    if let (Some(namespace), Some(name)) = (&args.namespace, &args.name) {
        log.label("pod", format!("{namespace}/{name}"));
    }
    let pod = match verdict::before_lookup(args, conf) {
        Early::Skip(reason) => return Ok(Decided::Skip(reason)),
        Early::Ask(pod) => pod,
    };
    let found = lookup(&conf.settings.run_dir, &pod, args.uid.as_deref(), LookupBudget::default());
    let found = found.map_err(|error| Error::Lookup(Box::new(error)))?;
    log.label("source", found.source.to_string());
    match verdict::of_pod(&found.facts).map_err(|error| Error::Annotation { pod: pod.clone(), error })? {
        Verdict::Skip(reason) => Ok(Decided::Skip(reason)),
        Verdict::Redirect { redirect, warnings } => {
            for warning in warnings {
                log.line(LogLevel::Warn, "value passed over", &[("warning", warning.to_string().into())]);
            }
            Ok(Decided::Redirect(pod, redirect))
        }
    }
}

/// A netns that cannot be looked at is not refused here: a pod that is left alone does not need it.
fn refuse_own_netns(target: &Target) -> Result<(), Error> {
    match netns::same_as_own(&target.netns) {
        Ok(true) if !target.netns_override => Err(Error::OwnNetns(target.netns.clone())),
        Ok(_) | Err(_) => Ok(()),
    }
}

fn options(conf: &NetConf<'_>, on_difference: OnDifference) -> converge::Options {
    let forced = conf.settings.iptables_binary.map(|binary| match binary {
        IptablesBinary::Legacy => Forced::Legacy,
        IptablesBinary::Nft => Forced::Nft,
    });
    converge::Options { native_nftables: conf.settings.native_nftables, forced, on_difference }
}
