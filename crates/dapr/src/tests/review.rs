//! Tests of the decision about a sidecar and its warnings.

use super::*;
use crate::{AppIdError, Authority, Refusal, Skip, Source};

const CONFIGURED: &str = "vc-proj*:sa-dev*,vc-all-allowed*:*";

fn decide_with(request: &Request<'_>, allowed: &str) -> Decision {
    let settings = settings(&[("ALLOWED_SERVICE_ACCOUNTS", allowed)]);
    let accounts = BTreeSet::from(["test-auth-id".to_owned()]);
    let outcome = review(request, &settings, &Facts { accounts: &accounts, trust: &trust(), components: None });
    assert_eq!(outcome.patch.is_empty(), !matches!(outcome.decision, Decision::Inject { .. }), "{outcome:?}");
    outcome.decision
}

fn decide_as(user: User<'_>, pod: &Value, allowed: &str) -> Decision {
    decide_with(&Request { kind: "Pod", namespace: "testns", user, object: Some(pod) }, allowed)
}

#[test]
fn groups_and_uids_allow_users() {
    let (masters, kubelet) = (["system:masters".to_owned()], ["system:kubelet".to_owned()]);
    let pod = pod(&[("app-port", "3000")]);
    for (user, expected) in [
        (User { groups: &masters, ..User::default() }, Some(Authority::Masters)),
        (User { groups: &kubelet, ..User::default() }, None),
        (User { uid: "test-auth-id", ..User::default() }, Some(Authority::Uid)),
        (User { uid: "auth-id-123", ..User::default() }, None),
    ] {
        match decide_as(user, &pod, CONFIGURED) {
            Decision::Inject { authority, .. } => assert_eq!(Some(authority), expected, "{user:?}"),
            decision => {
                assert_eq!(decision, Decision::Skip(Skip::Unauthorized { username: String::new() }));
                assert_eq!(expected, None, "{user:?}");
            }
        }
    }
}

#[test]
fn account_names_allow_users() {
    const GLOBS: &str = "proj-*:sa-[dt]*,staging-?:*";
    for (allowed, account, expected) in [
        (CONFIGURED, "vc-project-star:sa-dev-team-usa", Some("vc-proj*:sa-dev*")),
        (CONFIGURED, "vc-all-allowed-project:dapr", Some("vc-all-allowed*:*")),
        (CONFIGURED, "kube-system:deployment-controller", Some("kube-system:deployment-controller")),
        (CONFIGURED, "kube-system:deployment-controller-extra", None),
        (CONFIGURED, "vc-bad-project-star:sa-dev-team-usa", None),
        ("custom-ns:custom-sa", "custom-ns:custom-sa", Some("custom-ns:custom-sa")),
        ("custom-ns:custom-sa", "custom-ns:other-sa", None),
        ("custom-ns:custom-sa", "other-ns:custom-sa", None),
        ("custom-ns:custom-sa", "kube-system:replicaset-controller", Some("kube-system:replicaset-controller")),
        (GLOBS, "proj-alpha:sa-deploy", Some("proj-*:sa-[dt]*")),
        (GLOBS, "proj-beta:sa-test-runner", Some("proj-*:sa-[dt]*")),
        (GLOBS, "staging-A:any-sa", Some("staging-?:*")),
        (GLOBS, "proj-alpha:sa-xyz", None),
        (GLOBS, "staging-AB:any-sa", None),
        (GLOBS, "other-ns:sa-deploy", None),
        ("*:*", "any-ns:any-sa", Some("*:*")),
    ] {
        let username = format!("system:serviceaccount:{account}");
        let decision = decide_as(User { username: &username, ..User::default() }, &pod(&[]), allowed);
        match expected {
            Some(pattern) => assert!(
                matches!(&decision, Decision::Inject { authority: Authority::Name(by), .. } if by == pattern),
                "{account}: {decision:?}"
            ),
            None => assert_eq!(decision, Decision::Skip(Skip::Unauthorized { username }), "{account}"),
        }
    }
}

#[test]
fn only_pods_with_the_annotation_are_injected() {
    let pod = pod(&[]);
    let kind = Request { kind: "Deployment", namespace: "testns", user: CONTROLLER, object: Some(&pod) };
    assert_eq!(decide_with(&kind, ""), Decision::Skip(Skip::NotAPod("Deployment".into())));
    let no_user = User::default();
    for (value, shown) in [
        (json!({}), None),
        (json!({"dapr.io/enabled": "false"}), Some("false")),
        (json!({"dapr.io/enabled": "yes"}), Some("yes")),
        (json!({"dapr.io/enabled": "1"}), Some("1")),
        (json!({"dapr.io/enabled": null}), Some("")),
    ] {
        let pod = json!({"metadata": {"annotations": value}, "spec": {}});
        for user in [no_user, CONTROLLER] {
            let expected = Skip::NotEnabled(shown.map(str::to_owned));
            assert_eq!(decide_as(user, &pod, ""), Decision::Skip(expected), "{value}");
        }
    }
    assert_eq!(decide_as(CONTROLLER, &json!({}), ""), Decision::Skip(Skip::NotEnabled(None)));
}

#[test]
fn enabled_is_true_in_any_case() {
    for value in ["true", "True", "TRUE"] {
        let decision = decide_as(CONTROLLER, &pod(&[("enabled", value)]), "");
        assert!(matches!(decision, Decision::Inject { .. }), "{value}: {decision:?}");
    }
}

#[test]
fn an_injected_pod_is_not_changed() {
    let mut with = pod(&[]);
    with["spec"]["containers"][0]["name"] = "daprd".into();
    assert_eq!(decide_as(CONTROLLER, &with, ""), Decision::Skip(Skip::AlreadyInjected("containers")));
    let mut with = pod(&[]);
    with["spec"]["initContainers"] = json!([{"name": "daprd"}]);
    assert_eq!(decide_as(CONTROLLER, &with, ""), Decision::Skip(Skip::AlreadyInjected("initContainers")));
    let mut with = pod(&[]);
    with["spec"]["ephemeralContainers"] = json!([{"name": "daprd"}]);
    assert!(matches!(decide_as(CONTROLLER, &with, ""), Decision::Inject { .. }));
    for native in ["true", "false"] {
        let settings = settings(&[("NATIVE_SIDECAR_ENABLED", native)]);
        let again = reviewed(&injected(&pod(&[]), &settings), &settings);
        assert!(matches!(again.decision, Decision::Skip(Skip::AlreadyInjected(_))), "{again:?}");
    }
}

#[test]
fn a_review_without_a_pod_is_denied() {
    let request = |user| Request { kind: "Pod", namespace: "testns", user, object: None };
    assert_eq!(decide_with(&request(CONTROLLER), ""), Decision::Refuse(Refusal::NoObject));
    // An unauthorized user gets no information about the object.
    assert!(matches!(decide_with(&request(User::default()), ""), Decision::Skip(Skip::Unauthorized { .. })));
}

#[test]
fn a_malformed_pod_is_denied_with_the_reason() {
    let lists = json!([["app"]]);
    for (path, wrong) in [
        ("containers", json!("none")),
        ("containers", lists.clone()),
        ("initContainers", lists.clone()),
        ("volumes", json!([1])),
        ("tolerations", lists),
        ("serviceAccountName", json!(7)),
    ] {
        let mut pod = pod(&[]);
        pod["spec"][path] = wrong;
        let decision = decide_as(CONTROLLER, &pod, "");
        assert!(matches!(&decision, Decision::Refuse(Refusal::Malformed(_))), "{path}: {decision:?}");
        assert!(matches!(decide_as(User::default(), &pod, ""), Decision::Skip(Skip::Unauthorized { .. })));
    }
    let mut pod = pod(&[]);
    pod["spec"] = Value::Null;
    let Decision::Refuse(refusal) = decide_as(CONTROLLER, &pod, "") else { panic!("no spec") };
    assert!(refusal.to_string().contains("cannot be read"), "{refusal}");
    pod["spec"] = json!([]);
    assert!(matches!(decide_as(CONTROLLER, &pod, ""), Decision::Refuse(Refusal::Malformed(_))), "a list is not a spec");
}

#[test]
fn the_app_id_is_the_annotation_or_name_or_generate_name() {
    let id = |metadata: Value| {
        let mut pod = json!({"metadata": metadata, "spec": {"containers": []}});
        pod["metadata"]["annotations"]["dapr.io/enabled"] = "true".into();
        match decide_as(CONTROLLER, &pod, "") {
            Decision::Inject { app_id, .. } => Ok((app_id.id, app_id.source)),
            Decision::Refuse(Refusal::AppId(error)) => Err(error),
            decision => panic!("{decision:?}"),
        }
    };
    let hash = json!({"pod-template-hash": "7d9f8c6b5"});
    for (metadata, expected) in [
        (json!({"name": "n", "annotations": {"dapr.io/app-id": "a"}}), ("a", Source::Annotation)),
        (json!({"name": "n", "annotations": {"dapr.io/app-id": ""}}), ("n", Source::Name)),
        (json!({"name": "n", "generateName": "g-"}), ("n", Source::Name)),
        (json!({"generateName": "job-"}), ("job", Source::GenerateName)),
        (json!({"generateName": "web-7d9f8c6b5-", "labels": hash}), ("web", Source::GenerateName)),
        (json!({"generateName": "web-other-", "labels": hash}), ("web-other", Source::GenerateName)),
    ] {
        assert_eq!(id(metadata.clone()), Ok((expected.0.to_owned(), expected.1)), "{metadata}");
    }
    assert_eq!(id(json!({})), Err(AppIdError::Empty));
    assert_eq!(id(json!({"generateName": "-"})), Err(AppIdError::Empty));
    let dotted = AppIdError::Invalid { id: "a.b".into(), too_long: false, malformed: true };
    assert_eq!(id(json!({"name": "a.b"})), Err(dotted));
}

#[test]
fn a_pod_is_denied_without_trust_anchors() {
    let outcome = reviewed_with(&pod(&[]), &settings(&[]), &Trust::default(), None);
    assert_eq!(outcome.decision, Decision::Refuse(Refusal::NoTrustAnchors));
    let outcome = reviewed_with(&pod(&[("inject-pluggable-components", "true")]), &settings(&[]), &trust(), None);
    assert_eq!(outcome.decision, Decision::Refuse(Refusal::NoComponents));
}

#[test]
fn a_sidecar_without_an_image_is_denied() {
    for image in ["", " "] {
        let outcome = reviewed(&pod(&[("sidecar-image", image)]), &settings(&[]));
        assert_eq!(outcome.decision, Decision::Refuse(Refusal::NoImage), "{image:?}");
        assert!(outcome.patch.is_empty());
    }
    let mut null = pod(&[]);
    null["metadata"]["annotations"]["dapr.io/sidecar-image"] = Value::Null;
    assert_eq!(reviewed(&null, &settings(&[])).decision, Decision::Refuse(Refusal::NoImage));
    let own = sidecar(&[("sidecar-image", "mine:2")], &settings(&[]));
    assert_eq!(own["image"], "mine:2");
    // Release 1.4.2 has no such annotation.
    let outcome = reviewed(&pod(&[("sidecar-image", "")]), &parse_settings(&[], Era::V1_4_2).expect("settings"));
    assert!(matches!(outcome.decision, Decision::Inject { .. }), "{outcome:?}");
}

#[test]
fn an_unauthorized_user_gets_a_warning() {
    let pod = pod(&[]);
    let request =
        Request { kind: "Pod", namespace: "n", user: User { username: "eve", ..User::default() }, object: Some(&pod) };
    let facts = Facts { accounts: &BTreeSet::new(), trust: &trust(), components: None };
    let outcome = review(&request, &settings(&[]), &facts);
    assert!(outcome.decision.is_allowed());
    assert_eq!(outcome.decision.reason(), "unauthorized");
    assert_eq!(
        outcome.warnings,
        ["no Dapr sidecar: service account 'eve' not on the list of allowed controller accounts"]
    );
}
