//! Tests of the sidecar of release 1.4.2.

use super::*;
use crate::{Refusal, Skip};

fn old(env: &[(&str, &str)]) -> Settings {
    parse_settings(env, Era::V1_4_2).expect("settings")
}

#[test]
fn the_command_line_equals_that_of_the_release() {
    let daprd = sidecar(&[("app-port", "5000"), ("config", "config"), ("log-as-json", "true")], &old(&[]));
    let expected = "--mode kubernetes --dapr-http-port 3500 --dapr-grpc-port 50001 --dapr-internal-grpc-port 50002 \
        --dapr-listen-addresses [::1],127.0.0.1 --dapr-public-port 3501 --app-port 5000 --app-id app --control-plane-address \
        dapr-api.example.svc.cluster.local:80 --app-protocol http --placement-host-address \
        dapr-placement-server.example.svc.cluster.local:50005 --config config --log-level info --app-max-concurrency -1 \
        --sentry-address dapr-sentry.example.svc.cluster.local:80 --enable-metrics=true --metrics-port 9090 \
        --dapr-http-max-request-size -1 --log-as-json --enable-mtls";
    assert_eq!(args(&daprd).join(" "), expected);
    assert_eq!(daprd["command"], json!(["/daprd"]));
    assert_eq!(daprd["securityContext"], json!({"allowPrivilegeEscalation": false}));
    let listen = sidecar(&[("sidecar-listen-addresses", "1.2.3.4")], &old(&[]));
    assert_eq!(
        (option(&listen, "--dapr-listen-addresses"), option(&listen, "--app-port")),
        (Some("1.2.3.4"), Some(""))
    );
}

#[test]
fn a_debugger_runs_the_sidecar() {
    let daprd = sidecar(&[("enable-debug", "true"), ("debug-port", "55555")], &old(&[]));
    assert_eq!(daprd["command"], json!(["/dlv"]));
    let start = [
        "--listen=:55555",
        "--accept-multiclient",
        "--headless=true",
        "--log",
        "--api-version=2",
        "exec",
        "/daprd",
        "--",
    ];
    assert_eq!(args(&daprd)[..8], start);
    assert_eq!(args(&daprd)[8], "--mode");
}

#[test]
fn the_sidecar_gets_the_issuers_key() {
    let mut pod = pod(&[("env", "A=1, B=2=3,C=4"), ("api-token-secret", "s")]);
    pod["spec"]["serviceAccountName"] = "account".into();
    let pod = injected(&pod, &old(&[]));
    let expected = json!([
        {"name": "NAMESPACE", "value": "testns"},
        {"name": "A", "value": "1"},
        {"name": "C", "value": "4"},
        {"name": "DAPR_TRUST_ANCHORS", "value": "ANCHORS"},
        {"name": "DAPR_CERT_CHAIN", "value": "CHAIN"},
        {"name": "DAPR_CERT_KEY", "value": "KEY"},
        {"name": "SENTRY_LOCAL_IDENTITY", "value": "testns:account"},
        {"name": "DAPR_API_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "token"}}},
    ]);
    assert_eq!(daprd(&pod)["env"], expected);
    let without = Trust { issuer: None, ..trust() };
    let outcome = reviewed_with(&super::pod(&[]), &old(&[]), &without, None);
    assert_eq!(outcome.decision, Decision::Refuse(Refusal::NoIssuer));
}

#[test]
fn the_patch_is_a_container_and_two_variables() {
    let outcome = reviewed(&pod(&[]), &old(&[]));
    assert_eq!(paths(&outcome), ["/spec/containers/-", "/spec/containers/0/env"]);
    let pod = apply(&pod(&[]), &outcome);
    let env = json!([{"name": "DAPR_HTTP_PORT", "value": "3500"}, {"name": "DAPR_GRPC_PORT", "value": "50001"}]);
    assert_eq!(pod["spec"]["containers"][0]["env"], env);
    assert_eq!(pod["metadata"].get("labels"), None);
    let mut empty = super::pod(&[]);
    empty["spec"]["containers"] = json!([]);
    let outcome = reviewed(&empty, &old(&[]));
    assert_eq!(paths(&outcome), ["/spec/containers"]);
    assert_eq!(apply(&empty, &outcome)["spec"]["containers"][0]["name"], "daprd");
}

#[test]
fn the_token_mount_is_copied_from_the_application() {
    let token = json!({"name": "tok", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true});
    let mut pod = pod(&[]);
    pod["spec"]["containers"] =
        json!([{"name": "a"}, {"name": "b", "volumeMounts": [{"name": "x", "mountPath": "/x"}, token]}]);
    assert_eq!(daprd(&injected(&pod, &old(&[])))["volumeMounts"], json!([token]));
    assert_eq!(sidecar(&[], &old(&[])).get("volumeMounts"), None);
}

#[test]
fn both_probes_use_the_same_endpoint() {
    let daprd = sidecar(&[("sidecar-liveness-probe-delay-seconds", "9")], &old(&[]));
    let probe = |delay: i32| {
        json!({"httpGet": {"path": "/v1.0/healthz", "port": 3501}, "initialDelaySeconds": delay, "timeoutSeconds": 3,
            "periodSeconds": 6, "failureThreshold": 3})
    };
    assert_eq!((&daprd["livenessProbe"], &daprd["readinessProbe"]), (&probe(9), &probe(3)));
}

#[test]
fn annotations_are_parsed_as_in_the_release() {
    let refused = reviewed(&pod(&[("app-port", "web")]), &old(&[]));
    assert_eq!(refused.decision, Decision::Refuse(Refusal::AppPort("web".into())));
    let daprd = sidecar(&[("log-level", ""), ("app-max-concurrency", "x"), ("app-ssl", "t")], &old(&[]));
    assert_eq!((option(&daprd, "--log-level"), option(&daprd, "--app-max-concurrency")), (Some("info"), Some("-1")));
    assert!(!args(&daprd).contains(&"--app-ssl"));
    for (enabled, expected) in [("yes", true), ("1", true), ("ON", true), ("t", false), (" true", false)] {
        let outcome = reviewed(&pod(&[("enabled", enabled)]), &old(&[]));
        assert_eq!(matches!(outcome.decision, Decision::Inject { .. }), expected, "{enabled:?} {outcome:?}");
    }
}

#[test]
fn controllers_are_matched_by_uid_before_other_checks() {
    let settings = old(&[]);
    let user = User { uid: "u", ..CONTROLLER };
    let request = Request { kind: "Deployment", namespace: "n", user, object: None };
    let decide_for = |accounts: &[&str]| {
        let accounts = accounts.iter().map(|&uid| uid.to_owned()).collect();
        review(&request, &settings, &Facts { accounts: &accounts, trust: &trust(), components: None }).decision
    };
    let username = CONTROLLER.username.to_owned();
    assert_eq!(decide_for(&[]), Decision::Skip(Skip::Unauthorized { username }));
    assert_eq!(decide_for(&["u"]), Decision::Skip(Skip::NotAPod("Deployment".into())));
    let wanted = |name: &str| settings.allowed.wants_uid("kube-system", name);
    assert!(wanted("daemon-set-controller") && !wanted("replication-controller"));
}
