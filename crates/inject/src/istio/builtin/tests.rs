//! Tests of the built-in configuration: what its pods get, and that annotations take effect.
//!
//! The suite `inject` compares the templates with Istio's.

mod ports;

use gotemplate::{Budget, Limits};
use serde_json::{Value, json};

use super::*;
use crate::istio::{InjectionOutcome, Injector, Request};

fn injected(built_in: &BuiltIn, native_sidecars: bool, pod: &Value) -> Value {
    let injector = Injector::new(built_in.config().unwrap());
    let range = BTreeMap::from([("openshift.io/sa.scc.uid-range".to_owned(), "1000620000/10000".to_owned())]);
    let request = Request { native_sidecars, namespace_annotations: Some(&range), ..Request::new(pod, "shop") };
    match injector.review(&request).unwrap() {
        InjectionOutcome::Injected { injected, .. } => injected.pod,
        InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
    }
}

fn pod() -> Value {
    json!({"metadata": {"name": "web"}, "spec": {"containers": [{"name": "app", "image": "i"}]}})
}

#[test]
fn a_pod_gets_a_proxy_and_its_validation() {
    let built_in = BuiltIn {
        proxy_image: "r/proxy:1".to_owned(),
        proxy_args: vec!["--flag".to_owned(), "a \"quoted\" one".to_owned()],
        validation_image: "r/tools:2".to_owned(),
        outbound_port: 25001,
        inbound_port: 25006,
        discovery: Some(String::new()),
        ..BuiltIn::default()
    };
    let pod = injected(&built_in, false, &pod());
    let validation = &pod["spec"]["initContainers"][0];
    assert_eq!((&validation["name"], &validation["image"]), (&json!("istio-validation"), &json!("r/tools:2")));
    assert_eq!(validation["args"][2], "25001");
    assert_eq!(validation["args"][4], "25006");
    let proxy = &pod["spec"]["containers"][1];
    assert_eq!((&proxy["name"], &proxy["image"]), (&json!("istio-proxy"), &json!("r/proxy:1")));
    assert_eq!(proxy["args"], json!(["--flag", "a \"quoted\" one"]));
    assert_eq!(proxy["resources"]["limits"]["cpu"], "2");
    assert_eq!(pod["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"], "app");
    assert!(pod["metadata"]["annotations"].get("prometheus.io/port").is_none());
}

#[test]
fn probes_are_rewritten_in_a_mesh() {
    let mut pod = pod();
    let probe = json!({"httpGet": {"path": "/live", "port": 8080}});
    pod["spec"]["containers"][0]["livenessProbe"] = probe.clone();
    let of = |built_in: &BuiltIn| injected(built_in, false, &pod)["spec"]["containers"][0]["livenessProbe"].clone();
    let rewritten = of(&BuiltIn::default());
    assert_eq!(rewritten["httpGet"], json!({"path": "/app-health/app/livez", "port": 15020}), "{rewritten}");
    let alone = BuiltIn { discovery: Some(String::new()), ..BuiltIn::default() };
    assert_eq!(of(&alone), probe);
}

/// Returns the item with this name.
fn named<'a>(list: &'a Value, name: &str) -> &'a Value {
    list.as_array().unwrap().iter().find(|item| item["name"] == name).unwrap_or_else(|| panic!("no {name}: {list}"))
}

#[test]
fn a_proxy_joins_the_mesh_of_istiod() {
    let built_in = BuiltIn { discovery: Some("istiod.example:15012".to_owned()), ..BuiltIn::default() };
    let pod = injected(&built_in, false, &pod());
    let proxy = &pod["spec"]["containers"][1];
    let value = |name: &str| named(&proxy["env"], name)["value"].as_str().unwrap().to_owned();
    assert_eq!(value("CA_ADDR"), built_in.address());
    assert_eq!(pod["metadata"]["annotations"]["prometheus.io/port"], "15020");
    let config: Value = serde_json::from_str(&value("PROXY_CONFIG")).unwrap();
    assert_eq!(config["discoveryAddress"], built_in.address());
    assert_eq!((&*value("PILOT_CERT_PROVIDER"), &*value("TRUST_DOMAIN")), ("istiod", "cluster.local"));
    assert_eq!(proxy["readinessProbe"]["httpGet"], json!({"path": "/healthz/ready", "port": 15021}));
    assert_eq!(named(&proxy["volumeMounts"], "istio-token")["mountPath"], "/var/run/secrets/tokens");
    assert_eq!(named(&proxy["volumeMounts"], "istiod-ca-cert")["mountPath"], "/var/run/secrets/istio");
    let token = &named(&pod["spec"]["volumes"], "istio-token")["projected"]["sources"][0]["serviceAccountToken"];
    assert_eq!(token, &json!({"path": "istio-token", "audience": "istio-ca", "expirationSeconds": 43200}));
    let root = &named(&pod["spec"]["volumes"], "istiod-ca-cert")["configMap"];
    assert_eq!(root, &json!({"name": "istio-ca-root-cert"}));
    assert_eq!(pod["metadata"]["labels"]["security.istio.io/tlsMode"], "istio");
}

#[test]
fn a_proxy_without_a_mesh_does_not_wait_for_istiod() {
    let alone = injected(&BuiltIn { discovery: Some(String::new()), ..BuiltIn::default() }, true, &pod());
    let proxy = &alone["spec"]["initContainers"][1];
    assert_eq!((proxy.get("readinessProbe"), proxy.get("startupProbe")), (None, None));
    let volumes: Vec<_> = alone["spec"]["volumes"].as_array().unwrap().iter().map(|v| &v["name"]).collect();
    assert_eq!(volumes, ["istio-envoy", "istio-data"]);
}

#[test]
fn a_native_sidecar_follows_its_validation() {
    let pod = injected(&BuiltIn::default(), true, &pod());
    let names: Vec<_> = pod["spec"]["initContainers"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["istio-validation", "istio-proxy"]);
    assert_eq!(pod["spec"]["initContainers"][1]["restartPolicy"], "Always");
    assert_eq!(pod["spec"]["containers"].as_array().unwrap().len(), 1);
    assert_eq!(injected(&BuiltIn::default(), true, &pod), pod);
}

#[test]
fn tproxy_requires_a_privileged_proxy_and_none_omits_validation() {
    let mode = |mode: &str| {
        let mut pod = pod();
        pod["metadata"]["annotations"] = json!({"sidecar.istio.io/interceptionMode": mode});
        injected(&BuiltIn::default(), false, &pod)
    };
    let tproxy = mode("TPROXY");
    let context = &tproxy["spec"]["containers"][1]["securityContext"];
    assert_eq!((&context["runAsUser"], &context["capabilities"]["add"]), (&json!(0), &json!(["NET_ADMIN"])));
    assert_eq!(tproxy["spec"]["initContainers"][0]["securityContext"]["runAsUser"], 1337);
    assert!(mode("NONE")["spec"].get("initContainers").is_none());
    let mut own = pod();
    own["metadata"]["annotations"] = json!({"sidecar.istio.io/interceptionMode": "NONE"});
    own["spec"]["initContainers"] = json!([{"name": "own"}]);
    let own = injected(&BuiltIn::default(), false, &own);
    assert_eq!(own["spec"]["initContainers"], json!([{"name": "own"}]));
}

fn annotated(annotations: &Value) -> Value {
    let mut pod = pod();
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

/// Returns the sidecar of a pod with these annotations.
fn proxy_with(annotations: &Value) -> Value {
    injected(&BuiltIn::default(), false, &annotated(annotations))["spec"]["containers"][1].clone()
}

#[test]
fn annotations_of_the_reference_take_effect() {
    let sidecar = |name: &str, value: &str| proxy_with(&json!({format!("sidecar.istio.io/{name}"): value}));
    let cpu = sidecar("proxyCPU", "250m");
    assert_eq!(cpu["resources"]["requests"], json!({"cpu": "250m", "memory": "128Mi"}));
    assert_eq!(cpu["resources"]["limits"], json!({"cpu": "2", "memory": "1Gi"}));
    assert_eq!(sidecar("proxyMemoryLimit", "3Gi")["resources"]["limits"]["memory"], "3Gi");
    assert_eq!(sidecar("proxyImage", "busybox:1")["image"], "busybox:1");
    assert_eq!(sidecar("proxyImageType", "distroless")["image"], "docker.io/istio/proxyv2:1.30.0-distroless");
    for (name, value, argument) in [
        ("logLevel", "debug", "--proxyLogLevel=debug"),
        ("componentLogLevel", "http:info", "--proxyComponentLogLevel=http:info"),
        ("agentLogLevel", "ca:debug", "--log_output_level=ca:debug"),
    ] {
        let proxy = sidecar(name, value);
        assert!(proxy["args"].as_array().unwrap().contains(&json!(argument)), "{name}: {proxy}");
    }
    let low = sidecar("capNetBindService", "true");
    assert_eq!(low["securityContext"]["capabilities"]["add"], json!(["NET_BIND_SERVICE"]));
    let address = sidecar("discoveryAddress", "istiod.other.svc:15012");
    let config = named(&address["env"], "PROXY_CONFIG")["value"].as_str().unwrap();
    assert_eq!(serde_json::from_str::<Value>(config).unwrap()["discoveryAddress"], "istiod.other.svc:15012");
}

#[test]
fn annotations_add_volumes_and_change_the_probe() {
    let pod = annotated(&json!({
        "sidecar.istio.io/userVolume": r#"{"own": {"secret": {"secretName": "s"}}}"#,
        "sidecar.istio.io/userVolumeMount": r#"{"own": {"mountPath": "/own", "readOnly": true}}"#,
        "sidecar.istio.io/bootstrapOverride": "bootstrap",
        "readiness.status.sidecar.istio.io/initialDelaySeconds": "1",
        "readiness.status.sidecar.istio.io/periodSeconds": "2",
        "readiness.status.sidecar.istio.io/failureThreshold": "3",
    }));
    let pod = injected(&BuiltIn::default(), false, &pod);
    let proxy = &pod["spec"]["containers"][1];
    assert_eq!(named(&pod["spec"]["volumes"], "own"), &json!({"name": "own", "secret": {"secretName": "s"}}));
    assert_eq!(named(&proxy["volumeMounts"], "own"), &json!({"name": "own", "mountPath": "/own", "readOnly": true}));
    assert_eq!(named(&pod["spec"]["volumes"], "custom-bootstrap-volume")["configMap"]["name"], "bootstrap");
    assert_eq!(named(&proxy["volumeMounts"], "custom-bootstrap-volume")["mountPath"], "/etc/istio/custom-bootstrap");
    let probe = &proxy["readinessProbe"];
    assert_eq!([&probe["initialDelaySeconds"], &probe["periodSeconds"], &probe["failureThreshold"]], [1, 2, 3]);
}

#[test]
fn applications_wait_for_the_proxy_and_the_user_s_hook_stays() {
    let mut pod = annotated(&json!({"proxy.istio.io/config": "holdApplicationUntilProxyStarts: true"}));
    let hook = json!({"exec": {"command": ["sleep", "5"]}});
    let own = json!({"name": "istio-proxy", "image": "auto", "lifecycle": {"preStop": hook}});
    pod["spec"]["containers"].as_array_mut().unwrap().push(own);
    let held = injected(&BuiltIn::default(), false, &pod);
    let proxy = &held["spec"]["containers"][0];
    assert_eq!(proxy["name"], "istio-proxy");
    assert_eq!(proxy["lifecycle"]["postStart"]["exec"]["command"], json!(["pilot-agent", "wait"]));
    assert_eq!(proxy["lifecycle"]["preStop"], hook);
}

#[test]
fn the_default_container_is_the_application() {
    let mut pod = pod();
    pod["spec"]["containers"] = json!([{"name": "istio-proxy", "image": "auto"}, {"name": "app", "image": "i"}]);
    let annotations = &injected(&BuiltIn::default(), false, &pod)["metadata"]["annotations"];
    assert_eq!(annotations["kubectl.kubernetes.io/default-container"], "app");
    assert_eq!(annotations["kubectl.kubernetes.io/default-logs-container"], "app");
}

#[test]
fn the_level_restricted_admits_what_each_template_adds() {
    for (template, native) in
        [("sidecar", false), ("sidecar", true), ("gateway", false), ("grpc-agent", false), ("grpc-simple", false)]
    {
        let pod = annotated(&json!({"inject.istio.io/templates": template}));
        let spec = &injected(&BuiltIn::default(), native, &pod)["spec"];
        let lists = ["initContainers", "containers"].map(|list| spec[list].as_array().cloned().unwrap_or_default());
        for container in lists.concat().iter().filter(|container| container["name"] != "app") {
            let context = &container["securityContext"];
            let found = [
                &context["allowPrivilegeEscalation"],
                &context["capabilities"],
                &context["runAsNonRoot"],
                &context["seccompProfile"],
            ];
            let required = [json!(false), json!({"drop": ["ALL"]}), json!(true), json!({"type": "RuntimeDefault"})];
            assert_eq!(found, required.each_ref(), "{template}: {container}");
        }
    }
}

#[test]
fn the_agent_s_own_port_is_not_captured() {
    for (annotations, port) in [
        (json!({}), "15020"),
        (json!({"status.sidecar.istio.io/port": "15099"}), "15099"),
        (json!({"proxy.istio.io/config": "statusPort: 15098"}), "15098"),
        (json!({"proxy.istio.io/config": "statusPort: 15098", "status.sidecar.istio.io/port": "15099"}), "15099"),
    ] {
        let mut pod = annotated(&annotations);
        pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"] = "22".into();
        let pod = injected(&BuiltIn::default(), false, &pod);
        let args = pod["spec"]["initContainers"][0]["args"].as_array().unwrap();
        let at = args.iter().position(|argument| argument == "-d").unwrap();
        assert_eq!(args[at + 1], json!(format!("15090,15021,22,{port}")));
        let annotation = &pod["metadata"]["annotations"]["traffic.sidecar.istio.io/excludeInboundPorts"];
        assert_eq!(annotation, &json!(format!("22,{port}")), "the plugin reads the annotation");
    }
}

#[test]
fn on_openshift_multus_calls_the_plugin_and_validation_has_the_user_of_the_rules() {
    let openshift = BuiltIn { platform: Platform::OpenShift, ..BuiltIn::default() };
    let user = |annotations: Value| {
        let pod = injected(&openshift, true, &annotated(&annotations));
        assert_eq!(pod["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"], "default/istio-cni");
        let inits = &pod["spec"]["initContainers"];
        ["istio-validation", "istio-proxy"].map(|name| named(inits, name)["securityContext"]["runAsUser"].clone())
    };
    assert_eq!(user(json!({})), [1_000_629_999, 1_000_629_999]);
    // The plugin treats a proxy with user 0 as one with user 1337.
    assert_eq!(user(json!({"sidecar.istio.io/interceptionMode": "TPROXY"})), [1337, 0]);
    assert_eq!(user(json!({"sidecar.istio.io/capNetBindService": "true"})), [1337, 0]);
    let plain = injected(&BuiltIn::default(), true, &pod());
    assert_eq!(plain["metadata"]["annotations"].get("k8s.v1.cni.cncf.io/networks"), None);
}

#[test]
fn an_image_with_a_tag_is_split_and_others_stay_whole() {
    let digest = format!("r/p@sha256:{}", "0".repeat(64));
    for (image, parts) in [
        ("docker.io/istio/proxyv2:1.30.0", ("docker.io/istio", "1.30.0", "proxyv2")),
        ("registry:5000/p:2", ("registry:5000", "2", "p")),
        ("registry:5000/p", ("", "", "registry:5000/p")),
        (&digest, ("", "", &*digest)),
    ] {
        let built_in = BuiltIn { proxy_image: image.to_owned(), ..BuiltIn::default() };
        assert_eq!(built_in.image_parts(), parts);
        assert_eq!(injected(&built_in, false, &pod())["spec"]["containers"][1]["image"], image);
    }
}

/// Returns the cost of this pod's injection by the built-in configuration, in steps and bytes of the budget.
fn cost(pod: &Value) -> (u64, usize) {
    let injector = Injector::new(BuiltIn::default().config().unwrap());
    let mut request = Request::new(pod, "shop");
    let least = |fits: &mut dyn FnMut(u64) -> bool, most: u64| {
        let (mut below, mut enough) = (0, most);
        while enough - below > most / 1000 {
            let middle = (below + enough) / 2;
            if fits(middle) { enough = middle } else { below = middle }
        }
        enough
    };
    let all = Limits::default();
    let mut fits = |limits: Limits| {
        request.budget = Budget::new(limits);
        injector.review(&request).map(drop).map_err(|error| error.to_string())
    };
    fits(all).unwrap();
    let steps = least(&mut |steps| fits(Limits { steps, ..all }).is_ok(), all.steps);
    let bytes = least(
        &mut |bytes| fits(Limits { bytes: usize::try_from(bytes).unwrap(), ..all }).is_ok(),
        u64::try_from(all.bytes).unwrap(),
    );
    (steps, usize::try_from(bytes).unwrap())
}

#[test]
fn a_pod_with_many_ports_or_containers_is_admitted_at_a_linear_cost() {
    let ports = |count: u32| {
        let ports: Vec<Value> = (0..count).map(|at| json!({"containerPort": 20_000 + at})).collect();
        json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "i", "ports": ports}]}})
    };
    let containers = |count: u32| {
        let all: Vec<Value> = (0..count).map(|at| json!({"name": format!("app-{at}"), "image": "i"})).collect();
        json!({"metadata": {}, "spec": {"containers": all}})
    };
    for (few, many) in [(ports(1000), ports(2000)), (containers(500), containers(1000))] {
        let ((steps, bytes), (twice_steps, twice_bytes)) = (cost(&few), cost(&many));
        let is_linear = twice_steps < steps * 5 / 2 && twice_bytes < bytes * 5 / 2;
        assert!(is_linear, "{steps} steps and {bytes} bytes, then {twice_steps} and {twice_bytes}");
    }
}

#[test]
fn annotations_that_only_a_mesh_uses_are_named_without_one() {
    let warnings = |built_in: &BuiltIn| {
        let annotations = json!({
            "sidecar.istio.io/bootstrapOverride": "b", "readiness.status.sidecar.istio.io/periodSeconds": "2",
            "sidecar.istio.io/logLevel": "debug", "sidecar.istio.io/statsInclusionPrefixes": "cluster",
            "sidecar.istio.io/proxyCPU": "1",
        });
        let pod =
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "app", "image": "i"}]}});
        match Injector::new(built_in.config().unwrap()).review(&Request::new(&pod, "shop")).unwrap() {
            InjectionOutcome::Injected { injected, .. } => injected.warnings,
            InjectionOutcome::Skipped(decision) => panic!("{}", decision.reason),
        }
    };
    assert_eq!(warnings(&BuiltIn::default()), [""; 0]);
    let alone = BuiltIn { discovery: Some(String::new()), proxy_args: vec!["-c".to_owned()], ..BuiltIn::default() };
    let text = "annotations that no template for this pod uses: sidecar.istio.io/bootstrapOverride, \
                readiness.status.sidecar.istio.io/periodSeconds, sidecar.istio.io/logLevel, sidecar.istio.io/statsInclusionPrefixes";
    assert_eq!(warnings(&alone), [text]);
}

#[test]
fn a_pull_secret_of_the_values_is_a_name_or_a_reference() {
    let mut values = BuiltIn::default().values();
    values["global"]["imagePullSecrets"] = json!(["a", {"name": "b"}]);
    let values = Values::parse(&values.to_string()).unwrap();
    let injector = Injector::new(Config { values, ..BuiltIn::default().config().unwrap() });
    let pod = pod();
    let InjectionOutcome::Injected { injected, .. } = injector.review(&Request::new(&pod, "shop")).unwrap() else {
        panic!()
    };
    assert_eq!(injected.pod["spec"]["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}]));
}

#[test]
fn a_template_uses_the_annotations_of_the_parts_that_it_calls() {
    let annotations = ["userVolume", "userVolumeMount", "proxyCPU", "bootstrapOverride", "logLevel"];
    let warned = |template: &str| {
        let set = annotations
            .map(|name| (format!("sidecar.istio.io/{name}"), json!(if name.starts_with("user") { "{}" } else { "1" })));
        let mut pod = pod();
        pod["metadata"]["annotations"] = Value::Object(set.into_iter().collect());
        super::super::unused::warnings(&BuiltIn::settings().unwrap().reads, [template].into_iter(), &pod)
    };
    let unused = |names: &[&str]| {
        let names: Vec<String> = names.iter().map(|name| format!("sidecar.istio.io/{name}")).collect();
        vec![format!("annotations that no template for this pod uses: {}", names.join(", "))]
    };
    assert_eq!(warned("sidecar"), [""; 0]);
    assert_eq!(warned("gateway"), unused(&["userVolume", "userVolumeMount", "proxyCPU"]));
    assert_eq!(warned("grpc-simple"), unused(&annotations));
}
