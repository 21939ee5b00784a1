//! What ADD, CHECK, STATUS and DEL do, each in a page.

use std::io::Read;

use super::verdict::{self, Early, SkipReason, Verdict};
use super::{Error, Log};
use crate::cni::{self, IptablesBinary, NetConf, Target, reply};
use crate::converge::{self, OnDifference, View};
use crate::diagnostics::Level;
use crate::netfilter::{self, Forced};
use crate::netns::Netns;
use crate::pod::PodName;
use crate::pod::lookup::{Lookup, LookupBudget};
use crate::redirect::Redirect;

/// What became of a pod.
enum Done<T> {
    Skipped(SkipReason),
    /// It is to be redirected; what was done or seen in its netns.
    Visited(PodName, T),
}

/// Programs the pod's netns, or leaves the pod alone; either way the answer is prevResult.
pub(super) fn add(target: &Target, conf: &NetConf<'_>, log: &mut Log) -> Result<String, Error> {
    log.label("cmd", "ADD");
    // First, because nothing may be done to a pod whose runtime will not understand the answer.
    let answer = reply::add(conf)?;
    let options = options(conf, OnDifference::Mend);
    let done = visit(target, conf, log, options, View::apply)?;
    match done {
        Done::Skipped(reason) => {
            let fields = [("verdict", "skipped".into()), ("reason", reason.as_str().into()), log.elapsed()];
            log.line(Level::Info, "pod left alone", &fields);
        }
        Done::Visited(_, outcome) => {
            for difference in outcome.change.mended() {
                let difference = ("difference", difference.to_string().into());
                log.line(Level::Warn, "redirection differed and was mended", &[difference]);
            }
            for warning in &outcome.warnings {
                log.line(Level::Warn, "not all traffic is redirected", &[("warning", warning.to_string().into())]);
            }
            let fields = [
                ("verdict", "redirected".into()),
                ("backend", outcome.backend.as_str().into()),
                ("change", outcome.change.as_str().into()),
                ("ipv6", outcome.ipv6.into()),
                log.elapsed(),
            ];
            log.line(Level::Info, "pod redirected", &fields);
        }
    }
    Ok(answer)
}

/// Compares rules, address and routes with the intended ones.
pub(super) fn check(target: &Target, conf: &NetConf<'_>, log: &mut Log) -> Result<String, Error> {
    log.label("cmd", "CHECK");
    let options = options(conf, OnDifference::Refuse);
    match visit(target, conf, log, options, View::check)? {
        Done::Skipped(_) => Ok(String::new()),
        Done::Visited(_, found) if found.is_empty() => Ok(String::new()),
        Done::Visited(pod, found) => Err(Error::Differs { pod, differences: converge::list(&found) }),
    }
}

/// Fails with code 50 where no backend can program this kernel, and with code 11 where the kernel is short of what an
/// answer takes.
///
/// A runtime that gets 50 reports its network as not ready, and the kubelet then starts only pods of the host's network:
/// not the agent, whose absence after a reboot (the run directory is a tmpfs) must therefore be no reason. ADD waits for it.
pub(super) fn status(conf: &NetConf<'_>) -> Result<String, Error> {
    let converge::Options { native_nftables, forced, .. } = options(conf, OnDifference::Refuse);
    let facts = netfilter::probe().map_err(Error::Kernel)?;
    netfilter::choose(native_nftables, forced, &facts).map_err(Error::NoBackend)?;
    Ok(String::new())
}

/// Nothing to undo: rules end with their netns. Whatever the configuration holds, and however large it is, a DEL that
/// failed would leak the pod's address, so that only what is no configuration at all is refused.
pub(super) fn del(stdin: impl Read) -> Result<String, cni::Error> {
    cni::skip(stdin)?;
    Ok(String::new())
}

/// Finds out whom the call concerns and, where the pod is to be redirected, does `act` with what its netns holds.
///
/// The agent looks the pod up while the main thread enters the netns, from where there is no way back but for the API
/// server, and reads what it holds.
fn visit<T>(
    target: &Target,
    conf: &NetConf<'_>,
    log: &mut Log,
    options: converge::Options,
    act: impl FnOnce(View, &Redirect) -> Result<T, converge::Error>,
) -> Result<Done<T>, Error> {
    let args = &target.pod;
    if let (Some(namespace), Some(name)) = (&args.namespace, &args.name) {
        log.label("pod", format!("{namespace}/{name}"));
    }
    let pod = match verdict::before_lookup(args, conf) {
        Early::Skip(reason) => return Ok(Done::Skipped(reason)),
        Early::Ask(pod) => pod,
    };
    let lookup = Lookup::start(&conf.settings.run_dir, &pod, args.uid.as_deref(), LookupBudget::default());
    let (own, netns) = (Netns::own()?, Netns::open(&target.netns)?);
    if !target.netns_override && netns.is(&own)? {
        return Err(Error::OwnNetns(target.netns.clone()));
    }
    netns.join()?;
    let mut view = View::take(options);
    let found = match lookup.response() {
        Ok(found) => found,
        Err(unanswered) => {
            own.join()?;
            let found = unanswered.fall_back_to_api().map_err(|error| Error::Lookup(Box::new(error)))?;
            netns.join()?;
            view = View::take(options);
            found
        }
    };
    log.label("source", found.source.to_string());
    let (redirect, warnings) = match verdict::of_pod(&found.facts) {
        Err(error) => return Err(Error::Annotation { pod, error }),
        Ok(Verdict::Skip(reason)) => return Ok(Done::Skipped(reason)),
        Ok(Verdict::Redirect { redirect, warnings }) => (redirect, warnings),
    };
    for warning in warnings {
        log.line(Level::Warn, "value passed over", &[("warning", warning.to_string().into())]);
    }
    match view.and_then(|view| act(view, &redirect)) {
        Ok(done) => Ok(Done::Visited(pod, done)),
        Err(error) => Err(Error::Converge { pod, error }),
    }
}

fn options(conf: &NetConf<'_>, on_difference: OnDifference) -> converge::Options {
    let forced = conf.settings.iptables_binary.map(|binary| match binary {
        IptablesBinary::Legacy => Forced::Legacy,
        IptablesBinary::Nft => Forced::Nft,
    });
    converge::Options { native_nftables: conf.settings.native_nftables, forced, on_difference }
}
