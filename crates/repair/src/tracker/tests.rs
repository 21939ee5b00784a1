//! Tests with sequences of watch events and outcomes.

mod model;

use super::*;
use crate::decide::tests::broken;
use crate::decide::{Action, Reason};
use crate::lineage::Lineage;
use crate::settings::tests::settings;

fn second(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn tracker(line: &str) -> Tracker {
    Tracker::new(settings(&format!("--repair-node-name n {line}")).unwrap())
}

fn pod(uid: &str, version: &str) -> Broken {
    Broken { uid: uid.into(), version: version.into(), ..broken() }
}

fn failed(wait: Option<u64>) -> RepairOutcome {
    RepairOutcome::Failed { error: "x".into(), wait: wait.map(second) }
}

/// Calls `take` until no step is due, and returns the decisions.
fn decisions(tracker: &mut Tracker, now: Duration) -> Vec<Decision> {
    std::iter::from_fn(|| tracker.take(now).map(|step| step.decision)).collect()
}

#[test]
fn repeated_events_of_a_pod_cause_one_action() {
    let mut tracker = tracker("");
    tracker.insert(pod("a", "1"), second(0));
    tracker.insert(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    assert_eq!(step.decision, Decision::Act(Action::Evict));
    tracker.insert(pod("a", "2"), second(1));
    assert_eq!(decisions(&mut tracker, second(1)), [], "the first action is still running");
    tracker.finish(&step, &RepairOutcome::Ended, second(1));
    tracker.insert(pod("a", "3"), second(2));
    assert_eq!(decisions(&mut tracker, second(2)), [Decision::Nothing(Reason::Ended)]);
    tracker.remove("a");
    assert_eq!((tracker.len(), tracker.next_due()), (0, None));
}

#[test]
fn actions_use_the_newest_version() {
    let mut tracker = tracker("");
    tracker.insert(pod("a", "1"), second(0));
    tracker.insert(pod("a", "2"), second(0));
    assert_eq!(tracker.take(second(0)).unwrap().broken.version, "2");
    assert_eq!(decisions(&mut tracker, second(9)), []);
}

#[test]
fn a_pod_with_the_same_name_and_another_uid_is_another_pod() {
    let mut tracker = tracker("");
    tracker.insert(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    tracker.finish(&step, &RepairOutcome::Ended, second(0));
    tracker.insert(pod("b", "9"), second(1));
    let again = std::iter::from_fn(|| tracker.take(second(1))).find(|step| step.broken.uid == "b").unwrap();
    assert_eq!(again.decision, Decision::Act(Action::Evict));
}

#[test]
fn back_off_doubles_up_to_a_limit_and_events_do_not_shorten_it() {
    let mut tracker = tracker("--repair-budget 1000");
    let mut now = second(0);
    tracker.insert(pod("a", "1"), now);
    let mut waits = Vec::new();
    for _ in 0..13 {
        let step = tracker.take(now).unwrap();
        assert_eq!(step.decision, Decision::Act(Action::Evict));
        tracker.finish(&step, &failed(None), now);
        tracker.insert(pod("a", "1"), now);
        let Decision::Later(due, Reason::BackOff) = tracker.take(now).unwrap().decision else { panic!("no back-off") };
        waits.push((due - now).as_millis());
        assert_eq!(tracker.next_due(), Some(due));
        now = due;
    }
    assert_eq!(waits[..4], [500, 1000, 2000, 4000]);
    assert_eq!(waits[12], 300_000);
}

#[test]
fn the_delay_that_a_server_requests_applies_within_limits() {
    for (requested, waited) in [(7, 7_000), (0, 500), (1 << 40, 3_600_000)] {
        let mut tracker = tracker("");
        tracker.insert(pod("a", "1"), second(0));
        let step = tracker.take(second(0)).unwrap();
        tracker.finish(&step, &failed(Some(requested)), second(0));
        let _ = tracker.take(second(0));
        assert_eq!(tracker.next_due().map(|due| due.as_millis()), Some(waited), "{requested}");
    }
}

#[test]
fn a_conflict_is_retried_at_once_if_a_newer_version_is_known() {
    let mut tracker = tracker("");
    tracker.insert(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    tracker.insert(pod("a", "2"), second(0));
    tracker.finish(&step, &RepairOutcome::Conflict, second(0));
    let step = tracker.take(second(0)).unwrap();
    assert_eq!((step.decision, step.broken.version.as_str()), (Decision::Act(Action::Evict), "2"));
    tracker.finish(&step, &RepairOutcome::Conflict, second(0));
    assert!(matches!(decisions(&mut tracker, second(0))[..], [Decision::Later(_, Reason::BackOff)]));
}

#[test]
fn the_budget_limits_any_minute_and_reaches_all_pods() {
    let mut tracker = tracker("--repair-budget 20");
    for n in 0..480 {
        let mut pod = pod(&format!("u{n}"), "1");
        pod.pod.namespace = format!("n{}", n % 4);
        tracker.insert(pod, second(0));
    }
    let mut ends = 0;
    // Each of four namespaces gets a fifth of the budget.
    for minute in 0..30 {
        let now = second(minute * 60);
        let mut acted = 0;
        while let Some(step) = tracker.take(now) {
            if step.decision == Decision::Act(Action::Evict) {
                acted += 1;
                tracker.finish(&step, &RepairOutcome::Gone, now);
            }
        }
        assert_eq!(acted, 16, "minute {minute}");
        ends += acted;
        assert_eq!(decisions(&mut tracker, now + second(59)), [], "minute {minute}");
    }
    assert_eq!((ends, tracker.len()), (480, 0));
}

#[test]
fn pods_are_handled_in_order_of_arrival_within_namespace_shares() {
    let mut tracker = tracker("--repair-budget 4");
    let of = |namespace: &str, uid: String| {
        let mut pod = pod(&uid, "1");
        pod.pod.namespace = namespace.into();
        pod
    };
    // The order of UIDs is opposite to the order of arrival.
    for n in (0..6).rev() {
        tracker.insert(of("loud", format!("l{n}")), second(0));
    }
    let acted = |tracker: &mut Tracker, now: u64| -> Vec<String> {
        let steps = std::iter::from_fn(|| tracker.take(second(now)));
        let acted = steps.filter(|step| matches!(step.decision, Decision::Act(_)));
        acted.map(|step| step.broken.uid).collect()
    };
    assert_eq!(acted(&mut tracker, 0), ["l5", "l4"], "half of the budget is for other namespaces");
    tracker.insert(of("quiet", "q".into()), second(1));
    assert_eq!(acted(&mut tracker, 1), ["q"]);
    assert_eq!(acted(&mut tracker, 61), ["l3", "l2"], "in the order of arrival");
}

#[test]
fn no_action_starts_before_the_node_is_ready() {
    let mut tracker = tracker("");
    tracker.set_node_ready(false, second(0));
    tracker.insert(pod("a", "1"), second(0));
    assert_eq!(decisions(&mut tracker, second(0)), [Decision::Nothing(Reason::NodeNotReady)]);
    assert_eq!(tracker.next_due(), None);
    tracker.set_node_ready(true, second(7));
    assert_eq!(decisions(&mut tracker, second(7)), [Decision::Act(Action::Evict)]);
}

/// Evictions must become rarer if the validation of a Deployment's two replicas always fails, so that each eviction leads to
/// another broken pod.
#[test]
fn evictions_of_a_persistently_broken_deployment_back_off() {
    let mut tracker = tracker("");
    let made = |n: i64, at: i64| {
        let created = jiff::Timestamp::from_second(at).unwrap();
        Broken { lineage: Some(Box::new(Lineage { controller: "r".into(), created })), ..pod(&format!("u{n}"), "1") }
    };
    let (mut count, mut evicted) = (2, Vec::new());
    tracker.insert(made(0, 0), second(0));
    tracker.insert(made(1, 0), second(0));
    for now in 0..3600 {
        while let Some(step) = tracker.take(second(now)) {
            if step.decision != Decision::Act(Action::Evict) {
                assert!(matches!(step.decision, Decision::Later(_, Reason::ControllerBackOff)), "{step:?}");
                continue;
            }
            tracker.finish(&step, &RepairOutcome::Ended, second(now));
            tracker.remove(&step.broken.uid);
            evicted.push(now);
            // The replacement is broken a few seconds later.
            tracker.insert(made(count, now as i64 + 1), second(now + 4));
            count += 1;
        }
    }
    assert_eq!(evicted[..8], [0, 0, 10, 10, 30, 30, 70, 70]);
    let last = evicted[evicted.len() - 3..].to_vec();
    assert_eq!(last[1] - last[0], 300, "{evicted:?}");
    assert!(evicted.len() < 40, "{} evictions in an hour", evicted.len());
}

#[test]
fn a_list_removes_pods_that_it_does_not_contain() {
    let mut tracker = tracker("--repair-mode observe");
    tracker.start_list();
    tracker.insert(pod("a", "1"), second(0));
    tracker.insert(pod("b", "1"), second(0));
    tracker.end_list();
    assert_eq!(tracker.len(), 2);
    tracker.start_list();
    tracker.insert(pod("b", "2"), second(1));
    tracker.end_list();
    assert!(tracker.contains("b") && !tracker.contains("a"));
}

#[test]
fn a_pod_stays_tracked_during_its_action() {
    let mut tracker = tracker("");
    tracker.insert(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    tracker.remove("a");
    tracker.insert(pod("a", "2"), second(0));
    assert_eq!(decisions(&mut tracker, second(0)), []);
    tracker.remove("a");
    assert_eq!(tracker.len(), 1);
    tracker.finish(&step, &RepairOutcome::Ended, second(0));
    assert_eq!((tracker.len(), tracker.next_due()), (0, None));
}

#[test]
fn pods_beyond_the_limit_need_a_new_list_once_there_is_room() {
    let mut tracker = tracker("--repair-mode observe");
    tracker.start_list();
    for n in 0..=MAX_PODS {
        tracker.insert(pod(&format!("u{n}"), "1"), second(0));
    }
    assert_eq!(tracker.len(), MAX_PODS);
    assert!(!tracker.needs_relist());
    for n in 0..=MAX_PODS / 2 {
        tracker.remove(&format!("u{n}"));
    }
    assert!(tracker.needs_relist());
    tracker.start_list();
    assert!(!tracker.needs_relist());
}

#[test]
fn a_failed_validation_after_reprogramming_causes_eviction() {
    let mut tracker = tracker("--repair-mode repair-or-evict");
    tracker.insert(pod("a", "1"), second(0));
    let step = tracker.take(second(0)).unwrap();
    assert_eq!(step.decision, Decision::Act(Action::Reprogram));
    tracker.finish(&step, &RepairOutcome::Reprogrammed { restarts: 3, change: "added" }, second(0));
    assert_eq!(decisions(&mut tracker, second(0)), [Decision::Nothing(Reason::AwaitsValidation)]);
    tracker.insert(Broken { attempt: 4, ..pod("a", "2") }, second(9));
    assert_eq!(decisions(&mut tracker, second(9)), [Decision::Act(Action::Evict)]);
}

#[test]
fn a_repeated_decision_with_the_same_reason_is_not_new() {
    let mut tracker = tracker("--repair-budget 1");
    let is_new = |tracker: &mut Tracker, version: &str, now| {
        tracker.insert(pod("a", version), now);
        let step = tracker.take(now).unwrap();
        if !matches!(step.decision, Decision::Later(..) | Decision::Nothing(_)) {
            tracker.finish(&step, &failed(None), now);
        }
        step.is_new
    };
    assert!(is_new(&mut tracker, "1", second(0)), "acts");
    assert!(is_new(&mut tracker, "2", second(0)), "backs off");
    assert!(!is_new(&mut tracker, "3", second(0)), "still backs off");
    assert!(is_new(&mut tracker, "4", second(1)), "waits for the budget");
    assert!(!is_new(&mut tracker, "5", second(2)), "still waits");
}

#[test]
fn a_dry_run_decides_once_and_spends_no_budget() {
    let mut tracker = tracker("--repair-dry-run --repair-budget 1");
    for uid in ["a", "b"] {
        tracker.insert(pod(uid, "1"), second(0));
        let step = tracker.take(second(0)).unwrap();
        assert_eq!(step.decision, Decision::Act(Action::Evict));
        tracker.finish(&step, &RepairOutcome::DryRun, second(0));
        assert_eq!(decisions(&mut tracker, second(0)), [Decision::Nothing(Reason::DryRun)]);
    }
}

#[test]
fn replacements_are_recognized_after_the_list_is_complete() {
    let mut tracker = Tracker::new(RepairSettings::of_dapr_watchdog(true, std::num::NonZeroU32::MAX));
    let made = |uid: &str, at: i64| {
        let created = jiff::Timestamp::from_second(at).unwrap();
        Broken { lineage: Some(Box::new(Lineage { controller: "r".into(), created })), ..pod(uid, "1") }
    };
    tracker.start_list();
    tracker.insert(made("a", 1), second(0));
    assert_eq!((tracker.next_due(), decisions(&mut tracker, second(0))), (None, vec![]));
    tracker.insert(made("b", 9), second(0));
    tracker.end_list();
    let delete = Decision::Act(Action::Delete);
    assert_eq!(decisions(&mut tracker, second(0)), [delete, delete]);
    tracker.insert(made("c", 10), second(1));
    assert_eq!(decisions(&mut tracker, second(1)), [Decision::Act(Action::Report(Reason::Replacement))]);
}
