//! Tests of records of a former injection that are damaged, or that no injection wrote.

use inject::istio::{InjectionOutcome, Request};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::super::equal::same;
use super::others::{BOTH, PORT, annotated, of_mesh};
use super::{Check, built_in, simple};

const STATUS: &str = "sidecar.istio.io/status";
const OVERRIDES: &str = "proxy.istio.io/overrides";

pub(super) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 5] = [
        ("what the author of a proxyless pod wrote stays", proxyless),
        ("a record that no injection writes is refused", damaged),
        ("a record that names all applications is refused", all_applications),
        ("a container that a record takes away is named", taken),
        ("a pod of the sidecar alone is injected again", sidecar_alone),
    ];
    checks.into_iter().map(|(name, check)| Trial::test(format!("again/{name}"), check)).collect()
}

/// Returns the pod with this value of an annotation.
fn with(mut pod: Value, annotation: &str, text: &str) -> Value {
    pod["metadata"]["annotations"][annotation] = text.into();
    pod
}

/// Fails unless the webhook and `kube-inject` refuse the pod for this annotation and reason.
fn refused(pod: &Value, annotation: &str, reason: &str) -> Result<(), Failed> {
    let injection = built_in(false)?;
    for result in [injection.inject(pod), injection.kube_inject(pod)] {
        let Err(error) = result else { return Err(format!("{pod} is injected").into()) };
        let text = error.message().unwrap_or_default();
        if !(text.contains(&format!("annotation {annotation:?} is no record")) && text.contains(reason)) {
            return Err(format!("{pod}: {text}").into());
        }
    }
    Ok(())
}

fn damaged() -> Result<(), Failed> {
    let once = built_in(true)?.inject(&simple())?;
    for pod in [simple(), once] {
        for (text, reason) in [
            ("injected", "it is not JSON"),
            ("[\"istio-proxy\"]", "it is a list, not a map"),
            (r#"{"containers":"istio-proxy"}"#, r#""containers" is a text, not a list"#),
        ] {
            refused(&with(pod.clone(), STATUS, text), STATUS, reason)?;
            refused(&with(pod.clone(), OVERRIDES, text), OVERRIDES, reason)?;
        }
        let text = r#"{"containers":["istio-proxy"],"before":{"spec":{"$patch":"nonsense"}}}"#;
        refused(&with(pod.clone(), STATUS, text), STATUS, r#""before" cannot be merged"#)?;
    }
    Ok(())
}

fn all_applications() -> Result<(), Failed> {
    let reason = "it names all applications (app) as added by an injection";
    refused(&with(simple(), STATUS, r#"{"containers":["app"]}"#), STATUS, reason)?;
    let mut once = built_in(true)?.inject(&simple())?;
    for list in [r#"["app"]"#, r#"["istio-proxy","app"]"#] {
        once = with(once, STATUS, &format!(r#"{{"containers":{list}}}"#));
        refused(&once, STATUS, reason)?;
    }
    let deleting =
        r#"{"containers":["istio-proxy"],"before":{"spec":{"containers":[{"name":"app","$patch":"delete"}]}}}"#;
    refused(&with(once, STATUS, deleting), STATUS, reason)
}

fn taken() -> Result<(), Failed> {
    let mut pod =
        with(simple(), STATUS, r#"{"containers":["istio-proxy","second"],"initContainers":["setup","istio-init"]}"#);
    pod["spec"]["containers"].as_array_mut().ok_or("none")?.push(json!({"name": "second", "image": "i"}));
    pod["spec"]["initContainers"] = json!([{"name": "setup", "image": "i"}, {"name": "istio-init", "image": "i"}]);
    let injection = built_in(false)?;
    let request = Request::new(&pod, "default");
    let InjectionOutcome::Injected { injected, .. } = injection.injector.review(&request)? else {
        return Err("not injected".into());
    };
    let mut named: Vec<&str> =
        injected.warnings.iter().filter_map(|text| text.split_once(" is taken away: ")).map(|(name, _)| name).collect();
    named.sort_unstable();
    match named[..] {
        ["container \"second\"", "container \"setup\""] => Ok(()),
        _ => Err(format!("{:?}", injected.warnings).into()),
    }
}

/// Checks that a second injection keeps the labels and the metrics annotations of a pod without a proxy, even if they
/// have the values that an injection writes.
fn proxyless() -> Result<(), Failed> {
    let labels = [
        json!({}),
        json!({"service.istio.io/canonical-name": "web"}),
        json!({"service.istio.io/canonical-name": "web", "service.istio.io/canonical-revision": "latest", "topology.istio.io/network": "n"}),
    ];
    let metrics = [
        json!({}),
        json!({"prometheus.io/scrape": "true", "prometheus.io/path": "/stats/prometheus"}),
        json!({"prometheus.io/scrape": "true", "prometheus.io/path": "/own", "prometheus.io/port": "9090"}),
        json!({"prometheus.io/scrape": "true", "prometheus.io/path": "/stats/prometheus", "prometheus.io/port": "15020"}),
    ];
    for port in
        [json!({}), json!({"defaultConfig": {"statusPort": 0}}), json!({"defaultConfig": {"statusPort": 15099}})]
    {
        let injection = of_mesh(&port, false)?;
        for (own, annotations) in labels.iter().flat_map(|own| metrics.iter().map(move |metrics| (own, metrics))) {
            for status_port in [None, Some("0"), Some("15098")] {
                let mut pod = annotated(annotations);
                (pod["metadata"]["name"], pod["metadata"]["labels"]) = ("web".into(), own.clone());
                pod["metadata"]["annotations"]["inject.istio.io/templates"] = "grpc-simple".into();
                if let Some(port) = status_port {
                    pod["metadata"]["annotations"][PORT] = port.into();
                }
                for by in BOTH {
                    // The injection may refuse the default status port as a port of metrics, because an agent with
                    // another status port does not scrape it.
                    let Ok(once) = by.inject(&injection, &pod) else { continue };
                    let twice = by.inject(&injection, &once)?;
                    same(&once, &twice).map_err(|failed| {
                        Failed::from(format!(
                            "{by:?}, {}, {pod}: {}",
                            injection.name,
                            failed.message().unwrap_or_default()
                        ))
                    })?;
                }
            }
        }
    }
    Ok(())
}

fn sidecar_alone() -> Result<(), Failed> {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "istio-proxy", "image": "auto"}]}});
    for (first, second) in [(true, false), (false, true), (false, false)] {
        let (first, second) = (built_in(first)?, built_in(second)?);
        same(&second.inject(&pod)?, &second.inject(&first.inject(&pod)?)?)?;
        let by_hand = |pod: &Value| second.kube_inject(pod);
        same(&by_hand(&pod)?, &by_hand(&first.kube_inject(&pod)?)?)?;
    }
    Ok(())
}
