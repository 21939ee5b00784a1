//! Tests of the intended differences from Istio's injection: one trial for each, under its name in docs/webhook.md.

mod elsewhere;
mod status_port;

use std::collections::BTreeSet;
use std::path::Path;

use inject::istio::{BuiltIn, Config, Document, InjectionOutcome, Injector, Mesh, Request, Settings, Values};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use elsewhere::ELSEWHERE;

type Check = fn() -> Result<(), Failed>;

const DIFFERENCES: &[(&str, Check)] = &[
    ("probe of a port that has no number", probe),
    ("probe without a status port", status_port::no_port),
    ("text that would leave its place in YAML", text),
    ("kind of another group", kind),
    ("image without registry or tag", image),
    ("metrics on the pod's own status port", status_port::metrics),
    ("annotation that Istio does not check", unchecked),
    ("space in a list of an annotation", space),
    ("empty element of a list", empty),
    ("number with a leading zero", leading_zero),
    ("value by which a pod would not start", unstartable),
    ("status port of the pod's proxy configuration", status_port::configured),
    ("pod for Windows", windows),
    ("runtime class of a sandbox", sandbox),
    ("application that runs as the proxy", as_proxy),
    ("override of a container that the status names", remembered),
    ("text after the end of a document", after_end),
    ("ports of one number", ports),
    ("native sidecar by another value", native),
    ("default templates of a document", document),
    ("image of a template in a pod that is skipped", without_image),
    ("namespace of a workload", namespace),
];

pub(crate) fn trials() -> Vec<Trial> {
    let trials = DIFFERENCES.iter().map(|(name, check)| Trial::test(format!("difference: {name}"), *check));
    let elsewhere = ELSEWHERE
        .iter()
        .map(|(name, file, function)| Trial::test(format!("difference: {name} has a test"), || exists(file, function)));
    trials.chain(elsewhere).chain([Trial::test("all differences are listed with their reasons", listed)]).collect()
}

fn exists(file: &str, function: &str) -> Result<(), Failed> {
    let text = std::fs::read_to_string(Path::new(crate::REPOSITORY).join(file))?;
    text.contains(&format!("fn {function}(")).then_some(()).ok_or_else(|| format!("{file} has no {function}").into())
}

fn listed() -> Result<(), Failed> {
    let text = std::fs::read_to_string(Path::new(crate::REPOSITORY).join("docs/webhook.md"))?;
    let section = text.split("## What differs from Istio's injection on purpose").nth(1).ok_or("no such section")?;
    let section = section.split("\n## ").next().unwrap_or_default();
    let bullets = section.lines().filter_map(|line| line.strip_prefix("- `")?.split_once("`: "));
    let listed: BTreeSet<&str> = bullets.map(|(name, _)| name).collect();
    let tested: BTreeSet<&str> =
        DIFFERENCES.iter().map(|(name, _)| *name).chain(ELSEWHERE.iter().map(|(name, ..)| *name)).collect();
    (listed == tested).then_some(()).ok_or_else(|| format!("listed {listed:?}, tested {tested:?}").into())
}

/// Returns the pod after injection by the built-in configuration with a small template and these values.
fn injected(pod: &Value, values: &str) -> Result<Value, Failed> {
    const TEMPLATE: &str = "spec:\n  containers:\n  - name: istio-proxy\n    image: '{{ .ProxyImage }}'\n    args: ['{{ annotation .ObjectMeta `sidecar.istio.io/logLevel` `info` }}']\n";
    injected_by(TEMPLATE, pod, values)
}

/// Returns the pod after injection by the built-in configuration with this template and these values.
fn injected_by(template: &str, pod: &Value, values: &str) -> Result<Value, Failed> {
    let config = BuiltIn::default().config()?;
    let (settings, values, mesh) = (Settings::from_template(template)?, Values::parse(values)?, Mesh::parse("")?);
    match Injector::new(Config { settings, values, mesh, ..config }).review(&Request::new(pod, "shop"))? {
        InjectionOutcome::Injected { injected, .. } => Ok(injected.pod),
        InjectionOutcome::Skipped(decision) => Err(decision.sentence().into()),
    }
}

const VALUES: &str = "{global: {hub: h, tag: t}, sidecarInjectorWebhook: {rewriteAppHTTPProbe: true}}";

fn equal(found: &Value, expected: &Value) -> Result<(), Failed> {
    (found == expected).then_some(()).ok_or_else(|| format!("expected {expected}, found {found}").into())
}

fn refused(result: Result<Value, Failed>, reason: &str) -> Result<(), Failed> {
    let message = result.err().and_then(|error| error.message().map(str::to_owned)).ok_or("was injected")?;
    message.contains(reason).then_some(()).ok_or_else(|| format!("expected {reason:?} in {message:?}").into())
}

fn probe() -> Result<(), Failed> {
    let probes = json!({"name": "a", "readinessProbe": {"httpGet": {"port": "nosuch"}}, "livenessProbe": {"httpGet": {"port": 80}}});
    let pod = injected(&json!({"metadata": {}, "spec": {"containers": [probes]}}), VALUES)?;
    let app = &pod["spec"]["containers"][0];
    equal(&app["readinessProbe"], &json!({"httpGet": {"port": "nosuch"}}))?;
    equal(&app["livenessProbe"]["httpGet"]["path"], &json!("/app-health/a/livez"))?;
    let probe = json!({"httpGet": {"port": 70000}});
    let containers = json!([{"name": "a", "livenessProbe": probe}]);
    let pod = injected(&json!({"metadata": {}, "spec": {"containers": containers}}), VALUES)?;
    equal(&pod["spec"]["containers"][0]["livenessProbe"], &probe)
}

fn text() -> Result<(), Failed> {
    let pod = |level: &str| json!({"metadata": {"annotations": {"sidecar.istio.io/logLevel": level}}, "spec": {"containers": []}});
    equal(&injected(&pod("debug"), VALUES)?["spec"]["containers"][0]["args"], &json!(["debug"]))?;
    refused(
        injected(&pod("info\n- --evil"), VALUES),
        "for annotation \"sidecar.istio.io/logLevel\": must be text without control",
    )?;
    const TEMPLATE: &str = "spec:\n  containers:\n  - name: istio-proxy\n    image: i\n    env:\n    {{- range $k, $v := .ProxyConfig.ProxyMetadata }}\n    - name: {{ $k }}\n      value: \"{{ $v }}\"\n    {{- end }}\n";
    let pod = |value: &str| {
        let config = json!({"proxyMetadata": {"KEY": value}}).to_string();
        json!({"metadata": {"annotations": {"proxy.istio.io/config": config}}, "spec": {"containers": []}})
    };
    let kept = injected_by(TEMPLATE, &pod("a: 'b' #"), "{}")?;
    equal(&kept["spec"]["containers"][0]["env"][0]["value"], &json!("a: 'b' #"))?;
    refused(
        injected_by(TEMPLATE, &pod("a\"\n    image: \"evil"), "{}"),
        "proxyConfig.proxyMetadata.KEY cannot be injected: template sidecar places it between quotes",
    )
}

fn kind() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    let job = |version: &str| {
        let spec = json!({"template": {"metadata": {}, "spec": {"containers": []}}});
        let job = json!({"apiVersion": version, "kind": "Job", "metadata": {"name": "j"}, "spec": spec});
        injector.inject_document(job, &|_| false)
    };
    let (foreign, own) = (job("batch.volcano.sh/v1alpha1")?, job("batch/v1")?);
    match (foreign, own) {
        (Document::Untouched, Document::Workload { .. }) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}

fn image() -> Result<(), Failed> {
    let pod = json!({"metadata": {}, "spec": {"containers": []}});
    equal(&injected(&pod, VALUES)?["spec"]["containers"][0]["image"], &json!("h/proxyv2:t"))?;
    for (values, image) in
        [("{}", "/proxyv2:"), ("{global: {hub: h}}", "h/proxyv2:"), ("{global: {tag: t}}", "/proxyv2:t")]
    {
        refused(injected(&pod, values), &format!("the image of istio-proxy would be {image:?}"))?;
    }
    let template = "spec:\n  containers:\n  - {name: istio-proxy, image: '{{ .Values.global.hub }}/proxyv2:{{ .Values.global.tag }}'}\n";
    refused(
        injected_by(template, &pod, "{global: {hub: h}}"),
        "the image of istio-proxy would be \"h/proxyv2:<no value>\": .Values.global.tag has no value",
    )?;
    let own = json!({"metadata": {}, "spec": {"containers": [{"name": "istio-proxy", "image": "own:1"}]}});
    equal(&injected_by(template, &own, "{}")?["spec"]["containers"][0]["image"], &json!("own:1"))?;
    let template = "spec:\n  containers:\n  - {name: istio-proxy, image: '{{ printf `%v:1` .Values.nosuch }}'}\n";
    refused(injected_by(template, &pod, "{}"), "\"<nil>:1\": an expression of the template has no value")
}

/// Returns a pod with this annotation after injection.
fn annotated(name: &str, value: &str) -> Result<Value, Failed> {
    injected(&json!({"metadata": {"annotations": {name: value}}, "spec": {"containers": []}}), VALUES)
}

fn unchecked() -> Result<(), Failed> {
    const NAME: &str = "traffic.sidecar.istio.io/includeOutboundPorts";
    for valid in ["", "80,443"] {
        annotated(NAME, valid)?;
    }
    for invalid in ["*", "all", "80;443", "70000", "80 -j ACCEPT"] {
        refused(annotated(NAME, invalid), "must be a comma-separated list of ports")?;
    }
    refused(annotated("sidecar.istio.io/logLevel", "loud"), "must be trace, debug")
}

fn space() -> Result<(), Failed> {
    annotated("traffic.sidecar.istio.io/excludeOutboundIPRanges", "10.0.0.0/8, 11.0.0.0/8")?;
    annotated("traffic.sidecar.istio.io/excludeInboundPorts", "80, 443")?;
    refused(annotated("traffic.sidecar.istio.io/excludeInboundPorts", "80 443"), "must be")
}

fn empty() -> Result<(), Failed> {
    for name in ["excludeInboundPorts", "includeOutboundPorts", "excludeOutboundIPRanges", "excludeInterfaces"] {
        for value in [",", "80,", ",80"] {
            refused(annotated(&format!("traffic.sidecar.istio.io/{name}"), value), "must be a comma-separated list")?;
        }
    }
    annotated("traffic.sidecar.istio.io/excludeInboundPorts", " ").map(drop)
}

fn leading_zero() -> Result<(), Failed> {
    for (name, value) in
        [("excludeInboundPorts", "80,010"), ("includeInboundPorts", "080"), ("excludeOutboundIPRanges", "010.0.0.0/8")]
    {
        refused(annotated(&format!("traffic.sidecar.istio.io/{name}"), value), "must be")?;
    }
    for (name, value) in
        [("status.sidecar.istio.io/port", "015099"), ("readiness.status.sidecar.istio.io/periodSeconds", "010")]
    {
        refused(annotated(name, value), &format!("for annotation {name:?}: must be"))?;
    }
    annotated("traffic.sidecar.istio.io/excludeInboundPorts", "0,80").map(drop)
}

fn unstartable() -> Result<(), Failed> {
    const TEMPLATE: &str =
        "metadata:\n  annotations:\n    traffic.sidecar.istio.io/excludeInboundPorts: '{{ .Values.ports }}'\n";
    let pod = json!({"metadata": {}, "spec": {"containers": []}});
    injected_by(TEMPLATE, &pod, "{ports: '80,443'}")?;
    refused(
        injected_by(TEMPLATE, &pod, "{ports: '80,*'}"),
        "the injected pod would not start: traffic.sidecar.istio.io/excludeInboundPorts: \"*\" is not allowed",
    )
}

fn windows() -> Result<(), Failed> {
    let pod = json!({"metadata": {}, "spec": {"os": {"name": "windows"}, "containers": []}});
    refused(injected(&pod, VALUES), "no Istio sidecar, for it runs on Windows")
}

/// Returns the warnings about a pod with this spec.
fn warnings(spec: &Value) -> Result<Vec<String>, Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    match injector.review(&Request::new(&json!({"metadata": {}, "spec": spec}), "shop"))? {
        InjectionOutcome::Injected { injected, .. } => Ok(injected.warnings),
        InjectionOutcome::Skipped(decision) => Err(decision.sentence().into()),
    }
}

fn sandbox() -> Result<(), Failed> {
    let spec = json!({"runtimeClassName": "gvisor", "containers": []});
    let found = warnings(&spec)?;
    equal(&json!(found.iter().filter(|text| text.contains("\"gvisor\" is a sandbox")).count()), &json!(1))?;
    let injector = Injector::new(BuiltIn::default().config()?).with_sandboxes_refused(true);
    let error =
        injector.review(&Request::new(&json!({"metadata": {}, "spec": spec}), "shop")).err().ok_or("injected")?;
    error.to_string().contains("runtimeClassName \"gvisor\"").then_some(()).ok_or_else(|| error.to_string().into())
}

fn as_proxy() -> Result<(), Failed> {
    let found = |user| {
        let containers = json!([{"name": "app", "securityContext": {"runAsUser": user}}]);
        warnings(&json!({"containers": containers}))
    };
    equal(&json!(found(1000)?), &json!([]))?;
    found(1337)?[0].contains("container \"app\" runs as user 1337").then_some(()).ok_or_else(|| "no warning".into())
}

fn ports() -> Result<(), Failed> {
    const TEMPLATE: &str = "spec:\n  containers:\n  - name: istio-proxy\n    image: p:1\n    ports: [{containerPort: 443, name: https}, {containerPort: 15090, \
         name: metrics}]\n  - name: app\n    env: [{name: A, value: b}]\n";
    let both = json!([
        {"containerPort": 443, "protocol": "UDP", "name": "http3"},
        {"containerPort": 443, "protocol": "TCP", "name": "https"},
    ]);
    let own = json!([{"name": "app", "image": "a:1", "ports": both}, {"name": "istio-proxy", "image": "auto", "ports": both}]);
    let once = injected_by(TEMPLATE, &json!({"metadata": {}, "spec": {"containers": own}}), VALUES)?;
    let all = &once["spec"]["containers"];
    equal(&all[0]["ports"], &both)?;
    let metrics = json!({"containerPort": 15090, "name": "metrics"});
    equal(&all[1]["ports"], &json!([both[0], both[1], metrics]))?;
    equal(&injected_by(TEMPLATE, &once, VALUES)?, &once)
}

fn native() -> Result<(), Failed> {
    for (value, default, expected) in
        [("no", false, false), ("no", true, true), ("False", true, false), ("0", true, false), ("TRUE", false, true)]
    {
        let metadata = json!({"annotations": {"sidecar.istio.io/nativeSidecar": value}});
        let pod = json!({"metadata": metadata, "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
        let request = Request { native_sidecars: default, ..Request::new(&pod, "shop") };
        let InjectionOutcome::Injected { injected, .. } =
            Injector::new(BuiltIn::default().config()?).review(&request)?
        else {
            return Err("was skipped".into());
        };
        let inits = injected.pod["spec"]["initContainers"].as_array().ok_or("no init containers")?;
        let is_native = inits.iter().any(|container| container["name"] == "istio-proxy");
        equal(&json!([value, default, is_native]), &json!([value, default, expected]))?;
    }
    Ok(())
}

/// Checks that a document gets the templates that the webhook applies to its pod.
fn document() -> Result<(), Failed> {
    let team = "spec: {containers: [{name: istio-proxy, env: [{name: TEAM, value: a}]}]}";
    for (default, role, of_team) in
        [(json!(["gateway"]), "router", false), (json!(["both"]), "sidecar", true), (json!([]), "sidecar", false)]
    {
        let mut templates = json!(BuiltIn::templates());
        templates["team"] = team.into();
        let settings = json!({"policy": "enabled", "defaultTemplates": default, "aliases": {"both": ["sidecar", "team"]}, "templates": templates});
        let config = BuiltIn::default().config()?;
        let injector = Injector::new(Config { settings: Settings::parse(&settings.to_string(), None)?, ..config });
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "shop"}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
        let InjectionOutcome::Injected { injected, .. } = injector.review(&Request::new(&pod, "shop"))? else {
            return Err("was skipped".into());
        };
        let Document::Workload { document, .. } = injector.inject_document(pod.clone(), &|_| false)? else {
            return Err("is no workload".into());
        };
        let containers = document["spec"]["containers"].as_array().ok_or("no containers")?;
        let sidecar = containers.iter().find(|container| container["name"] == "istio-proxy").ok_or("no sidecar")?;
        equal(&sidecar["args"][1], &json!(role))?;
        let has_team =
            sidecar["env"].as_array().is_some_and(|env| env.iter().any(|variable| variable["name"] == "TEAM"));
        equal(&json!(has_team), &json!(of_team))?;
        equal(&document["spec"]["containers"], &injected.pod["spec"]["containers"])?;
    }
    Ok(())
}

fn without_image() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    let proxy = json!({"name": "istio-proxy", "image": "auto"});
    for (network, said) in [
        (
            true,
            json!([
                "container \"istio-proxy\" has the image \"auto\", which stands for that of a template; nobody sets it, and the \
                       container does not start: no Istio sidecar, for it uses the host's network"
            ]),
        ),
        (false, json!([])),
    ] {
        let containers = json!([{"name": "a", "image": "a:1"}, proxy]);
        let pod = json!({"metadata": {}, "spec": {"hostNetwork": network, "containers": containers}});
        equal(&json!(injector.decide(&pod, "shop").warning_sentences().collect::<Vec<_>>()), &said)?;
    }
    Ok(())
}

fn namespace() -> Result<(), Failed> {
    const TEMPLATE: &str = "spec: {containers: [{name: istio-proxy, image: i, args: ['{{ .ObjectMeta.Namespace }}']}]}";
    let injector =
        Injector::new(Config { settings: Settings::from_template(TEMPLATE)?, ..BuiltIn::default().config()? });
    for (own, of_template, expected) in [
        (json!("shop"), json!("kube-system"), json!("shop")),
        (json!("kube-system"), json!("shop"), json!(null)),
        (json!(null), json!("kube-public"), json!(null)),
        (json!(null), json!("shop"), json!("shop")),
        (json!(null), json!(null), json!("")),
    ] {
        let pod =
            json!({"metadata": {"namespace": of_template}, "spec": {"containers": [{"name": "a", "image": "a:1"}]}});
        let metadata = json!({"name": "w", "namespace": own});
        let workload =
            json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"template": pod}});
        let Document::Workload { document, skipped, .. } = injector.inject_document(workload, &|_| false)? else {
            return Err("is no workload".into());
        };
        let template = &document["spec"]["template"];
        let found = template["spec"]["containers"][1]["args"].get(0).unwrap_or(&Value::Null);
        equal(&json!([found, skipped.len()]), &json!([expected, usize::from(expected.is_null())]))?;
        equal(&template["metadata"]["namespace"], &of_template)?;
    }
    Ok(())
}

fn after_end() -> Result<(), Failed> {
    let document = "kind: Pod\napiVersion: v1\nspec: {}\n";
    inject::read(&format!("{document}...\n# a comment\n"))?;
    for rest in ["kind: Job\n", "]\n"] {
        let result = inject::read(&format!("{document}...\n{rest}")).map_err(|error| Failed::from(error.to_string()));
        refused(result, "is not YAML: line 5 is after the end of the document")?;
    }
    Ok(())
}

fn remembered() -> Result<(), Failed> {
    let own = json!({"name": "istio-proxy", "image": "own:1", "env": [{"name": "A", "value": "b"}]});
    let once = injected(&json!({"metadata": {}, "spec": {"containers": [own]}}), VALUES)?;
    let mut changed = once.clone();
    changed["spec"]["containers"][0]["image"] = "changed:2".into();
    equal(&injected(&changed, VALUES)?, &once)?;
    // Arguments that were changed after the first review are replaced by the template's.
    changed["spec"]["containers"][0]["args"] = json!(["changed"]);
    equal(&injected(&changed, VALUES)?, &once)
}
