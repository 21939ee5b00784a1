//! Tests of a server's status report.

use std::path::PathBuf;
use std::time::Duration;

use super::super::configuration::ConfigFile;
use super::super::files::CertificateFiles;
use super::super::issue::{Issued, Lifetime};
use super::*;

/// The lifetime of the certificates, in seconds.
const LIFETIME: u64 = 3600;

fn issued() -> Identity {
    let now = rustls::pki_types::UnixTime::since_unix_epoch(Duration::from_secs(1_700_000_000));
    Issued::new(&["injector.mesh.svc".to_owned()], Lifetime(Duration::from_secs(LIFETIME)), now, None)
        .unwrap()
        .identity()
        .unwrap()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + seconds.cast_signed()).unwrap()
}

fn reporter(newest: Option<&Identity>) -> Reporter {
    let (_, newest) = watch::channel(newest.cloned().map(Arc::new));
    Reporter {
        described: Described { revision: "canary".into(), are_bundles_managed: true, ..Described::default() },
        started: at(0),
        readiness: Readiness::default(),
        activity: Activity::default(),
        newest,
        latest: Latest::default(),
    }
}

#[test]
fn a_new_certificate_is_shown_beside_the_presented_one() {
    let (old, new) = (issued(), issued());
    let reporter = reporter(Some(&new));
    assert_eq!(reporter.build(at(0)).certificates.presented, None);
    reporter.activity.presents(at(1), old);
    let report = reporter.build(at(2)).certificates;
    let presented = report.presented.unwrap();
    assert_eq!(presented.since, Some(at(1).to_string()));
    assert_eq!((presented.ends, presented.authorities.len()), (Some(at(LIFETIME).to_string()), 1));
    assert!(report.next.is_some_and(|next| next.since.is_none()));
    reporter.activity.presents(at(3), new);
    assert_eq!(reporter.build(at(4)).certificates.next, None);
}

#[test]
fn problems_are_states_and_not_past_refusals() {
    let identity = issued();
    let reporter = reporter(Some(&identity));
    let fault = |what, text| reporter.activity.reloaded(what, at(2), Some(text));
    let (pod, rule, reason) = ("shop/web".to_owned(), "error", "past".to_owned());
    reporter.activity.refused(Refused { time: at(0), pod, rule, reason });
    // A part that was never loaded is reported only as not ready, with the same reason.
    fault(Reload::Configuration, "bad");
    reporter.readiness.missing("configuration", "bad");
    assert_eq!(reporter.build(at(2)).problems(), ["not ready: configuration: bad"]);
    reporter.readiness.ready("configuration");
    reporter.activity.reloaded(Reload::Configuration, at(1), None);
    assert_eq!(reporter.build(at(2)).problems(), Vec::<String>::new());
    fault(Reload::Configuration, "worse");
    reporter.activity.presents(at(1), identity);
    assert_eq!(
        reporter.build(at(LIFETIME)).problems(),
        [
            "the configuration is invalid, and the former one is kept: worse",
            "the presented certificate or its authority has ended"
        ]
    );
}

#[test]
fn sources_are_named_without_the_file_of_the_key() {
    let file = |name: &str| PathBuf::from(format!("/etc/{name}"));
    let files = CertificateFiles { certificate: file("cert"), key: file("key"), authorities: file("ca") };
    assert_eq!(certificate(&Certificates::Files(files)), ["file /etc/cert", "file /etc/ca"]);
    let store = CertificateStore::Directory(file("store"));
    let issued = Certificates::SelfSigned { store, names: Vec::new(), lifetime: Lifetime(Duration::ZERO) };
    assert_eq!(certificate(&issued), ["issued by this program, stored in /etc/store"]);
    let other = |name: &str| ConfigFile { path: file(name), is_optional: true };
    let source = Source::Files { config: file("config"), values: other("values"), mesh: other("mesh") };
    assert_eq!(configuration(&source), ["file /etc/config", "file /etc/values", "file /etc/mesh"]);
    assert_eq!(configuration(&Source::Default), ["built-in"]);
}

#[test]
fn a_document_contains_no_key() {
    let (identity, reporter) = (issued(), reporter(None));
    reporter.activity.presents(at(1), identity);
    let json = serde_json::to_string(&reporter.build(at(2))).unwrap();
    assert!(json.contains(r#""revision":"canary""#) && !json.contains("BEGIN"), "{json}");
}
