//! Tests of annotations, labels, probes and containers that their author changed after the first injection.

use inject::istio::{BuiltIn, Config, Document, Injector, Values};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::others::{BOTH, By, EXCLUDED, PORT, annotated, check, of_mesh};
use super::settings::Injection;
use super::{Check, built_in, simple};

const NETWORK: &str = "topology.istio.io/network";
const TEMPLATES: &str = "inject.istio.io/templates";
const TARGETS: &str = "prometheus.istio.io/scrape-targets";
const REWRITE: &str = "sidecar.istio.io/rewriteAppHTTPProbers";

pub(super) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 11] = [
        ("a status port that its author changed replaces the former one", status_port),
        ("no port of the author's is taken for that of an agent without one", portless),
        ("each changed annotation of metrics stays, and the others are put back", metrics),
        ("a renamed container keeps its probes", renamed),
        ("a probe keeps the name of its port", named_port),
        ("the network of a proxyless pod goes, and its author's label stays", networks),
        ("a network that a proxyless pod loses without a record is named", lost_network),
        ("what a template's application loses without a record is named", lost),
        ("a container before the others becomes the default one", inserted),
        ("annotations of former values of Helm go, and the author's stay", values),
        ("annotations that may be of former values are named", unknown_values),
    ];
    checks.into_iter().map(|(name, check)| Trial::test(format!("again/{name}"), check)).collect()
}

/// Returns a function that sets annotations, and removes those with `None`.
fn annotate(changes: &'static [(&'static str, Option<&'static str>)]) -> impl Fn(&mut Value) {
    move |pod| {
        for (name, text) in changes {
            match (text, pod["metadata"]["annotations"].as_object_mut()) {
                (Some(text), _) => pod["metadata"]["annotations"][*name] = (*text).into(),
                (None, Some(annotations)) => drop(annotations.shift_remove(*name)),
                (None, None) => {}
            }
        }
    }
}

/// Adds to a failure the change that it is about.
fn of(what: &str, result: Result<(), Failed>) -> Result<(), Failed> {
    result.map_err(|failed| Failed::from(format!("{what}: {}", failed.message().unwrap_or_default())))
}

fn status_port() -> Result<(), Failed> {
    let port = |port: u16, native| of_mesh(&json!({"defaultConfig": {"statusPort": port}}), native);
    let (usual, native, other) = (port(15020, false)?, port(15020, true)?, port(15099, true)?);
    for annotations in [
        json!({PORT: "15077"}),
        json!({PORT: "15077", EXCLUDED: "80"}),
        json!({PORT: "15077", "prometheus.io/port": "8080", "prometheus.io/path": "/own"}),
    ] {
        for probe in [false, true] {
            let mut pod = annotated(&annotations);
            if probe {
                pod["spec"]["containers"][0]["livenessProbe"] = json!({"httpGet": {"port": 80}});
            }
            for changed in [&[(PORT, Some("15055"))], &[(PORT, None)]] {
                for first in [&usual, &other] {
                    let result = check((first, &[&usual, &native, &other]), &pod, annotate(changed), &BOTH);
                    of(&format!("{annotations}, {changed:?}"), result)?;
                }
            }
        }
    }
    Ok(())
}

/// Checks that an agent without a status port appends no port to the author's list of excluded ports, and that no agent
/// appends a port that the list already contains.
fn portless() -> Result<(), Failed> {
    let merged = |merged: bool, native| of_mesh(&json!({"enablePrometheusMerge": merged}), native);
    let (usual, native, unmerged) = (merged(true, false)?, merged(true, true)?, merged(false, false)?);
    let changes: [&[(&str, Option<&str>)]; 3] = [&[], &[(PORT, None)], &[(PORT, Some("15055"))]];
    for annotations in [
        json!({PORT: "0", EXCLUDED: "22,80"}),
        json!({PORT: "0", EXCLUDED: "22,80", "prometheus.io/port": "80", "prometheus.io/scrape": "true"}),
        json!({EXCLUDED: "15020,80", "prometheus.io/port": "80", "prometheus.io/scrape": "true"}),
    ] {
        for changed in changes {
            for first in [&usual, &native, &unmerged] {
                let seconds = [&usual, &native, &unmerged];
                let result = check((first, &seconds), &annotated(&annotations), annotate(changed), &BOTH);
                of(&format!("{annotations}, {changed:?}"), result)?;
            }
        }
    }
    Ok(())
}

fn metrics() -> Result<(), Failed> {
    const CHANGES: [&[(&str, Option<&str>)]; 10] = [
        &[("prometheus.io/path", Some("/new"))],
        &[("prometheus.io/port", Some("99"))],
        &[("prometheus.io/port", Some("99")), ("prometheus.io/path", Some("/new"))],
        &[("prometheus.io/scrape", Some("false"))],
        &[("prometheus.io/port", None)],
        &[("prometheus.io/path", None)],
        &[("prometheus.io/port", None), ("prometheus.io/path", None), ("prometheus.io/scrape", None)],
        &[("prometheus_io_port", Some("77"))],
        &[(TARGETS, Some("7777:/z"))],
        &[("prometheus.istio.io/merge-metrics", Some("false"))],
    ];
    let merged = |merged: bool, native| of_mesh(&json!({"enablePrometheusMerge": merged}), native);
    let (usual, native, unmerged) = (merged(true, false)?, merged(true, true)?, merged(false, false)?);
    for annotations in [
        json!({}),
        json!({"prometheus.io/port": "8080", "prometheus.io/path": "/m", "prometheus.io/scrape": "true"}),
        json!({TARGETS: "8080:/a"}),
        json!({"prometheus.io/port": "8080", PORT: "15077"}),
        // In mode NONE, no init container has the port in its arguments.
        json!({"prometheus.io/port": "8080", PORT: "15077", "sidecar.istio.io/interceptionMode": "NONE"}),
    ] {
        for (at, change) in CHANGES.into_iter().enumerate() {
            // If the pod had no annotation, no record tells who wrote the remaining `scrape`.
            if at == 2 && annotations == json!({}) {
                continue;
            }
            let result =
                check((&usual, &[&usual, &native, &unmerged]), &annotated(&annotations), annotate(change), &BOTH);
            of(&format!("{annotations}, {change:?}"), result)?;
        }
    }
    Ok(())
}

/// Returns a pod whose probes name a port. It has no annotations, because `kube-inject` would write a record of them.
fn probed() -> Value {
    let mut pod = simple();
    pod["spec"]["containers"][0]["ports"] = json!([{"name": "http", "containerPort": 80}]);
    pod["spec"]["containers"][0]["readinessProbe"] = json!({"httpGet": {"path": "/r", "port": "http"}});
    pod["spec"]["containers"][0]["livenessProbe"] = json!({"tcpSocket": {"port": "http"}});
    pod
}

fn renamed() -> Result<(), Failed> {
    let (native, plain) = (built_in(true)?, built_in(false)?);
    let change = |pod: &mut Value| {
        let containers = pod["spec"]["containers"].as_array_mut().into_iter().flatten();
        let app = containers.filter(|container| container["name"] == "app");
        app.for_each(|app| app["name"] = "web".into());
    };
    check((&plain, &[&plain, &native]), &probed(), change, &BOTH)
}

fn named_port() -> Result<(), Failed> {
    let (native, plain) = (built_in(true)?, built_in(false)?);
    let all = [&plain, &native];
    check((&plain, &all), &probed(), annotate(&[(REWRITE, Some("false"))]), &BOTH)?;
    let change = |pod: &mut Value| {
        let containers = pod["spec"]["containers"].as_array_mut().into_iter().flatten();
        let app = containers.filter(|container| container["name"] == "app");
        app.for_each(|app| app["ports"][0]["containerPort"] = 8088.into());
    };
    check((&plain, &all), &probed(), change, &BOTH)
}

/// Returns an injection whose values have the network `n1`.
fn with_network() -> Result<Injection, Failed> {
    let config = BuiltIn::default().config()?;
    let network = Values::new(json!({"global": {"network": "n1"}}));
    let config = Config { values: network.over(config.values.clone()), ..config };
    Ok(Injection { name: "network".to_owned(), injector: Injector::new(config), native: false, declined: None })
}

fn networks() -> Result<(), Failed> {
    let (networked, plain) = (with_network()?, built_in(false)?);
    let none = |_: &mut Value| {};
    let label = |pod: &mut Value| pod["metadata"]["labels"][NETWORK] = "later".into();
    let unlabel = |pod: &mut Value| {
        let labels = pod["metadata"]["labels"].as_object_mut();
        labels.map(|labels| labels.shift_remove(NETWORK));
    };
    for templates in ["sidecar", "grpc-simple", "grpc-agent"] {
        let pod = annotated(&json!({TEMPLATES: templates}));
        of(templates, check((&networked, &[&plain, &networked]), &pod, none, &BOTH))?;
        for own in ["nn", "n1"] {
            let mut pod = pod.clone();
            pod["metadata"]["labels"] = json!({"app": "web", NETWORK: own});
            for first in [&networked, &plain] {
                let seconds = [&plain, &networked];
                of(&format!("{templates}, own {own}"), check((first, &seconds), &pod, none, &BOTH))?;
                of(&format!("{templates}, later than {own}"), check((first, &seconds), &pod, label, &BOTH))?;
                of(&format!("{templates}, without {own}"), check((first, &seconds), &pod, unlabel, &BOTH))?;
            }
        }
    }
    Ok(())
}

/// Returns the warnings of `kube-inject` about a pod that contain `text`.
fn warnings(injection: &Injection, pod: &Value, text: &str) -> Result<Vec<String>, Failed> {
    let mut document = pod.clone();
    document["apiVersion"] = "v1".into();
    document["kind"] = "Pod".into();
    match injection.injector.inject_document(document, &|_| false)? {
        Document::Workload { warnings, .. } => {
            Ok(warnings.into_iter().filter(|warning| warning.contains(text)).collect())
        }
        Document::Untouched => Err("the pod is untouched".into()),
    }
}

fn lost_network() -> Result<(), Failed> {
    let (networked, plain) = (with_network()?, built_in(false)?);
    let once = By::KubeInject.inject(&networked, &annotated(&json!({TEMPLATES: "grpc-simple"})))?;
    let found = [&networked, &plain].map(|second| warnings(second, &once, "is no longer \"n1\""));
    match found {
        [Ok(none), Ok(one)] if none.is_empty() && one.len() == 1 => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

/// Checks that `kube-inject` warns about fields that were added to an application since its injection: Istio's record
/// names only the fields that the author wrote, so only the webhook can keep the added ones.
fn lost() -> Result<(), Failed> {
    let injection = built_in(false)?;
    let mut once = By::KubeInject.inject(&injection, &annotated(&json!({TEMPLATES: "grpc-simple"})))?;
    let named = |pod: &Value| warnings(&injection, pod, "container \"app\" loses");
    let none = named(&once)?;
    once["spec"]["containers"][0]["env"].as_array_mut().ok_or("none")?.push(json!({"name": "ADDED", "value": "1"}));
    once["spec"]["containers"][0]["workingDir"] = "/w".into();
    let found = named(&once)?;
    if !none.is_empty() || found.len() != 1 || !found[0].contains("env ADDED, workingDir") {
        return Err(format!("{none:?}, {found:?}").into());
    }
    Ok(())
}

fn inserted() -> Result<(), Failed> {
    let (native, plain) = (built_in(true)?, built_in(false)?);
    let change = |pod: &mut Value| {
        if let Some(containers) = pod["spec"]["containers"].as_array_mut() {
            containers.insert(0, json!({"name": "first", "image": "f"}));
        }
    };
    let default = json!({"kubectl.kubernetes.io/default-container": "app"});
    for first in [&native, &plain] {
        check((first, &[&native, &plain]), &simple(), change, &BOTH)?;
        check((first, &[&native, &plain]), &annotated(&default), change, &BOTH)?;
    }
    Ok(())
}

/// Returns an injection with Helm values for the redirected traffic that all differ from the usual ones.
fn redirecting() -> Result<Injection, Failed> {
    let config = BuiltIn::default().config()?;
    let proxy = json!({
        "image": "proxy", "logLevel": "warning", "componentLogLevel": "misc:error", "statusPort": 15020,
        "includeIPRanges": "10.0.0.0/8", "excludeIPRanges": "10.1.0.0/16", "includeInboundPorts": "80,81",
        "excludeInboundPorts": "22", "includeOutboundPorts": "443", "excludeOutboundPorts": "25",
    });
    let global = Values::new(json!({"global": {"proxy": proxy}}));
    let config = Config { values: global.over(config.values.clone()), ..config };
    Ok(Injection {
        name: "values of the traffic".to_owned(),
        injector: Injector::new(config),
        native: false,
        declined: None,
    })
}

const RANGES: &str = "traffic.sidecar.istio.io/includeOutboundIPRanges";

fn values() -> Result<(), Failed> {
    let (first, native, plain) = (redirecting()?, built_in(true)?, built_in(false)?);
    let all = [&plain, &native, &first];
    let none = |_: &mut Value| {};
    for annotations in [
        json!({}),
        json!({RANGES: "10.0.0.0/8", EXCLUDED: "22"}),
        json!({RANGES: "192.168.0.0/16", EXCLUDED: "23,24", "traffic.sidecar.istio.io/excludeOutboundPorts": ""}),
    ] {
        of(&annotations.to_string(), check((&first, &all), &annotated(&annotations), none, &BOTH))?;
        let changed = annotate(&[(RANGES, Some("172.16.0.0/12"))]);
        of(&format!("{annotations}, changed"), check((&first, &all), &annotated(&annotations), changed, &BOTH))?;
    }
    check((&first, &all), &simple(), none, &BOTH)
}

/// Checks the warning about annotations in a pod that Istio's injector injected: without a record, they may come from
/// the author or from former values.
fn unknown_values() -> Result<(), Failed> {
    let (first, plain) = (redirecting()?, built_in(false)?);
    let stripped = |pod: Value| -> Result<Value, Failed> {
        let mut pod = pod;
        let status = &mut pod["metadata"]["annotations"]["sidecar.istio.io/status"];
        let mut names: Value = serde_json::from_str(status.as_str().ok_or("no status")?)?;
        let members = names.as_object_mut().ok_or("no map")?;
        ["before", "written"].iter().for_each(|key| drop(members.shift_remove(*key)));
        *status = names.to_string().into();
        Ok(pod)
    };
    let once = stripped(By::KubeInject.inject(&first, &simple())?)?;
    let named = |pod: &Value| warnings(&plain, pod, "no record tells whether a former injection wrote them");
    let found = named(&once)?;
    if found.len() != 1 || !found[0].contains(&format!("annotations stay: {RANGES}, ")) || !found[0].contains(EXCLUDED)
    {
        return Err(format!("{found:?}").into());
    }
    let usual = named(&stripped(By::KubeInject.inject(&plain, &simple())?)?)?;
    usual.is_empty().then_some(()).ok_or_else(|| format!("{usual:?}").into())
}
