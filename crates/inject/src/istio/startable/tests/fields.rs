//! Tests of the fields of the pod and of its containers that the API server checks.

use serde_json::{Value, json};

use super::{check, of_sidecar, reason};

/// Returns the error message for a pod to whose spec the injection adds these fields; empty if it is accepted.
fn of_spec(fields: &Value) -> String {
    let spec = with(json!({"volumes": [{"name": "istio-envoy", "emptyDir": {}}]}), fields);
    reason(json!({"spec": spec}), &json!({}), false).unwrap_or_default()
}

#[test]
fn a_field_of_the_pod_that_the_api_server_refuses_is_named() {
    for (fields, expected) in [
        (json!({"activeDeadlineSeconds": -1}), "the pod has activeDeadlineSeconds -1, which must be from 1 to"),
        (json!({"activeDeadlineSeconds": 2_147_483_648_i64}), "activeDeadlineSeconds 2147483648"),
        (json!({"preemptionPolicy": "never"}), "preemptionPolicy \"never\", which must be PreemptLowerPriority or"),
        (json!({"hostname": "a.b"}), "hostname \"a.b\", which must be a DNS label"),
        (json!({"subdomain": "A"}), "subdomain \"A\""),
        (json!({"serviceAccountName": "a_b"}), "serviceAccountName \"a_b\", which must be a DNS subdomain"),
        (json!({"priorityClassName": "A"}), "priorityClassName \"A\""),
        (json!({"runtimeClassName": ""}), "runtimeClassName \"\""),
        (json!({"nodeName": "a b"}), "nodeName \"a b\""),
        (json!({"hostnameOverride": "a", "setHostnameAsFQDN": true}), "hostnameOverride \"a\", which must be unset"),
        (json!({"os": {}}), "os.name \"\", which must be linux or windows"),
        (json!({"os": {"name": "plan9"}}), "os.name \"plan9\", which must be linux or windows"),
        (json!({"hostPID": true, "shareProcessNamespace": true}), "hostPID true, which must be one that"),
        (json!({"hostIPC": true, "hostUsers": false}), "hostIPC true"),
        (json!({"securityContext": {"supplementalGroups": [1, -1]}}), "supplementalGroups -1, which must be from 0"),
        (
            json!({"securityContext": {"fsGroupChangePolicy": "always"}}),
            "securityContext.fsGroupChangePolicy \"always\"",
        ),
        (json!({"securityContext": {"supplementalGroupsPolicy": "x"}}), "securityContext.supplementalGroupsPolicy"),
        (json!({"securityContext": {"seLinuxChangePolicy": "x"}}), "securityContext.seLinuxChangePolicy"),
        (
            json!({"securityContext": {"sysctls": [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]}}),
            "securityContext.sysctls \"a\", which must be the name of a sysctl, and each only once",
        ),
        (json!({"securityContext": {"sysctls": [{"name": "A"}]}}), "securityContext.sysctls \"A\""),
        (
            json!({"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "../x"}}}),
            "seccompProfile.localhostProfile \"../x\", which must be a path within",
        ),
        (json!({"dnsConfig": {"nameservers": ["1.1.1.1", "1.1.1.2", "1.1.1.3", "1.1.1.4"]}}), "at most 3 addresses"),
        (json!({"dnsConfig": {"nameservers": ["dns"]}}), "dnsConfig.nameservers \"dns\", which must be an IP address"),
        (json!({"dnsConfig": {"searches": ["a b"]}}), "dnsConfig.searches \"a b\""),
        (json!({"dnsConfig": {"searches": vec!["a"; 33]}}), "at most 32 domains"),
        (json!({"dnsConfig": {"options": [{"value": "1"}]}}), "dnsConfig.options {\"value\":\"1\"}"),
        (json!({"hostAliases": [{"hostnames": ["a"]}]}), "hostAliases.ip \"\", which must be an IP address"),
        (json!({"hostAliases": [{"ip": "x"}]}), "hostAliases.ip \"x\""),
        (json!({"hostAliases": [{"ip": "::1", "hostnames": ["A"]}]}), "hostAliases.hostnames \"A\""),
        (json!({"imagePullSecrets": [null]}), "imagePullSecrets null, which must be the name of a Secret"),
        (json!({"imagePullSecrets": [{}]}), "imagePullSecrets null"),
        (json!({"imagePullSecrets": [{"nam": "s"}]}), "imagePullSecrets null"),
        (json!({"nodeSelector": {"a b": "c"}}), "nodeSelector \"a b\", which must be the name of a label"),
        (json!({"nodeSelector": {"a": "c d"}}), "nodeSelector.a \"c d\""),
    ] {
        let found = of_spec(&fields);
        assert!(found.contains(expected), "{fields}: {found}");
    }
}

#[test]
fn a_field_of_scheduling_that_the_api_server_refuses_is_named() {
    for (fields, expected) in [
        (json!({"tolerations": [{"key": "a", "operator": "equal"}]}), "tolerations.operator \"equal\", which must be"),
        (json!({"tolerations": [{"operator": "Equal"}]}), "must be Exists for a toleration without a key"),
        (json!({"tolerations": [{"key": "a b"}]}), "tolerations.key \"a b\""),
        (json!({"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}), "tolerations.value \"b\""),
        (json!({"tolerations": [{"key": "a", "value": "b c"}]}), "tolerations.value \"b c\""),
        (json!({"tolerations": [{"key": "a", "effect": "noSchedule"}]}), "tolerations.effect \"noSchedule\""),
        (json!({"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]}), "must be NoExecute"),
        (json!({"readinessGates": [{"conditionType": "a b"}]}), "readinessGates.conditionType \"a b\""),
        (json!({"schedulingGates": [{}]}), "schedulingGates.name null"),
        (json!({"schedulingGates": [{"name": "a"}, {"name": "a"}]}), "must be gates with different names"),
        (json!({"schedulingGates": [{"name": "a"}], "nodeName": "n"}), "must be empty in a pod with a nodeName"),
        (spread(&json!({"minDomains": 0})), "topologySpreadConstraints.minDomains 0, which must be 1 or more"),
        (
            spread(&json!({"minDomains": 1, "whenUnsatisfiable": "ScheduleAnyway"})),
            "topologySpreadConstraints.minDomains 1, which must be 1 or more, and absent",
        ),
        (spread(&json!({"nodeTaintsPolicy": "honor"})), "topologySpreadConstraints.nodeTaintsPolicy \"honor\""),
        (
            spread(&json!({"labelSelector": {"matchLabels": {"a": "b c"}}})),
            "topologySpreadConstraints.labelSelector.matchLabels.a \"b c\", which must be the value",
        ),
        (
            json!({"topologySpreadConstraints": [
                {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"},
                {"maxSkew": 2, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
            "no two have the same topologyKey",
        ),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}),
            "topologySpreadConstraints.maxSkew 0",
        ),
        (json!({"topologySpreadConstraints": [{"maxSkew": 1}]}), "topologySpreadConstraints.topologyKey null"),
        (
            json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "x"}]}),
            "topologySpreadConstraints.whenUnsatisfiable \"x\"",
        ),
    ] {
        let found = of_spec(&fields);
        assert!(found.contains(expected), "{fields}: {found}");
    }
}

#[test]
fn a_field_of_an_affinity_that_the_api_server_refuses_is_named() {
    for (fields, expected) in [
        (nodes(&json!({"key": "a", "operator": "in", "values": ["b"]})), "affinity.nodeAffinity.operator \"in\""),
        (nodes(&json!({"key": "a", "operator": "In"})), "affinity.nodeAffinity.values null"),
        (nodes(&json!({"key": "a b", "operator": "Exists"})), "affinity.nodeAffinity.key \"a b\""),
        (
            node_terms(&json!([])),
            "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution {\"nodeSelectorTerms\":[]}",
        ),
        (
            node_terms(&json!([{"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["a"]}]}])),
            "affinity.nodeAffinity.matchFields.key \"metadata.uid\", which must be metadata.name",
        ),
        (
            node_terms(&json!([{"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}])),
            "affinity.nodeAffinity.matchFields.operator \"Exists\"",
        ),
        (
            node_terms(&json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "b"]}]}])),
            "affinity.nodeAffinity.matchFields.values [\"a\",\"b\"], which must be a list of one",
        ),
        (pods(&json!({"namespaces": ["a.b"]})), "affinity.podAffinity.namespaces \"a.b\""),
        (
            pods(&json!({"labelSelector": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}})),
            "affinity.podAffinity.labelSelector.operator \"Gt\", which must be In, NotIn, Exists or",
        ),
        (
            pods(
                &json!({"namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": ["b c"]}]}}),
            ),
            "affinity.podAffinity.namespaceSelector.values \"b c\"",
        ),
        (
            json!({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0}]}}}),
            "affinity.weight 0, which must be from 1 to 100",
        ),
        (
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}}),
            "affinity.podAffinity.topologyKey null",
        ),
    ] {
        let found = of_spec(&fields);
        assert!(found.contains(expected), "{fields}: {found}");
    }
}

/// Returns fields with this requirement on nodes.
fn nodes(requirement: &Value) -> Value {
    node_terms(&json!([{"matchExpressions": [requirement]}]))
}

/// Returns fields with these terms of a required affinity to nodes.
fn node_terms(terms: &Value) -> Value {
    let required = json!({"nodeSelectorTerms": terms});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}})
}

/// Returns fields with a term of a required affinity to pods, which has these fields.
fn pods(fields: &Value) -> Value {
    let term = with(json!({"topologyKey": "z"}), fields);
    json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}})
}

/// Returns fields with a constraint on the spread of pods, which has these fields.
fn spread(fields: &Value) -> Value {
    let constraint = json!({"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"});
    json!({"topologySpreadConstraints": [with(constraint, fields)]})
}

fn with(mut map: Value, fields: &Value) -> Value {
    map.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
    map
}

#[test]
fn a_field_that_the_api_server_accepts_is_accepted() {
    for fields in [
        json!({"activeDeadlineSeconds": 1, "preemptionPolicy": "Never", "hostname": "", "subdomain": "a", "os": {"name": "linux"}}),
        json!({"securityContext": {"fsGroupChangePolicy": "OnRootMismatch", "sysctls": [{"name": "net.ipv4.x", "value": "1"}]}}),
        json!({"dnsConfig": {"nameservers": ["10.0.0.1"], "searches": ["a_b.svc.", "."], "options": [{"name": "ndots"}]}}),
        json!({"tolerations": [{"operator": "Exists"}, {"key": "a/b", "value": "c", "effect": "NoExecute", "tolerationSeconds": 5}]}),
        nodes(&json!({"key": "a.b/c", "operator": "DoesNotExist"})),
        node_terms(&json!([{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1.a"]}]}])),
        pods(&json!({"namespaces": ["a"], "labelSelector": {"matchLabels": {"a/b": ""}}, "namespaceSelector": {}})),
        spread(
            &json!({"minDomains": 2, "nodeAffinityPolicy": "Honor", "labelSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}}),
        ),
        json!({"imagePullSecrets": [{"name": "a.b-c"}, {"name": "barSecret"}], "hostUsers": false, "shareProcessNamespace": true}),
    ] {
        assert_eq!(of_spec(&fields), "", "{fields}");
    }
}

#[test]
fn what_the_author_of_the_pod_wrote_is_left_to_the_api_server() {
    let author = json!({
        "metadata": {"labels": {"a b": "c"}, "annotations": {"a b": "c"}},
        "spec": {"activeDeadlineSeconds": -1, "tolerations": [{"operator": "x"}], "dnsConfig": {"nameservers": ["x"]},
            "securityContext": {"supplementalGroups": [-1]}, "imagePullSecrets": [{}], "affinity": {"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{}]}}, "hostPID": true, "shareProcessNamespace": true},
    });
    assert_eq!(check((&author, &[]), &author, &json!({})), Ok(()));
}

#[test]
fn a_name_in_the_metadata_that_the_api_server_refuses_is_named() {
    let of = |which: &str, name: &str| {
        reason(json!({"metadata": {which: {name: "x"}}, "spec": {"volumes": []}}), &json!({}), false)
            .unwrap_or_default()
    };
    for (which, name, expected) in [
        ("labels", "a b", "label \"a b\" would have an invalid name: it must be"),
        ("labels", "A/b", "label \"A/b\""),
        ("annotations", "a b", "annotation \"a b\" would have an invalid name"),
        ("annotations", "", "annotation \"\""),
    ] {
        let found = of(which, name);
        assert!(found.contains(expected), "{name}: {found}");
    }
    assert_eq!(of("annotations", "Example.com/B"), "", "the case of an annotation's name does not matter");
}

#[test]
fn a_field_of_a_container_that_the_api_server_refuses_is_named() {
    let from = |from: Value| json!({"env": [{"name": "A", "valueFrom": from}]});
    let mount = |fields: Value| {
        let mut mount = json!({"name": "istio-envoy", "mountPath": "/a"});
        mount.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap());
        json!({"volumeMounts": [mount]})
    };
    let http = |header: &str| json!({"livenessProbe": {"httpGet": {"port": 1, "httpHeaders": [{"name": header}]}}});
    let ready = json!({"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 5});
    let live = json!({"exec": {"command": ["x"]}, "terminationGracePeriodSeconds": 0});
    for (sidecar, expected) in [
        (
            json!({"lifecycle": {"preStop": {"sleep": {"seconds": 31}}}}),
            "preStop.sleep.seconds 31, which must be from 0",
        ),
        (json!({"lifecycle": {"preStop": {"sleep": {"seconds": -1}}}}), "preStop.sleep.seconds -1"),
        (json!({"lifecycle": {"stopSignal": "TERM"}}), "lifecycle.stopSignal \"TERM\""),
        (json!({"lifecycle": {"stopSignal": "SIGRTMIN+16"}}), "lifecycle.stopSignal \"SIGRTMIN+16\""),
        (json!({"readinessProbe": ready}), "readinessProbe.terminationGracePeriodSeconds 5, which must be absent"),
        (json!({"livenessProbe": live}), "livenessProbe.terminationGracePeriodSeconds 0, which must be 1 or more"),
        (http("a b"), "livenessProbe.httpGet.httpHeaders.name \"a b\""),
        (json!({"restartPolicy": "always"}), "restartPolicy \"always\""),
        (json!({"restartPolicyRules": [{"action": "Restart"}]}), "which must be absent without restartPolicy"),
        (
            json!({"resizePolicy": [{"resourceName": "gpu", "restartPolicy": "NotRequired"}]}),
            "resizePolicy.resourceName",
        ),
        (json!({"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "x"}]}), "resizePolicy.restartPolicy \"x\""),
        (json!({"securityContext": {"procMount": "default"}}), "procMount \"default\""),
        (json!({"securityContext": {"procMount": "Unmasked"}}), "procMount \"Unmasked\", which must be Default"),
        (
            json!({"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " p"}}}),
            "appArmorProfile.localhostProfile \" p\"",
        ),
        (json!({"resources": {"limits": {"hugepages-2Mi": "2Mi"}}}), "must be with cpu or memory beside huge pages"),
        (from(json!({})), "valueFrom of variable \"A\" of container istio-proxy has none"),
        (
            from(json!({"fieldRef": {"fieldPath": "metadata.name"}, "secretKeyRef": {"name": "s", "key": "k"}})),
            "valueFrom of variable \"A\" of container istio-proxy has fieldRef and secretKeyRef",
        ),
        (from(json!({"fieldRef": {"fieldPath": "metadata.labels"}})), "fieldRef.fieldPath \"metadata.labels\""),
        (from(json!({"fieldRef": {"fieldPath": "metadata.labels['a b']"}})), "fieldRef.fieldPath"),
        (from(json!({"resourceFieldRef": {"resource": "limits.gpu"}})), "resourceFieldRef.resource \"limits.gpu\""),
        (from(json!({"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1Ki"}})), "resourceFieldRef.divisor"),
        (from(json!({"secretKeyRef": {"name": "s"}})), "secretKeyRef.key \"\""),
        (from(json!({"configMapKeyRef": {"name": "A", "key": "k"}})), "configMapKeyRef.name \"A\""),
        (json!({"envFrom": [{}]}), "envFrom of container istio-proxy has none"),
        (json!({"envFrom": [{"secretRef": {}}]}), "envFrom.secretRef.name \"\""),
        (json!({"envFrom": [{"prefix": "a=", "secretRef": {"name": "s"}}]}), "envFrom.prefix \"a=\""),
        (mount(json!({"mountPropagation": "Bidirectional"})), "volumeMounts.mountPropagation \"Bidirectional\""),
        (mount(json!({"recursiveReadOnly": "Enabled"})), "volumeMounts.recursiveReadOnly \"Enabled\""),
        (json!({"volumeDevices": [{"name": "istio-envoy"}]}), "volumeDevices.devicePath \"\""),
        (
            json!({"volumeDevices": [{"name": "istio-envoy", "devicePath": "/d"}], "volumeMounts": [{"name": "istio-envoy", "mountPath": "/m"}]}),
            "volumeMounts.name \"istio-envoy\", which must be a volume that is not a device",
        ),
    ] {
        let found = of_sidecar(&sidecar).unwrap_or_default();
        assert!(found.contains(expected), "{sidecar}: {found}");
    }
    for sidecar in [
        json!({"lifecycle": {"preStop": {"sleep": {"seconds": 30}}, "stopSignal": "SIGRTMAX-14"}}),
        from(json!({"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations['Example.com/A']"}})),
        from(json!({"resourceFieldRef": {"resource": "limits.memory", "divisor": "1Mi"}})),
        from(json!({"resourceFieldRef": {"resource": "requests.cpu", "divisor": "0"}})),
        json!({"restartPolicy": "Always", "envFrom": [{"prefix": "A_", "configMapRef": {"name": "c"}}]}),
        mount(json!({"recursiveReadOnly": "IfPossible", "readOnly": true, "mountPropagation": null})),
        http("X-Header"),
    ] {
        assert_eq!(of_sidecar(&sidecar), None, "{sidecar}");
    }
}

#[test]
fn a_longer_grace_period_allows_a_longer_sleep() {
    let sidecar = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 60}}}});
    let of = |grace: i64| {
        let spec = json!({"terminationGracePeriodSeconds": grace, "volumes": []});
        reason(json!({"spec": spec}), &sidecar, false).is_none()
    };
    assert_eq!([of(59), of(60)], [false, true]);
}
