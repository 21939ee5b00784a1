//! Tests of rewritten probes and their record.

use gotemplate::Limits;

use super::*;

fn pod(container: &Value) -> Value {
    json!({"spec": {"containers": [container, {"name": "istio-proxy"}]}})
}

#[test]
fn a_probe_of_a_port_that_does_not_exist_is_left_to_the_api_server() {
    for kind in ["httpGet", "tcpSocket", "grpc"] {
        for (port, is_rewritten) in [(0, false), (70_000, false), (-1, false), (65_535, true)] {
            let mut pod = pod(&json!({"name": "app", "livenessProbe": {kind: {"port": port}}}));
            let before = pod.clone();
            rewrite(&mut pod, 15020, false);
            assert_eq!(pod != before, is_rewritten, "{kind} {port}");
            let patched = http_probes(&before, 15020, &mut Budget::default()).unwrap().0;
            assert_eq!(patched.len() == 1, is_rewritten && kind == "httpGet", "{kind} {port}");
        }
    }
}

fn context(status_port: u16) -> Context {
    Context { status_port, sandbox: None }
}

fn rewrite(pod: &mut Value, status_port: u16, injected: bool) {
    super::rewrite(pod, context(status_port), injected, &mut Budget::default()).unwrap();
}

fn probers(pod: &Value) -> Value {
    serde_json::from_str(pod["spec"]["containers"][1]["env"][0]["value"].as_str().unwrap()).unwrap()
}

#[test]
fn each_kind_of_probe_is_rewritten_to_the_agent() {
    let mut pod = pod(&json!({"name": "a", "ports": [{"name": "web", "containerPort": 80}],
        "readinessProbe": {"httpGet": {"port": "web", "path": "/r", "scheme": "HTTPS"}, "timeoutSeconds": 3},
        "livenessProbe": {"tcpSocket": {"port": 81}}, "startupProbe": {"grpc": {"port": 82}},
        "lifecycle": {"preStop": {"httpGet": {"port": 83}}, "postStart": {"exec": {"command": ["x"]}}}}));
    rewrite(&mut pod, 15020, false);
    assert_eq!(
        probers(&pod),
        json!({
        "/app-health/a/livez": {"tcpSocket": {"port": 81}},
        "/app-health/a/readyz": {"httpGet": {"path": "/r", "port": 80, "scheme": "HTTPS"}, "timeoutSeconds": 3},
        "/app-health/a/startupz": {"grpc": {"port": 82, "service": null}},
        "/app-lifecycle/a/prestopz": {"httpGet": {"port": 83}}})
    );
    let a = &pod["spec"]["containers"][0];
    assert_eq!(
        a["readinessProbe"]["httpGet"],
        json!({"port": 15020, "path": "/app-health/a/readyz", "scheme": "HTTP"})
    );
    assert_eq!(a["livenessProbe"], json!({"httpGet": {"path": "/app-health/a/livez", "port": 15020}}));
    assert_eq!(a["lifecycle"]["postStart"], json!({"exec": {"command": ["x"]}}));
}

#[test]
fn a_request_to_another_host_stays() {
    for kind in ["httpGet", "tcpSocket"] {
        for host in [json!("10.0.0.9"), json!("localhost"), json!(""), Value::Null] {
            let action = json!({kind: {"port": 80, "host": host}});
            let before = pod(&json!({"name": "a", "livenessProbe": action, "lifecycle": {"preStop": action}}));
            let mut after = before.clone();
            rewrite(&mut after, 15020, false);
            // For a tcpSocket, the agent connects to the pod, whatever the host.
            let is_other = kind == "httpGet" && host.as_str().is_some_and(|host| !host.is_empty());
            assert_eq!(after == before, is_other, "{kind} {host}");
            let patched = http_probes(&before, 15020, &mut Budget::default()).unwrap().0;
            assert_eq!(patched.is_empty(), is_other || kind == "tcpSocket", "{kind} {host}");
        }
    }
}

#[test]
fn each_rewritten_handler_is_charged() {
    let probe = json!({"httpGet": {"port": 80}});
    let pod = pod(&json!({"name": "a", "readinessProbe": probe, "livenessProbe": probe, "startupProbe": probe}));
    for steps in [149, 10_000] {
        let budget = || Budget::new(Limits { steps, ..Limits::default() });
        let (mut all, mut legacy) = (budget(), budget());
        let rewritten = super::rewrite(&mut pod.clone(), context(15020), false, &mut all);
        let operations = http_probes(&pod, 15020, &mut legacy).map(|(operations, _)| operations.len());
        if steps < 150 {
            assert_eq!((rewritten, operations), (Err(Exceeded::Steps(steps)), Err(Exceeded::Steps(steps))));
        } else {
            assert_eq!((rewritten, operations), (Ok(()), Ok(3)));
            assert!(all.left().steps <= steps - 150 && legacy.left().steps <= steps - 150);
        }
    }
}

#[test]
fn recorded_originals_are_charged() {
    let mut pod = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}));
    pod["metadata"] = json!({"annotations": {annotation::STATUS: "{}"}});
    let known = format!("{{\"/app-health/b/livez\": [{}0]}}", "0,".repeat(1000));
    pod["spec"]["containers"][1]["env"] = json!([{"name": PROBERS, "value": known}]);
    for (steps, fits) in [(2000, false), (10_000, true)] {
        let budget = || Budget::new(Limits { steps, ..Limits::default() });
        let all = super::rewrite(&mut pod.clone(), context(15020), true, &mut budget());
        let legacy = http_probes(&pod, 15020, &mut budget());
        assert_eq!((all.is_ok(), legacy.is_ok()), (fits, fits), "{all:?} {legacy:?}");
    }
}

#[test]
fn a_probe_of_an_unknown_port_stays() {
    let before = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": "nosuch"}}}));
    let mut after = before.clone();
    rewrite(&mut after, 15020, false);
    assert_eq!(after, before);
}

#[test]
fn a_probe_of_the_agents_port_stays_whether_an_annotation_or_the_configuration_sets_the_port() {
    for (own, configured) in [(None, 15099), (Some("15099"), 15020)] {
        let probe = json!({"httpGet": {"path": "/healthz/ready", "port": 15099}});
        let mut before =
            pod(&json!({"name": "a", "livenessProbe": probe, "readinessProbe": {"httpGet": {"port": 80}}}));
        own.into_iter().for_each(|own| before["metadata"] = json!({"annotations": {annotation::STATUS_PORT: own}}));
        rewrite(&mut before, configured, false);
        let app = &before["spec"]["containers"][0];
        assert_eq!((&app["livenessProbe"], &app["readinessProbe"]["httpGet"]["port"]), (&probe, &json!(15099)));
    }
}

#[test]
fn a_second_legacy_injection_records_no_rewritten_probe() {
    for own in [None, Some("15099")] {
        let mut pod = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}));
        if let Some(port) = own {
            pod["metadata"]["annotations"][annotation::STATUS_PORT] = port.into();
        }
        let (operations, first) = http_probes(&pod, 15020, &mut Budget::default()).unwrap();
        let mut once = crate::patch::apply(pod, &operations).unwrap();
        once["metadata"]["annotations"][annotation::STATUS] = "{}".into();
        once["spec"]["containers"][1]["env"] = json!([{"name": PROBERS, "value": first.clone().unwrap()}]);
        let (_, second) = http_probes(&once, 15020, &mut Budget::default()).unwrap();
        assert_eq!(second, first, "{own:?}");
        once["spec"]["containers"][0]["livenessProbe"]["httpGet"] = json!({"port": 81});
        let (_, changed) = http_probes(&once, 15020, &mut Budget::default()).unwrap();
        assert_eq!(changed.unwrap(), r#"{"/app-health/a/livez":{"httpGet":{"port":81}}}"#, "{own:?}");
    }
}

#[test]
fn probes_stay_if_the_agent_has_no_status_port() {
    let mut before = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}));
    before["metadata"] = json!({"annotations": {annotation::STATUS_PORT: "0"}});
    let mut after = before.clone();
    rewrite(&mut after, 15020, false);
    assert_eq!(after, before);
    assert_eq!(http_probes(&before, 15020, &mut Budget::default()), Ok((Vec::new(), None)));
    before["metadata"] = json!({"annotations": {annotation::STATUS_PORT: "123"}});
    rewrite(&mut before, 15020, false);
    assert_eq!(before["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"], 123);
}

#[test]
fn a_second_injection_keeps_the_recorded_originals() {
    let mut once = pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}));
    rewrite(&mut once, 15020, false);
    let mut twice = once.clone();
    rewrite(&mut twice, 15020, true);
    assert_eq!(twice, once);
    twice["spec"]["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 81}});
    rewrite(&mut twice, 15020, true);
    let both =
        json!({"/app-health/a/livez": {"httpGet": {"port": 80}}, "/app-health/a/readyz": {"tcpSocket": {"port": 81}}});
    assert_eq!(probers(&twice), both);
}
