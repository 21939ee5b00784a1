//! Tests of the sidecar's container for each annotation.

use super::*;

#[test]
fn the_command_line_equals_daprs() {
    let settings = settings(&[("NAMESPACE", "dapr-system")]);
    let daprd = sidecar(
        &[
            ("app-id", "app_id".replace('_', "-").as_str()),
            ("config", "config"),
            ("app-port", "5000"),
            ("log-as-json", "true"),
            ("api-token-secret", "secret"),
            ("app-token-secret", "appsecret"),
        ],
        &settings,
    );
    let expected = "/daprd --dapr-http-port 3500 --dapr-grpc-port 50001 --dapr-internal-grpc-port 50002 \
        --dapr-listen-addresses [::1],127.0.0.1 --dapr-public-port 3501 --app-id app-id --app-protocol http --log-level info \
        --dapr-graceful-shutdown-seconds -1 --mode kubernetes --control-plane-address dapr-api.dapr-system.svc.cluster.local:443 \
        --sentry-address dapr-sentry.dapr-system.svc.cluster.local:443 --app-port 5000 --enable-metrics --metrics-port 9090 \
        --config config --placement-host-address dapr-placement-server.dapr-system.svc.cluster.local:50005 --log-as-json \
        --enable-mtls --scheduler-host-address dapr-scheduler-server-a.dapr-system.svc.cluster.local:443";
    assert_eq!(args(&daprd).join(" "), expected);
    assert_eq!(daprd["command"], Value::Null);
    let secret = |name: &str, secret: &str| json!({"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}});
    let expected = json!([
        {"name": "NAMESPACE", "value": "testns"},
        {"name": "DAPR_TRUST_ANCHORS", "value": "ANCHORS"},
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "DAPR_CONTROLPLANE_NAMESPACE", "value": "dapr-system"},
        {"name": "DAPR_CONTROLPLANE_TRUST_DOMAIN", "value": "foo.bar"},
        secret("DAPR_API_TOKEN", "secret"),
        secret("APP_API_TOKEN", "appsecret"),
    ]);
    assert_eq!(daprd["env"], expected);
}

#[test]
fn options_have_daprs_order() {
    let settings = settings(&[
        ("ACTORS_SERVICE_NAME", "custom"),
        ("ACTORS_SERVICE_ADDRESS", "actors:80"),
        ("REMINDERS_SERVICE_NAME", "memo"),
        ("REMINDERS_SERVICE_ADDRESS", "memo-svc:81"),
    ]);
    let all = [
        ("app-channel-address", "1.2.3.4"),
        ("sentry-request-jwt-audiences", "a,b"),
        ("enable-api-logging", "0"),
        ("disable-builtin-k8s-secret-store", "1"),
        ("enable-app-health-check", "on"),
        ("app-binding-options-timeout", "30s"),
        ("enable-profiling", "y"),
        ("app-ssl", "t"),
        ("app-max-concurrency", "7"),
        ("http-max-request-size", "8"),
        ("max-body-size", "9Mi"),
        ("http-read-buffer-size", "10"),
        ("read-buffer-size", "11Ki"),
        ("unix-domain-socket-path", "/tmp/socket"),
        ("block-shutdown-duration", "3s"),
        ("actors-disseminate-timeout", "45s"),
        ("disable-init-endpoints", "x"),
        ("enable-metrics", "no"),
    ];
    let daprd = sidecar(&all, &settings);
    let after = args(&daprd).into_iter().skip_while(|arg| *arg != "--sentry-address").skip(2);
    let expected = "--app-channel-address 1.2.3.4 --actors-service custom:actors.example.svc.cluster.local:80 \
        --reminders-service memo:memo-svc.example.svc.cluster.local:81 --sentry-request-jwt-audiences a,b \
        --enable-api-logging=false --disable-builtin-k8s-secret-store --enable-app-health-check --app-health-check-path \
        /healthz --app-health-probe-interval 5 --app-health-probe-timeout 500 --app-health-threshold 3 \
        --app-binding-options-timeout 30s --enable-profiling --enable-mtls --app-ssl --app-max-concurrency 7 \
        --dapr-http-max-request-size 8 --max-body-size 9Mi --dapr-http-read-buffer-size 10 --read-buffer-size 11Ki \
        --unix-domain-socket /var/run/dapr-sockets --dapr-block-shutdown-duration 3s --actors-disseminate-timeout 45s \
        --scheduler-host-address dapr-scheduler-server-a.example.svc.cluster.local:443 --disable-init-endpoints x";
    assert_eq!(after.collect::<Vec<_>>().join(" "), expected);
}

#[test]
fn a_debugger_runs_the_sidecar() {
    let daprd = sidecar(
        &[("enable-debug", "true"), ("debug-port", "55555")],
        &settings(&[("ENABLE_K8S_DOWNWARD_APIS", "true")]),
    );
    let start = "/dlv --listen :55555 --accept-multiclient --headless=true --log --api-version=2 exec /daprd -- --dapr-http-port";
    assert!(args(&daprd).join(" ").starts_with(start), "{daprd}");
    assert_eq!(daprd["ports"][4], json!({"name": "dapr-debug", "containerPort": 55555}));
    let host = json!({"name": "DAPR_HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}});
    assert_eq!(variable(&daprd, "DAPR_HOST_IP"), Some(&host));
}

#[test]
fn ports_are_named_and_moved() {
    let daprd = sidecar(
        &[("grpc-port", "12345"), ("internal-grpc-port", "12346"), ("enable-metrics", "false")],
        &settings(&[]),
    );
    assert_eq!(option(&daprd, "--dapr-grpc-port"), Some("12345"));
    assert_eq!(option(&daprd, "--dapr-internal-grpc-port"), Some("12346"));
    let expected = [("dapr-http", 3500), ("dapr-grpc", 12345), ("dapr-internal", 12346), ("dapr-metrics", 9090)];
    let expected: Vec<Value> =
        expected.iter().map(|(name, port)| json!({"name": name, "containerPort": port})).collect();
    assert_eq!(daprd["ports"], Value::Array(expected));
}

#[test]
fn probes_use_the_public_port() {
    let daprd = sidecar(&[], &settings(&[]));
    let alive = json!({"tcpSocket": {"port": 3501}, "initialDelaySeconds": 180, "timeoutSeconds": 3,
        "periodSeconds": 10, "failureThreshold": 5});
    let ready = json!({"httpGet": {"path": "/v1.0/healthz", "port": 3501}, "initialDelaySeconds": 1, "timeoutSeconds": 1,
        "periodSeconds": 1, "failureThreshold": 5});
    assert_eq!((&daprd["livenessProbe"], &daprd["readinessProbe"]), (&alive, &ready));
    let daprd = sidecar(
        &[("sidecar-liveness-probe-delay-seconds", "0"), ("sidecar-readiness-probe-threshold", "9")],
        &settings(&[]),
    );
    assert_eq!(daprd["livenessProbe"].get("initialDelaySeconds"), None);
    assert_eq!(daprd["readinessProbe"]["failureThreshold"], 9);
}

#[test]
fn the_program_is_the_command_if_entry_points_are_ignored() {
    let listed = r#"[{"key":"azure.com/aci","Effect":"NoSchedule"},{"key":"timed","tolerationSeconds":5}]"#;
    let aci = json!({"key": "azure.com/aci", "effect": "NoSchedule"});
    for (env, tolerations, command) in [
        ("", json!([aci]), json!(null)),
        (listed, json!([]), json!(null)),
        (listed, json!([{"key": "other"}]), json!(null)),
        (listed, json!([{"key": "azure.com/aci"}]), json!(null)),
        (listed, json!([{"key": "timed", "tolerationSeconds": 5}]), json!(null)),
        (listed, json!([aci]), json!(["/daprd"])),
        (listed, json!([{"key": "other"}, aci]), json!(["/daprd"])),
    ] {
        let mut pod = pod(&[]);
        pod["spec"]["tolerations"] = tolerations.clone();
        let pod = injected(&pod, &settings(&[("IGNORE_ENTRYPOINT_TOLERATIONS", env)]));
        let daprd = daprd(&pod);
        assert_eq!(daprd["command"], command, "{env} {tolerations}");
        let first = if command.is_null() { "/daprd" } else { "--dapr-http-port" };
        assert_eq!(args(daprd)[0], first, "{env} {tolerations}");
    }
}

#[test]
fn the_security_context_follows_settings_and_pod() {
    let common = json!({"runAsNonRoot": true, "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false});
    let with = |name: &str, value: Value| {
        let mut context = common.clone();
        context[name] = value;
        context
    };
    for (env, annotation, expected) in [
        (("UNUSED", ""), ("unused", ""), common.clone()),
        (("SIDECAR_DROP_ALL_CAPABILITIES", "true"), ("unused", ""), with("capabilities", json!({"drop": ["ALL"]}))),
        (("SIDECAR_RUN_AS_NON_ROOT", "false"), ("unused", ""), with("runAsNonRoot", json!(false))),
        (("SIDECAR_READ_ONLY_ROOT_FILESYSTEM", "no"), ("unused", ""), with("readOnlyRootFilesystem", json!(false))),
        (("SIDECAR_RUN_AS_USER", "1000"), ("unused", ""), with("runAsUser", json!(1000))),
        (("SIDECAR_RUN_AS_GROUP", "3000"), ("unused", ""), with("runAsGroup", json!(3000))),
        (
            ("UNUSED", ""),
            ("sidecar-seccomp-profile-type", "RuntimeDefault"),
            with("seccompProfile", json!({"type": "RuntimeDefault"})),
        ),
        (("UNUSED", ""), ("env", "SSL_CERT_FILE=/x"), common.clone()),
        (
            ("SIDECAR_RUN_AS_USER", "1000"),
            ("env", "SSL_CERT_DIR=/x"),
            json!({"runAsNonRoot": false, "readOnlyRootFilesystem": false, "allowPrivilegeEscalation": false,
                "windowsOptions": {"runAsUserName": "ContainerAdministrator"}}),
        ),
    ] {
        let daprd = sidecar(&[annotation], &settings(&[env]));
        assert_eq!(daprd["securityContext"], expected, "{env:?} {annotation:?}");
    }
}

#[test]
fn invalid_resources_are_all_omitted() {
    let daprd = sidecar(&[("sidecar-cpu-request", "100"), ("sidecar-memory-limit", "1024Mi")], &settings(&[]));
    assert_eq!(daprd["resources"], json!({"limits": {"memory": "1Gi"}, "requests": {"cpu": "100"}}));
    assert_eq!(sidecar(&[], &settings(&[]))["resources"], json!({}));
    for bad in ["sidecar-cpu-request", "sidecar-cpu-limit", "sidecar-memory-request", "sidecar-memory-limit"] {
        let pod = pod(&[("sidecar-cpu-request", "1"), ("sidecar-memory-limit", "1"), (bad, "bad")]);
        let outcome = reviewed(&pod, &settings(&[]));
        assert_eq!(daprd_of(&pod, &outcome)["resources"], json!({}), "{bad}");
        assert!(outcome.warnings.iter().any(|warning| warning.contains("\"bad\" is not a quantity")), "{outcome:?}");
    }
}

fn daprd_of(pod: &Value, outcome: &InjectionOutcome) -> Value {
    daprd(&apply(pod, outcome)).clone()
}

#[test]
fn only_volumes_of_the_pod_are_mounted() {
    let mut pod = pod(&[
        ("volume-mounts", "one:/1, two:/2,three:/a:b,four,absent:/x"),
        ("volume-mounts-rw", " two:/w "),
        ("unix-domain-socket-path", "/tmp/s"),
    ]);
    pod["spec"]["volumes"] = json!([{"name": "one"}, {"name": "two"}]);
    let outcome = reviewed(&pod, &settings(&[]));
    let expected = json!([
        {"name": "one", "readOnly": true, "mountPath": "/1"},
        {"name": "two", "readOnly": true, "mountPath": "/2"},
        {"name": "two", "mountPath": "/w"},
        {"name": "dapr-unix-domain-socket", "mountPath": "/var/run/dapr-sockets"},
        {"name": "dapr-identity-token", "readOnly": true, "mountPath": "/var/run/secrets/dapr.io/sentrytoken"},
    ]);
    assert_eq!(daprd_of(&pod, &outcome)["volumeMounts"], expected);
    assert_eq!(outcome.warnings, ["volume \"absent\" is not in the pod, so daprd does not mount it"]);
}

#[test]
fn the_image_is_the_pods_or_the_settings() {
    for (policy, expected) in [
        ("Always", "Always"),
        ("Never", "Never"),
        ("IfNotPresent", "IfNotPresent"),
        ("", "IfNotPresent"),
        ("x", "IfNotPresent"),
    ] {
        let daprd = sidecar(&[], &settings(&[("SIDECAR_IMAGE_PULL_POLICY", policy)]));
        assert_eq!((&daprd["image"], &daprd["imagePullPolicy"]), (&json!("daprd:1"), &json!(expected)), "{policy}");
    }
    let daprd = sidecar(&[("sidecar-image", "mine:2")], &settings(&[]));
    assert_eq!((&daprd["image"], &daprd["imagePullPolicy"]), (&json!("mine:2"), &json!("Always")));
}

#[test]
fn variable_names_are_in_dapr_env_keys() {
    let daprd = sidecar(
        &[
            ("env", "HELLO=world, CIAO=mondo, BONJOUR=monde"),
            ("env-from-secret", "KEY1=NAME1 ,KEY2=NAME2:SECRETKEY2 ,BAD=a:b:c"),
        ],
        &settings(&[]),
    );
    assert_eq!(variable(&daprd, "CIAO"), Some(&json!({"name": "CIAO", "value": "mondo"})));
    let secret = json!({"name": "KEY2", "valueFrom": {"secretKeyRef": {"name": "NAME2", "key": "SECRETKEY2"}}});
    assert_eq!(variable(&daprd, "KEY2"), Some(&secret));
    assert_eq!(variable(&daprd, "BAD"), None);
    let keys = json!({"name": "DAPR_ENV_KEYS", "value": "HELLO CIAO BONJOUR KEY1 KEY2 BAD"});
    assert_eq!(variable(&daprd, "DAPR_ENV_KEYS"), Some(&keys));
    assert_eq!(variable(&sidecar(&[], &settings(&[])), "DAPR_ENV_KEYS"), None);
}
