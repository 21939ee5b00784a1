//! Every decision with its reason.

use super::*;
use crate::pod::PodName;
use crate::repair::broken::Evidence;
use crate::repair::settings::tests::settings;

const NOW: Duration = Duration::from_secs(1000);

/// A pod of a controller, on node n, whose validation failed at its fourth attempt and will be started again.
pub(in crate::repair) fn broken() -> Broken {
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
    }
}

fn by(mode: &str, broken: &Broken, history: &History) -> Decision {
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
fn each_mode_does_what_it_says() {
    for (mode, decision) in MODES {
        assert_eq!(by(mode, &broken(), &History::default()), decision, "{mode}");
    }
}

#[test]
fn a_pod_that_goes_or_was_handled_is_left_alone_in_every_mode() {
    for (mode, _) in MODES {
        let deleting = Broken { deleting: true, ..broken() };
        assert_eq!(by(mode, &deleting, &History::default()), Decision::Nothing(Reason::Deleting), "{mode}");
        for (acted, reason) in
            [(Acted::Ended, Reason::Ended), (Acted::Labelled, Reason::Labelled), (Acted::Hopeless, Reason::Hopeless)]
        {
            let history = History { acted: Some(acted), ..History::default() };
            assert_eq!(by(mode, &broken(), &history), Decision::Nothing(reason), "{mode}");
        }
    }
}

#[test]
fn what_nobody_replaces_is_ended_only_where_asked() {
    for (owner, reason) in [(Owner::Nobody, Reason::Standalone), (Owner::Node, Reason::StaticPod)] {
        let alone = Broken { owner, ..broken() };
        for mode in ["evict", "delete"] {
            assert_eq!(by(mode, &alone, &History::default()), Decision::Nothing(reason), "{mode}");
        }
        assert_eq!(by("label", &alone, &History::default()), Decision::Act(Action::Label));
        assert_eq!(by("repair", &alone, &History::default()), Decision::Act(Action::Reprogram));
    }
    let asked = settings("--repair-standalone-pods").unwrap();
    let with = |owner| decide(&Broken { owner, ..broken() }, &History::default(), &asked, NOW);
    assert_eq!(with(Owner::Nobody), Decision::Act(Action::Evict));
    assert_eq!(with(Owner::Node), Decision::Nothing(Reason::StaticPod));
}

#[test]
fn a_pod_is_not_ended_while_its_validation_runs_again() {
    let validating = Broken { validating: true, ..broken() };
    for mode in ["evict", "delete"] {
        assert_eq!(by(mode, &validating, &History::default()), Decision::Nothing(Reason::Validating), "{mode}");
    }
    assert_eq!(by("label", &validating, &History::default()), Decision::Act(Action::Label));
    assert_eq!(by("repair-or-evict", &validating, &History::default()), Decision::Act(Action::Reprogram));
    let mended = History { reprogrammed: Some(2), ..History::default() };
    assert_eq!(by("repair-or-evict", &validating, &mended), Decision::Nothing(Reason::Validating));
}

#[test]
fn a_label_is_set_once() {
    let labelled = Broken { labelled: true, ..broken() };
    assert_eq!(by("label", &labelled, &History::default()), Decision::Nothing(Reason::Labelled));
    assert_eq!(
        by("evict", &labelled, &History::default()),
        Decision::Act(Action::Evict),
        "a label is no obstacle to other modes"
    );
}

#[test]
fn in_place_needs_the_node_and_another_attempt() {
    for mode in ["repair", "repair-or-evict"] {
        let elsewhere = Broken { node: "m".into(), ..broken() };
        assert_eq!(by(mode, &elsewhere, &History::default()), Decision::Nothing(Reason::OtherNode), "{mode}");
    }
    let last = Broken { retries: false, ..broken() };
    assert_eq!(by("repair", &last, &History::default()), Decision::Nothing(Reason::NoRetry));
    assert_eq!(by("repair-or-evict", &last, &History::default()), Decision::Act(Action::Evict));
    let alone = Broken { owner: Owner::Nobody, ..last };
    assert_eq!(by("repair-or-evict", &alone, &History::default()), Decision::Nothing(Reason::Standalone));
}

#[test]
fn an_attempt_that_began_before_the_repair_says_nothing_about_it() {
    let mended = History { reprogrammed: Some(3), ..History::default() };
    let at = |attempt| Broken { attempt, ..broken() };
    for mode in ["repair", "repair-or-evict"] {
        for attempt in [2, 3] {
            let decision = by(mode, &at(attempt), &mended);
            assert_eq!(decision, Decision::Nothing(Reason::AwaitsValidation), "{mode} {attempt}");
        }
    }
    assert_eq!(by("repair", &at(4), &mended), Decision::Act(Action::Reprogram));
    assert_eq!(by("repair-or-evict", &at(4), &mended), Decision::Act(Action::Evict));
    let alone = Broken { owner: Owner::Nobody, ..at(4) };
    assert_eq!(
        by("repair-or-evict", &alone, &mended),
        Decision::Act(Action::Reprogram),
        "eviction is out of the question"
    );
}

#[test]
fn back_off_and_budget_put_it_off_until_both_are_over() {
    let second = Duration::from_secs(1);
    let failed = History { not_before: NOW + second, ..History::default() };
    assert_eq!(by("evict", &broken(), &failed), Decision::Later(NOW + second, Reason::BackOff));
    let spent = History { room: NOW + second, ..History::default() };
    assert_eq!(by("evict", &broken(), &spent), Decision::Later(NOW + second, Reason::Budget));
    let over = History { not_before: NOW, room: NOW, failures: 3, ..History::default() };
    assert_eq!(by("evict", &broken(), &over), Decision::Act(Action::Evict));
    let deleting = Broken { deleting: true, ..broken() };
    assert_eq!(by("evict", &deleting, &failed), Decision::Nothing(Reason::Deleting), "what is settled does not wait");
}

#[test]
fn the_watchdog_deletes_where_that_helps_and_tells_the_rest() {
    let decided = |delete: bool, owner: Owner, replacement: bool| {
        let settings = Settings::of_sidecars(delete, std::num::NonZeroU32::MIN);
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
    let told = History { acted: Some(Acted::Reported), ..History::default() };
    let settings = Settings::of_sidecars(true, std::num::NonZeroU32::MIN);
    assert_eq!(decide(&broken(), &told, &settings, NOW), Decision::Nothing(Reason::Reported));
}
