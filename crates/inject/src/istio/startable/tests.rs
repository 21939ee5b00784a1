//! Tests of each condition, and of the error message about it.

mod fields;

use serde_json::json;

use super::*;

/// Returns the error message for this pod with this sidecar added, as a native one if `native`; `None` if it is accepted.
fn reason(mut pod: Value, sidecar: &Value, native: bool) -> Option<String> {
    let which = if native { INIT_CONTAINERS } else { CONTAINERS };
    let mut container = json!({"name": "istio-proxy", "image": "p:1"});
    if native {
        container["restartPolicy"] = "Always".into();
    }
    pod::object(&mut container).extend(sidecar.as_object().cloned().unwrap_or_default());
    pod::list_mut(pod::spec_mut(&mut pod), which).push(container);
    let template_pod = json!({"spec": {which: [{"name": "istio-proxy"}], "volumes": [{"name": "istio-envoy"}]}});
    check((&json!({}), &[]), &pod, &template_pod).err().map(|error| error.to_string())
}

fn of_sidecar(sidecar: &Value) -> Option<String> {
    reason(json!({"spec": {"volumes": [{"name": "istio-envoy", "emptyDir": {}}]}}), sidecar, false)
}

#[test]
fn a_sidecar_that_starts_is_accepted() {
    let sidecar = json!({
        "env": [{"name": "A", "value": "b"}, {"name": "C", "value": "", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "E"}],
        "volumeMounts": [{"name": "istio-envoy", "mountPath": "/a"}, {"name": "istio-envoy", "mountPath": "/b"}],
        "readinessProbe": {"httpGet": {"port": 1}, "tcpSocket": null, "periodSeconds": 1},
        "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
        "ports": [{"name": "a", "containerPort": 3}, {"containerPort": 1}, {"containerPort": 2}],
        "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": 2, "memory": "1024Mi"}},
        "securityContext": {"runAsNonRoot": false, "runAsUser": 0, "allowPrivilegeEscalation": true, "privileged": true},
    });
    assert_eq!(of_sidecar(&sidecar), None);
}

/// The template has no container with either of the two names.
#[test]
fn an_image_that_no_template_replaces_is_refused() {
    for (which, name) in [(CONTAINERS, "istio-proxi"), (INIT_CONTAINERS, "istio-init")] {
        let pod = json!({"spec": {"volumes": [{"name": "istio-envoy", "emptyDir": {}}], which: [{"name": name, "image": "auto"}]}});
        let reason = reason(pod, &json!({}), false).unwrap();
        assert!(reason.starts_with(&format!("container {name} has the image \"auto\", which stands for")), "{reason}");
    }
}

#[test]
fn each_field_that_prevents_the_start_is_named() {
    for (sidecar, expected) in [
        (json!({"image": ""}), "container istio-proxy has no image"),
        (json!({"image": " "}), "container istio-proxy has the image \" \", which no kubelet can parse: the name"),
        (json!({"image": "r.io/p:1 "}), "has the image \"r.io/p:1 \", which no kubelet can parse: the tag must"),
        (
            json!({"env": [{"name": "A", "value": "b", "valueFrom": {"fieldRef": {}}}]}),
            "variable \"A\" of container istio-proxy has both",
        ),
        (json!({"env": [{"name": "A=B"}]}), "a variable with the invalid name \"A=B\""),
        (json!({"env": [{"value": "x"}]}), "a variable with the invalid name \"\""),
        (
            json!({"volumeMounts": [{"name": "gone", "mountPath": "/a"}]}),
            "mounts volume \"gone\", which the pod does not have",
        ),
        (
            json!({"volumeMounts": [{"name": "istio-envoy", "mountPath": "/a"}, {"name": "istio-envoy", "mountPath": "/a"}]}),
            "mounts two volumes at \"/a\"",
        ),
        (
            json!({"readinessProbe": {"exec": {}, "httpGet": {}}}),
            "readinessProbe of container istio-proxy has exec and httpGet",
        ),
        (json!({"startupProbe": {"periodSeconds": 1}}), "startupProbe of container istio-proxy has none"),
        (
            json!({"lifecycle": {"preStop": {"exec": {}, "sleep": {}}}}),
            "preStop of container istio-proxy has exec and sleep",
        ),
        (json!({"ports": [{"name": "a"}, {"name": "a"}]}), "two ports named \"a\""),
        (
            json!({"resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "2000m"}}}),
            "requests 3 cpu, more than its limit of 2000m",
        ),
        (json!({"securityContext": {"allowPrivilegeEscalation": false, "privileged": true}}), "but is privileged"),
        (
            json!({"securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"add": ["CAP_SYS_ADMIN"]}}}),
            "but adds CAP_SYS_ADMIN",
        ),
        (
            json!({"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}),
            "must not run as root (runAsNonRoot), but runs as user 0",
        ),
    ] {
        let reason = of_sidecar(&sidecar).unwrap_or_else(|| panic!("{sidecar} is accepted"));
        assert!(reason.contains(expected), "{reason}: {expected}");
    }
}

#[test]
fn a_field_of_another_type_is_refused_with_its_path() {
    let number = json!({"env": [{"name": "A"}, {"name": "B", "value": 15020}]});
    for (pod, sidecar, expected) in [
        (json!({}), number, "the API server refuses spec.containers[0].env[1].value: expected a text, got 15020"),
        (json!({}), json!({"tty": "yes"}), "spec.containers[0].tty: expected true or false, got \"yes\""),
        (
            json!({}),
            json!({"ports": [{"containerPort": "80"}]}),
            "ports[0].containerPort: expected an integer of 32 bits",
        ),
        (
            json!({}),
            json!({"ports": [{"containerPort": 80.5}]}),
            "ports[0].containerPort: expected an integer of 32 bits",
        ),
        (json!({}), json!({"ports": {"containerPort": 80}}), "spec.containers[0].ports: expected a list, got a map"),
        (json!({}), json!({"resources": {"limits": {"cpu": true}}}), "resources.limits.cpu: expected a quantity"),
        (json!({}), json!({"resources": []}), "spec.containers[0].resources: expected a map, got a list"),
        (
            json!({"metadata": {"annotations": {"a/b": true}}}),
            json!({}),
            "metadata.annotations.a/b: expected a text, got true",
        ),
        (json!({"metadata": {"creationTimestamp": "now"}}), json!({}), "metadata.creationTimestamp: expected a time"),
        (json!({"spec": {"hostNetwork": 1}}), json!({}), "spec.hostNetwork: expected true or false, got 1"),
        (
            json!({"spec": {"volumes": [{"name": "istio-envoy", "hostPath": {"path": 5}}]}}),
            json!({}),
            "volume \"istio-envoy\" would be refused by the API server: hostPath.path: expected a text, got 5",
        ),
        (
            json!({"spec": {"volumes": [{"name": "own", "secret": {"secretName": "s", "items": [{"key": 5}]}}]}}),
            json!({}),
            "spec.volumes[0].secret.items[0].key: expected a text, got 5",
        ),
    ] {
        let reason = reason(pod, &sidecar, false).unwrap_or_else(|| panic!("{sidecar} is accepted"));
        assert!(reason.contains(expected), "{reason}: {expected}");
    }
    let valid = json!({
        "ports": null, "tty": null, "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
        "livenessProbe": {"httpGet": {"port": "http"}}, "startupProbe": {"httpGet": {"port": 80}}, "unknown": [5],
    });
    assert_eq!(reason(json!({"metadata": {"creationTimestamp": null}}), &valid, false), None);
}

#[test]
fn conditions_of_the_whole_pod_are_checked() {
    let app = json!({"name": "istio-proxy", "image": "i"});
    let long = "l".repeat(64);
    for (pod, expected) in [
        (json!({"spec": {"initContainers": [app]}}), "two containers are named \"istio-proxy\""),
        (
            json!({"spec": {"volumes": [{"name": "istio-envoy", "emptyDir": {}, "hostPath": {}, "secret": null}]}}),
            "volume \"istio-envoy\" has several sources (emptyDir, hostPath)",
        ),
        (
            json!({"spec": {"volumes": [{"name": "istio-envoy"}, {"name": "istio-envoy"}]}}),
            "two volumes are named \"istio-envoy\"",
        ),
        (json!({"spec": {"securityContext": {"fsGroup": -1}}}), "the pod has fsGroup -1, which must be from 0 to"),
        (
            json!({"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined", "localhostProfile": "p"}}}}),
            "the pod has seccompProfile.localhostProfile \"p\"",
        ),
        (
            json!({"spec": {"imagePullSecrets": [{"name": "map[name:s]"}]}}),
            "the pod has imagePullSecrets \"map[name:s]\", which must be the name of a Secret",
        ),
        (json!({"spec": {"restartPolicy": "always"}}), "the pod has restartPolicy \"always\", which must be Always,"),
        (
            json!({"spec": {"ephemeralContainers": [{"name": "debug"}]}}),
            "the pod has ephemeralContainers [{\"name\":\"debug\"}], which must be absent in a new pod",
        ),
        (json!({"spec": {"dnsPolicy": "Cluster"}}), "the pod has dnsPolicy \"Cluster\", which must be ClusterFirst,"),
        (json!({"spec": {"dnsPolicy": "None"}}), "dnsPolicy \"None\", which must be another one, or have dnsConfig"),
        (json!({"metadata": {"labels": {"a": long}}}), "label \"a\" would have the invalid value \"lll"),
        (json!({"metadata": {"labels": {"a": "x-"}}}), "label \"a\" would have the invalid value \"x-\""),
        (
            json!({"metadata": {"annotations": {"a": "a".repeat(262_144)}}}),
            "all annotations would have 262145 bytes with their names, and the API server allows 262144; the largest is \"a\" with 262145 bytes",
        ),
        (json!({"spec": {"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}}), "runs as user 0"),
    ] {
        let reason = reason(pod, &json!({}), false).unwrap();
        assert!(reason.contains(expected), "{reason}: {expected}");
    }
    let own = json!({"securityContext": {"runAsUser": 1337}});
    assert_eq!(reason(json!({"spec": {"securityContext": {"runAsNonRoot": true, "runAsUser": 0}}}), &own, false), None);
}

#[test]
fn a_volume_that_the_author_repeats_is_left_to_the_api_server() {
    let pod = json!({"spec": {"volumes": [{"name": "istio-envoy"}, {"name": "istio-envoy"}]}});
    let template_pod = json!({"spec": {"volumes": [{"name": "istio-envoy"}]}});
    assert_eq!(check((&pod, &[]), &pod, &template_pod), Ok(()));
}

#[test]
fn what_kubernetes_does_not_have_is_named() {
    for (sidecar, expected) in [
        (
            json!({"resources": {"limits": {"cpus": 1}}}),
            "has a resource in limits \"cpus\", which must be cpu, memory,",
        ),
        (
            json!({"resources": {"requests": {"requests.a.b/gpu": 1}}}),
            "has a resource in requests \"requests.a.b/gpu\"",
        ),
        (json!({"resources": {"limits": {"a.b/gpu": "1500m"}}}), "has limits.a.b/gpu \"1500m\", which must be a whole"),
        (
            json!({"resources": {"requests": {"a.b/gpu": 1}}}),
            "requests 1 a.b/gpu, of which its limit must be the same amount, but its limit is none",
        ),
        (
            json!({"resources": {"requests": {"hugepages-2Mi": 0}, "limits": {"cpu": 1, "hugepages-2Mi": "2Mi"}}}),
            "is 2Mi",
        ),
        (
            json!({"resources": {"limits": {"cpu": 1, "hugepages-2Mi": "3Mi"}}}),
            "has limits.hugepages-2Mi \"3Mi\", which must be a multiple of the size of a page in the resource's name",
        ),
        (
            json!({"resources": {"limits": {"cpu": 1, "hugepages-large": 0}}}),
            "has limits.hugepages-large 0, which must",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Foo"}}}),
            "has seccompProfile.type \"Foo\", which must be RuntimeDefault, Localhost or Unconfined",
        ),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Localhost"}}}),
            "has seccompProfile.localhostProfile null, which must be set for the type Localhost, and for no other",
        ),
        (
            json!({"securityContext": {"appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": "p"}}}),
            "has appArmorProfile.localhostProfile \"p\"",
        ),
        (json!({"securityContext": {"seccompProfile": {}}}), "has seccompProfile.type \"\""),
        (json!({"lifecycle": {"preStop": {"exec": {}}}}), "has preStop.exec.command null, which must be a program"),
        (json!({"readinessProbe": {"exec": {"command": []}}}), "has readinessProbe.exec.command []"),
        (json!({"readinessProbe": {"httpGet": {}}}), "has readinessProbe.httpGet.port null"),
        (json!({"readinessProbe": {"httpGet": {"port": 1, "scheme": "http"}}}), "httpGet.scheme \"http\", which must"),
        (json!({"ports": [{"containerPort": 1, "protocol": "tcp"}]}), "has ports.protocol \"tcp\", which must be TCP,"),
        (json!({"ports": [{"name": "a"}]}), "has ports.containerPort null"),
        (json!({"terminationMessagePolicy": "file"}), "has terminationMessagePolicy \"file\""),
    ] {
        let reason = of_sidecar(&sidecar).unwrap_or_default();
        assert!(reason.contains(expected), "{sidecar}: {reason}");
    }
}

#[test]
fn a_value_that_the_api_server_refuses_is_named() {
    for (sidecar, expected) in [
        (json!({"imagePullPolicy": "ifNotPresent"}), "imagePullPolicy \"ifNotPresent\", which must be Always,"),
        (json!({"securityContext": {"runAsUser": -5}}), "has runAsUser -5, which must be from 0 to 2147483647"),
        (json!({"securityContext": {"runAsGroup": 2_147_483_648_i64}}), "has runAsGroup 2147483648, which must be"),
        (json!({"livenessProbe": {"exec": {}, "periodSeconds": -1}}), "has livenessProbe.periodSeconds -1, which"),
        (
            json!({"startupProbe": {"exec": {}, "successThreshold": 2}}),
            "startupProbe.successThreshold 2, which must be 1",
        ),
        (
            json!({"readinessProbe": {"httpGet": {"port": 0}}}),
            "has readinessProbe.httpGet.port 0, which must be a port",
        ),
        (json!({"readinessProbe": {"tcpSocket": {"port": "80"}}}), "has readinessProbe.tcpSocket.port \"80\""),
        (json!({"lifecycle": {"preStop": {"httpGet": {"port": 65536}}}}), "has preStop.httpGet.port 65536"),
        (
            json!({"volumeDevices": [{"name": "gone", "devicePath": "/x"}]}),
            "mounts volume \"gone\", which the pod does",
        ),
        (json!({"ports": [{"name": "http--a"}]}), "has ports.name \"http--a\""),
        (json!({"ports": [{"name": "a234567890123456"}]}), "has ports.name \"a234567890123456\""),
        (json!({"ports": [{"name": "80"}]}), "has ports.name \"80\""),
        (json!({"ports": [{"containerPort": 0}]}), "has ports.containerPort 0, which must be a port"),
        (json!({"ports": [{"hostPort": 70_000}]}), "has ports.hostPort 70000"),
        (json!({"resources": {"limits": {"cpu": "-1"}}}), "has limits.cpu \"-1\", which must be 0 or more"),
        (json!({"resources": {"requests": {"memory": "-1Gi"}}}), "has requests.memory \"-1Gi\""),
    ] {
        let reason = of_sidecar(&sidecar).unwrap_or_default();
        assert!(reason.contains(expected), "{sidecar}: {reason}");
    }
    for sidecar in [
        json!({"imagePullPolicy": "", "ports": [{"name": "http-envoy-prom", "containerPort": 15090, "hostPort": 0}]}),
        json!({"readinessProbe": {"httpGet": {"port": "health"}, "successThreshold": 3}}),
        json!({"livenessProbe": {"grpc": {"port": 65535}, "successThreshold": 0}}),
        json!({"resources": {"requests": {"cpu": 0}}, "securityContext": {"runAsUser": 2_147_483_647}}),
        json!({"resources": {"requests": {"a.b/gpu": "1"}, "limits": {"cpu": 1, "a.b/gpu": 1, "hugepages-2Mi": "2Mi"}}}),
        json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "p"}}}),
        json!({"ports": [{"containerPort": 1, "protocol": "SCTP"}, {"containerPort": 2, "protocol": ""}]}),
    ] {
        assert_eq!(of_sidecar(&sidecar), None, "{sidecar}");
    }
    let template_pod = json!({"spec": {"containers": [{"name": "A"}]}});
    let named = json!({"spec": {"containers": [{"name": "A", "image": "i"}]}});
    let error = check((&json!({}), &[]), &named, &template_pod).unwrap_err().to_string();
    assert!(error.contains("has name \"A\", which must be a DNS label"), "{error}");
}

#[test]
fn only_a_native_sidecar_has_probes_among_init_containers() {
    let probe = json!({"readinessProbe": {"exec": {"command": ["x"]}}});
    assert_eq!(reason(json!({}), &probe, true), None);
    let plain = json!({"readinessProbe": {"exec": {}}, "restartPolicy": null});
    let reason = reason(json!({}), &plain, true).unwrap();
    assert!(
        reason.starts_with("init container istio-proxy has readinessProbe, which only native sidecars"),
        "{reason}"
    );
}

#[test]
fn containers_of_the_pods_author_are_left_to_the_api_server() {
    let app = json!({"name": "app", "readinessProbe": {}, "volumeMounts": [{"name": "gone"}]});
    assert_eq!(reason(json!({"spec": {"containers": [app]}}), &json!({}), true), None);
}

#[test]
fn a_volume_that_a_claim_template_would_replace_is_refused() {
    let volumes = json!([{"name": "istio-data", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]);
    let pod = json!({"spec": {"volumes": volumes, "containers": [{"name": "istio-proxy", "image": "p:1"}]}});
    let template_pod = json!({"spec": {"volumes": [{"name": "istio-data"}], "containers": [{"name": "istio-proxy"}]}});
    let reason = |claim: &str| {
        let checked = check((&json!({}), &[claim.to_owned()]), &pod, &template_pod);
        checked.err().map(|error| error.to_string())
    };
    assert_eq!(reason("data"), None);
    let found = reason("istio-data").unwrap();
    assert!(found.starts_with("volume \"istio-data\" has several sources (emptyDir, a claim template)"), "{found}");
}

#[test]
fn amounts_and_names_that_the_api_server_accepts_are_accepted() {
    for resources in [
        json!({"limits": {"cpu": "1500u", "hugepages-2Mi": "2097151500m"}}),
        json!({"requests": {"cpu": "0.0011"}, "limits": {"cpu": "2m"}}),
        json!({"limits": {"requests.kubernetes.io/x": 1}}),
        json!({"limits": {"a.b/gpu": "999999u"}}),
    ] {
        assert_eq!(of_sidecar(&json!({"resources": resources})), None, "{resources}");
    }
}
