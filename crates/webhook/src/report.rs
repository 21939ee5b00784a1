//! The report of the server's state and latest activity: the document of `/status.json`, and the state from which it is
//! built.
//!
//! `page` renders it as HTML. Building a report changes nothing and queries no other program. A report contains no key,
//! no token and no content of configuration.

use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serve::health::Readiness;
use serve::page::Latest;
use tokio::sync::watch;

use super::activity::{Activity, BundleState, Refused, Reload, Reloaded, Reviewed};
use super::certificates::Certificates;
use super::configuration::Source;
use super::identity::{Identity, bundle_ends};
use super::store::CertificateStore;

/// The settings that only the status page needs.
#[derive(Debug, Clone)]
pub struct StatusPage {
    /// The revision of the control plane that sidecars belong to.
    pub revision: String,
}

/// The state of a server. All times are in RFC 3339.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    /// The version of the program.
    pub(super) version: String,
    /// The time of the report.
    pub(super) time: String,
    /// The start of the program.
    pub(super) started: String,
    pub(super) revision: String,
    /// The paths at which reviews are served.
    pub(super) paths: Vec<String>,
    /// The parts of the server that are not ready, each with its reason.
    pub(super) not_ready: Vec<String>,
    pub(super) configuration: Loaded,
    pub(super) certificates: CertificateReport,
    pub(super) reviews: Reviews,
}

/// A part that is reloaded while the server runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Loaded {
    /// The names of files or objects.
    pub(super) sources: Vec<String>,
    /// The time of the last successful load.
    pub(super) loaded: Option<String>,
    /// The reason and the time of a later failure. The former state, if there is one, stays in effect.
    pub(super) fault: Option<Fault>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(super) struct Fault {
    pub(super) time: String,
    pub(super) text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CertificateReport {
    #[serde(flatten)]
    pub(super) source: Loaded,
    /// The presented certificate, and since when it is presented.
    pub(super) presented: Option<Certificate>,
    /// The newest certificate, if it is not presented yet.
    pub(super) next: Option<Certificate>,
    /// The file of the CAs for callers' certificates; `None`: callers need no certificate.
    pub(super) callers: Option<String>,
    /// The managed webhook configurations; `None`: another program manages the caBundle.
    pub(super) bundles: Option<Vec<Bundle>>,
}

/// The expiry times of a certificate and of its authorities, which become the caBundle.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Certificate {
    pub(super) since: Option<String>,
    pub(super) ends: Option<String>,
    pub(super) authorities: Vec<String>,
    /// Whether the certificate or all of its authorities have expired.
    pub(super) ended: bool,
}

/// The webhook configurations of one selection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(super) struct Bundle {
    pub(super) selection: String,
    /// Why their caBundles do not trust the presented certificate; `None` if they do.
    pub(super) fault: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Reviews {
    /// The numbers of reviews by decision and rule since the start.
    pub(super) counts: Vec<Count>,
    /// The slowest reviews since the start, the slowest one first.
    pub(super) slowest: Vec<SlowReview>,
    /// The latest refusals of pods, the latest one first.
    pub(super) refusals: Vec<Refusal>,
    /// The number of refusals of pods since the start.
    pub(super) refused: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(super) struct Count {
    pub(super) decision: String,
    pub(super) rule: String,
    pub(super) number: u64,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub(super) struct SlowReview {
    pub(super) time: String,
    pub(super) pod: String,
    pub(super) seconds: f64,
    pub(super) decision: String,
    pub(super) rule: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(super) struct Refusal {
    pub(super) time: String,
    pub(super) pod: String,
    pub(super) rule: String,
    pub(super) reason: String,
}

impl Report {
    /// Returns the current problems of the server; past refusals are not included.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems: Vec<String> = self.not_ready.iter().map(|part| format!("not ready: {part}")).collect();
        for (what, part) in [("configuration", &self.configuration), ("certificate", &self.certificates.source)] {
            // A part that was never loaded is not ready, for the same reason.
            if let (Some(_), Some(fault)) = (&part.loaded, &part.fault) {
                problems.push(format!("the {what} is invalid, and the former one is kept: {}", fault.text));
            }
        }
        if self.certificates.presented.as_ref().is_some_and(|presented| presented.ended) {
            problems.push("the presented certificate or its authority has ended".to_owned());
        }
        problems
    }
}

/// The settings that a report names.
#[derive(Debug, Clone, Default)]
pub(super) struct Described {
    pub(super) revision: String,
    pub(super) paths: Vec<String>,
    pub(super) configuration: Vec<String>,
    pub(super) certificate: Vec<String>,
    pub(super) callers: Option<String>,
    pub(super) are_bundles_managed: bool,
}

/// Returns the names of a configuration's sources.
pub(super) fn configuration(source: &Source) -> Vec<String> {
    match source {
        Source::Default => vec!["built-in".to_owned()],
        Source::Files { config, values, mesh } => {
            [config, &values.path, &mesh.path].map(|path| format!("file {}", path.display())).to_vec()
        }
        Source::ConfigMaps { namespace, injection, mesh, optional, .. } => {
            let instead = optional.then(|| "built-in while the first ConfigMap does not exist".to_owned());
            let maps = [injection, mesh].map(|name| format!("ConfigMap {namespace}/{name}"));
            maps.into_iter().chain(instead).collect()
        }
    }
}

/// Returns the names of the certificates' sources.
pub(super) fn certificate(certificates: &Certificates) -> Vec<String> {
    match certificates {
        Certificates::Files(files) => {
            [&files.certificate, &files.authorities].map(|path| format!("file {}", path.display())).to_vec()
        }
        Certificates::SelfSigned { store: CertificateStore::Directory(path), .. } => {
            vec![format!("issued by this program, stored in {}", path.display())]
        }
        Certificates::SelfSigned { store: CertificateStore::Secret { namespace, name, .. }, .. } => {
            vec![format!("issued by this program, stored in Secret {namespace}/{name}")]
        }
    }
}

/// Builds reports from the state of the other modules, and reuses recent ones.
pub(super) struct Reporter {
    pub(super) described: Described,
    pub(super) started: Timestamp,
    pub(super) readiness: Readiness,
    pub(super) activity: Activity,
    pub(super) newest: watch::Receiver<Option<Arc<Identity>>>,
    pub(super) latest: Latest<Report>,
}

impl Reporter {
    /// Returns a report that is at most a second old.
    pub(super) fn report(&self) -> Arc<Report> {
        self.latest.report(|now| self.build(now))
    }

    fn build(&self, now: Timestamp) -> Report {
        let (described, activity) = (self.described.clone(), &self.activity);
        let counts = activity.counts().into_iter();
        let count = |((decision, rule), number): ((&str, &str), u64)| {
            let (decision, rule) = (decision.to_owned(), rule.to_owned());
            Count { decision, rule, number }
        };
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            time: now.to_string(),
            started: self.started.to_string(),
            revision: described.revision,
            paths: described.paths,
            not_ready: self
                .readiness
                .report()
                .map(|lines| lines.lines().map(str::to_owned).collect())
                .unwrap_or_default(),
            configuration: loaded(described.configuration, activity.reloads(Reload::Configuration)),
            certificates: self.certificates(now),
            reviews: Reviews {
                counts: counts.map(count).collect(),
                slowest: activity.slowest().into_iter().map(slow_review).collect(),
                refusals: activity.refusals().latest_first().into_iter().map(refusal).collect(),
                refused: activity.refusals().total(),
            },
        }
    }

    fn certificates(&self, now: Timestamp) -> CertificateReport {
        let Described { certificate: sources, callers, are_bundles_managed, .. } = self.described.clone();
        let presented = self.activity.presented();
        let is_presented =
            |newest: &Arc<Identity>| presented.as_ref().is_some_and(|(_, presented)| presented.is_same(newest));
        let next = self.newest.borrow().clone().filter(|newest| !is_presented(newest));
        let bundle = |BundleState { selection, fault }| Bundle { selection, fault };
        CertificateReport {
            source: loaded(sources, self.activity.reloads(Reload::Certificate)),
            next: next.map(|next| ends(&next, None, now)),
            presented: presented.map(|(since, identity)| ends(&identity, Some(since), now)),
            callers,
            bundles: are_bundles_managed.then(|| self.activity.bundles().into_iter().map(bundle).collect()),
        }
    }
}

fn loaded(sources: Vec<String>, Reloaded { loaded, fault }: Reloaded) -> Loaded {
    let fault = fault.map(|(time, text)| Fault { time: time.to_string(), text });
    Loaded { sources, loaded: loaded.map(|time| time.to_string()), fault }
}

fn ends(identity: &Identity, since: Option<Timestamp>, now: Timestamp) -> Certificate {
    let time = |seconds: i64| Timestamp::from_second(seconds).ok();
    let end = identity.not_after().and_then(time);
    let ends: Vec<Timestamp> =
        bundle_ends(identity.authorities().as_bytes()).unwrap_or_default().into_iter().filter_map(time).collect();
    // A replaced authority that is still in the bundle may have expired earlier.
    let ended = end.is_some_and(|end| end <= now) || (!ends.is_empty() && ends.iter().all(|end| *end <= now));
    let (since, authorities) = (since.map(|since| since.to_string()), ends.iter().map(Timestamp::to_string).collect());
    Certificate { since, ends: end.map(|end| end.to_string()), authorities, ended }
}

fn slow_review(Reviewed { time, pod, took, decision, rule }: Reviewed) -> SlowReview {
    let (decision, rule) = (decision.to_owned(), rule.to_owned());
    SlowReview { time: time.to_string(), pod, seconds: took.as_secs_f64(), decision, rule }
}

fn refusal(Refused { time, pod, rule, reason }: Refused) -> Refusal {
    Refusal { time: time.to_string(), pod, rule: rule.to_owned(), reason }
}

#[cfg(test)]
mod tests;
