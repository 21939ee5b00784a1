//! Tests of single settings of a pod, a ProxyConfig or the configuration, in the spellings and places that Istio
//! accepts.

use std::collections::BTreeMap;

use inject::istio::{BuiltIn, Config, Document, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::property::equal;

type Check = fn() -> Result<(), Failed>;

pub(crate) fn trials() -> Vec<Trial> {
    let checks: [(&str, Check); 5] = [
        ("an empty topology.istio.io/network takes the network of the values away", network),
        ("user and group are 1337 but in namespaces of OpenShift with ranges", user),
        ("rewriteAppHTTPProbers that is not a boolean leaves the decision to the values", probes),
        ("an empty proxyImageType is the image without a variant", image_type),
        ("a configuration without a policy injects nothing", policy),
    ];
    checks.into_iter().map(|(name, check)| Trial::test(format!("settings/{name}"), check)).collect()
}

const TEMPLATE: &str = "spec:
  initContainers: [{name: istio-init, image: '{{ .ProxyInitImage }}'}]
  containers: [{name: istio-proxy, image: '{{ .ProxyImage }}', args: ['{{ .ProxyUID }}:{{ .ProxyGID }}']}]
";

fn injector(values: &str, mesh: &str, platform: Platform) -> Result<Injector, Failed> {
    let (settings, values, mesh) = (Settings::from_template(TEMPLATE)?, Values::parse(values)?, Mesh::parse(mesh)?);
    Ok(Injector::new(Config { settings, values, mesh, platform, ..BuiltIn::default().config()? }))
}

const VALUES: &str = "{global: {hub: h, tag: t, variant: debug, network: of-values}, sidecarInjectorWebhook: {rewriteAppHTTPProbe: REWRITES}}";

/// Returns a pod with this metadata and a probe, after a review.
fn injected(injector: &Injector, metadata: &Value, env: &[(&str, &str)]) -> Result<Value, Failed> {
    let app = json!({"name": "app", "livenessProbe": {"httpGet": {"port": 80}}});
    let pod = json!({"metadata": metadata, "spec": {"containers": [app]}});
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    match injector.review(&Request { env, ..Request::new(&pod, "shop") })? {
        InjectionOutcome::Injected { injected, .. } => Ok(injected.pod),
        InjectionOutcome::Skipped(decision) => Err(decision.sentence().into()),
    }
}

fn network() -> Result<(), Failed> {
    let label = |label: &str| json!({"labels": {"topology.istio.io/network": label}});
    let unnamed = VALUES.replace("of-values", "");
    for (values, metadata, url, found, kept) in [
        (VALUES, json!({}), "", Some("of-values"), Some("of-values")),
        (VALUES, json!({}), "of-url", Some("of-url"), Some("of-url")),
        (VALUES, label("of-pod"), "of-url", Some("of-pod"), Some("of-pod")),
        (VALUES, label(""), "", None, Some("")),
        (&unnamed, json!({}), "", None, None),
        (&unnamed, label("of-pod"), "", Some("of-pod"), Some("of-pod")),
    ] {
        let injector = injector(values, "", Platform::Kubernetes)?;
        let env = [("ISTIO_META_NETWORK", url)];
        let pod = injected(&injector, &metadata, if url.is_empty() { &[] } else { &env })?;
        let env = pod["spec"]["containers"][1]["env"].as_array().map_or(&[][..], Vec::as_slice);
        let variable = env.iter().find(|variable| variable["name"] == "ISTIO_META_NETWORK");
        let what = format!("{metadata} with {url:?} in the URL");
        equal(&json!(found), &json!(variable.map(|variable| &variable["value"])), &what)?;
        equal(&json!(kept), &pod["metadata"]["labels"]["topology.istio.io/network"], &what)?;
    }
    Ok(())
}

fn user() -> Result<(), Failed> {
    let pod = json!({"metadata": {}, "spec": {"containers": []}});
    let ranges = BTreeMap::from([("openshift.io/sa.scc.uid-range".to_owned(), "1000/10".to_owned())]);
    let none = BTreeMap::new();
    for (platform, annotations, ids) in [
        (Platform::Kubernetes, None, "1337:1337"),
        (Platform::Kubernetes, Some(&ranges), "1337:1337"),
        (Platform::OpenShift, None, "1337:1337"),
        (Platform::OpenShift, Some(&none), "1337:1337"),
        (Platform::OpenShift, Some(&ranges), "1009:1009"),
    ] {
        let injector = injector(VALUES, "", platform)?;
        let request = Request { namespace_annotations: annotations, ..Request::new(&pod, "shop") };
        let InjectionOutcome::Injected { injected, .. } = injector.review(&request)? else {
            return Err("was skipped".into());
        };
        let what = format!("{platform:?} with {annotations:?}");
        equal(&json!([ids]), &injected.pod["spec"]["containers"][0]["args"], &what)?;
        let mut document = pod.clone();
        document["apiVersion"] = "v1".into();
        document["kind"] = "Pod".into();
        let Document::Workload { document, .. } = injector.inject_document(document, &|_| false)? else {
            return Err("a pod is a workload".into());
        };
        equal(&json!(["1337:1337"]), &document["spec"]["containers"][0]["args"], "kube-inject")?;
    }
    Ok(())
}

fn probes() -> Result<(), Failed> {
    for (values, rewrites) in [("true", true), ("false", false)] {
        let injector = injector(&VALUES.replace("REWRITES", values), "", Platform::Kubernetes)?;
        for (said, rewritten) in [
            ("true", true),
            ("T", true),
            ("1", true),
            ("false", false),
            ("F", false),
            ("0", false),
            ("yes", rewrites),
            ("no", rewrites),
            ("tRUE", rewrites),
            ("", rewrites),
        ] {
            let annotations = json!({"annotations": {"sidecar.istio.io/rewriteAppHTTPProbers": said}});
            let pod = injected(&injector, &annotations, &[])?;
            let port = &pod["spec"]["containers"][0]["livenessProbe"]["httpGet"]["port"];
            equal(&json!(if rewritten { 15020 } else { 80 }), port, &format!("{said:?} with {values} in the values"))?;
        }
    }
    Ok(())
}

fn image_type() -> Result<(), Failed> {
    let config = "defaultConfig: {image: {imageType: distroless}}";
    for (mesh, said, proxy, init) in [
        ("", None, "h/proxyv2:t-debug", "h/proxyv2:t-debug"),
        ("", Some(""), "h/proxyv2:t", "h/proxyv2:t"),
        ("", Some("default"), "h/proxyv2:t", "h/proxyv2:t"),
        (config, None, "h/proxyv2:t-distroless", "h/proxyv2:t-debug"),
        (config, Some(""), "h/proxyv2:t", "h/proxyv2:t"),
    ] {
        let metadata = said.map_or(json!({}), |kind| json!({"annotations": {"sidecar.istio.io/proxyImageType": kind}}));
        let pod = injected(&injector(VALUES, mesh, Platform::Kubernetes)?, &metadata, &[])?;
        let what = format!("{said:?} with {mesh:?}");
        equal(&json!(proxy), &pod["spec"]["containers"][1]["image"], &what)?;
        equal(&json!(init), &pod["spec"]["initContainers"][0]["image"], &what)?;
    }
    Ok(())
}

fn policy() -> Result<(), Failed> {
    let labelled = json!({"metadata": {"labels": {"sidecar.istio.io/inject": "true"}}, "spec": {"containers": []}});
    for (policy, injects) in [("", false), ("policy: ''\n", false), ("policy: disabled\n", true)] {
        let settings = Settings::parse(&format!("{policy}templates: {{sidecar: 'spec: {{}}'}}"), None)?;
        let injector = Injector::new(Config { settings, ..BuiltIn::default().config()? });
        let decision = injector.decide(&labelled, "shop");
        let reason = decision.reason.label();
        if decision.inject != injects || (reason == "invalid_policy") == injects {
            return Err(format!("{policy:?}: {decision:?}, {reason}").into());
        }
    }
    Ok(())
}
