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
fn events_are_limited_per_owner_and_in_owners() {
    let (mut recent, start) = (Recent::default(), Instant::now());
    let owner = |uid: &str| ObjectReference { uid: Some(uid.to_owned()), ..ObjectReference::default() };
    assert!(recent.admits(&owner("a"), start));
    assert!(!recent.admits(&owner("a"), start + EVENT_INTERVAL / 2));
    assert!(recent.admits(&owner("b"), start + EVENT_INTERVAL / 2));
    assert!(recent.admits(&owner("a"), start + EVENT_INTERVAL));
    let later = start + EVENT_INTERVAL * 3;
    let admitted = (0..2 * MAX_OWNERS).filter(|n| recent.admits(&owner(&n.to_string()), later)).count();
    assert_eq!(admitted, MAX_OWNERS, "a flood of owners takes no more");
}

#[test]
fn replicas_give_an_event_the_same_name_within_a_minute() {
    let at = |second| {
        let notice = notice(&review(false, &controller()), &refused()).unwrap();
        event(notice, Timestamp::from_second(second).unwrap(), "i").metadata.name.unwrap()
    };
    assert_eq!(at(1_767_225_600), "web-5d.0a1b2c3d.1c16dc0");
    assert_eq!(at(1_767_225_659), at(1_767_225_600));
    assert_ne!(at(1_767_225_660), at(1_767_225_600));
}

#[test]
fn names_and_messages_are_within_the_api_servers_limits() {
    let mut long = controller();
    long["name"] = json!(format!("{}.{}", "a".repeat(230), "b".repeat(20)));
    let outcome = AdmissionOutcome::refused("error", "ü".repeat(9999));
    let event = event(notice(&review(false, &long), &outcome).unwrap(), Timestamp::now(), "i");
    let name = event.metadata.name.unwrap();
    assert!(name.len() <= 253 && name.starts_with(&"a".repeat(230)) && !name.contains(".."), "{name}");
    assert!(event.message.unwrap().len() <= 1024);
    assert_eq!(event.involved_object.name.as_deref(), long["name"].as_str());
}
