//! Tests of Istio's functions and of their arguments' types.

use std::collections::BTreeMap;

use gotemplate::{Budget, Delims, Error, Reason, Record, Template, Value};
use serde_json::{Value as Json, json};

use crate::istio::functions;
use crate::istio::shapes::{mesh, pod};

fn try_with(text: &str, data: &Value<'_>) -> Result<String, Error> {
    let functions = functions::all(BTreeMap::new());
    Template::parse("sidecar", text, Delims::BRACES, &functions)?.render(data, &mut Budget::default())
}

#[track_caller]
fn render(text: &str, data: &Json) -> String {
    try_with(text, &Value::json(data)).unwrap()
}

#[track_caller]
fn reason(text: &str, data: &Value<'_>) -> Reason {
    match try_with(text, data) {
        Err(Error::Render(failure)) => failure.reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn absent_fields_of_a_pod_are_zero_and_unknown_ones_errors() {
    let pod = json!({ "spec": { "containers": [{ "name": "app", "ports": [{ "containerPort": 1_000_000 }] }] } });
    let spec = Value::shaped(&pod["spec"], &pod::POD_SPEC);
    let text = "{{ eq .ServiceAccountName `` }} {{ .HostNetwork }} {{ .SecurityContext }} {{ range .Containers }}{{ .Name }} {{ .Ports }}{{ end }}";
    assert_eq!(try_with(text, &spec).unwrap(), "true false <nil> app [{ 0 1000000  }]");
    let unknown = reason("{{ .ContainersX }}", &spec);
    assert_eq!(unknown, Reason::UnknownField { field: "ContainersX".to_owned(), of: "v1.PodSpec".to_owned() });
    let nil = reason("{{ .SecurityContext.RunAsUser }}", &spec);
    let of = "*v1.PodSecurityContext".to_owned();
    assert_eq!(nil, Reason::NilPointer { field: "RunAsUser".to_owned(), of });
}

#[test]
fn labels_that_are_absent_are_empty_text() {
    let metadata = json!({ "labels": { "app": "hello" } });
    let data = Record::value("data", vec![("ObjectMeta", Value::shaped(&metadata, &pod::OBJECT_META))]);
    let text = "{{ if ne `` (index .ObjectMeta.Labels `nope`) }}wrong{{ end }}{{ index .ObjectMeta.Annotations `a` }}|{{ .ObjectMeta.Labels.nope }}|\
                {{ isset .ObjectMeta.Labels `app` }} {{ isset .ObjectMeta.Annotations `app` }} {{ annotation .ObjectMeta `port` 15020.0 }} {{ annotation .ObjectMeta `x` nil }}";
    assert_eq!(try_with(text, &data).unwrap(), "|<no value>|true false 15020 <nil>");
}

#[test]
fn getters_of_absent_messages_return_zeroes() {
    let config = json!({ "interceptionMode": "TPROXY", "drainDuration": "45s", "proxyMetadata": { "A": "<b>" }, "concurrency": 0 });
    let data = Value::shaped(&config, &mesh::PROXY_CONFIG);
    let text = "{{ .InterceptionMode }} {{ .InterceptionMode.String }} {{ .HoldApplicationUntilProxyStarts.GetValue }} \
                {{ .GetTracing.GetTlsSettings.GetCaCertificates }}|{{ if .GetTracing }}x{{ end }}{{ .Concurrency.GetValue }} {{ protoToJSON . }}";
    let expected = "TPROXY TPROXY false |0 {\"concurrency\":0,\"interceptionMode\":\"TPROXY\",\"proxyMetadata\":{\"A\":\"\\u003cb\\u003e\"}}";
    assert_eq!(try_with(text, &data).unwrap(), expected);
    let incompatible = reason("{{ eq .InterceptionMode `TPROXY` }}", &data);
    assert!(matches!(incompatible, Reason::Call { .. }), "{incompatible}");
}

#[test]
fn istios_functions() {
    let data = json!({ "s": "", "zero": 0, "null": null, "resources": { "limits": { "cpu": null }, "requests": { "cpu": "1", "memory": null }, "list": [null] } });
    for (text, expected) in [
        (
            "{{ valueOrDefault .s `d` }} {{ valueOrDefault .zero `d` }} {{ valueOrDefault .absent `d` }} {{ valueOrDefault .null `d` }}",
            "d 0 d d",
        ),
        (
            "{{ excludeInboundPort `15020` `` }} {{ excludeInboundPort 15020 `80, 90,` }} {{ excludeInboundPort 0 `80` }} {{ excludeInboundPort `80` `80,` }}",
            "15020 80,90,15020 80 80,",
        ),
        ("{{ `a: 1\nb: 2` | indent 2 }}", "a: 1\n  b: 2"),
        ("{{ toYaml (omitNil .resources) }}", "requests:\n  cpu: \"1\"\n"),
        ("{{ toYaml (omitNil .s) }}", "\"\"\n"),
        ("{{ toJSON .null }} {{ toJSON .zero }} {{ fromJSON `{` }} {{ (fromJSON `{\"a\":[1]}`).a }}", "{} 0 {} [1]"),
        (
            "{{ directory `/a/b/c` }} {{ directory `c` }} {{ contains `/` `a/b` }} {{ toLower `AbC` }}",
            "/a/b/  true abc",
        ),
        (
            "{{ formatDuration `60s` }} {{ formatDuration `45s` }} {{ formatDuration `3661.5s` }} {{ formatDuration `0.1s` }} {{ formatDuration `0s` }}",
            "1m0s 45s 1h1m1.5s 100ms 0s",
        ),
        (
            "{{ toJsonMap (strdict `b` `1` `a` 2) (omit (strdict `x` `y` `z` ``) `x`) }} {{ mergeMaps (strdict `a` `1`) (strdict `a` `2`) }}",
            "{\"a\":\"2\",\"b\":\"1\",\"z\":\"\"} map[a:2]",
        ),
    ] {
        assert_eq!(render(text, &data), expected, "{text}");
    }
}

#[test]
fn a_network_is_appended_in_the_format_of_the_list() {
    let append = |existing: &str| render("{{ appendMultusNetwork . `default/istio-cni` }}", &json!(existing));
    assert_eq!(append(""), "default/istio-cni");
    assert_eq!(append("a, b"), "a, b, default/istio-cni");
    assert_eq!(append("a, default/istio-cni"), "a, default/istio-cni");
    assert_eq!(append(r#"[{"name": "a"}]"#), r#"[{"name": "a"}, {"name": "istio-cni", "namespace": "default"}]"#);
    assert_eq!(
        append(r#"[{"name":"istio-cni","namespace":"default"}]"#),
        r#"[{"name":"istio-cni","namespace":"default"}]"#
    );
    assert_eq!(append(r#"[{"name"]"#), r#"[{"name"]"#);
}

#[test]
fn ports_of_containers_are_those_with_tcp() {
    let containers = json!({ "containers": [
        { "name": "app", "ports": [{ "containerPort": 80 }, { "containerPort": 53, "protocol": "UDP" }, { "containerPort": 81, "protocol": "TCP" }] },
        { "name": "istio-proxy", "ports": [{ "containerPort": 15090 }] },
    ] });
    let spec = Value::shaped(&containers, &pod::POD_SPEC);
    let text = "{{ includeInboundPorts .Containers }} {{ applicationPorts .Containers }}";
    assert_eq!(try_with(text, &spec).unwrap(), "80,81,15090 80,81");
}
