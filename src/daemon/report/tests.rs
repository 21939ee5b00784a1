//! Tests of the reports about pods and nodes.

use podfacts::ProxyContainer;
use serve::log::Line;

use super::*;
use crate::agent::Sample;

fn injected() -> PodFacts {
    let annotation = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    PodFacts {
        uid: "u1".into(),
        annotations: [
            annotation(annotation::STATUS, "{}"),
            annotation(annotation::EXCLUDE_OUTBOUND_PORTS, &"3306,".repeat(100)),
        ]
        .into(),
        proxy: Some(ProxyContainer { proxy_type: Some("sidecar".into()), ..ProxyContainer::default() }),
        ..PodFacts::default()
    }
}

fn added(verdict: &str, problem: Option<Problem>) -> Added {
    let sample = Sample { verdict: verdict.into(), reason: "r".into(), seconds: 0.5 };
    let time = "2026-01-01T00:00:00Z".parse().unwrap();
    Added { time, uid: "u1".into(), sample, backend: None, problem }
}

fn now(time: &str) -> Timestamp {
    format!("2026-01-01T{time}Z").parse().unwrap()
}

#[test]
fn a_failure_that_was_not_repeated_for_ten_minutes_is_no_problem() {
    let of = |time| pod("a".into(), &injected(), Some(added("failed", Some(Problem::Failed("f".into())))), now(time));
    assert_eq!(of("00:10:00").verdict, PodState::Failed);
    let (stale, expected) = (of("00:10:01"), Some("f".to_owned()));
    assert_eq!((stale.verdict, &stale.problem), (PodState::Unknown, &expected));
    let counts = counts(&[stale]);
    assert_eq!((counts.failed, counts.unknown), (0, 1));
    assert_eq!(Report { counts, ..Report::default() }.problems(), Vec::<String>::new());
}

#[test]
fn a_pod_without_an_add_is_skipped_by_the_plugins_decision_or_unknown() {
    let mut facts = injected();
    facts.annotations.insert(annotation::EXCLUDE_OUTBOUND_PORTS.into(), "3306".into());
    let unknown = pod("shop/web".into(), &facts, None, now("00:00:00"));
    assert_eq!((unknown.verdict, unknown.reason.as_str()), (PodState::Unknown, "not_observed"));
    assert_eq!((unknown.added, unknown.seconds), (None, None));
    let skipped = pod("shop/db".into(), &PodFacts::default(), None, now("00:00:00"));
    assert_eq!((skipped.verdict, skipped.reason.as_str()), (PodState::Skipped, "no_proxy"));
    facts.annotations.insert(annotation::EXCLUDE_OUTBOUND_PORTS.into(), "x".into());
    assert_eq!(pod("shop/bad".into(), &facts, None, now("00:00:00")).verdict, PodState::Unknown);
}

#[test]
fn the_outcome_of_an_add_and_of_a_check_is_the_verdict() {
    for (verdict, problem, expected) in [
        ("redirected", None, PodState::Redirected),
        ("redirected", Some(Problem::Differs("d".into())), PodState::Drifted),
        ("skipped", None, PodState::Skipped),
        ("failed", Some(Problem::Failed("f".into())), PodState::Failed),
        ("other", None, PodState::Unknown),
    ] {
        let pod = pod("shop/web".into(), &injected(), Some(added(verdict, problem)), now("00:10:00"));
        assert_eq!((pod.verdict, pod.seconds), (expected, Some(0.5)), "{verdict}");
    }
}

#[test]
fn parameters_lack_the_status_and_are_short() {
    let parameters = parameters(&injected());
    assert_eq!(parameters.keys().collect::<Vec<_>>(), [annotation::EXCLUDE_OUTBOUND_PORTS]);
    assert_eq!(parameters[annotation::EXCLUDE_OUTBOUND_PORTS].len(), MAX_VALUE);
}

#[test]
fn problems_are_states_and_not_past_errors() {
    let pods = [
        pod("a".into(), &injected(), Some(added("failed", None)), now("00:00:00")),
        pod("b".into(), &PodFacts::default(), None, now("00:00:00")),
        pod("c".into(), &PodFacts::default(), None, now("00:00:00")),
    ];
    let counts = counts(&pods);
    assert_eq!((counts.failed, counts.skipped["no_proxy"]), (1, 2));
    let errors = vec![Line { text: "past".into(), ..Line::default() }];
    let well = Report { errors, ..Report::default() };
    assert_eq!(well.problems(), Vec::<String>::new());
    let report = Report { counts, not_ready: vec!["install: starting".into()], ..well };
    assert_eq!(
        report.problems(),
        ["not ready: install: starting", "pods that cannot be redirected and do not start: 1"]
    );
}
