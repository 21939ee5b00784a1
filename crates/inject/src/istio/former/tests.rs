//! Tests of the restoration of pods that another injector or `kube-inject` injected, and of records.

use gotemplate::{Budget, Limits};
use serde_json::{Value, json};

use super::*;

fn original_of(pod: &Value) -> Value {
    original(pod, "web", &mut Budget::default()).unwrap().into_owned()
}

/// Returns a pod that Istio's injector injected for the CNI plugin.
fn injected() -> Value {
    let probers = json!({"/app-health/app/readyz": {"httpGet": {"path": "/r", "port": 80, "scheme": "HTTPS"}, "timeoutSeconds": 2},
        "/app-health/app/livez": {"grpc": {"port": 90, "service": null}}});
    let scraping = r#"{"scrape":"true","path":"/m","port":"81"}"#;
    let status = json!({"initContainers": ["istio-validation", "istio-proxy"], "containers": null,
        "volumes": ["istio-envoy", "istio-token"], "imagePullSecrets": ["regcred"], "revision": "default"});
    let own =
        json!({"initContainers": [{"name": "istio-proxy", "env": [{"name": "A", "value": "b"}], "resources": {}}]});
    let env = json!([{"name": "A", "value": "b"}, {"name": "PROXY_CONFIG", "value": "{\"interceptionMode\":\"TPROXY\"}\n"},
        {"name": probes::PROBERS, "value": probers.to_string()}, {"name": "ISTIO_PROMETHEUS_ANNOTATIONS", "value": scraping}]);
    let app = json!({"name": "app", "readinessProbe": {"httpGet": {"path": "/app-health/app/readyz", "port": 15020, "scheme": "HTTP"}, "timeoutSeconds": 2},
        "livenessProbe": {"httpGet": {"path": "/app-health/app/livez", "port": 15020}},
        "startupProbe": {"httpGet": {"path": "/later", "port": 15020}}, "volumeMounts": [{"name": "istio-token"}]});
    json!({
        "metadata": {
            "labels": {"app": "web", "security.istio.io/tlsMode": "istio", "service.istio.io/canonical-name": "web",
                "service.istio.io/canonical-revision": "v2"},
            "annotations": {"sidecar.istio.io/status": status.to_string(), "proxy.istio.io/overrides": own.to_string(),
                "istio.io/rev": "default", "kubectl.kubernetes.io/default-container": "app", "prometheus.io/port": "15020",
                "prometheus.io/path": "/stats/prometheus", "prometheus.io/scrape": "true",
                "sidecar.istio.io/interceptionMode": "TPROXY", "traffic.sidecar.istio.io/includeInboundPorts": "*",
                "traffic.sidecar.istio.io/excludeInboundPorts": "8081,15020",
                "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8",
                "k8s.v1.cni.cncf.io/networks": "other, default/istio-cni"}},
        "spec": {
            "containers": [app],
            "initContainers": [{"name": "istio-validation"}, {"name": "istio-proxy", "restartPolicy": "Always", "env": env}, {"name": "setup"}],
            "volumes": [{"name": "data"}, {"name": "istio-envoy"}, {"name": "istio-token"}],
            "imagePullSecrets": [{"name": "regcred"}]}})
}

#[test]
fn what_istio_injected_is_removed_and_what_the_author_wrote_is_restored() {
    let app = json!({"name": "app", "readinessProbe": {"httpGet": {"path": "/r", "port": 80, "scheme": "HTTPS"}, "timeoutSeconds": 2},
        "livenessProbe": {"grpc": {"port": 90}}, "startupProbe": {"httpGet": {"path": "/later", "port": 15020}},
        "volumeMounts": [{"name": "istio-token"}]});
    let expected = json!({
        "metadata": {
            "labels": {"app": "web", "service.istio.io/canonical-revision": "v2"},
            "annotations": {"traffic.sidecar.istio.io/excludeInboundPorts": "8081",
                "traffic.sidecar.istio.io/includeOutboundIPRanges": "10.0.0.0/8", "k8s.v1.cni.cncf.io/networks": "other",
                "prometheus.io/scrape": "true", "prometheus.io/path": "/m", "prometheus.io/port": "81"}},
        "spec": {
            "containers": [app, {"name": "istio-proxy", "env": [{"name": "A", "value": "b"}], "image": "auto"}],
            "initContainers": [{"name": "setup"}],
            "volumes": [{"name": "data"}, {"name": "istio-token"}]}});
    let found = original_of(&injected());
    assert_eq!(found, expected, "{found:#}");
    assert_eq!(original_of(&expected), expected, "a pod without a status is its own original");
}

#[test]
fn values_that_no_injection_writes_stay() {
    let annotations = json!({"kubectl.kubernetes.io/default-container": "second", "prometheus.io/path": "/stats/prometheus",
        "prometheus.io/port": "15020", "sidecar.istio.io/interceptionMode": "NONE",
        "sidecar.istio.io/rewriteAppHTTPProbers": "false"});
    let labels = json!({"security.istio.io/tlsMode": "disabled", "service.istio.io/canonical-name": "other",
        "topology.istio.io/network": "n1"});
    let spec = json!({"containers": [{"name": "first"}, {"name": "second"}], "securityContext": {"sysctls": [
        {"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]}});
    let mut pod = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": spec});
    let expected = pod.clone();
    pod["metadata"]["annotations"]["sidecar.istio.io/status"] = r#"{"containers":["istio-proxy"]}"#.into();
    let sidecar = json!({"name": "istio-proxy", "args": ["proxy", "sidecar"]});
    pod["spec"]["containers"].as_array_mut().unwrap().push(sidecar);
    assert_eq!(original_of(&pod), expected);
}

#[test]
fn a_gateway_and_an_application_of_grpc_are_restored() {
    let status = r#"{"containers":["istio-proxy","app"],"volumes":["x"]}"#;
    let own = json!({"containers": [{"name": "istio-proxy", "resources": {}}, {"name": "app", "image": "i", "resources": {}}]});
    let annotations = json!({"sidecar.istio.io/status": status, "proxy.istio.io/overrides": own.to_string(),
        "sidecar.istio.io/rewriteAppHTTPProbers": "false"});
    let app = json!({"name": "app", "image": "i", "env": [{"name": "GRPC_XDS_BOOTSTRAP", "value": "x"}]});
    let gateway = json!({"name": "istio-proxy", "image": "p", "args": ["proxy", "router"]});
    let sysctls = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]);
    let pod = json!({"metadata": {"annotations": annotations},
        "spec": {"securityContext": {"sysctls": sysctls}, "containers": [app, gateway], "volumes": [{"name": "x"}]}});
    let containers = json!([{"name": "app", "image": "i"}, {"name": "istio-proxy", "image": "auto"}]);
    assert_eq!(original_of(&pod), json!({"metadata": {}, "spec": {"containers": containers}}));
}

#[test]
fn records_of_a_former_injection_are_charged_and_invalid_ones_refused() {
    let long = format!("[{}0]", "0,".repeat(2000));
    let mut pod = injected();
    pod["spec"]["initContainers"][1]["env"][2]["value"] = long.into();
    let mut budget = Budget::new(Limits { steps: 3000, ..Limits::default() });
    assert!(matches!(original(&pod, "web", &mut budget), Err(Error::Exceeded(_))));
    assert_eq!(original_of(&pod)["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"], 15020);
    let before = json!({"containers": ["istio-proxy"], "before": {"spec": {"$patch": "nonsense"}}});
    pod["metadata"]["annotations"]["sidecar.istio.io/status"] = before.to_string().into();
    let error = original(&pod, "web", &mut Budget::default()).unwrap_err().to_string();
    assert!(error.contains("\"before\" cannot be merged into the pod: "), "{error}");
}

#[test]
fn a_record_has_what_the_names_do_not_tell() {
    let status = json!({"containers": ["istio-proxy"], "volumes": ["v"], "imagePullSecrets": ["s"]});
    let mut injected = json!({"metadata": {"labels": {"x": "1", "y": "2"}, "annotations": {"sidecar.istio.io/status": status.to_string()}},
        "spec": {"dnsPolicy": "None", "containers": [{"name": "a", "ports": [{"containerPort": 1}]}, {"name": "istio-proxy"}],
            "volumes": [{"name": "v"}, {"name": "w"}], "imagePullSecrets": [{"name": "s"}]}});
    let original = json!({"metadata": {"labels": {"y": "3"}},
        "spec": {"containers": [{"name": "a", "ports": [{"containerPort": 2}]}], "volumes": [{"name": "w"}, {"name": "v", "secret": {}}],
            "imagePullSecrets": [{"name": "s"}]}});
    let record = unknown(&injected, &original, ("web", false), &mut Budget::default()).unwrap().unwrap();
    let mut status = status;
    status["before"] = record.before.clone();
    let set = |injected: &mut Value, status: &Value| {
        injected["metadata"]["annotations"]["sidecar.istio.io/status"] = status.to_string().into();
    };
    set(&mut injected, &status);
    let mut changed = injected.clone();
    (changed["spec"]["dnsPolicy"], changed["metadata"]["labels"]["y"]) = ("Default".into(), "4".into());
    assert_eq!(original_of(&changed), original, "an earlier release recorded nothing that it wrote");
    status["written"] = record.written.clone().unwrap();
    set(&mut injected, &status);
    set(&mut changed, &status);
    assert_eq!(original_of(&injected), original);
    let mut expected = original.clone();
    (expected["spec"]["dnsPolicy"], expected["metadata"]["labels"]["y"]) = ("Default".into(), "4".into());
    assert_eq!(original_of(&changed), expected, "what changed since stays");
    assert_eq!(
        unknown(&injected, &original, ("web", false), &mut Budget::default()).unwrap(),
        Some(record),
        "it does not grow"
    );
}

#[test]
fn the_record_of_a_document_has_what_its_author_would_lose_or_a_template_left() {
    let record = |injected: &Value, original: &Value| {
        unknown(injected, original, ("web", true), &mut Budget::default()).unwrap().map(|record| record.before)
    };
    let pod = |labels: Value, status: &str, mut spec: Value| {
        spec["containers"] = json!([{"name": "app", "env": [{"name": "A"}]}]);
        json!({"metadata": {"labels": labels, "annotations": {annotation::STATUS: status}}, "spec": spec})
    };
    let status = r#"{"containers":["istio-proxy"],"volumes":["v"],"imagePullSecrets":["s"]}"#;
    let (none, own) = (json!({}), json!({"team": "own"}));
    let injected = pod(
        json!({"team": "own", "security.istio.io/tlsMode": "istio"}),
        status,
        json!({"volumes": [{"name": "v"}, {"name": "mine", "emptyDir": {}}]}),
    );
    let original = |labels: &Value, spec: Value| {
        let mut pod = pod(labels.clone(), "", spec);
        pod["metadata"].as_object_mut().unwrap().shift_remove("annotations");
        pod
    };
    let mine = json!({"volumes": [{"name": "mine", "emptyDir": {}}]});
    assert_eq!(record(&injected, &original(&own, mine.clone())), None, "what the injection added is not the author's");
    let mut fewer = original(&own, mine);
    fewer["spec"]["containers"] = json!([{"name": "app", "env": [{"name": "A", "value": "1"}]}]);
    assert_eq!(record(&injected, &fewer), None, "containers are in the annotation of the overrides");
    for (field, value) in [
        ("/spec/volumes", json!([{"name": "mine", "emptyDir": {"medium": "Memory"}}])),
        ("/spec/dnsPolicy", json!("None")),
        ("/spec/securityContext", json!({"fsGroup": 7})),
    ] {
        let mut injected = injected.clone();
        injected["spec"]["dnsPolicy"] = Value::Null;
        injected["spec"]["securityContext"] = Value::Null;
        *injected.pointer_mut(field).unwrap() = value;
        assert!(record(&injected, &fewer).is_some(), "the template left {field}");
    }
    for original in [
        original(&json!({"team": "own", "security.istio.io/tlsMode": "istio"}), none.clone()),
        original(&json!({"team": "mine"}), none.clone()),
        original(&own, json!({"volumes": [{"name": "v"}]})),
        original(&own, json!({"imagePullSecrets": [{"name": "s"}]})),
        original(&own, json!({"dnsPolicy": "Default"})),
    ] {
        assert!(record(&injected, &original).is_some(), "{original}");
    }
}

#[test]
fn the_network_of_multus_is_removed_from_a_list_in_json() {
    let own = r#"[{"name": "a"}, {"name": "b", "namespace": "c"}]"#;
    let added = r#"[{"name": "a"}, {"name": "b", "namespace": "c"}, {"name": "istio-cni", "namespace": "default"}]"#;
    for (list, expected) in [(added, own), (own, own), (r#"[{"name": "istio-cni", "namespace": "default"}]"#, "[]")] {
        let mut pod = injected();
        pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] = list.into();
        assert_eq!(original_of(&pod)["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"], expected);
    }
}
