//! Tests that the proxy or its agent listens on the ports that the sidecar's probes and hooks connect to.

use super::*;

/// Returns a pod injected by this template with these annotations, and its proxy.
fn with(template: &str, native: bool, annotations: &Value) -> (Value, Value) {
    let mut pod = annotated(annotations);
    pod["metadata"]["annotations"]["inject.istio.io/templates"] = template.into();
    let pod = injected(&BuiltIn::default(), native, &pod);
    let lists = ["initContainers", "containers"].map(|list| pod["spec"][list].as_array().cloned().unwrap_or_default());
    let proxy = lists.concat().into_iter().find(|item| item["name"] == "istio-proxy").unwrap();
    (pod, proxy)
}

#[test]
fn without_a_status_port_no_probe_or_hook_calls_the_agent() {
    let off =
        json!({"status.sidecar.istio.io/port": "0", "proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"});
    for (template, native) in [("sidecar", false), ("sidecar", true), ("gateway", false)] {
        let (_, proxy) = with(template, native, &off);
        for asking in ["lifecycle", "readinessProbe", "startupProbe"] {
            assert_eq!(proxy.get(asking), None, "{template}, native {native}");
        }
    }
    let hold = json!({"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"});
    let (_, proxy) = with("sidecar", false, &hold);
    assert_eq!(proxy["lifecycle"], json!({"postStart": {"exec": {"command": ["pilot-agent", "wait"]}}}));
}

#[test]
fn ports_set_by_variables_are_probed_declared_and_excluded() {
    let moved = "{holdApplicationUntilProxyStarts: true, proxyMetadata: {ENVOY_STATUS_PORT: '15031', ENVOY_PROMETHEUS_PORT: '15091'}}";
    let moved = json!({"proxy.istio.io/config": moved});
    for (template, native) in [("sidecar", false), ("sidecar", true), ("gateway", false)] {
        let (pod, proxy) = with(template, native, &moved);
        assert_eq!(proxy["readinessProbe"]["httpGet"]["port"], 15031, "{template}");
        assert_eq!(proxy["ports"][0]["containerPort"], 15091);
        if template == "gateway" {
            continue;
        }
        assert_eq!(proxy["startupProbe"]["httpGet"]["port"], 15031);
        let annotation = &pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"];
        assert_eq!(annotation, "15020,15091,15031", "the plugin reads the annotation");
        let args = pod["spec"]["initContainers"][0]["args"].as_array().unwrap();
        let at = args.iter().position(|argument| argument == "-d").unwrap();
        assert_eq!(args[at + 1], "15090,15021,15020,15091,15031");
        let wait = json!(["pilot-agent", "wait", "--url=http://localhost:15031/healthz/ready"]);
        let expected = if native { Value::Null } else { wait };
        assert_eq!(proxy["lifecycle"]["postStart"]["exec"]["command"], expected);
    }
    let (_, proxy) = with("sidecar", false, &json!({"proxy.istio.io/config": "proxyMetadata: {ENVOY_STATUS_PORT: x}"}));
    assert_eq!(proxy["readinessProbe"]["httpGet"]["port"], 15021, "no port");
}
