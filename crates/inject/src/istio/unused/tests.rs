//! Tests of the warnings about what no template reads.

use serde_json::json;

use super::*;
use crate::istio::{BuiltIn, Config, InjectionOutcome, Injector, Request, Settings};

/// Returns the warnings for a pod with these annotations and this template.
fn warned(template: &str, annotations: &Value) -> Vec<String> {
    let settings = Settings::from_template(&format!("{template}\nmetadata: {{}}\n")).unwrap();
    let injector = Injector::new(Config { settings, ..BuiltIn::default().config().unwrap() });
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": []}});
    match injector.review(&Request::new(&pod, "shop")).unwrap() {
        InjectionOutcome::Injected { injected, .. } => injected.warnings,
        InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
    }
}

#[test]
fn an_annotation_that_no_template_reads_is_named_once() {
    let set = json!({
        "sidecar.istio.io/proxyCPU": "1", "sidecar.istio.io/logLevel": "debug", "sidecar.istio.io/proxyCpu": "1",
        "proxy.istio.io/config": "statusPort: 15020", "example.com/other": "x", "istio.io/rev": "x",
    });
    let all = "annotations that no template for this pod uses: sidecar.istio.io/proxyCPU, sidecar.istio.io/logLevel, sidecar.istio.io/proxyCpu";
    assert_eq!(warned("# none", &set), [all]);
    let read = "# {{ index .ObjectMeta.Annotations `sidecar.istio.io/proxyCPU` }} {{ annotation .ObjectMeta `sidecar.istio.io/logLevel` `` }}";
    let typing_error = "annotations that no template for this pod uses: sidecar.istio.io/proxyCpu (is sidecar.istio.io/proxyCPU meant?)";
    assert_eq!(warned(read, &set), [typing_error]);
    for all in [
        "{{ range $name, $value := .ObjectMeta.Annotations }}{{ end }}",
        "# {{ toJSON .ObjectMeta.Annotations }}",
        "# {{ index .ObjectMeta.Annotations (printf `sidecar.istio.io/%s` `x`) }}",
    ] {
        assert_eq!(warned(all, &set), [""; 0], "{all}");
    }
}

#[test]
fn a_mistyped_annotation_is_named_with_the_one_that_is_meant() {
    let injector = Injector::new(BuiltIn::default().config().unwrap());
    for (mistyped, meant) in [
        ("sidecar.istio.io/proxyCpu", "sidecar.istio.io/proxyCPU"),
        ("sidecar.istio.io/proxyMemoryLimits", "sidecar.istio.io/proxyMemoryLimit"),
        ("istio.io/revs", "istio.io/rev"),
        ("sidecar.istio.io/statsInclusionPrefix", "sidecar.istio.io/statsInclusionPrefixes"),
        ("trafic.sidecar.istio.io/includeInboundPorts", "traffic.sidecar.istio.io/includeInboundPorts"),
        ("sidecar.istio.oi/inject", "sidecar.istio.io/inject"),
        ("traffic.istio.io/excludeOutboundPorts", "traffic.sidecar.istio.io/excludeOutboundPorts"),
        ("sidecar.istio.io/excludeOutboundPorts", "traffic.sidecar.istio.io/excludeOutboundPorts"),
        ("excludeOutboundPorts", "traffic.sidecar.istio.io/excludeOutboundPorts"),
        ("proxyCPU", "sidecar.istio.io/proxyCPU"),
    ] {
        let pod = json!({"metadata": {"annotations": {mistyped: "1"}}});
        let found = warnings(&injector.config().settings.reads, ["sidecar"].into_iter(), &pod);
        let said = format!("annotations that no template for this pod uses: {mistyped} (is {meant} meant?)");
        assert_eq!(found, [said]);
    }
    for other in ["logLevel", "port", "inject", "gateway.istio.io/managed", "example.com/proxyCPU"] {
        let pod = json!({"metadata": {"annotations": {other: "1"}}});
        assert_eq!(warnings(&injector.config().settings.reads, ["sidecar"].into_iter(), &pod), [""; 0], "{other}");
    }
    let labels = json!({"metadata": {"labels": {"sidecar.istio.oi/inject": "false", "app.example.io/x": "y"}}});
    let said = "labels with a prefix of Istio's that Istio does not read: sidecar.istio.oi/inject (is sidecar.istio.io/inject meant?)";
    assert_eq!(warnings(&BTreeMap::new(), std::iter::empty(), &labels), [said]);
}

#[test]
fn an_annotation_in_the_spelling_of_prometheus_is_named_unless_it_is_read() {
    for (name, meant) in [
        ("prometheus.istio.io_scrape-targets", " (is prometheus.istio.io/scrape-targets meant?)"),
        ("prometheus_istio_io_merge_metrics", " (is prometheus.istio.io/merge-metrics meant?)"),
        ("sidecar.istio.io_inject", " (is sidecar.istio.io/inject meant?)"),
        ("sidecar_istio_io/other", ""),
    ] {
        let said = format!("annotations that no template for this pod uses: {name}{meant}");
        assert_eq!(warned("# none", &json!({name: "x"})), [said]);
    }
    let read = json!({"prometheus.istio.io_secure-port": "1", "prometheus_io_port": "80", "my_istio_io": "x"});
    assert_eq!(warned("# none", &read), [""; 0]);
}

#[test]
fn a_volume_in_a_define_that_is_not_called_does_not_count() {
    let set = json!({"sidecar.istio.io/statsInclusionPrefixes": "a"});
    let defined = "# {{ define `volumes` }}fieldPath: metadata.annotations{{ end }}";
    assert_eq!(warned(defined, &set).len(), 1);
    assert_eq!(warned(&format!("{defined}{{{{ template `volumes` }}}}"), &set), [""; 0]);
    let injector = Injector::new(BuiltIn::default().config().unwrap());
    let pod = json!({"metadata": {"annotations": set}});
    for (template, count) in [("sidecar", 0), ("gateway", 0), ("grpc-agent", 0), ("grpc-simple", 1)] {
        let found = warnings(&injector.config().settings.reads, [template].into_iter(), &pod);
        assert_eq!(found.len(), count, "{template}: {found:?}");
    }
}

#[test]
fn the_agent_reads_annotations_from_a_volume() {
    let set = json!({"sidecar.istio.io/statsInclusionPrefixes": "a", "sidecar.istio.io/extraStatTags": "b"});
    assert_eq!(warned("# none", &set).len(), 1);
    assert_eq!(warned("# fieldPath: metadata.annotations", &set), [""; 0]);
}

#[test]
fn a_field_of_the_proxys_configuration_that_no_template_reads_is_named() {
    let set =
        json!({"proxy.istio.io/config": "{concurrency: 2, drainDuration: 9s, holdApplicationUntilProxyStarts: true}"});
    let unused = "fields of proxy.istio.io/config that no template for this pod uses: drainDuration";
    assert_eq!(warned("# {{ .ProxyConfig.Concurrency }}", &set), [unused]);
    assert_eq!(warned("# {{ protoToJSON .ProxyConfig }}", &set), [""; 0]);
}

#[test]
fn names_with_a_prefix_of_istios_that_istio_does_not_have_are_named() {
    let set = json!({
        "istio.io/rev": "x", "istio.io/revision": "x",
        "topology.istio.io/networks": "n", "ambient.istio.io/redirection": "enabled", "unistio.io/x": "y",
    });
    let unused = "annotations that no template for this pod uses: istio.io/revision, topology.istio.io/networks";
    assert_eq!(warned("# none", &set), [unused]);
    let labels = json!({
        "istio.io/rev": "x", "topology.istio.io/network": "n", "sidecar.istio.io/inject": "true", "app": "a",
        "sidecar.istio.io/proxyCPU": "1", "topology.istio.io/netwrk": "n", "istio.io/dataplane-mode": "none",
    });
    let pod = json!({"metadata": {"labels": labels}});
    let misplaced = "labels that Istio reads as annotations only: sidecar.istio.io/proxyCPU";
    let unknown = "labels with a prefix of Istio's that Istio does not read: topology.istio.io/netwrk (is topology.istio.io/network meant?)";
    assert_eq!(warnings(&BTreeMap::new(), std::iter::empty(), &pod), [misplaced, unknown]);
}

#[test]
fn a_field_of_the_proxys_configuration_that_istio_does_not_have_is_named_whatever_the_template_reads() {
    let set = json!({"proxy.istio.io/config": "{concurency: 2, tracing: {zipkin: {adress: x}}}"});
    let unknown = "fields of proxy.istio.io/config that Istio does not have: concurency, tracing.zipkin.adress";
    assert_eq!(warned("# {{ protoToJSON .ProxyConfig }}", &set), [unknown]);
}

#[test]
fn a_value_that_must_be_a_boolean_and_is_not_is_named() {
    let set = json!({"sidecar.istio.io/rewriteAppHTTPProbers": "true\n", "sidecar.istio.io/nativeSidecar": "false"});
    let text = "sidecar.istio.io/rewriteAppHTTPProbers is ignored: its value \"true\\n\" is neither true nor false";
    let without_proxy =
        "annotations without effect, because the pod has no proxy: sidecar.istio.io/rewriteAppHTTPProbers";
    assert_eq!(warned("# {{ `sidecar.istio.io/nativeSidecar` }}", &set), [text, without_proxy]);
    let low_ports = |value: &str| {
        warned(
            "# sidecar.istio.io/capNetBindService {{ `sidecar.istio.io/capNetBindService` }}",
            &json!({annotation::CAP_NET_BIND_SERVICE: value}),
        )
    };
    assert_eq!(low_ports("true"), [""; 0]);
    assert_eq!(
        low_ports("TRUE"),
        ["sidecar.istio.io/capNetBindService is ignored: its value \"TRUE\" is neither true nor false"]
    );
}

#[test]
fn a_long_list_ends_with_the_number_of_the_rest() {
    let names: Vec<String> = (0..10).map(|at| format!("n{at}")).collect();
    let text = listed(&names.iter().map(String::as_str).collect::<Vec<_>>(), "w").unwrap();
    assert_eq!(text, "w: n0, n1, n2, n3, n4, n5, n6, n7 and 2 more");
}

#[test]
fn the_built_in_configuration_uses_all_documented_annotations() {
    let injector = Injector::new(BuiltIn::default().config().unwrap());
    let reads = &injector.config().settings.reads;
    let known = annotation::ALL.iter().map(|(name, _)| *name);
    let is_istios = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    for name in known.filter(|name| is_istios(name) && !is_read(name) && *name != annotation::NETWORK) {
        assert!(name == annotation::IMAGE_TYPE || reads["sidecar"].has_annotation(name), "{name}");
    }
    assert!(reads.values().all(|reads| !reads.all_annotations));
}
