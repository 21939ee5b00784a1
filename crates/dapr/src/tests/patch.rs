//! Tests of the patch: its operations, their order and the resulting pod.

use super::*;

#[test]
fn a_plain_pod_gets_a_sidecar_a_token_and_variables() {
    let mut pod = pod(&[]);
    pod["spec"]["containers"][0]["env"] = json!([{"name": "CIAO", "value": "mondo"}]);
    let outcome = reviewed(&pod, &settings(&[]));
    assert_eq!(
        paths(&outcome),
        [
            "/metadata/labels",
            "/spec/volumes",
            "/spec/containers/-",
            "/metadata/labels/dapr.io~1sidecar-injected",
            "/metadata/labels/dapr.io~1app-id",
            "/metadata/labels/dapr.io~1metrics-enabled",
            "/spec/containers/0/env/-",
            "/spec/containers/0/env/-",
            "/spec/containers/0/env/-",
        ]
    );
    let pod = apply(&pod, &outcome);
    let token =
        json!({"audience": "spiffe://foo.bar/ns/example/dapr-sentry", "expirationSeconds": 7200, "path": "token"});
    let projected = json!({"sources": [{"serviceAccountToken": token}], "defaultMode": 420});
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "dapr-identity-token", "projected": projected}]));
    let labels =
        json!({"dapr.io/sidecar-injected": "true", "dapr.io/app-id": "app", "dapr.io/metrics-enabled": "true"});
    assert_eq!(pod["metadata"]["labels"], labels);
    let env = json!([
        {"name": "CIAO", "value": "mondo"},
        {"name": "DAPR_HTTP_PORT", "value": "3500"},
        {"name": "DAPR_GRPC_PORT", "value": "50001"},
        {"name": "APP_PROTOCOL", "value": "http"},
    ]);
    assert_eq!(pod["spec"]["containers"][0]["env"], env);
    assert_eq!(pod["spec"]["containers"][1]["name"], "daprd");
    assert_eq!(pod["spec"]["containers"].as_array().map(Vec::len), Some(2));
}

#[test]
fn ports_are_excluded_from_redirection_on_request() {
    let (inbound, outbound) =
        ("traffic.sidecar.istio.io/excludeInboundPorts", "traffic.sidecar.istio.io/excludeOutboundPorts");
    let annotations = |pod: &Value| {
        let after = injected(pod, &settings(&[]));
        [inbound, outbound].map(|key| after["metadata"]["annotations"][key].as_str().map(str::to_owned))
    };
    assert_eq!(annotations(&pod(&[])), [None, None]);
    let excluded = ("exclude-ports-from-redirection", "true");
    let mut pod = pod(&[excluded, ("internal-grpc-port", "7000"), ("metrics-port", "-1"), ("enable-debug", "true")]);
    let both = [Some("3500,50001,7000,3501,40000".to_owned()), Some("7000".to_owned())];
    assert_eq!(annotations(&pod), both);
    pod["metadata"]["annotations"][inbound] = "15020,7000".into();
    pod["metadata"]["annotations"][outbound] = "7000".into();
    assert_eq!(annotations(&pod), [Some("15020,7000,3500,50001,3501,40000".to_owned()), Some("7000".to_owned())]);
}

#[test]
fn missing_lists_are_created() {
    let pod = json!({"metadata": {"annotations": {"dapr.io/enabled": "true", "dapr.io/app-id": "app"}}, "spec": {}});
    let outcome = reviewed(&pod, &settings(&[]));
    assert_eq!(paths(&outcome)[..3], ["/spec/containers", "/metadata/labels", "/spec/volumes"]);
    assert_eq!(apply(&pod, &outcome)["spec"]["containers"][0]["name"], "daprd");
}

#[test]
fn variables_of_the_application_are_not_overridden() {
    for (env, protocol, expected) in [
        (json!(null), "http", json!(["DAPR_HTTP_PORT", "DAPR_GRPC_PORT", "APP_PROTOCOL"])),
        (json!(null), "odd", json!(["DAPR_HTTP_PORT", "DAPR_GRPC_PORT"])),
        (json!([{"name": "TEST"}]), "odd", json!(["TEST", "DAPR_HTTP_PORT", "DAPR_GRPC_PORT"])),
        (
            json!([{"name": "TEST"}, {"name": "DAPR_GRPC_PORT"}]),
            "odd",
            json!(["TEST", "DAPR_GRPC_PORT", "DAPR_HTTP_PORT"]),
        ),
        (
            json!([{"name": "DAPR_HTTP_PORT"}, {"name": "DAPR_GRPC_PORT"}]),
            "odd",
            json!(["DAPR_HTTP_PORT", "DAPR_GRPC_PORT"]),
        ),
    ] {
        let mut pod = pod(&[("app-protocol", protocol)]);
        pod["spec"]["containers"][0]["env"] = env.clone();
        let pod = injected(&pod, &settings(&[]));
        let names = pod["spec"]["containers"][0]["env"].as_array().expect("env").iter();
        assert_eq!(
            Value::Array(names.map(|variable| variable["name"].clone()).collect()),
            expected,
            "{env} {protocol}"
        );
    }
}

#[test]
fn sockets_are_in_a_memory_volume() {
    for (mounts, expected) in [
        (json!(null), 1),
        (json!([{"name": "a", "mountPath": "/a"}]), 2),
        (json!([{"name": "a", "mountPath": "/a"}, {"name": "b", "mountPath": "/b"}]), 3),
        (json!([{"name": "a", "mountPath": "/tmp/socket"}]), 1),
        (json!([{"name": "dapr-unix-domain-socket", "mountPath": "/else"}]), 1),
    ] {
        let mut pod = pod(&[("unix-domain-socket-path", "/tmp/socket")]);
        pod["spec"]["containers"][0]["volumeMounts"] = mounts.clone();
        let pod = injected(&pod, &settings(&[]));
        let app = pod["spec"]["containers"][0]["volumeMounts"].as_array().expect("mounts");
        assert_eq!(app.len(), expected, "{mounts}");
        let socket = json!({"name": "dapr-unix-domain-socket", "emptyDir": {"medium": "Memory"}});
        assert_eq!(pod["spec"]["volumes"][0], socket);
        assert_eq!(pod["spec"]["volumes"][1]["name"], "dapr-identity-token");
        assert_eq!(daprd(&pod)["volumeMounts"].as_array().map(Vec::len), Some(2));
        assert_eq!(option(daprd(&pod), "--unix-domain-socket"), Some("/var/run/dapr-sockets"));
    }
}

#[test]
fn existing_volumes_are_kept() {
    let mut pod = pod(&[("unix-domain-socket-path", "/tmp/socket")]);
    pod["spec"]["volumes"] = json!([{"name": "dapr-identity-token", "secret": {}}]);
    let pod = injected(&pod, &settings(&[]));
    assert_eq!(pod["spec"]["volumes"].as_array().map(Vec::len), Some(2));
    assert_eq!(pod["spec"]["volumes"][0], json!({"name": "dapr-identity-token", "secret": {}}));
    let mounts = daprd(&pod)["volumeMounts"].as_array().expect("mounts");
    assert!(mounts.iter().any(|mount| mount["name"] == "dapr-identity-token"), "{mounts:?}");
}

#[test]
fn without_identity_tokens_no_token_is_mounted() {
    let settings = Settings { identity_token: false, ..settings(&[]) };
    let pod = injected(&pod(&[]), &settings);
    assert_eq!(pod["spec"].get("volumes"), None);
    assert_eq!(daprd(&pod).get("volumeMounts"), None);
}

#[test]
fn a_native_sidecar_is_a_restartable_init_container() {
    let migrations = json!([{"name": "init-migrations"}]);
    for (env, annotation, init, expected) in [
        (vec![("NATIVE_SIDECAR_ENABLED", "true")], None, json!(null), vec!["daprd"]),
        (vec![], Some("true"), json!(null), vec!["daprd"]),
        (vec![("NATIVE_SIDECAR_ENABLED", "true")], None, migrations.clone(), vec!["init-migrations", "daprd"]),
        (vec![("NATIVE_SIDECAR_FIRST", "true")], Some("1"), migrations.clone(), vec!["daprd", "init-migrations"]),
        (vec![("NATIVE_SIDECAR_FIRST", "true")], Some("1"), json!(null), vec!["daprd"]),
        (vec![("NATIVE_SIDECAR_ENABLED", "true")], Some("false"), migrations, vec!["init-migrations"]),
    ] {
        let mut pod = pod(&[("graceful-shutdown-seconds", "30")]);
        pod["spec"]["initContainers"] = init.clone();
        if let Some(value) = annotation {
            pod["metadata"]["annotations"]["dapr.io/enable-native-sidecar"] = value.into();
        }
        let pod = injected(&pod, &settings(&env));
        let names = pod["spec"]["initContainers"].as_array().expect("init containers").iter();
        assert_eq!(
            names.filter_map(|one| one["name"].as_str()).collect::<Vec<_>>(),
            expected,
            "{env:?} {annotation:?}"
        );
        let native = expected.contains(&"daprd");
        assert_eq!(daprd(&pod)["restartPolicy"], if native { json!("Always") } else { json!(null) });
        assert_eq!(option(daprd(&pod), "--dapr-graceful-shutdown-seconds"), Some("30"));
    }
}

#[test]
fn a_derived_app_id_is_written_to_the_annotation() {
    let pod = json!({
        "metadata": {"generateName": "web-abc-", "labels": {"pod-template-hash": "abc"},
            "annotations": {"dapr.io/enabled": "true"}},
        "spec": {"containers": [{"name": "app"}]},
    });
    let pod = injected(&pod, &settings(&[]));
    assert_eq!(pod["metadata"]["annotations"]["dapr.io/app-id"], "web");
    assert_eq!(pod["metadata"]["labels"]["dapr.io/app-id"], "web");
    assert_eq!(option(daprd(&pod), "--app-id"), Some("web"));
}

#[test]
fn containers_are_patched_in_their_order() {
    let mut pod = pod(&[("unix-domain-socket-path", "/s")]);
    pod["spec"]["containers"] = json!([{"name": "a"}, {"name": "b"}, {"name": "c"}]);
    let outcome = reviewed(&pod, &settings(&[]));
    let expected: Vec<String> = ["env", "volumeMounts"]
        .iter()
        .flat_map(|list| (0..3).map(move |index| format!("/spec/containers/{index}/{list}")))
        .collect();
    assert_eq!(paths(&outcome)[6..], expected);
}
