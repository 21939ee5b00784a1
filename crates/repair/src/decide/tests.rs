//! Tests of every decision and its reason.

use podfacts::PodName;

use super::*;
use crate::broken::Evidence;
use crate::settings::tests::settings;

const NOW: Duration = Duration::from_secs(1000);

/// Returns a pod with a controller on node n, whose validation failed at its fourth attempt and will be restarted.
pub(crate) fn broken() -> Broken {
    Broken {
        pod: PodName { namespace: "shop".into(), name: "web-0".into() },
        uid: "u1".into(),
        version: "42".into(),
        node: "n".into(),
        ips: vec!["10.0.0.7".parse().unwrap()],
        container: "istio-validation".into(),
        attempt: 3,
        restarts: 3,
        evidence: Evidence::Last,
        owner: Owner::Controller,
        deleting: false,
        retries: true,
        validating: false,
        labelled: false,
        lineage: None,
        skipped: None,
    }
}

fn decide_in_mode(mode: &str, broken: &Broken, history: &History) -> Decision {
    let line = format!("--repair-mode {mode} --repair-node-name n");
    decide(broken, history, &settings(&line).unwrap(), NOW)
}

const MODES: [(&str, Decision); 6] = [
    ("evict", Decision::Act(Action::Evict)),
    ("delete", Decision::Act(Action::Delete)),
    ("label", Decision::Act(Action::Label)),
    ("repair", Decision::Act(Action::Reprogram)),
    ("repair-or-evict", Decision::Act(Action::Reprogram)),
    ("observe", Decision::Nothing(Reason::ObserveOnly)),
];

#[test]
fn each_mode_has_its_action() {
    for (mode, decision) in MODES {
        assert_eq!(decide_in_mode(mode, &broken(), &History::default()), decision, "{mode}");
    }
}

#[test]
fn no_mode_acts_on_a_deleting_or_handled_pod() {
    for (mode, _) in MODES {
        let deleting = Broken { deleting: true, ..broken() };
        assert_eq!(decide_in_mode(mode, &deleting, &History::default()), Decision::Nothing(Reason::Deleting), "{mode}");
        for (acted, reason) in
            [(Acted::Ended, Reason::Ended), (Acted::Labelled, Reason::Labelled), (Acted::Hopeless, Reason::Hopeless)]
        {
            let history = History { acted: Some(acted), ..History::default() };
            assert_eq!(decide_in_mode(mode, &broken(), &history), Decision::Nothing(reason), "{mode}");
        }
    }
}

#[test]
fn a_pod_without_a_controller_is_ended_only_if_allowed() {
    for (owner, reason) in [(Owner::Nobody, Reason::Standalone), (Owner::Node, Reason::StaticPod)] {
        let alone = Broken { owner, ..broken() };
        for mode in ["evict", "delete"] {
            assert_eq!(decide_in_mode(mode, &alone, &History::default()), Decision::Nothing(reason), "{mode}");
        }
        assert_eq!(decide_in_mode("label", &alone, &History::default()), Decision::Act(Action::Label));
        assert_eq!(decide_in_mode("repair", &alone, &History::default()), Decision::Act(Action::Reprogram));
    }
    let enabled = settings("--repair-standalone-pods").unwrap();
    let with = |owner| decide(&Broken { owner, ..broken() }, &History::default(), &enabled, NOW);
    assert_eq!(with(Owner::Nobody), Decision::Act(Action::Evict));
    assert_eq!(with(Owner::Node), Decision::Nothing(Reason::StaticPod));
}

#[test]
fn a_pod_is_not_ended_during_validation() {
    let validating = Broken { validating: true, ..broken() };
    for mode in ["evict", "delete"] {
        assert_eq!(
            decide_in_mode(mode, &validating, &History::default()),
            Decision::Nothing(Reason::Validating),
            "{mode}"
        );
    }
    assert_eq!(decide_in_mode("label", &validating, &History::default()), Decision::Act(Action::Label));
    assert_eq!(decide_in_mode("repair-or-evict", &validating, &History::default()), Decision::Act(Action::Reprogram));
    let reprogrammed = History { reprogrammed: Some(2), ..History::default() };
    assert_eq!(decide_in_mode("repair-or-evict", &validating, &reprogrammed), Decision::Nothing(Reason::Validating));
}

#[test]
fn a_label_is_added_once() {
    let labelled = Broken { labelled: true, ..broken() };
    assert_eq!(decide_in_mode("label", &labelled, &History::default()), Decision::Nothing(Reason::Labelled));
    assert_eq!(
        decide_in_mode("evict", &labelled, &History::default()),
        Decision::Act(Action::Evict),
        "other modes ignore the label"
    );
}

#[test]
fn reprogramming_needs_the_same_node_and_another_attempt() {
    for mode in ["repair", "repair-or-evict"] {
        let elsewhere = Broken { node: "m".into(), ..broken() };
        assert_eq!(
            decide_in_mode(mode, &elsewhere, &History::default()),
            Decision::Nothing(Reason::OtherNode),
            "{mode}"
        );
    }
    let last = Broken { retries: false, ..broken() };
    assert_eq!(decide_in_mode("repair", &last, &History::default()), Decision::Nothing(Reason::NoRetry));
    assert_eq!(decide_in_mode("repair-or-evict", &last, &History::default()), Decision::Act(Action::Evict));
    let alone = Broken { owner: Owner::Nobody, ..last };
    assert_eq!(decide_in_mode("repair-or-evict", &alone, &History::default()), Decision::Nothing(Reason::Standalone));
}

#[test]
fn an_attempt_from_before_reprogramming_is_no_evidence() {
    let reprogrammed = History { reprogrammed: Some(3), ..History::default() };
    let at = |attempt| Broken { attempt, ..broken() };
    for mode in ["repair", "repair-or-evict"] {
        for attempt in [2, 3] {
            let decision = decide_in_mode(mode, &at(attempt), &reprogrammed);
            assert_eq!(decision, Decision::Nothing(Reason::AwaitsValidation), "{mode} {attempt}");
        }
    }
    assert_eq!(decide_in_mode("repair", &at(4), &reprogrammed), Decision::Act(Action::Reprogram));
    assert_eq!(decide_in_mode("repair-or-evict", &at(4), &reprogrammed), Decision::Act(Action::Evict));
    let alone = Broken { owner: Owner::Nobody, ..at(4) };
    assert_eq!(
        decide_in_mode("repair-or-evict", &alone, &reprogrammed),
        Decision::Act(Action::Reprogram),
        "the pod cannot be evicted"
    );
}

#[test]
fn back_off_and_budget_delay_an_action() {
    let second = Duration::from_secs(1);
    let failed = History { not_before: NOW + second, ..History::default() };
    assert_eq!(decide_in_mode("evict", &broken(), &failed), Decision::Later(NOW + second, Reason::BackOff));
    let spent = History { budget: NOW + second, ..History::default() };
    assert_eq!(decide_in_mode("evict", &broken(), &spent), Decision::Later(NOW + second, Reason::Budget));
    let over = History { not_before: NOW, budget: NOW, failures: 3, ..History::default() };
    assert_eq!(decide_in_mode("evict", &broken(), &over), Decision::Act(Action::Evict));
    let deleting = Broken { deleting: true, ..broken() };
    assert_eq!(
        decide_in_mode("evict", &deleting, &failed),
        Decision::Nothing(Reason::Deleting),
        "final reasons are not delayed"
    );
}

#[test]
fn the_watchdog_deletes_replaceable_pods_and_reports_the_rest() {
    let decided = |delete: bool, owner: Owner, replacement: bool| {
        let settings = RepairSettings::of_dapr_watchdog(delete, std::num::NonZeroU32::MIN);
        decide(&Broken { owner, ..broken() }, &History { replacement, ..History::default() }, &settings, NOW)
    };
    let report = |reason| Decision::Act(Action::Report(reason));
    for (delete, owner, replacement, decision) in [
        (false, Owner::Controller, false, report(Reason::ObserveOnly)),
        (true, Owner::Controller, false, Decision::Act(Action::Delete)),
        (true, Owner::Controller, true, report(Reason::Replacement)),
        (true, Owner::Nobody, false, report(Reason::Standalone)),
        (true, Owner::Node, false, report(Reason::StaticPod)),
    ] {
        assert_eq!(decided(delete, owner, replacement), decision);
    }
    let reported = History { acted: Some(Acted::Reported), ..History::default() };
    let settings = RepairSettings::of_dapr_watchdog(true, std::num::NonZeroU32::MIN);
    assert_eq!(decide(&broken(), &reported, &settings, NOW), Decision::Nothing(Reason::Reported));
}

#[test]
fn a_pod_that_the_plugin_would_skip_again_is_not_replaced_or_reprogrammed() {
    let skipped = Broken { skipped: Some(SkipReason::ExcludedNamespace), ..broken() };
    for (mode, usual) in MODES {
        let expected = match usual {
            Decision::Act(Action::Label) | Decision::Nothing(_) => usual,
            _ => Decision::Nothing(Reason::Skipped(SkipReason::ExcludedNamespace)),
        };
        assert_eq!(decide_in_mode(mode, &skipped, &History::default()), expected, "{mode}");
    }
    assert!(Reason::Skipped(SkipReason::NoProxy).gives_up());
}
