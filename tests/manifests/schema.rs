//! Tests of the schemas of the charts' values: mistyped values are refused by name, Istio's values are accepted, and the values of an
//! earlier release suffice.

use serde_json::{Value, json};

use crate::helm::{AGENT, Chart, INJECTOR, NAMESPACE};
use crate::objects::parse;

/// A name that no value has.
const MISTYPED: &str = "mistpyed";

/// A name that does not exist must be refused in each map of the values, unless users choose the map's names.
pub(crate) fn names_are_refused_at_each_depth() {
    for (chart, nests) in [(AGENT, &["", "cni"][..]), (INJECTOR, &[""])] {
        let mut maps = Vec::new();
        closed(&chart.schema(), "", &mut maps);
        assert!(maps.len() > 12, "{}: {maps:?}", chart.name);
        // All values may also be given under `cni`, except `cni` itself.
        for (nest, map) in nests.iter().flat_map(|nest| maps.iter().map(move |map| (*nest, &**map))) {
            if (nest, map) == ("cni", "cni") {
                continue;
            }
            let names: Vec<&str> = [nest, map].into_iter().filter(|names| !names.is_empty()).collect();
            let (value, mut at) = ([&names[..], &[MISTYPED]].concat().join("."), names.join("/").replace('.', "/"));
            if !at.is_empty() {
                at.insert(0, '/');
            }
            is_refused(
                chart,
                &format!("{value}=1"),
                &format!("at '{at}': additional properties '{MISTYPED}' not allowed"),
            );
        }
    }
    for value in [r#"tolerations=[{"effct": "x"}]"#, r#"affinity={"podAffinity": {"required": []}}"#] {
        is_refused(AGENT, value, "additional properties");
    }
}

/// Collects the paths of maps that permit only the names in their schema.
fn closed(schema: &Value, path: &str, maps: &mut Vec<String>) {
    if schema["additionalProperties"] == false {
        maps.push(path.to_owned());
        for (name, schema) in schema["properties"].as_object().unwrap() {
            closed(schema, &if path.is_empty() { name.clone() } else { format!("{path}.{name}") }, maps);
        }
    }
}

fn is_refused(chart: Chart, value: &str, reason: &str) {
    let error = chart.try_text(&[value]).map(|_| String::new()).unwrap_or_else(|error| error);
    assert!(error.contains(reason), "{}: {value}: {reason}: {error}", chart.name);
}

/// A value must be refused if an object, the agent or the webhook would later fail because of its form.
pub(crate) fn values_of_another_form_are_refused() {
    let directories = ["cniBinDir", "cniConfDir", "cniNetnsDir"];
    let relative =
        directories.map(|name| (format!("{name}=\"etc/cni\""), format!("/{name}': 'etc/cni' does not match")));
    for (value, reason) in relative {
        is_refused(AGENT, &value, &reason);
    }
    for (value, reason) in [
        (r#"resourceQuotas.pods="abc""#, "/resourceQuotas/pods': 'abc' does not match"),
        (r#"repair.budget="many""#, "/repair/budget': 'many' does not match"),
        ("repair.budget=1.5", "/repair/budget': got number, want"),
        ("repair.budget=-1", "/repair/budget': minimum"),
        (r#"repair.enabled="no""#, "/repair/enabled': 'no' does not match"),
        ("repair.enabled=0", "/repair/enabled': got number, want"),
        ("tag=1.3", "/tag': got number, want"),
        ("excludeNamespaces=[null]", "/excludeNamespaces/0': got null, want string"),
        (r#"excludeNamespaces=["a b"]"#, "/excludeNamespaces/0': 'a b' does not match"),
        (r#"excludeNamespaces="a;b""#, "/excludeNamespaces': 'a;b' does not match"),
        ("tolerations=[null]", "/tolerations/0': got null, want object"),
        (r#"cniConfFileName="..""#, "/cniConfFileName': '..' does not match"),
        (r#"cniConfFileName=" ""#, "/cniConfFileName': ' ' does not match"),
        (r#"cniConfDir="/a\n/b""#, r"/cniConfDir': '/a\n/b' does not match"),
        (r#"image="""#, "/image': '' does not match"),
        (r#"global.hub="https://example.com/mesh""#, "/global/hub': 'https://example.com/mesh' does not match"),
        (r#"resources.requests.cpu="100mm""#, "/resources/requests/cpu': '100mm' does not match"),
        (r#"resources.limits.memory="64MB""#, "/resources/limits/memory': '64MB' does not match"),
        ("resources.limits.cpu=-1", "/resources/limits/cpu': minimum"),
        ("resources.requests.cpuu=1", "invalid propertyName 'cpuu'"),
        (r#"podLabels={"bad key!": "x"}"#, "invalid propertyName 'bad key!'"),
        (r#"updateStrategy.rollingUpdate.maxSurge="200%""#, "/maxSurge': '200%' does not match"),
        (r#"global.networkPolicy.scrapers=[{"ipBlock": {"cidr": "abc"}}]"#, "/ipBlock/cidr': 'abc' does not match"),
        (r#"monitoring.rules.runbook="https://x/{{.x}}""#, "/monitoring/rules/runbook': 'https://x/{{.x}}' does not"),
        (r#"repair.mode="restart""#, "/repair/mode': value must be one of '', 'evict'"),
        (r#"logging.level="verbose""#, "/logging/level': 'verbose' does not match"),
        (r#"global.logging.level="default:loud""#, "/global/logging/level': 'default:loud' does not match"),
        (r#"logLevel="verbose""#, "/logLevel': 'verbose' does not match"),
        (r#"runtimeConfigDirs=["/x/.."]"#, "/runtimeConfigDirs/0': '/x/..' does not match"),
        (r#"runtimeConfigDirs=["/"]"#, "/runtimeConfigDirs/0': '/' does not match"),
        (r#"cniConfFileName="a/b""#, "/cniConfFileName': 'a/b' does not match"),
        (r#"provider="other""#, "/provider': value must be one of 'default', 'multus'"),
        (r#"global.platform="bare""#, "/global/platform': value must be one of '', 'gke'"),
        (r#"platform="bare""#, "/platform': value must be one of '', 'gke'"),
        (r#"profile="bare""#, "/profile': value must be one of '', 'ambient'"),
        (r#"global.resourceScope="none""#, "/global/resourceScope': value must be one of 'all'"),
        (r#"compatibilityVersion="1.2""#, "/compatibilityVersion': value must be one of '', '1.20'"),
        (r#"global.imagePullPolicy="always""#, "/global/imagePullPolicy': value must be one of"),
        (r#"podLabels={"x": "a b"}"#, "/podLabels/x': 'a b' does not match"),
        (r#"podAnnotations={"x": true}"#, "/podAnnotations/x': got boolean"),
        (r#"taint.name="a b""#, "/taint/name': 'a b' does not match"),
        (r#"updateStrategy.type="rolling""#, "/updateStrategy/type': value must be one of"),
        (r#"monitoring.podMonitor.interval="often""#, "/monitoring/podMonitor/interval': 'often' does not match"),
    ] {
        is_refused(AGENT, value, reason);
        is_refused(AGENT, &format!("cni.{value}"), reason);
    }
    for (value, reason) in [
        (r#"sidecarInjectorWebhook.failurePolicy="ignore""#, "/failurePolicy': value must be one of 'Fail', 'Ignore'"),
        (r#"sidecarInjectorWebhook.reinvocationPolicy="never""#, "/reinvocationPolicy': value must be one of 'Never'"),
        ("sidecarInjectorWebhook.timeoutSeconds=31", "/timeoutSeconds': maximum"),
        (r#"sidecarInjectorWebhook.injectionPath="inject""#, "/injectionPath': 'inject' does not match"),
        (r#"replicaCount="two""#, "/replicaCount': 'two' does not match"),
        (r#"sidecarInjectorWebhook.timeoutSeconds="31""#, "/timeoutSeconds': '31' does not match"),
        ("global.tag=1.3", "/global/tag': got number, want"),
        ("excludeNamespaces=[null]", "/excludeNamespaces/0': got null, want string"),
        (r#"nativeSidecars="yes""#, "/nativeSidecars': value must be one of 'auto'"),
        (r#"global.platform="bare""#, "/global/platform': value must be one of '', 'gke'"),
        (r#"global.networkPolicy.apiServers=["api"]"#, "/apiServers/0': 'api' does not match"),
        (r#"dapr.watchdog.interval="often""#, "/dapr/watchdog/interval': 'often' does not match"),
    ] {
        is_refused(INJECTOR, value, reason);
    }
}

/// The values of Istio's charts must be accepted; those of the node agent also as a part of the values of a whole mesh.
pub(crate) fn istios_values_are_accepted() {
    for value in [
        "cni={\"enabled\": true}",
        "cni={\"logLevel\": \"debug\", \"psp_cluster_role\": \"\", \"privileged\": false}",
        r#"logLevel="debug""#,
        r#"_internal_defaults_do_not_set={"hub": "docker.io/istio"}"#,
        r#"resourceQuotas.pods="5000""#,
        "cni=null",
        "global=null",
    ] {
        AGENT.text(&[value]);
    }
    for (value, level) in [("logLevel=\"debug\"", "debug"), ("cni.logLevel=\"warn\"", "warn")] {
        assert!(AGENT.text(&[value]).contains(&format!("--log_output_level={level}\n")), "{value}");
    }
    let named = AGENT.text(&[r#"logLevel="debug""#, r#"logging.level="error""#]);
    assert!(named.contains("--log_output_level=error\n"), "`logLevel` is the former name of `logging.level`");
    let mesh = [
        r#"meshConfig={"accessLogFile": "/dev/stdout"}"#,
        r#"pilot={"cni": {"enabled": true}}"#,
        r#"global.meshID="mesh1""#,
        r#"global.proxy={"logLevel": "warning"}"#,
        r#"global.operatorManageWebhooks=true"#,
        "sidecarInjectorWebhook.rewriteAppHTTPProbe=true",
    ];
    for chart in [AGENT, INJECTOR] {
        assert_eq!(chart.text(&mesh), chart.text(&[]), "{}", chart.name);
        for minor in 20..=30 {
            chart.text(&[&format!("compatibilityVersion=\"1.{minor}\"")]);
        }
        for platform in ["", "gke", "openshift", "k3s", "k3d", "microk8s", "minikube"] {
            chart.text(&[&format!("global.platform={platform:?}")]);
            chart.text(&[&format!("platform={platform:?}")]);
        }
    }
    assert_eq!(INJECTOR.text(&["cni={\"enabled\": true}", r#"global.platform="gke""#]), INJECTOR.text(&[]));
    assert_eq!(INJECTOR.text(&[r#"platform="openshift""#]), INJECTOR.text(&[r#"global.platform="openshift""#]));
}

/// With --reuse-values, an upgrade has the defaults of an earlier release, or of Istio's chart, instead of this chart's. It must succeed
/// although any value may be missing from them.
pub(crate) fn values_of_a_former_release_suffice() {
    let upgrade = |values: &[&str]| {
        let values = values.iter().flat_map(|value| ["--set-json", value]);
        AGENT.try_text_with(NAMESPACE, ["--is-upgrade"].into_iter().chain(values)).unwrap()
    };
    let former = r#"defaults={"global": null, "repair": {"enabled": false}, "monitoring": null, "hub": "former"}"#;
    let istios = r#"_internal_defaults_do_not_set={"cniBinDir": "/x", "global": {"hub": "registry.istio.io/release"}}"#;
    for values in [&["defaults=null"][..], &[former], &["defaults=null", istios]] {
        assert_eq!(upgrade(values), AGENT.text(&[]), "{values:?}");
    }
    is_refused(AGENT, r#"defaults.hub="x""#, "values are given under `defaults`: hub");
    for chart in [AGENT, INJECTOR] {
        let (text, mut names) = (chart.text(&[]), Vec::new());
        all(&chart.defaults(), "", &mut names);
        assert!(names.len() > 60, "{names:?}");
        // Without the value `resources`, pods have no resources, or those that Istio's chart sets in this case. Without a priority class
        // they have none.
        let is_meant = |name: &String| name.starts_with("resources") || name == "priorityClassName";
        for name in names.iter().filter(|name| !is_meant(name)) {
            assert!(chart.text(&[&format!("{name}=null")]) == text, "{}: {name} is missing", chart.name);
        }
    }
}

/// Collects the paths of all maps and values.
fn all(map: &Value, path: &str, names: &mut Vec<String>) {
    for (name, value) in map.as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        all(value, &path, names);
        names.push(path);
    }
}

/// All objects and pods must have Kubernetes' recommended labels.
pub(crate) fn objects_have_the_standard_labels() {
    for chart in [AGENT, INJECTOR] {
        let monitoring = ["rules", "dashboards"].map(|part| format!("monitoring.{part}.enabled=true"));
        let mut objects = parse(&chart.text(&monitoring.each_ref().map(String::as_str)));
        let template = |object: &Value| object["spec"].get("template").cloned();
        objects.extend(objects.iter().filter_map(template).collect::<Vec<_>>());
        for object in &objects {
            let labels = &object["metadata"]["labels"];
            let version = env!("CARGO_PKG_VERSION");
            let expected = json!({
                "app.kubernetes.io/instance": chart.name,
                "app.kubernetes.io/managed-by": "Helm",
                "app.kubernetes.io/part-of": "istio",
                "app.kubernetes.io/version": version,
                "helm.sh/chart": format!("{}-{version}", chart.name),
            });
            for (name, value) in expected.as_object().unwrap() {
                assert_eq!(&labels[name], value, "{name} of {object}");
            }
            assert!(labels["app.kubernetes.io/name"].is_string(), "{object}");
        }
    }
}

/// With a monitor, pods must have no annotation, because Prometheus would scrape them twice.
pub(crate) fn monitors_replace_annotations() {
    for (chart, monitor) in [(AGENT, "podMonitor"), (INJECTOR, "serviceMonitor")] {
        let is_annotated = |values: &[&str]| chart.text(values).contains("prometheus.io/");
        assert!(is_annotated(&[]), "{}", chart.name);
        assert!(!is_annotated(&[&format!("monitoring.{monitor}.enabled=true")]), "{}", chart.name);
    }
}
