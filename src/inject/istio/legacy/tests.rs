//! Tests of legacy templates with both delimiters; `tests/golden` has Istio's fixtures.

use serde_json::{Value, json};

use crate::inject::istio::{Config, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};

fn injected(template: &str, values: &str, pod: &Value) -> Value {
    let config = Config {
        settings: Settings::parse(&json!({"policy": "enabled", "template": template}).to_string(), None).unwrap(),
        values: Values::parse(values).unwrap(),
        mesh: Mesh::default(),
        revision: String::new(),
        platform: Platform::Kubernetes,
        compliance_policy: String::new(),
    };
    match Injector::new(config).review(&Request::new(pod, "shop")).unwrap() {
        InjectionOutcome::Injected { injected, .. } => injected.pod,
        InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
    }
}

fn pod() -> Value {
    json!({"metadata": {"name": "web", "labels": {"app": "shop"}}, "spec": {"containers": [{"name": "app", "image": "i"}]}})
}

#[test]
fn brackets_select_istio_1_1_which_adds_less() {
    let template = "containers:\n- name: istio-proxy\n  args: [--app, [[ index .ObjectMeta.Labels \"app\" ]], 1337]\n";
    let pod = injected(template, "", &pod());
    assert_eq!(pod["spec"]["containers"][1]["args"], json!(["--app", "shop", "1337"]));
    assert_eq!(pod["metadata"]["labels"], json!({"app": "shop"}));
    assert_eq!(pod["spec"].get("securityContext"), None);
    let annotations: Vec<_> = pod["metadata"]["annotations"].as_object().unwrap().keys().collect();
    assert_eq!(annotations, ["sidecar.istio.io/status"]);
}

#[test]
fn a_pod_may_lack_any_list() {
    let lists = ["initContainers", "containers", "volumes", "imagePullSecrets"];
    let template: Value = lists.iter().map(|list| ((*list).to_owned(), json!([{"name": "istio-proxy"}]))).collect();
    let names = |pod: &Value, list: &str| -> Vec<Value> {
        pod["spec"][list].as_array().into_iter().flatten().map(|item| item["name"].clone()).collect()
    };
    for present in 0..3_usize.pow(4) {
        // Each list is absent, null, or has an item.
        let mut spec = json!({});
        for (at, list) in lists.iter().enumerate() {
            match present / 3_usize.pow(u32::try_from(at).unwrap()) % 3 {
                0 => {}
                1 => spec[list] = Value::Null,
                _ => spec[list] = json!([{"name": "own"}]),
            }
        }
        for pod in [
            json!({"metadata": {}, "spec": spec.clone()}),
            json!({"spec": spec.clone()}),
            json!({"metadata": null, "spec": spec}),
        ] {
            let injected = injected(&template.to_string(), "", &pod);
            for list in lists {
                let expected: Vec<Value> = names(&pod, list).into_iter().chain(["istio-proxy".into()]).collect();
                assert_eq!(names(&injected, list), expected, "{list} of {pod}");
            }
        }
    }
    for pod in [json!({"metadata": {}}), json!({"metadata": {}, "spec": null}), json!({})] {
        assert_eq!(names(&injected(&template.to_string(), "", &pod), "volumes"), ["istio-proxy"], "{pod}");
    }
}

#[test]
fn values_may_be_templates() {
    let template = "dnsConfig:\n  searches:\n  {{- range .Values.global.podDNSSearchNamespaces }}\n  - {{ render . }}\n  {{- end }}\n";
    let values =
        "{global: {podDNSSearchNamespaces: [global, '{{ .DeploymentMeta.Namespace }}.global', '{{ nosuch }}']}}";
    let pod = injected(template, values, &pod());
    assert_eq!(pod["spec"]["dnsConfig"]["searches"], json!(["global", "shop.global", ""]));
}

#[test]
fn worker_threads_are_the_cpus_of_the_sidecar() {
    let args = |resources: Value| {
        let template = json!({"containers": [{"name": "istio-proxy", "args": ["proxy"], "resources": resources}]});
        injected(&template.to_string(), "", &pod())["spec"]["containers"][1]["args"].clone()
    };
    assert_eq!(
        args(json!({"limits": {"cpu": "1500m"}, "requests": {"cpu": 8}})),
        json!(["proxy", "--concurrency", "2"])
    );
    assert_eq!(args(json!({"requests": {"cpu": 3}})), json!(["proxy", "--concurrency", "3"]));
    assert_eq!(args(json!({})), json!(["proxy"]));
}
