//! Tests of documents that are injected again: what a former template wrote into the pod's spec must be removed, even if the status of
//! `kube-inject` contains only Istio's names.

use inject::istio::{BuiltIn, Config, Document, Injector, Mesh, Settings, Values};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::super::equal::same;
use super::others::{BOTH, By, annotated, check};
use super::settings::Injection;
use super::{Check, built_in, simple};

const STATUS: &str = "sidecar.istio.io/status";

pub(super) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 4] = [
        ("what a former template wrote into a pod goes", fields),
        ("the security context of a former gateway goes", gateways),
        ("a document without such fields has Istio's status", bare),
        ("the job template of a cron job gets nothing of its pod's author", cron_job),
    ];
    checks.into_iter().map(|(name, check)| Trial::test(format!("again/documents/{name}"), check)).collect()
}

/// Fields of a pod's spec, as a template writes them.
const FIELDS: [&str; 17] = [
    "dnsConfig: {nameservers: [1.1.1.1], searches: [a.b], options: [{name: ndots, value: '2'}]}",
    "dnsPolicy: Default",
    "priorityClassName: high",
    "terminationGracePeriodSeconds: 90",
    "nodeSelector: {a: b}",
    "tolerations: [{key: a, operator: Exists}]",
    "hostAliases: [{ip: 1.2.3.4, hostnames: [x]}]",
    "securityContext: {runAsNonRoot: true, fsGroup: 5, sysctls: [{name: a.b, value: '1'}]}",
    "shareProcessNamespace: true",
    "automountServiceAccountToken: false",
    "readinessGates: [{conditionType: a/b}]",
    "affinity: {podAntiAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: z}}]}}",
    "topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}]",
    "runtimeClassName: fast",
    "enableServiceLinks: false",
    "schedulerName: mine",
    "volumes: [{name: v, emptyDir: {}}]",
];

const SIDECAR: &str = "spec:\n  containers: [{name: istio-proxy, image: 'p:1', args: [proxy, sidecar]}]\n";

fn of_template(template: &str) -> Result<Injection, Failed> {
    let settings = Settings::from_template(template)?;
    let config = Config { settings, mesh: Mesh::parse("")?, ..BuiltIn::default().config()? };
    Ok(Injection { name: template.to_owned(), injector: Injector::new(config), native: false, declined: None })
}

/// Returns a pod with fields that the templates write, too.
fn own() -> Value {
    let containers = json!([{"name": "app", "image": "i"}]);
    json!({"metadata": {"labels": {"app": "shop", "team": "own"}, "annotations": {"note": "own"}}, "spec": {
        "containers": containers, "securityContext": {"runAsUser": 7, "sysctls": [{"name": "c", "value": "d"}]},
        "dnsConfig": {"nameservers": ["9.9.9.9"]}, "terminationGracePeriodSeconds": 5, "nodeSelector": {"q": "r"},
        "tolerations": [{"key": "mine", "operator": "Exists"}], "hostAliases": [{"ip": "1.2.3.4", "hostnames": ["own"]}],
        "volumes": [{"name": "v", "configMap": {"name": "own"}}]}})
}

fn without(pod: &Value, name: &str) -> Value {
    let mut pod = pod.clone();
    pod["metadata"]["annotations"].as_object_mut().map(|annotations| annotations.shift_remove(name));
    pod
}

/// Checks that the webhook turns a document of `kube-inject` into the same pod as the author's pod.
fn by_webhook_then((first, second): (&Injection, &Injection), pod: &Value) -> Result<(), Failed> {
    let twice = second.inject(&first.kube_inject(pod)?)?;
    let expected = second.inject(pod)?;
    same(&without(&expected, STATUS), &without(&twice, STATUS)).map_err(|failed| {
        Failed::from(format!("{} and then {}: {}", first.name, second.name, failed.message().unwrap_or_default()))
    })
}

fn fields() -> Result<(), Failed> {
    let (plain, built_in) = (of_template(SIDECAR)?, built_in(true)?);
    let mut templates: Vec<String> = FIELDS.iter().map(|field| format!("{SIDECAR}  {field}\n")).collect();
    templates.push(format!("{SIDECAR}  {}\n", FIELDS.join("\n  ")));
    for template in &templates {
        let first = of_template(template)?;
        for pod in [simple(), own()] {
            // The API server refuses a volume with two sources.
            if pod == own() && template.contains("volumes") {
                continue;
            }
            check((&first, &[&plain, &first, &built_in]), &pod, |_| {}, &[By::KubeInject])?;
            check((&plain, &[&first]), &pod, |_| {}, &[By::KubeInject])?;
            by_webhook_then((&first, &plain), &pod)?;
        }
    }
    Ok(())
}

/// Returns an injection with the built-in templates and these values.
fn of_values(values: &Value) -> Result<Injection, Failed> {
    let config = BuiltIn::config_with(Values::parse(&values.to_string())?, None, None)?;
    Ok(Injection { name: values.to_string(), injector: Injector::new(config), native: false, declined: None })
}

fn gateways() -> Result<(), Failed> {
    let sysctls = json!([{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}]);
    let context = json!({"fsGroup": 1337, "runAsNonRoot": true, "sysctls": sysctls});
    let secured = of_values(&json!({"gateways": {"securityContext": context}}))?;
    let plain = of_values(&json!({}))?;
    let gateway = |own: Value| {
        let mut pod = annotated(&json!({"inject.istio.io/templates": "gateway"}));
        pod["spec"]["containers"] = own;
        pod
    };
    for own in [
        json!([{"name": "istio-proxy", "image": "auto"}]),
        json!([{"name": "istio-proxy", "image": "auto", "args": ["proxy", "sidecar"]}]),
        json!([{"name": "app", "image": "i"}]),
    ] {
        let pod = gateway(own);
        let no_template = |pod: &mut Value| {
            pod["metadata"]["annotations"].as_object_mut().map(|map| map.shift_remove("inject.istio.io/templates"));
        };
        for first in [&secured, &plain] {
            check((first, &[&plain, &secured]), &pod, |_| {}, &BOTH)?;
            check((first, &[&plain]), &pod, no_template, &BOTH)?;
            by_webhook_then((first, &plain), &pod)?;
        }
    }
    Ok(())
}

/// Returns the document that `kube-inject` makes of a document, and its warnings.
fn inject(injection: &Injection, document: Value) -> Result<(Value, Vec<String>), Failed> {
    match injection.injector.inject_document(document, &|_| injection.native)? {
        Document::Workload { document, warnings, .. } => Ok((document, warnings)),
        Document::Untouched => Err("the document is untouched".into()),
    }
}

fn document(mut pod: Value) -> Value {
    pod["apiVersion"] = "v1".into();
    pod["kind"] = "Pod".into();
    pod
}

/// Returns the members of the status other than Istio's.
fn record(pod: &Value) -> Result<Vec<String>, Failed> {
    let status = pod["metadata"]["annotations"][STATUS].as_str().ok_or("no status")?;
    let status: serde_json::Map<String, Value> = serde_json::from_str(status)?;
    Ok(status.into_iter().map(|(key, _)| key).filter(|key| ["before", "written"].contains(&key.as_str())).collect())
}

fn bare() -> Result<(), Failed> {
    let mut labelled = own();
    labelled["metadata"]["labels"]["version"] = "v1".into();
    for pod in [simple(), labelled] {
        for injection in [built_in(false)?, built_in(true)?, of_template(SIDECAR)?] {
            let (once, _) = inject(&injection, document(pod.clone()))?;
            if !record(&once)?.is_empty() {
                return Err(format!("{}: {once}", injection.name).into());
            }
        }
    }
    Ok(())
}

fn cron_job() -> Result<(), Failed> {
    let merged = |merged: bool| super::others::of_mesh(&json!({"enablePrometheusMerge": merged}), false);
    let (merging, plain) = (merged(true)?, merged(false)?);
    let own = json!({"prometheus.io/port": "8080", "prometheus.io/path": "/own", "prometheus.io/scrape": "true",
        "traffic.sidecar.istio.io/excludeInboundPorts": "80"});
    for job in [json!({}), json!({"labels": {"own": "1"}, "annotations": {"own": "2"}}), json!({"annotations": own})] {
        let template = json!({"metadata": {"annotations": own}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
        let job_template = json!({"metadata": job, "spec": {"template": template}});
        let document = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"}, "spec": {"jobTemplate": job_template}});
        for (first, second) in [(&merging, &plain), (&plain, &merging), (&merging, &merging)] {
            let expected = inject(second, document.clone())?.0;
            let twice = inject(second, inject(first, document.clone())?.0)?.0;
            let metadata = |document: &Value| document["spec"]["jobTemplate"]["metadata"].clone();
            let (expected, twice) = (without_status(metadata(&expected)), without_status(metadata(&twice)));
            // The job template's own values are lost if the injection overwrites them.
            if job["annotations"] != own && expected != twice {
                return Err(format!("{job}: expected {expected}, got {twice}").into());
            }
        }
    }
    Ok(())
}

fn without_status(mut metadata: Value) -> Value {
    metadata["annotations"].as_object_mut().map(|annotations| annotations.shift_remove(STATUS));
    metadata
}
