//! Tests of the detection with pods as the API server sends them.

use serde_json::{Value, json};

use super::*;
use crate::settings::tests::settings;

/// Returns an injected pod whose validation container has this status.
fn pod(status: &Value) -> Value {
    let mut container = json!({
        "name": "istio-validation", "restartCount": 3, "ready": false, "image": "proxyv2", "imageID": "",
        "state": {}, "lastState": {},
    });
    json_patch::merge(&mut container, status);
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": "shop", "name": "web-0", "uid": "u1", "resourceVersion": "42",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": { "sidecar.istio.io/status": "{}", "other": "x" },
            "labels": { "app": "web" },
            "managedFields": [{ "manager": "kubelet", "fieldsV1": { "f:status": {} } }],
            "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "r", "controller": true }],
        },
        "spec": { "nodeName": "n1", "restartPolicy": "Always", "containers": [{ "name": "web", "image": "web" }] },
        "status": {
            "phase": "Pending", "podIP": "10.0.0.7", "podIPs": [{ "ip": "10.0.0.7" }, { "ip": "fd00::7" }],
            "initContainerStatuses": [container],
            "containerStatuses": [{ "name": "web", "state": { "waiting": { "reason": "PodInitializing" } } }],
        },
    })
}

fn ended(code: i32) -> Value {
    json!({ "terminated": {
        "exitCode": code, "reason": if code == 0 { "Completed" } else { "Error" }, "message": "no redirection\n",
        "startedAt": "2026-01-01T00:00:01Z", "finishedAt": "2026-01-01T00:00:06Z", "containerID": "containerd://c",
    }})
}

fn waiting() -> Value {
    json!({ "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 10s" } })
}

fn running() -> Value {
    json!({ "running": { "startedAt": "2026-01-01T00:00:16Z" } })
}

fn detect_json(pod: Value, line: &str) -> Result<Broken, NotBroken> {
    detect(&serde_json::from_value(pod).unwrap(), &settings(line).unwrap())
}

/// Returns the container state and the attempt of the failure, or why there is no failure.
fn failure_of(pod: Value, line: &str) -> Result<(Evidence, u32), NotBroken> {
    detect_json(pod, line).map(|broken| (broken.evidence, broken.attempt))
}

#[test]
fn the_current_and_the_last_termination_count_with_their_attempts() {
    for (what, status, expected) in [
        ("waits for its next attempt", json!({ "state": waiting(), "lastState": ended(126) }), (Evidence::Last, 3)),
        ("makes its next attempt", json!({ "state": running(), "lastState": ended(126) }), (Evidence::Last, 2)),
        ("has just ended again", json!({ "state": ended(126), "lastState": ended(126) }), (Evidence::Current, 3)),
        ("has ended for the first time", json!({ "state": ended(126), "restartCount": 0 }), (Evidence::Current, 0)),
        (
            "was killed at the last attempt",
            json!({ "state": ended(137), "lastState": ended(126) }),
            (Evidence::Last, 2),
        ),
    ] {
        assert_eq!(failure_of(pod(&status), ""), Ok(expected), "{what}");
    }
}

#[test]
fn pods_that_are_not_broken_have_a_reason() {
    for (what, status, reason) in [
        ("passed at once", json!({ "state": ended(0), "restartCount": 0 }), NotBroken::Recovered),
        ("failed, then passed", json!({ "state": ended(0), "lastState": ended(126) }), NotBroken::Recovered),
        ("runs for the first time", json!({ "state": running() }), NotBroken::NotEnded),
        (
            "was not started yet",
            json!({ "state": { "waiting": { "reason": "PodInitializing" } } }),
            NotBroken::NotEnded,
        ),
        ("failed otherwise", json!({ "state": waiting(), "lastState": ended(55) }), NotBroken::OtherExitCode),
        ("fails otherwise", json!({ "state": ended(121) }), NotBroken::OtherExitCode),
        ("another container", json!({ "name": "istio-init", "state": ended(126) }), NotBroken::NoContainer),
    ] {
        assert_eq!(failure_of(pod(&status), ""), Err(reason), "{what}");
    }
}

#[test]
fn metadata_and_spec_are_checked_before_the_status() {
    let broken = || pod(&json!({ "state": ended(126) }));
    let mut bare = broken();
    bare["metadata"]["annotations"] = json!({ "other": "x" });
    assert_eq!(failure_of(bare.clone(), ""), Err(NotBroken::NoAnnotation));
    assert!(failure_of(bare.clone(), "--repair-sidecar-annotation=").is_ok(), "the filter is off");
    assert!(failure_of(bare, "--repair-sidecar-annotation=other").is_ok(), "another annotation");
    let mut of_node = broken();
    of_node["spec"]["hostNetwork"] = json!(true);
    assert_eq!(failure_of(of_node, ""), Err(NotBroken::HostNetwork));
    let mut empty = broken();
    empty["status"] = json!({});
    assert_eq!(failure_of(empty, ""), Err(NotBroken::NoContainer));
    let mut without = broken();
    without.as_object_mut().unwrap().remove("status");
    assert_eq!(failure_of(without, ""), Err(NotBroken::NoContainer));
    let mut null = broken();
    null["metadata"]["annotations"] = Value::Null;
    assert_eq!(failure_of(null, ""), Err(NotBroken::NoAnnotation));
}

#[test]
fn the_message_is_compared_without_surrounding_whitespace() {
    const FLAG: &str = "--repair-init-container-termination-message";
    let broken = || pod(&json!({ "state": waiting(), "lastState": ended(126) }));
    let judged = |message: &str| {
        let mut settings = settings("").unwrap();
        let Symptom::Validation(validation) = &mut settings.symptom else { panic!("{settings:?}") };
        validation.message = message.to_owned();
        detect(&serde_json::from_value(broken()).unwrap(), &settings).map(|_| ())
    };
    assert_eq!(judged("no redirection"), Ok(()));
    assert_eq!(judged("  no redirection "), Ok(()));
    assert_eq!(judged("no"), Err(NotBroken::OtherMessage));
    assert_eq!(failure_of(broken(), &format!("{FLAG}=no")), Err(NotBroken::OtherMessage));
}

#[test]
fn linkerds_validator_is_found_by_its_name_and_code() {
    const LINKERD: &str = "--repair-init-container-name linkerd-network-validator --repair-init-container-exit-code 95 \
                           --repair-sidecar-annotation linkerd.io/proxy-version";
    let mut broken = pod(&json!({ "name": "linkerd-network-validator", "state": waiting(), "lastState": ended(95) }));
    broken["metadata"]["annotations"] = json!({ "linkerd.io/proxy-version": "edge" });
    assert_eq!(failure_of(broken.clone(), LINKERD), Ok((Evidence::Last, 3)));
    assert_eq!(failure_of(broken, ""), Err(NotBroken::NoAnnotation));
}

#[test]
fn without_name_and_code_filters_the_first_failed_container_counts() {
    let mut two = pod(&json!({ "state": ended(0) }));
    two["status"]["initContainerStatuses"]
        .as_array_mut()
        .unwrap()
        .push(json!({ "name": "migrate", "restartCount": 1, "state": ended(7), "lastState": ended(7) }));
    let any = "--repair-init-container-name= --repair-init-container-exit-code 0";
    assert_eq!(detect_json(two.clone(), any).unwrap().container, "migrate");
    assert_eq!(failure_of(two, ""), Err(NotBroken::Recovered));
}

#[test]
fn a_broken_pod_has_the_fields_that_actions_need() {
    let broken = detect_json(pod(&json!({ "state": ended(126) })), "").unwrap();
    assert_eq!(broken.pod.to_string(), "shop/web-0");
    assert!(!broken.validating);
    assert!(detect_json(pod(&json!({ "state": running(), "lastState": ended(126) })), "").unwrap().validating);
    assert_eq!((broken.uid.as_str(), broken.version.as_str(), broken.node.as_str()), ("u1", "42", "n1"));
    assert_eq!(broken.ips, ["10.0.0.7", "fd00::7"].map(|ip| ip.parse::<IpAddr>().unwrap()));
    assert_eq!(
        (broken.owner, broken.deleting, broken.retries, broken.labelled),
        (Owner::Controller, false, true, false)
    );

    let mut other = pod(&json!({ "state": ended(126) }));
    other["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    other["metadata"]["labels"] = json!({ "cni.istio.io/uninitialized": "" });
    other["metadata"]["ownerReferences"] = json!([{ "kind": "Node", "name": "n1", "controller": true }]);
    other["spec"]["restartPolicy"] = json!("Never");
    other["status"]["podIPs"] = Value::Null;
    let broken = detect_json(other.clone(), "").unwrap();
    assert_eq!((broken.owner, broken.deleting, broken.retries, broken.labelled), (Owner::Node, true, false, true));
    assert_eq!(broken.ips, ["10.0.0.7".parse::<IpAddr>().unwrap()]);

    other["metadata"]["ownerReferences"] = json!([{ "kind": "Thing", "name": "t" }]);
    other["spec"]["restartPolicy"] = json!("OnFailure");
    other["status"]["phase"] = json!("Failed");
    other["status"]["podIP"] = json!("nonsense");
    let broken = detect_json(other, "").unwrap();
    assert_eq!((broken.owner, broken.retries, broken.ips.len()), (Owner::Nobody, false, 0));
}

#[test]
fn broken_is_at_most_256_bytes() {
    let size = size_of::<Broken>();
    assert!(size <= 256, "{size} bytes");
}
