//! Tests of pods that others changed after their first injection: what the author and others set must stay, and what
//! the first injection wrote must be removed.

use inject::istio::{BuiltIn, Config, Document, Injector, Mesh, Settings, Values};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::super::equal::same;
use super::settings::Injection;
use super::{Check, built_in, simple};

const STATUS: &str = "sidecar.istio.io/status";
pub(super) const EXCLUDED: &str = "traffic.sidecar.istio.io/excludeInboundPorts";
pub(super) const PORT: &str = "status.sidecar.istio.io/port";

pub(super) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 12] = [
        ("an application that a template extends keeps its changes", changed_application),
        ("an application of a status without a record keeps its changes", without_record),
        ("a changed status port replaces the former one", status_port),
        ("a proxyless application has another status port", proxyless_port),
        ("a changed port of metrics replaces the former one", metrics_port),
        ("what pod and settings both have stays", both),
        ("values that equal the injected ones stay", equal_values),
        ("a label of the former network goes", network),
        ("a value that replaced the injected one stays", replaced),
        ("labels follow the labels that their author changed", derived_labels),
        ("canonical labels of kube-inject are derived anew or named", canonical_labels),
        ("templates see the pod's own sidecar where its author wrote it", own_sidecar),
    ];
    checks.into_iter().map(|(name, check)| Trial::test(format!("again/{name}"), check)).collect()
}

/// How a pod is injected.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    Webhook,
    KubeInject,
}

pub(super) const BOTH: [By; 2] = [By::Webhook, By::KubeInject];

impl By {
    pub(super) fn inject(self, injection: &Injection, pod: &Value) -> Result<Value, Failed> {
        match self {
            Self::Webhook => injection.inject(pod),
            Self::KubeInject => injection.kube_inject(pod),
        }
    }
}

pub(super) fn of_mesh(mesh: &Value, native: bool) -> Result<Injection, Failed> {
    let config = Config { mesh: Mesh::parse(&mesh.to_string())?, ..BuiltIn::default().config()? };
    Ok(Injection { name: mesh.to_string(), injector: Injector::new(config), native, declined: None })
}

fn of_template(template: &str) -> Result<Injection, Failed> {
    let config = Config { settings: Settings::from_template(template)?, ..BuiltIn::default().config()? };
    Ok(Injection { name: template.to_owned(), injector: Injector::new(config), native: false, declined: None })
}

/// Injects a pod, changes it by `change`, and checks that an injection by each of `seconds` gives the same result as
/// for the pod that was only changed, and that another injection changes nothing.
pub(super) fn check(
    (first, seconds): (&Injection, &[&Injection]),
    pod: &Value,
    change: impl Fn(&mut Value),
    ways: &[By],
) -> Result<(), Failed> {
    for by in ways {
        let mut once = by.inject(first, pod)?;
        change(&mut once);
        let mut changed = pod.clone();
        change(&mut changed);
        for second in seconds {
            let what = |failed: Failed| {
                let message = failed.message().unwrap_or_default().to_owned();
                Failed::from(format!("{by:?}, {} and then {}: {message}", first.name, second.name))
            };
            let expected = by.inject(second, &changed).map_err(what)?;
            let twice = by.inject(second, &once).map_err(what)?;
            same(&without_status(&expected), &without_status(&twice)).map_err(what)?;
            same(&twice, &by.inject(second, &twice).map_err(what)?).map_err(what)?;
        }
    }
    Ok(())
}

/// Removes the records: the second injection records the pod before the first injection, which lacked the changes.
fn without_status(pod: &Value) -> Value {
    let mut pod = pod.clone();
    if let Some(annotations) = pod["metadata"]["annotations"].as_object_mut() {
        annotations.shift_remove(STATUS);
        annotations.shift_remove("proxy.istio.io/overrides");
    }
    // The variables are sorted, because with the same settings the second injection keeps their order.
    if let Some(env) = application(&mut pod).and_then(|app| app["env"].as_array_mut()) {
        env.sort_by_key(|variable| variable["name"].to_string());
    }
    pod
}

pub(super) fn annotated(annotations: &Value) -> Value {
    let mut pod = simple();
    pod["metadata"]["annotations"] = annotations.clone();
    pod
}

fn application(pod: &mut Value) -> Option<&mut Value> {
    pod["spec"]["containers"].as_array_mut()?.iter_mut().find(|container| container["name"] == "app")
}

/// Changes the image, the environment and the security context of the application.
fn change_application(pod: &mut Value) {
    let Some(app) = application(pod) else { return };
    app["image"] = "changed:2".into();
    app["securityContext"]["readOnlyRootFilesystem"] = true.into();
    let mut env = app["env"].as_array().cloned().unwrap_or_default();
    env.retain(|variable| variable["name"] != "OWN");
    env.push(json!({"name": "OWN", "value": "changed"}));
    env.push(json!({"name": "ADDED", "value": "1"}));
    env.sort_by_key(|variable| variable["name"].to_string());
    app["env"] = env.into();
}

/// Changes fields of the application that its author wrote, the only ones that Istio's own record names.
fn change_own_fields(pod: &mut Value) {
    let Some(app) = application(pod) else { return };
    app["image"] = "changed:2".into();
    for variable in app["env"].as_array_mut().into_iter().flatten().filter(|variable| variable["name"] == "OWN") {
        variable["value"] = "changed".into();
    }
}

const EXTENDING: &str = "spec:
  containers:
  - {name: istio-proxy, image: p}
  - {name: app, env: [{name: ZONE, value: z}], securityContext: {runAsNonRoot: true}, terminationMessagePolicy: File}
";

fn changed_application() -> Result<(), Failed> {
    let (native, plain) = (built_in(true)?, built_in(false)?);
    let own = json!([{"name": "OWN", "value": "a"}]);
    for templates in ["grpc-agent", "grpc-simple"] {
        let mut pod = annotated(&json!({"inject.istio.io/templates": templates}));
        pod["spec"]["containers"][0]["env"] = own.clone();
        check((&native, &[&native, &plain]), &pod, change_application, &BOTH[..1])?;
        check((&native, &[&native, &plain]), &pod, change_own_fields, &BOTH)?;
    }
    let (extending, other) =
        (of_template(EXTENDING)?, of_template("spec: {containers: [{name: istio-proxy, image: q}]}")?);
    let mut pod = simple();
    pod["spec"]["containers"][0]["env"] = own;
    check((&extending, &[&extending, &other, &plain]), &pod, change_application, &BOTH[..1])?;
    check((&extending, &[&extending, &other, &plain]), &pod, change_own_fields, &BOTH)
}

/// Checks applications in pods without a complete record: Istio's injector records neither what it wrote nor what it
/// replaced, and an earlier release of this project only the latter.
fn without_record() -> Result<(), Failed> {
    let (extending, other) =
        (of_template(EXTENDING)?, of_template("spec: {containers: [{name: istio-proxy, image: q}]}")?);
    let mut own = simple();
    own["spec"]["containers"][0]["env"] = json!([{"name": "OWN", "value": "a"}]);
    let mut changed = own.clone();
    change_own_fields(&mut changed);
    let expected = without_status(&other.inject(&changed)?);
    let mut once = extending.inject(&own)?;
    for kept in [&["settings", "before"][..], &["settings"], &[]] {
        let mut status: Value =
            serde_json::from_str(once["metadata"]["annotations"][STATUS].as_str().ok_or("no status")?)?;
        let members = status.as_object_mut().ok_or("no map")?;
        let is_ours = |key: &str| ["settings", "before", "written"].contains(&key);
        members.retain(|key, _| !is_ours(key) || kept.contains(&&**key));
        once["metadata"]["annotations"][STATUS] = status.to_string().into();
        let mut once = once.clone();
        change_own_fields(&mut once);
        same(&expected, &without_status(&other.inject(&once)?)).map_err(|failed| {
            Failed::from(format!("a status with {kept:?}: {}", failed.message().unwrap_or_default()))
        })?;
    }
    Ok(())
}

fn probed(mut pod: Value) -> Value {
    pod["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"port": 80}});
    pod
}

fn status_port() -> Result<(), Failed> {
    let port = |port: u16| of_mesh(&json!({"defaultConfig": {"statusPort": port}}), true);
    let (usual, other) = (port(15020)?, port(15099)?);
    let all = [&usual, &other];
    for annotations in [json!({}), json!({EXCLUDED: "80"}), json!({EXCLUDED: "80,15020"}), json!({PORT: "15077"})] {
        for first in all {
            check((first, &all), &probed(annotated(&annotations)), |_| {}, &BOTH)?;
            for changed in ["15020", "15099", "15098"] {
                let change = |pod: &mut Value| pod["metadata"]["annotations"][PORT] = changed.into();
                check((first, &all), &probed(annotated(&annotations)), change, &BOTH[..1])?;
            }
        }
    }
    Ok(())
}

/// Checks that the agent scrapes the port of the application's metrics to which its author changed the annotation.
fn metrics_port() -> Result<(), Failed> {
    let port = |port: u16, native| of_mesh(&json!({"defaultConfig": {"statusPort": port}}), native);
    let (usual, native, other) = (port(15020, false)?, port(15020, true)?, port(15099, true)?);
    let scraped =
        |port: &str| json!({"prometheus.io/port": port, "prometheus.io/path": "/own", "prometheus.io/scrape": "true"});
    for annotations in [json!({}), scraped("8080"), json!({"prometheus.io/port": "8080", PORT: "15077"})] {
        for first in [&usual, &other] {
            let change = |pod: &mut Value| pod["metadata"]["annotations"]["prometheus.io/port"] = "9090".into();
            check((first, &[&usual, &native, &other]), &annotated(&annotations), change, &BOTH)?;
            for by in BOTH {
                let mut once = by.inject(first, &annotated(&annotations))?;
                change(&mut once);
                let twice = by.inject(&usual, &once)?;
                let ports: Vec<String> = scraped_ports(&twice);
                if ports != ["9090"] {
                    return Err(format!("{by:?}, {annotations}: {ports:?} in {twice}").into());
                }
            }
        }
    }
    Ok(())
}

/// Returns the port of the application's metrics in each of the sidecar's variables for it.
fn scraped_ports(pod: &Value) -> Vec<String> {
    let lists = ["containers", "initContainers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
    let sidecar = lists.flatten().filter(|container| container["name"] == "istio-proxy");
    let variables = sidecar.filter_map(|sidecar| sidecar["env"].as_array()).flatten();
    let values = variables.filter(|variable| variable["name"] == "ISTIO_PROMETHEUS_ANNOTATIONS");
    let values = values.filter_map(|variable| serde_json::from_str::<Value>(variable["value"].as_str()?).ok());
    values.map(|value| value["port"].as_str().unwrap_or_default().to_owned()).collect()
}

fn proxyless_port() -> Result<(), Failed> {
    let port = |port: u16| of_mesh(&json!({"defaultConfig": {"statusPort": port}}), false);
    let (usual, other) = (port(15020)?, port(15099)?);
    for template in ["grpc-simple", "grpc-agent"] {
        for scraped in [json!({}), json!({"prometheus.io/port": "9090", "prometheus.io/scrape": "true"})] {
            let mut pod = annotated(&scraped);
            pod["metadata"]["annotations"]["inject.istio.io/templates"] = template.into();
            check((&usual, &[&usual, &other]), &pod, |_| {}, &BOTH)?;
            check((&other, &[&usual, &other]), &pod, |_| {}, &BOTH)?;
            let change = |pod: &mut Value| pod["metadata"]["annotations"][PORT] = "15098".into();
            check((&usual, &[&usual, &other]), &pod, change, &BOTH)?;
        }
    }
    Ok(())
}

fn both() -> Result<(), Failed> {
    let adding = "spec:
  imagePullSecrets: [{name: mine}, {name: theirs}]
  hostAliases: [{ip: 10.0.0.1, hostnames: [a]}]
  volumes: [{name: data, emptyDir: {}}, {name: istio-data, emptyDir: {}}]
  containers: [{name: istio-proxy, image: p}]
";
    let (adding, other) = (of_template(adding)?, of_template("spec: {containers: [{name: istio-proxy, image: q}]}")?);
    let mut pod = simple();
    pod["spec"]["imagePullSecrets"] = json!([{"name": "z"}, {"name": "mine"}]);
    pod["spec"]["hostAliases"] = json!([{"ip": "10.0.0.1", "hostnames": ["b"]}]);
    pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}, {"name": "istio-data", "emptyDir": {}}]);
    check((&adding, &[&adding, &other]), &pod, |_| {}, &BOTH)
}

fn equal_values() -> Result<(), Failed> {
    let (plain, native) = (built_in(false)?, built_in(true)?);
    let mut pod = annotated(&json!({"k8s.v1.cni.cncf.io/networks": "default/istio-cni", EXCLUDED: "80,15020",
        "traffic.sidecar.istio.io/excludeOutboundPorts": "", "sidecar.istio.io/interceptionMode": "REDIRECT"}));
    pod["spec"]["volumes"] = json!([{"name": "istio-data", "emptyDir": {}}]);
    pod["metadata"]["labels"] = json!({"security.istio.io/tlsMode": "istio"});
    check((&plain, &[&plain, &native]), &pod, |_| {}, &BOTH)?;
    check((&native, &[&plain, &native]), &pod, |_| {}, &BOTH)
}

fn network() -> Result<(), Failed> {
    let config = BuiltIn::default().config()?;
    let network = Values::new(json!({"global": {"network": "n1"}}));
    let networked = Config { values: network.over(config.values.clone()), ..config };
    let (networked, plain) = (
        Injection { name: "network".to_owned(), injector: Injector::new(networked), native: true, declined: None },
        built_in(true)?,
    );
    check((&networked, &[&plain, &networked]), &simple(), |_| {}, &BOTH)?;
    let mut own = simple();
    own["metadata"]["labels"] = json!({"topology.istio.io/network": "n1"});
    check((&networked, &[&plain, &networked]), &own, |_| {}, &BOTH)
}

fn replaced() -> Result<(), Failed> {
    let writing = "metadata: {annotations: {note: ours}, labels: {team: ours}}
spec: {priorityClassName: ours, containers: [{name: istio-proxy, image: p}]}";
    let (writing, other) = (of_template(writing)?, of_template("spec: {containers: [{name: istio-proxy, image: q}]}")?);
    let mut pod = annotated(&json!({"note": "own"}));
    pod["spec"]["priorityClassName"] = "own".into();
    check((&writing, &[&other]), &pod, |_| {}, &BOTH)?;
    let change = |pod: &mut Value| {
        pod["metadata"]["annotations"]["note"] = "later".into();
        pod["metadata"]["annotations"]["added"] = "later".into();
        pod["metadata"]["labels"]["added"] = "later".into();
        pod["spec"]["priorityClassName"] = "later".into();
    };
    check((&writing, &[&other]), &pod, change, &BOTH)?;
    check((&writing, &[&other]), &simple(), change, &BOTH[..1])
}

/// Checks that the sidecar's variable with the ports of the containers has the same order after each injection,
/// although Istio's own record does not contain the sidecar's position.
fn own_sidecar() -> Result<(), Failed> {
    let (native, plain) = (built_in(true)?, built_in(false)?);
    let own = json!({"name": "istio-proxy", "image": "auto", "ports": [{"containerPort": 7}]});
    let app = |name: &str, port: u16| json!({"name": name, "image": "i", "ports": [{"containerPort": port}]});
    let (app, b) = (app("app", 80), app("b", 81));
    for containers in [json!([own, app, b]), json!([app, own, b]), json!([app, b, own])] {
        let pod = json!({"metadata": {}, "spec": {"containers": containers}});
        check((&native, &[&native, &plain]), &pod, |_| {}, &BOTH)?;
        check((&plain, &[&native, &plain]), &pod, |_| {}, &BOTH)?;
    }
    Ok(())
}

/// Checks that the labels that the webhook derives from others are derived anew, and that the author's labels stay.
fn derived_labels() -> Result<(), Failed> {
    const NAME: &str = "service.istio.io/canonical-name";
    const REVISION: &str = "service.istio.io/canonical-revision";
    let (first, native) = (built_in(false)?, built_in(true)?);
    let change = |pod: &mut Value| {
        pod["metadata"]["labels"]["app"] = "later".into();
        pod["metadata"]["labels"]["version"] = "v2".into();
    };
    for own in [json!({}), json!({NAME: "shop"}), json!({NAME: "mine", REVISION: "v1"})] {
        let mut pod = simple();
        pod["metadata"]["labels"] = own.clone();
        pod["metadata"]["labels"]["app"] = "shop".into();
        pod["metadata"]["labels"]["version"] = "v1".into();
        check((&first, &[&first, &native]), &pod, change, &[By::Webhook])?;
        let mut once = first.inject(&pod)?;
        change(&mut once);
        let twice = native.inject(&once)?;
        let expected = [(NAME, "later"), (REVISION, "v2")].map(|(name, derived)| own[name].as_str().unwrap_or(derived));
        let found = [NAME, REVISION].map(|name| twice["metadata"]["labels"][name].as_str().unwrap_or_default());
        if found != expected {
            return Err(format!("{own}: {found:?}, not {expected:?}").into());
        }
    }
    Ok(())
}

/// Checks that labels whose origin kube-inject's status does not record are derived anew if an injection writes such a value, and named in
/// a warning otherwise.
fn canonical_labels() -> Result<(), Failed> {
    const NAME: &str = "service.istio.io/canonical-name";
    const REVISION: &str = "service.istio.io/canonical-revision";
    let injection = built_in(false)?;
    let inject = |mut pod: Value| -> Result<(Value, Vec<String>), Failed> {
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        match injection.injector.inject_document(pod, &|_| false)? {
            Document::Workload { document, warnings, .. } => Ok((document, warnings)),
            Document::Untouched => Err("the pod is untouched".into()),
        }
    };
    let mut pod = simple();
    pod["metadata"]["labels"] = json!({"app": "shop"});
    let (mut once, _) = inject(pod)?;
    let (again, none) = inject(once.clone())?;
    once["metadata"]["labels"]["version"] = "v2".into();
    let (versioned, also_none) = inject(once.clone())?;
    once["metadata"]["labels"]["app"] = "later".into();
    let (renamed, named) = inject(once)?;
    let labels = |pod: &Value| [NAME, REVISION].map(|name| pod["metadata"]["labels"][name].clone());
    let found = [labels(&again), labels(&versioned), labels(&renamed)];
    if found != [["shop", "latest"], ["shop", "v2"], ["shop", "v2"]] {
        return Err(format!("{found:?}").into());
    }
    let said = |warnings: &[String]| warnings.iter().filter(|text| text.contains("no record tells")).count();
    let name = "label \"service.istio.io/canonical-name\" stays \"shop\", and would be \"later\"";
    if (said(&none), said(&also_none), said(&named)) != (0, 0, 1) || !named.iter().any(|text| text.contains(name)) {
        return Err(format!("{none:?}, {also_none:?}, {named:?}").into());
    }
    Ok(())
}
