//! Tests of an Event's owner, rate, name and message.

use serde_json::json;

use super::*;

fn review(dry_run: bool, controller: &Value) -> Review {
    let body = json!({ "kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": {
        "uid": "u", "namespace": "shop", "kind": { "kind": "Pod" }, "dryRun": dry_run,
        "object": { "metadata": { "generateName": "web-5d-", "ownerReferences": [
            { "kind": "Other", "name": "no", "apiVersion": "v1", "uid": "1" }, controller ] } } } });
    Review::parse(body.to_string().as_bytes(), BTreeMap::new()).unwrap()
}

fn controller() -> Value {
    json!({ "kind": "ReplicaSet", "name": "web-5d", "apiVersion": "apps/v1", "uid": "0a1b2c3d-4e5f", "controller": true })
}

fn refused() -> AdmissionOutcome {
    AdmissionOutcome::refused("error", "no template".to_owned())
}

#[test]
fn refusals_and_warnings_become_events() {
    let review = review(false, &controller());
    let event = |verdict: Verdict, warnings: &[&str]| {
        let warnings = warnings.iter().map(|text| (*text).to_owned()).collect();
        let outcome = AdmissionOutcome { verdict, rule: "r", reason: "why".to_owned(), warnings };
        notice(&review, &outcome).map(|notice| (notice.reason, notice.message))
    };
    let expected = |reason, text: &str| Some((reason, format!("pod shop/web-5d-: {text}")));
    assert_eq!(event(Verdict::Refuse, &[]), expected("SidecarInjectionRefused", "why"));
    assert_eq!(event(Verdict::Skip, &["a", "b"]), expected("SidecarNotInjected", "a; b"));
    assert_eq!(event(Verdict::Skip, &[]), None, "most pods want no sidecar");
    assert_eq!(event(Verdict::Patch(Vec::new()), &["a"]), expected("SidecarInjectedWithWarnings", "a"));
    assert_eq!(event(Verdict::Patch(Vec::new()), &[]), None);
}

#[test]
fn events_are_on_controllers_and_never_of_a_dry_run() {
    let owner = notice(&review(false, &controller()), &refused()).unwrap().owner;
    assert_eq!((owner.kind.as_deref(), owner.name.as_deref()), (Some("ReplicaSet"), Some("web-5d")));
    assert_eq!((owner.namespace.as_deref(), owner.uid.as_deref()), (Some("shop"), Some("0a1b2c3d-4e5f")));
    assert_eq!(notice(&review(true, &controller()), &refused()), None, "sideEffects: NoneOnDryRun");
    let mut other = controller();
    other["controller"] = json!(false);
    assert_eq!(notice(&review(false, &other), &refused()), None);
    for key in ["kind", "name", "apiVersion", "uid"] {
        for value in [json!(""), json!(7), json!("x".repeat(254))] {
            let mut broken = controller();
            broken[key] = value;
            assert_eq!(notice(&review(false, &broken), &refused()), None, "{broken}");
        }
    }
    let mut elsewhere = review(false, &controller());
    elsewhere.namespace = "a/../b".to_owned();
    assert_eq!(notice(&elsewhere, &refused()), None, "a namespace is part of a path");
}

#[test]
fn events_are_limited_by_owner_and_text_and_in_all() {
    let (mut recent, start) = (Recent::default(), Instant::now());
    let notice = |uid: &str, digest| Notice {
        owner: ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() },
        reason: "R",
        digest,
        message: String::new(),
    };
    assert!(recent.admits(&notice("a", 1), start));
    assert!(!recent.admits(&notice("a", 1), start + EVENT_INTERVAL / 2));
    assert!(recent.admits(&notice("a", 2), start + EVENT_INTERVAL / 2), "another text");
    assert!(recent.admits(&notice("b", 1), start + EVENT_INTERVAL / 2), "another owner");
    assert!(recent.admits(&notice("a", 1), start + EVENT_INTERVAL));
    assert!(!recent.admits(&notice("a", 2), start + EVENT_INTERVAL));
    let later = start + EVENT_INTERVAL * 3;
    let admitted = (0..9).filter(|digest| recent.admits(&notice("a", *digest), later)).count();
    assert_eq!(admitted, MAX_OF_OWNER, "texts that differ for each pod");
    let admitted = (0..2 * MAX_EVENTS).filter(|n| recent.admits(&notice(&n.to_string(), 1), later)).count();
    assert_eq!(admitted, MAX_EVENTS - MAX_OF_OWNER, "a flood of owners takes no more");
}

#[test]
fn replicas_give_an_event_the_same_name_within_a_minute_and_each_text_its_own() {
    let at = |second, outcome: &AdmissionOutcome, pod: &str| {
        let mut review = review(false, &controller());
        review.object["metadata"]["generateName"] = pod.into();
        let notice = notice(&review, outcome).unwrap();
        event(notice, Timestamp::from_second(second).unwrap(), "i").metadata.name.unwrap()
    };
    let (refused, other) = (refused(), AdmissionOutcome::refused("error", "another".to_owned()));
    let first = at(1_767_225_600, &refused, "web-5d-");
    assert!(first.starts_with("web-5d.0a1b2c3d.1c16dc0."), "{first}");
    assert_eq!(at(1_767_225_659, &refused, "web-5d-"), first);
    assert_eq!(at(1_767_225_600, &refused, "web-2"), first, "the pod makes no difference");
    assert_ne!(at(1_767_225_660, &refused, "web-5d-"), first);
    assert_ne!(at(1_767_225_600, &other, "web-5d-"), first);
}

#[test]
fn names_and_messages_are_within_the_api_servers_limits() {
    let mut long = controller();
    long["name"] = json!(format!("{}.{}", "a".repeat(220), "b".repeat(30)));
    let outcome = AdmissionOutcome::refused("error", "ü".repeat(9999));
    let event = event(notice(&review(false, &long), &outcome).unwrap(), Timestamp::now(), "i");
    let name = event.metadata.name.unwrap();
    assert!(name.len() <= 253 && name.starts_with(&"a".repeat(220)) && !name.contains(".."), "{name}");
    assert!(event.message.unwrap().len() <= 1024);
    assert_eq!(event.involved_object.name.as_deref(), long["name"].as_str());
}
