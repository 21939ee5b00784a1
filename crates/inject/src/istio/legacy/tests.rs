//! Tests of legacy templates with both delimiters; the suite `inject` has Istio's fixtures.

use serde_json::{Value, json};

use crate::istio::{BuiltIn, Config, Document, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};

fn injected(template: &str, values: &str, pod: &Value) -> Value {
    by(&legacy(template, values), pod)
}

/// Returns the injector of a legacy template.
fn legacy(template: &str, values: &str) -> Injector {
    let config = Config {
        settings: Settings::parse(&json!({"policy": "enabled", "template": template}).to_string(), None).unwrap(),
        values: Values::parse(values).unwrap(),
        mesh: Mesh::default(),
        revision: String::new(),
        platform: Platform::Kubernetes,
        compliance_policy: String::new(),
    };
    Injector::new(config)
}

fn by(injector: &Injector, pod: &Value) -> Value {
    match injector.review(&Request::new(pod, "shop")).unwrap() {
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

/// A template like Istio 1.8's for the CNI plugin, reduced to what a later injection reads.
const SIDECAR: &str = "containers: [{name: istio-proxy, image: 'p:1', args: [proxy, sidecar]}]\nvolumes: [{name: istio-envoy, emptyDir: {}}]\n";

#[test]
fn a_second_injection_scrapes_the_application_not_the_agent() {
    let injector = legacy(SIDECAR, "");
    for annotations in [json!({}), json!({"prometheus.io/port": "8080", "prometheus.io/path": "/m"})] {
        let mut pod = pod();
        pod["metadata"]["annotations"] = annotations;
        let once = by(&injector, &pod);
        assert_eq!(once["metadata"]["annotations"]["prometheus.io/port"], "15020");
        assert_eq!(by(&injector, &once), once);
    }
}

#[test]
fn legacy_and_later_injections_leave_nothing_of_each_other() {
    let (former, later) = (legacy(SIDECAR, ""), Injector::new(BuiltIn::default().config().unwrap()));
    let mut own = pod();
    own["spec"]["securityContext"] = json!({"runAsUser": 7});
    own["metadata"]["annotations"] = json!({"prometheus.io/port": "8080", "team": "a"});
    for pod in [pod(), own] {
        for (first, second) in [(&former, &later), (&later, &former)] {
            assert_eq!(by(second, &by(first, &pod)), by(second, &pod));
            assert_eq!(document_by(second, document_by(first, pod.clone())), document_by(second, pod.clone()));
        }
    }
}

/// Returns the pod that `kube-inject` makes.
fn document_by(injector: &Injector, mut pod: Value) -> Value {
    (pod["apiVersion"], pod["kind"]) = ("v1".into(), "Pod".into());
    match injector.inject_document(pod, &|_| true).unwrap() {
        Document::Workload { document, .. } => document,
        Document::Untouched => panic!("a pod is a workload"),
    }
}

#[test]
fn a_field_that_is_not_of_its_type_is_refused() {
    let refused = |template: &str| match legacy(template, "").review(&Request::new(&pod(), "shop")) {
        Err(error) => error.to_string(),
        Ok(_) => format!("{template} is injected"),
    };
    for (template, text) in [
        (
            "containers: [{name: istio-proxy, image: p, ports: {a: b}}]",
            "containers[0].ports: expected a list, got a map",
        ),
        (
            "containers: [{name: istio-proxy, image: p, securityContext: {runAsUser: proxy}}]",
            "containers[0].securityContext.runAsUser: expected an integer of 64 bits, got \"proxy\"",
        ),
        ("dnsConfig: {searches: a.b}", "dnsConfig.searches: expected a list, got \"a.b\""),
        ("volumes: [{name: v, emptyDir: true}]", "volumes[0].emptyDir: expected a map, got "),
    ] {
        let expected = format!("the output of the template has invalid types: {text}");
        assert!(refused(template).starts_with(&expected), "{}", refused(template));
    }
}

/// A template like Istio 1.7's, which writes annotations and the DNS configuration in addition to containers.
const BESIDE: &str = "containers: [{name: istio-proxy, image: 'p:1', args: [proxy, sidecar]}]\npodRedirectAnnot: \
                      {sidecar.istio.io/interceptionMode: TPROXY, traffic.sidecar.istio.io/includeOutboundIPRanges: \
                      10.0.0.0/8}\ndnsConfig: {searches: [a.b]}\n";

#[test]
fn what_no_record_of_a_legacy_injection_attributes_is_named() {
    let (former, later) = (legacy(BESIDE, ""), Injector::new(BuiltIn::default().config().unwrap()));
    let mut own = pod();
    own["spec"]["securityContext"] = json!({"fsGroup": 1337});
    let once = document_by(&former, own);
    let Document::Workload { document, warnings, .. } = later.inject_document(once.clone(), &|_| true).unwrap() else {
        panic!("a pod is a workload");
    };
    assert_eq!(document["metadata"]["annotations"]["sidecar.istio.io/interceptionMode"], "TPROXY");
    let has = |start: &str| warnings.iter().filter(|text| text.contains(start)).count();
    let stay = "annotations stay: sidecar.istio.io/interceptionMode, traffic.sidecar.istio.io/includeOutboundIPRanges: no record";
    assert_eq!(
        (has(stay), has("spec.dnsConfig stays: no record"), has("fsGroup 1337 is taken away")),
        (1, 1, 1),
        "{warnings:?}"
    );
    let mut plain = once;
    ["securityContext", "dnsConfig"]
        .iter()
        .for_each(|key| drop(plain["spec"].as_object_mut().unwrap().shift_remove(*key)));
    let traffic = |name: &str| name.ends_with("Mode") || name.starts_with("traffic");
    plain["metadata"]["annotations"].as_object_mut().unwrap().retain(|name, _| !traffic(name));
    let Document::Workload { warnings, .. } = later.inject_document(plain, &|_| true).unwrap() else {
        panic!("a pod is a workload");
    };
    assert_eq!(warnings, [""; 0], "a pod that has nothing of these");
}

#[test]
fn a_pod_whose_resources_no_longer_suffice_is_refused() {
    let proxy = "{name: istio-proxy, image: p, resources: {requests: {cpu: 100m}}}";
    let template = format!("containers: [{proxy}]\npodRedirectAnnot: {{}}\n");
    let mut pod = pod();
    pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let reason = "the containers request 200m cpu with the injected ones, more than the 150m of the whole pod";
    // `kube-inject` applies the webhook's patch in the second of these releases only.
    for values in ["global: {tag: 1.6.0}", "global: {tag: 1.8.0}"] {
        let injector = legacy(&template, values);
        for (request, is_refused) in [("150m", true), ("200m", false)] {
            pod["spec"]["resources"] = json!({"requests": {"cpu": request}});
            let reviewed = injector.review(&Request::new(&pod, "shop")).map(drop);
            let mut document = pod.clone();
            (document["apiVersion"], document["kind"]) = ("v1".into(), "Pod".into());
            let printed = injector.inject_document(document, &|_| false).map(drop);
            for result in [reviewed, printed] {
                let text = result.map_or_else(|error| error.to_string(), |()| String::new());
                assert_eq!(text.contains(reason), is_refused, "{values} {request}: {text}");
            }
        }
    }
}
