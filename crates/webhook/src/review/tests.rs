//! Tests of reviews of both versions, and of invalid bodies.

use super::*;

fn review(version: &str) -> Review {
    let body = json!({ "kind": "AdmissionReview", "apiVersion": version, "request": {
        "uid": "u1", "namespace": "shop", "kind": { "group": "", "version": "v1", "kind": "Pod" },
        "object": { "metadata": { "generateName": "web-" } },
    }});
    Review::parse(body.to_string().as_bytes(), BTreeMap::new()).unwrap()
}

#[test]
fn an_answer_has_the_version_of_its_review() {
    for version in [V1, V1BETA1] {
        let review = review(version);
        assert_eq!((&*review.kind, &*review.subject()), ("Pod", "shop/web-"));
        let (verdict, warnings) = (Verdict::Patch(b"[]".to_vec()), vec!["mind the\ngap".to_owned()]);
        let outcome = AdmissionOutcome { verdict, rule: "policy", reason: "because".into(), warnings };
        let response: Value = serde_json::from_str(&review.response(&outcome)).unwrap();
        assert_eq!((&response["apiVersion"], &response["response"]["uid"]), (&version.into(), &"u1".into()));
        assert_eq!(response["response"]["patch"], "W10=");
        assert_eq!(response["response"]["auditAnnotations"]["reason"], "because");
        let warned = if version == V1 { json!(["mind the gap"]) } else { Value::Null };
        assert_eq!(response["response"]["warnings"], warned, "{version}");
    }
}

#[test]
fn a_subject_is_one_line_of_limited_length() {
    let mut review = review(V1);
    review.namespace = "n\n".repeat(200);
    review.object["metadata"]["name"] = "ä".repeat(100_000).into();
    let subject = review.subject();
    let (namespace, name) = subject.split_once('/').unwrap();
    assert_eq!((namespace.chars().count(), name.chars().count()), (253, 253));
    assert!(namespace.starts_with("n n ") && name.ends_with("ä…"), "{subject}");
    review.object["metadata"]["name"] = "x".repeat(253).into();
    assert!(review.subject().ends_with(&"x".repeat(253)), "the longest name of Kubernetes");
}

#[test]
fn a_refusal_has_a_reason() {
    let outcome = AdmissionOutcome::refused("error", "bad annotation".into());
    let response: Value = serde_json::from_str(&review("admission.k8s.io/v1").response(&outcome)).unwrap();
    assert_eq!(response["response"]["allowed"], false);
    assert_eq!(response["response"]["status"]["message"], "bad annotation");
    assert_eq!(response["response"]["warnings"], json!(["bad annotation"]));
    assert!(response["response"].get("patch").is_none());
}

#[test]
fn an_object_of_too_many_values_is_refused_by_the_budget_and_no_profile_sees_it() {
    let body = json!({ "kind": "AdmissionReview", "apiVersion": V1, "request": {
        "uid": "u1", "object": { "spec": { "containers": vec![json!({ "name": "a" }); 150_000] } }, "dryRun": true,
    }});
    let review = Review::parse(body.to_string().as_bytes(), BTreeMap::new()).unwrap();
    let outcome = review.decided_by(&|_: &Review| -> AdmissionOutcome { panic!("reviewed") });
    assert_eq!((&outcome.verdict, outcome.rule, review.dry_run), (&Verdict::Refuse, "budget", true));
    let response: Value = serde_json::from_str(&review.response(&outcome)).unwrap();
    assert_eq!((&response["apiVersion"], &response["response"]["uid"]), (&V1.into(), &"u1".into()));
    assert_eq!(response["response"]["auditAnnotations"], json!({ "decision": "refuse", "reason": outcome.reason }));
    assert!(outcome.reason.contains("takes more than 1000000 steps"), "{}", outcome.reason);
}

#[test]
fn each_invalid_body_has_an_error_of_its_own() {
    let error = |body: &str| Review::parse(body.as_bytes(), BTreeMap::new()).unwrap_err().error.to_string();
    assert!(error("{").starts_with("the body is not an AdmissionReview: EOF"));
    assert!(error(r#"{"kind":"Pod","apiVersion":"v1"}"#).starts_with(r#"no kind "Pod" is registered"#));
    let none = error(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#);
    assert_eq!(none, "the AdmissionReview has no request");
    assert!(error("null").starts_with(r#"no kind "" is registered"#));
}

#[test]
fn an_invalid_body_is_answered_with_its_readable_members() {
    let respond = |body: &str| -> Value {
        let unreadable = Review::parse(body.as_bytes(), BTreeMap::new()).unwrap_err();
        serde_json::from_str(&unreadable.response()).unwrap()
    };
    let review = r#""kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1""#;
    for (body, version, kind, uid, said) in [
        ("{".to_owned(), None, None, "", "EOF"),
        ("null".to_owned(), None, None, "", "no kind"),
        (r#"{"kind":"Pod","apiVersion":"v1"}"#.to_owned(), Some("v1"), Some("Pod"), "", "no kind"),
        (
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v9","request":{"uid":"u"}}"#.to_owned(),
            Some("admission.k8s.io/v9"),
            Some("AdmissionReview"),
            "u",
            "no kind",
        ),
        (format!("{{{review}}}"), Some("admission.k8s.io/v1"), Some("AdmissionReview"), "", "has no request"),
        (
            format!(r#"{{{review},"request":{{"uid":"u","userInfo":7}}}}"#),
            Some("admission.k8s.io/v1"),
            Some("AdmissionReview"),
            "u",
            "invalid type: integer `7`",
        ),
        (
            format!(r#"{{{review},"request":{{"uid":"u","userInfo":["admin"]}}}}"#),
            Some("admission.k8s.io/v1"),
            Some("AdmissionReview"),
            "u",
            "expected an object",
        ),
        (
            format!(r#"{{{review},"request":{{"uid":"u","kind":"Pod"}}}}"#),
            Some("admission.k8s.io/v1"),
            Some("AdmissionReview"),
            "u",
            "invalid type: string \"Pod\"",
        ),
    ] {
        let response = respond(&body);
        assert_eq!((response["apiVersion"].as_str(), response["kind"].as_str()), (version, kind), "{body}");
        assert_eq!((&response["response"]["uid"], &response["response"]["allowed"]), (&uid.into(), &false.into()));
        let message = response["response"]["status"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{body}: {message}");
    }
}

#[test]
fn long_names_are_not_repeated_in_the_answer() {
    let long = "u".repeat(100_000);
    let body = |version: &str, uid: &str| {
        json!({ "kind": "AdmissionReview", "apiVersion": version, "request": { "uid": uid } }).to_string()
    };
    for (body, said) in [
        (body(V1, &long), "the uid of the request has 100000 bytes, more than 128"),
        (body(&long, "u"), "no kind \"AdmissionReview\" is registered for version \"uuu"),
        (json!({ "kind": long }).to_string(), "no kind \"uuu"),
        (json!({ "kind": "AdmissionReview", "apiVersion": V1, "request": { "kind": long } }).to_string(), "\"uuu"),
    ] {
        let response = Review::parse(body.as_bytes(), BTreeMap::new()).unwrap_err().response();
        assert!(response.len() < 1000, "{} bytes", response.len());
        let response: Value = serde_json::from_str(&response).unwrap();
        let message = response["response"]["status"]["message"].as_str().unwrap();
        assert!(message.contains(said) && message.chars().count() <= 512, "{message}");
    }
    let most = "u".repeat(128);
    assert_eq!(Review::parse(body(V1, &most).as_bytes(), BTreeMap::new()).unwrap().uid, most);
}
