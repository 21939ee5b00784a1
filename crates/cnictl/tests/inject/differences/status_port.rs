//! Tests of the differences about the agent's status port.

use inject::istio::{BuiltIn, InjectionOutcome, Injector, Request};
use libtest_mimic::Failed;
use serde_json::{Value, json};

use super::{VALUES, equal, injected, injected_by};

pub(super) fn no_port() -> Result<(), Failed> {
    let probe = json!({"httpGet": {"port": 80}});
    for (own, port) in [("0", 80), ("123", 123), ("15099", 15099)] {
        let annotations = json!({"status.sidecar.istio.io/port": own});
        let containers = json!([{"name": "a", "livenessProbe": probe}]);
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}});
        let pod = injected(&pod, VALUES)?;
        equal(&pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"], &json!(port))?;
    }
    Ok(())
}

pub(super) fn metrics() -> Result<(), Failed> {
    for (own, port) in [("15099", "15099"), ("123", "15020"), ("0", "15020")] {
        let annotations = json!({"status.sidecar.istio.io/port": own});
        let pod = injected(&json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}}), VALUES)?;
        equal(&pod["metadata"]["annotations"]["prometheus.io/port"], &json!(port))?;
    }
    privileged()
}

/// Checks that a status port below 1024 results in the same pod whether an annotation or the pod's proxy configuration
/// sets it.
fn privileged() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    let probe = json!({"httpGet": {"port": 8080}});
    let containers = json!([{"name": "a", "image": "a:1", "readinessProbe": probe}]);
    for own in [json!({}), json!({"prometheus.io/port": "9090"}), json!({"prometheus.io/port": "15020"})] {
        let injected = |name: &str, value: &str| -> Result<Value, Failed> {
            let mut annotations = own.clone();
            annotations[name] = value.into();
            let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}});
            let InjectionOutcome::Injected { injected, .. } = injector.review(&Request::new(&pod, "shop"))? else {
                return Err("was skipped".into());
            };
            Ok(injected.pod)
        };
        let (annotated, configured) =
            (injected("status.sidecar.istio.io/port", "80")?, injected("proxy.istio.io/config", "statusPort: 80")?);
        for pointer in [
            "/metadata/annotations/prometheus.io~1port",
            "/metadata/annotations/prometheus.io~1scrape",
            "/metadata/annotations/traffic.sidecar.istio.io~1excludeInboundPorts",
            "/spec/containers/0",
        ] {
            equal(&json!(annotated.pointer(pointer)), &json!(configured.pointer(pointer)))?;
        }
    }
    Ok(())
}

/// Checks that the agent's port in the pod's own proxy configuration is used for metrics, probes and exclusions.
pub(super) fn configured() -> Result<(), Failed> {
    const TEMPLATE: &str = "metadata:\n  annotations:\n    traffic.sidecar.istio.io/excludeInboundPorts: '{{ annotation .ObjectMeta `status.sidecar.istio.io/port` .Values.global.proxy.statusPort }}'\nspec:\n  containers:\n  - {name: istio-proxy, image: i}\n";
    const VALUES: &str = "{global: {proxy: {statusPort: 15020}}, sidecarInjectorWebhook: {rewriteAppHTTPProbe: true}}";
    let containers = json!([{"name": "a", "livenessProbe": {"httpGet": {"port": 80}}}]);
    for (config, own, port) in
        [("{}", None, 15020), ("statusPort: 15099", None, 15099), ("statusPort: 15099", Some("15088"), 15088)]
    {
        let mut annotations = json!({"proxy.istio.io/config": config});
        if let Some(own) = own {
            annotations["status.sidecar.istio.io/port"] = own.into();
        }
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": containers}});
        let pod = injected_by(TEMPLATE, &pod, VALUES)?;
        let annotations = &pod["metadata"]["annotations"];
        equal(&annotations["prometheus.io/port"], &json!(port.to_string()))?;
        equal(&annotations["traffic.sidecar.istio.io/excludeInboundPorts"], &json!(port.to_string()))?;
        equal(&pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"], &json!(port))?;
        let added = if own.is_some() { json!(own) } else { Value::Null };
        equal(&annotations["status.sidecar.istio.io/port"], &added)?;
    }
    Ok(())
}
