//! Sequences of what the watch says and how actions end.

use super::*;
use crate::converge::Change;
use crate::netfilter::Backend;
use crate::repair::decide::tests::broken;
use crate::repair::decide::{Action, Reason};
use crate::repair::lineage::Lineage;
use crate::repair::settings::tests::settings;

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn tracker(line: &str) -> Tracker {
    Tracker::new(settings(&format!("--repair-node-name n {line}")).unwrap())
}

fn pod(uid: &str, version: &str) -> Broken {
    Broken { uid: uid.into(), version: version.into(), ..broken() }
}

fn failed(wait: Option<u64>) -> Outcome {
    Outcome::Failed { error: "x".into(), wait: wait.map(second) }
}

/// The decisions that are due.
fn decisions(tracker: &mut Tracker, now: Duration) -> Vec<Decision> {
    std::iter::from_fn(|| tracker.take(now).map(|step| step.decision)).collect()
}

#[test]
fn a_pod_is_acted_on_once_however_often_it_is_seen() {
    let mut tracker = tracker("");
    tracker.broken(pod("a", "1"), second(0));
    tracker.broken(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    assert_eq!(step.decision, Decision::Act(Action::Evict));
    tracker.broken(pod("a", "2"), second(1));
    assert_eq!(decisions(&mut tracker, second(1)), [], "the first action is not over");
    tracker.ended(&step, &Outcome::Ended, second(1));
    tracker.broken(pod("a", "3"), second(2));
    assert_eq!(decisions(&mut tracker, second(2)), [Decision::Nothing(Reason::Ended)]);
    tracker.forget("a");
    assert_eq!((tracker.len(), tracker.next()), (0, None));
}

#[test]
fn the_newest_version_is_the_one_that_is_acted_on() {
    let mut tracker = tracker("");
    tracker.broken(pod("a", "1"), second(0));
    tracker.broken(pod("a", "2"), second(0));
    assert_eq!(tracker.take(second(0)).unwrap().broken.version, "2");
    assert_eq!(decisions(&mut tracker, second(9)), []);
}

#[test]
fn a_namesake_with_another_uid_is_another_pod() {
    let mut tracker = tracker("");
    tracker.broken(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    tracker.ended(&step, &Outcome::Ended, second(0));
    tracker.broken(pod("b", "9"), second(1));
    let again = std::iter::from_fn(|| tracker.take(second(1))).find(|step| step.broken.uid == "b").unwrap();
    assert_eq!(again.decision, Decision::Act(Action::Evict));
}

#[test]
fn failures_back_off_doubling_up_to_a_limit_and_news_do_not_shorten_it() {
    let mut tracker = tracker("--repair-budget 1000");
    let mut now = second(0);
    tracker.broken(pod("a", "1"), now);
    let mut waits = Vec::new();
    for _ in 0..13 {
        let step = tracker.take(now).unwrap();
        assert_eq!(step.decision, Decision::Act(Action::Evict));
        tracker.ended(&step, &failed(None), now);
        tracker.broken(pod("a", "1"), now);
        let Decision::Later(due, Reason::BackOff) = tracker.take(now).unwrap().decision else { panic!("no back-off") };
        waits.push((due - now).as_millis());
        assert_eq!(tracker.next(), Some(due));
        now = due;
    }
    assert_eq!(waits[..4], [500, 1000, 2000, 4000]);
    assert_eq!(waits[12], 300_000);
}

#[test]
fn what_the_server_asks_for_is_waited_for_but_not_for_ever() {
    for (asked, waited) in [(7, 7_000), (0, 500), (1 << 40, 3_600_000)] {
        let mut tracker = tracker("");
        tracker.broken(pod("a", "1"), second(0));
        let step = tracker.take(second(0)).unwrap();
        tracker.ended(&step, &failed(Some(asked)), second(0));
        let _ = tracker.take(second(0));
        assert_eq!(tracker.next().map(|due| due.as_millis()), Some(waited), "{asked}");
    }
}

#[test]
fn a_conflict_with_a_newer_version_is_tried_at_once_and_otherwise_later() {
    let mut tracker = tracker("");
    tracker.broken(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    tracker.broken(pod("a", "2"), second(0));
    tracker.ended(&step, &Outcome::Conflict, second(0));
    let step = tracker.take(second(0)).unwrap();
    assert_eq!((step.decision, step.broken.version.as_str()), (Decision::Act(Action::Evict), "2"));
    tracker.ended(&step, &Outcome::Conflict, second(0));
    assert!(matches!(decisions(&mut tracker, second(0))[..], [Decision::Later(_, Reason::BackOff)]));
}

#[test]
fn the_budget_holds_in_any_minute_and_all_get_their_turn() {
    let mut tracker = tracker("--repair-budget 20");
    for n in 0..480 {
        let mut pod = pod(&format!("u{n}"), "1");
        pod.pod.namespace = format!("n{}", n % 4);
        tracker.broken(pod, second(0));
    }
    let mut ends = 0;
    // Four namespaces get a fifth of the budget each.
    for minute in 0..30 {
        let now = second(minute * 60);
        let mut acted = 0;
        while let Some(step) = tracker.take(now) {
            if step.decision == Decision::Act(Action::Evict) {
                acted += 1;
                tracker.ended(&step, &Outcome::Gone, now);
            }
        }
        assert_eq!(acted, 16, "minute {minute}");
        ends += acted;
        assert_eq!(decisions(&mut tracker, now + second(59)), [], "minute {minute}");
    }
    assert_eq!((ends, tracker.len()), (480, 0));
}

#[test]
fn who_came_first_goes_first_and_no_namespace_keeps_others_waiting() {
    let mut tracker = tracker("--repair-budget 4");
    let of = |namespace: &str, uid: String| {
        let mut pod = pod(&uid, "1");
        pod.pod.namespace = namespace.into();
        pod
    };
    // Names are against the order of arrival.
    for n in (0..6).rev() {
        tracker.broken(of("loud", format!("l{n}")), second(0));
    }
    let acted = |tracker: &mut Tracker, now: u64| -> Vec<String> {
        let steps = std::iter::from_fn(|| tracker.take(second(now)));
        let acted = steps.filter(|step| matches!(step.decision, Decision::Act(_)));
        acted.map(|step| step.broken.uid).collect()
    };
    assert_eq!(acted(&mut tracker, 0), ["l5", "l4"], "half of the budget is for others");
    tracker.broken(of("quiet", "q".into()), second(1));
    assert_eq!(acted(&mut tracker, 1), ["q"]);
    assert_eq!(acted(&mut tracker, 61), ["l3", "l2"], "in the order of arrival");
}

#[test]
fn nothing_is_done_before_the_node_is_ready() {
    let mut tracker = tracker("");
    tracker.node_is_ready(false, second(0));
    tracker.broken(pod("a", "1"), second(0));
    assert_eq!(decisions(&mut tracker, second(0)), [Decision::Nothing(Reason::NodeNotReady)]);
    assert_eq!(tracker.next(), None);
    tracker.node_is_ready(true, second(7));
    assert_eq!(decisions(&mut tracker, second(7)), [Decision::Act(Action::Evict)]);
}

/// A Deployment of two whose validation always fails: each eviction makes another broken pod.
#[test]
fn a_deployment_that_is_never_mended_is_evicted_ever_more_rarely() {
    let mut tracker = tracker("");
    let made = |n: i64, at: i64| {
        let created = jiff::Timestamp::from_second(at).unwrap();
        Broken { lineage: Some(Box::new(Lineage { controller: "r".into(), created })), ..pod(&format!("u{n}"), "1") }
    };
    let (mut count, mut evicted) = (2, Vec::new());
    tracker.broken(made(0, 0), second(0));
    tracker.broken(made(1, 0), second(0));
    for now in 0..3600 {
        while let Some(step) = tracker.take(second(now)) {
            if step.decision != Decision::Act(Action::Evict) {
                assert!(matches!(step.decision, Decision::Later(_, Reason::ControllerBackOff)), "{step:?}");
                continue;
            }
            tracker.ended(&step, &Outcome::Ended, second(now));
            tracker.forget(&step.broken.uid);
            evicted.push(now);
            // Its replacement is broken a few seconds later.
            tracker.broken(made(count, now as i64 + 1), second(now + 4));
            count += 1;
        }
    }
    assert_eq!(evicted[..8], [0, 0, 10, 10, 30, 30, 70, 70]);
    let last = evicted[evicted.len() - 3..].to_vec();
    assert_eq!(last[1] - last[0], 300, "{evicted:?}");
    assert!(evicted.len() < 40, "{} evictions in an hour", evicted.len());
}

#[test]
fn a_list_forgets_what_it_does_not_name() {
    let mut tracker = tracker("--repair-mode observe");
    tracker.listing();
    tracker.broken(pod("a", "1"), second(0));
    tracker.broken(pod("b", "1"), second(0));
    tracker.listed();
    assert_eq!(tracker.len(), 2);
    tracker.listing();
    tracker.broken(pod("b", "2"), second(1));
    tracker.listed();
    assert!(tracker.knows("b") && !tracker.knows("a"));
}

#[test]
fn what_is_being_acted_on_stays_known_until_that_is_over() {
    let mut tracker = tracker("");
    tracker.broken(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    tracker.forget("a");
    tracker.broken(pod("a", "2"), second(0));
    assert_eq!(decisions(&mut tracker, second(0)), []);
    tracker.forget("a");
    assert_eq!(tracker.len(), 1);
    tracker.ended(&step, &Outcome::Ended, second(0));
    assert_eq!((tracker.len(), tracker.next()), (0, None));
}

#[test]
fn beyond_what_it_holds_a_new_list_is_wanted_once_there_is_room() {
    let mut tracker = tracker("--repair-mode observe");
    tracker.listing();
    for n in 0..=MOST {
        tracker.broken(pod(&format!("u{n}"), "1"), second(0));
    }
    assert_eq!(tracker.len(), MOST);
    assert!(!tracker.wants_list());
    for n in 0..=MOST / 2 {
        tracker.forget(&format!("u{n}"));
    }
    assert!(tracker.wants_list());
    tracker.listing();
    assert!(!tracker.wants_list());
}

#[test]
fn a_repair_waits_for_validation_and_then_for_eviction() {
    let mut tracker = tracker("--repair-mode repair-or-evict");
    tracker.broken(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    assert_eq!(step.decision, Decision::Act(Action::Reprogram));
    let done = converge_outcome();
    tracker.ended(&step, &Outcome::Reprogrammed { restarts: 3, done }, second(0));
    assert_eq!(decisions(&mut tracker, second(0)), [Decision::Nothing(Reason::AwaitsValidation)]);
    tracker.broken(Broken { attempt: 4, ..pod("a", "2") }, second(9));
    assert_eq!(decisions(&mut tracker, second(9)), [Decision::Act(Action::Evict)]);
}

fn converge_outcome() -> crate::converge::Outcome {
    crate::converge::Outcome { backend: Backend::IptablesNft, ipv6: false, change: Change::Added, warnings: Vec::new() }
}

#[test]
fn the_same_decision_for_the_same_reason_is_no_news() {
    let mut tracker = tracker("--repair-budget 1");
    let news = |tracker: &mut Tracker, version: &str, now| {
        tracker.broken(pod("a", version), now);
        let step = tracker.take(now).unwrap();
        if !matches!(step.decision, Decision::Later(..) | Decision::Nothing(_)) {
            tracker.ended(&step, &failed(None), now);
        }
        step.news
    };
    assert!(news(&mut tracker, "1", second(0)), "acts");
    assert!(news(&mut tracker, "2", second(0)), "backs off");
    assert!(!news(&mut tracker, "3", second(0)), "still backs off");
    assert!(news(&mut tracker, "4", second(1)), "waits for the budget");
    assert!(!news(&mut tracker, "5", second(2)), "still waits");
}

#[test]
fn a_dry_run_says_it_once_and_spends_nothing() {
    let mut tracker = tracker("--repair-dry-run --repair-budget 1");
    for uid in ["a", "b"] {
        tracker.broken(pod(uid, "1"), second(0));
        let step = tracker.take(second(0)).unwrap();
        assert_eq!(step.decision, Decision::Act(Action::Evict));
        tracker.ended(&step, &Outcome::DryRun, second(0));
        assert_eq!(decisions(&mut tracker, second(0)), [Decision::Nothing(Reason::DryRun)]);
    }
}

#[test]
fn what_replaces_what_is_asked_once_the_list_is_complete() {
    let mut tracker = Tracker::new(Settings::of_sidecars(true, std::num::NonZeroU32::MAX));
    let made = |uid: &str, at: i64| {
        let created = jiff::Timestamp::from_second(at).unwrap();
        Broken { lineage: Some(Box::new(Lineage { controller: "r".into(), created })), ..pod(uid, "1") }
    };
    tracker.listing();
    tracker.broken(made("a", 1), second(0));
    assert_eq!((tracker.next(), decisions(&mut tracker, second(0))), (None, vec![]));
    tracker.broken(made("b", 9), second(0));
    tracker.listed();
    let delete = Decision::Act(Action::Delete);
    assert_eq!(decisions(&mut tracker, second(0)), [delete, delete]);
    tracker.broken(made("c", 10), second(1));
    assert_eq!(decisions(&mut tracker, second(1)), [Decision::Act(Action::Report(Reason::Replacement))]);
}
