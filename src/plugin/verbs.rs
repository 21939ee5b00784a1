//! What ADD, CHECK, STATUS and DEL do, each in a page.

use std::io::Read;

use super::verdict::{self, Early, SkipReason, Verdict};
use super::{Error, Log};
use crate::cni::{self, IptablesBinary, NetConf, Target, reply};
use crate::converge::{self, OnDifference};
use crate::netfilter::{self, Forced};
use crate::netns::{Identity, Netns};
use crate::pod::PodName;
use crate::pod::lookup::{Found, LookupBudget, Question};
use crate::redirect::{self, Redirect};
use crate::words::Level;

/// What became of a pod.
enum Done<T> {
    Skipped(SkipReason),
    /// It is to be redirected; what was done or seen in its netns.
    Visited(PodName, T),
}

/// The same, as it comes out of the netns: with what is still to be logged.
enum Followed<T> {
    Skipped(SkipReason),
    Visited(Vec<redirect::Error>, Result<T, converge::Error>),
}

/// Programs the pod's netns, or leaves the pod alone; either way the answer is prevResult.
pub(super) fn add(target: &Target, conf: &NetConf<'_>, log: &mut Log) -> Result<String, Error> {
    log.label("cmd", "ADD");
    // First, because nothing may be done to a pod whose runtime will not understand the answer.
    let answer = reply::add(conf)?;
    let options = options(conf, OnDifference::Mend);
    let done = visit(target, conf, log, |redirect| converge::apply(redirect, options))?;
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
    match visit(target, conf, log, |redirect| converge::check(redirect, options))? {
        Done::Skipped(_) => Ok(String::new()),
        Done::Visited(_, found) if found.is_empty() => Ok(String::new()),
        Done::Visited(pod, found) => Err(Error::Differs { pod, differences: converge::list(&found) }),
    }
}

/// Fails with code 50 where no backend can program this kernel, and for no other reason.
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

/// Finds out whom the call concerns and, where the pod is to be redirected, does `act` in its netns.
///
/// The agent answers while the netns is being entered: the two take about as long. Where it does not, the API server is
/// asked from the node's netns, and the pod's is entered a second time.
fn visit<T: Send>(
    target: &Target,
    conf: &NetConf<'_>,
    log: &mut Log,
    act: impl Fn(&Redirect) -> Result<T, converge::Error> + Sync,
) -> Result<Done<T>, Error> {
    let args = &target.pod;
    if let (Some(namespace), Some(name)) = (&args.namespace, &args.name) {
        log.label("pod", format!("{namespace}/{name}"));
    }
    let pod = match verdict::before_lookup(args, conf) {
        Early::Skip(reason) => return Ok(Done::Skipped(reason)),
        Early::Ask(pod) => pod,
    };
    let follow = |found: &Found| -> Result<Followed<T>, redirect::Error> {
        Ok(match verdict::of_pod(&found.facts)? {
            Verdict::Skip(reason) => Followed::Skipped(reason),
            Verdict::Redirect { redirect, warnings } => Followed::Visited(warnings, act(&redirect)),
        })
    };
    let question = Question::put(&conf.settings.run_dir, &pod, args.uid.as_deref(), LookupBudget::default());
    let (netns, own) = (Netns::open(&target.netns)?, Identity::here()?);
    let early = netns.enter(|| {
        refuse_own(own, target)?;
        Ok::<_, Error>(question.answer().map(|found| (found.source, follow(&found))))
    })??;
    let (source, followed) = match early {
        Ok(followed) => followed,
        Err(unanswered) => {
            let found = unanswered.insist().map_err(|error| Error::Lookup(Box::new(error)))?;
            (found.source, netns.enter(|| follow(&found))?)
        }
    };
    log.label("source", source.to_string());
    match followed {
        Err(error) => Err(Error::Annotation { pod, error }),
        Ok(Followed::Skipped(reason)) => Ok(Done::Skipped(reason)),
        Ok(Followed::Visited(warnings, outcome)) => {
            for warning in warnings {
                log.line(Level::Warn, "value passed over", &[("warning", warning.to_string().into())]);
            }
            match outcome {
                Ok(outcome) => Ok(Done::Visited(pod, outcome)),
                Err(error) => Err(Error::Converge { pod, error }),
            }
        }
    }
}

/// Called in what is said to be the pod's netns; `own` is that of the plugin.
fn refuse_own(own: Identity, target: &Target) -> Result<(), Error> {
    match !target.netns_override && Identity::here()? == own {
        true => Err(Error::OwnNetns(target.netns.clone())),
        false => Ok(()),
    }
}

fn options(conf: &NetConf<'_>, on_difference: OnDifference) -> converge::Options {
    let forced = conf.settings.iptables_binary.map(|binary| match binary {
        IptablesBinary::Legacy => Forced::Legacy,
        IptablesBinary::Nft => Forced::Nft,
    });
    converge::Options { native_nftables: conf.settings.native_nftables, forced, on_difference }
}
