//! Tests of the statements and examples in three published descriptions of Istio's injection: "How sidecar injection
//! works" (1.6), "A flexible way to inject sidecars" (1.8) and "The journey of Istio begins" (1.0). Rows that correct
//! an error in a description are marked.

mod decisions;

use decisions::{JOURNEY, ROWS, Row, SELECTORS, SELECTORS_DISABLED, WORKS};
use inject::istio::{Config, Document, InjectionOutcome, Injector, Mesh, Platform, Request, Settings, Values};
use inject::yaml;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

pub(crate) fn trials() -> Vec<Trial> {
    let rows = ROWS.iter().map(|row| Trial::test(format!("{}: {}", row.seed, row.statement), || decided(row)));
    let table = [true, false].into_iter().flat_map(|enabled| {
        ["true", "false", "-"].into_iter().map(move |annotation| {
            let name = format!(
                "{JOURNEY}: the table, policy {}, annotation {annotation}",
                if enabled { "enabled" } else { "disabled" }
            );
            Trial::test(name, move || table(enabled, annotation))
        })
    });
    let examples: [(&str, &str, Check); 4] = [
        (WORKS, "the deployment sleep by kube-inject", sleep),
        (WORKS, "the webhook adds in the order init containers, containers, volumes, secrets, annotations", order),
        (WORKS, "a second kube-inject leaves the deployment as it is", twice),
        (JOURNEY, "the template in brackets", brackets),
    ];
    let examples = examples.into_iter().map(|(seed, what, check)| Trial::test(format!("{seed}: {what}"), check));
    rows.chain(table).chain(examples).collect()
}

type Check = fn() -> Result<(), Failed>;

/// A template in the format of the described releases.
const TEMPLATE: &str = "{containers: [{name: istio-proxy, image: p}]}";

fn injector(config: &str, values: &str, mesh: &str) -> Result<Injector, Failed> {
    Ok(Injector::new(Config {
        settings: Settings::parse(config, None)?,
        values: Values::parse(values)?,
        mesh: Mesh::parse(mesh)?,
        revision: String::new(),
        platform: Platform::Kubernetes,
        compliance_policy: String::new(),
    }))
}

fn decided(row: &Row) -> Result<(), Failed> {
    let injector = injector(&format!("{}\ntemplate: '{TEMPLATE}'", row.config), "", "")?;
    let pod = json!({"metadata": yaml::value(row.metadata)?, "spec": {"hostNetwork": row.host, "containers": []}});
    let outcome = injector.review(&Request::new(&pod, row.namespace))?;
    match (&outcome, row.injected) {
        (InjectionOutcome::Injected { .. }, true) | (InjectionOutcome::Skipped(_), false) => Ok(()),
        (InjectionOutcome::Injected { decision, .. } | InjectionOutcome::Skipped(decision), _) => {
            Err(decision.sentence().into())
        }
    }
}

/// Checks four rows of the published table: combinations of neverInjectSelector and alwaysInjectSelector.
fn table(enabled: bool, annotation: &str) -> Result<(), Failed> {
    let config = if enabled { SELECTORS } else { SELECTORS_DISABLED };
    let injector = injector(&format!("{config}\ntemplate: '{TEMPLATE}'"), "", "")?;
    for (never, always) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut metadata = json!({"labels": {}, "annotations": {}});
        for (label, _) in [("sidecar/notinject", never), ("sidecar/inject", always)].into_iter().filter(|label| label.1)
        {
            metadata["labels"][label] = "".into();
        }
        if annotation != "-" {
            metadata["annotations"]["sidecar.istio.io/inject"] = annotation.into();
        }
        let expected = match annotation {
            "-" => !never && (always || enabled),
            annotation => annotation == "true",
        };
        let pod = json!({"metadata": metadata, "spec": {"containers": []}});
        if injector.decide(&pod, "shop").inject != expected {
            return Err(format!("never {never}, always {always}: expected {expected}").into());
        }
    }
    Ok(())
}

/// The Deployment in the description.
const SLEEP: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: sleep}
spec:
  replicas: 1
  selector: {matchLabels: {app: sleep}}
  template:
    metadata: {labels: {app: sleep}}
    spec:
      serviceAccountName: sleep
      containers:
      - name: sleep
        image: governmentpaas/curl-ssl
        command: [/bin/sleep, 3650d]
        imagePullPolicy: IfNotPresent
        volumeMounts: [{mountPath: /etc/sleep/tls, name: secret-volume}]
      volumes: [{name: secret-volume, secret: {secretName: sleep-secret, optional: true}}]
";

/// A template for the description's output, with the constructs of Istio 1.6.
const CONFIG: &str = r#"policy: enabled
template: |
  rewriteAppHTTPProbe: {{ valueOrDefault .Values.sidecarInjectorWebhook.rewriteAppHTTPProbe false }}
  initContainers:
  - name: istio-init
    image: "{{ .Values.global.hub }}/{{ .Values.global.proxy_init.image }}:{{ .Values.global.tag }}"
    args: [istio-iptables, -p, "15001", -z, "15006", -u, "1337", -m, "{{ annotation .ObjectMeta `sidecar.istio.io/interceptionMode` .ProxyConfig.InterceptionMode }}", -i, "*", -x, "", -b, "*", -d, "15090,15021,15020"]
  containers:
  - name: istio-proxy
    image: "{{ annotation .ObjectMeta `sidecar.istio.io/proxyImage` (printf "%s/%s:%s" .Values.global.hub .Values.global.proxy.image .Values.global.tag) }}"
    args: [proxy, sidecar, --domain, $(POD_NAMESPACE).svc.cluster.local, --serviceCluster, "{{ index .ObjectMeta.Labels `app` }}.$(POD_NAMESPACE)", --concurrency, {{ .ProxyConfig.Concurrency.GetValue }}]
    ports: [{containerPort: 15090, protocol: TCP, name: http-envoy-prom}]
  volumes:
  - name: istio-envoy
    emptyDir: {medium: Memory}
  imagePullSecrets:
  - name: registry
  podRedirectAnnot:
    k8s.v1.cni.cncf.io/networks: istio-cni
    sidecar.istio.io/interceptionMode: "{{ annotation .ObjectMeta `sidecar.istio.io/interceptionMode` .ProxyConfig.InterceptionMode }}"
    traffic.sidecar.istio.io/includeOutboundIPRanges: "{{ annotation .ObjectMeta `traffic.sidecar.istio.io/includeOutboundIPRanges` .Values.global.proxy.includeIPRanges }}"
    traffic.sidecar.istio.io/excludeOutboundIPRanges: "{{ annotation .ObjectMeta `traffic.sidecar.istio.io/excludeOutboundIPRanges` .Values.global.proxy.excludeIPRanges }}"
    traffic.sidecar.istio.io/includeInboundPorts: "{{ annotation .ObjectMeta `traffic.sidecar.istio.io/includeInboundPorts` (includeInboundPorts .Spec.Containers) }}"
    traffic.sidecar.istio.io/excludeInboundPorts: "{{ excludeInboundPort .Values.global.proxy.statusPort (annotation .ObjectMeta `traffic.sidecar.istio.io/excludeInboundPorts` .Values.global.proxy.excludeInboundPorts) }}"
"#;
const VALUES: &str = "{global: {hub: docker.io/istio, tag: 1.6.0, proxy_init: {image: proxyv2}, proxy: {image: proxyv2, includeIPRanges: '*', excludeIPRanges: '', excludeInboundPorts: '', statusPort: 15020}}, sidecarInjectorWebhook: {}}";
const MESH: &str = "defaultConfig: {concurrency: 2}";

fn kube_inject(text: &str, values: &str) -> Result<(Value, Vec<String>), Failed> {
    let document = inject::read(text)?;
    match injector(CONFIG, values, MESH)?.inject_document(document, &|_| false)? {
        Document::Workload { document, skipped, .. } => {
            Ok((document, skipped.iter().map(ToString::to_string).collect()))
        }
        Document::Untouched => Err("a deployment has pods".into()),
    }
}

fn equal(what: &str, found: &Value, expected: &Value) -> Result<(), Failed> {
    (found == expected).then_some(()).ok_or_else(|| format!("{what}: expected {expected}, found {found}").into())
}

/// Checks the output for the description's example, and the releases in which injection sets the annotations for the
/// CNI plugin: from 1.4 to 1.7, not in 1.3 and 1.8.
fn sleep() -> Result<(), Failed> {
    let (document, _) = kube_inject(SLEEP, VALUES)?;
    let template = &document["spec"]["template"];
    equal(
        "labels",
        &template["metadata"]["labels"],
        &json!({"app": "sleep", "istio.io/rev": "", "security.istio.io/tlsMode": "istio"}),
    )?;
    let mut annotations = template["metadata"]["annotations"].clone();
    let status = annotations.as_object_mut().and_then(|all| all.shift_remove("sidecar.istio.io/status"));
    let status: Value = serde_json::from_str(status.as_ref().and_then(Value::as_str).ok_or("no status")?)?;
    equal("status", &status["initContainers"], &json!(["istio-init"]))?;
    let redirect = json!({"sidecar.istio.io/interceptionMode": "REDIRECT", "traffic.sidecar.istio.io/includeOutboundIPRanges": "*",
        "traffic.sidecar.istio.io/excludeInboundPorts": "15020"});
    equal("annotations", &annotations, &redirect)?;
    let spec = &template["spec"];
    let names: Vec<&Value> = spec["containers"].as_array().into_iter().flatten().map(|c| &c["name"]).collect();
    equal("containers", &json!(names), &json!(["sleep", "istio-proxy"]))?;
    equal("image", &spec["containers"][1]["image"], &json!("docker.io/istio/proxyv2:1.6.0"))?;
    equal("service cluster", &spec["containers"][1]["args"][5], &json!("sleep.$(POD_NAMESPACE)"))?;
    equal("concurrency", &spec["containers"][1]["args"][7], &json!("2"))?;
    equal("mode", &spec["initContainers"][0]["args"][8], &json!("REDIRECT"))?;
    equal("secrets", &spec["imagePullSecrets"], &Value::Null)?;
    for (tag, written) in [("1.3.8", false), ("1.4.0", true), ("1.7.4", true), ("1.8.0", false)] {
        let (document, _) = kube_inject(SLEEP, &VALUES.replace("1.6.0", tag))?;
        let annotations = &document["spec"]["template"]["metadata"]["annotations"];
        equal(tag, &json!(annotations.get("traffic.sidecar.istio.io/excludeInboundPorts").is_some()), &json!(written))?;
    }
    Ok(())
}

fn twice() -> Result<(), Failed> {
    let (once, skipped) = kube_inject(SLEEP, VALUES)?;
    equal("skipped", &json!(skipped), &json!([]))?;
    let (again, skipped) = kube_inject(&once.to_string(), VALUES)?;
    equal("the second time", &again, &once)?;
    equal(
        "skipped",
        &json!(skipped),
        &json!(["Skipping injection because Deployment \"sleep\" has injected \"istio-proxy\" sidecar already"]),
    )
}

fn order() -> Result<(), Failed> {
    let pod = json!({"metadata": {"generateName": "sleep-", "labels": {"app": "sleep"}}, "spec": {"containers": [{"name": "sleep"}]}});
    for (tag, rest) in [
        ("1.3.8", &["/metadata/annotations"][..]),
        ("1.4.0", &["/metadata/annotations", "/metadata/labels"]),
        ("1.5.0", &["/spec/securityContext", "/metadata/annotations", "/metadata/labels"]),
        ("1.6.0", &["/spec/securityContext", "/metadata/annotations", "/metadata/labels"]),
    ] {
        let injector = injector(CONFIG, &VALUES.replace("1.6.0", tag), "enablePrometheusMerge: false")?;
        let InjectionOutcome::Injected { injected, .. } = injector.review(&Request::new(&pod, "shop"))? else {
            return Err("was skipped".into());
        };
        let patch = serde_json::to_value(injected.patch())?;
        let mut paths: Vec<String> = Vec::new();
        for operation in patch.as_array().into_iter().flatten() {
            let path = operation["path"].as_str().unwrap_or_default();
            let path = path.strip_suffix("/-").unwrap_or(path);
            let path: Vec<&str> = path.splitn(4, '/').take(3).collect();
            paths.push(path.join("/"));
        }
        paths.dedup();
        let lists = ["/spec/initContainers", "/spec/containers", "/spec/volumes", "/spec/imagePullSecrets"];
        let expected: Vec<&str> = lists.into_iter().chain(rest.iter().copied()).collect();
        equal(tag, &json!(paths), &json!(expected))?;
    }
    Ok(())
}

/// Renders the part of a template of 1.0 and 1.1 that the description shows, and checks the injected containers.
fn brackets() -> Result<(), Failed> {
    let template = "policy: enabled
template: |-
  initContainers:
  - name: istio-init
    image: docker.io/istio/proxy_init:1.0.2
    args:
    - \"-p\"
    - [[ .MeshConfig.ProxyListenPort ]]
    - \"-u\"
    - 1337
  containers:
  - name: istio-proxy
    image: [[ annotation .ObjectMeta `sidecar.istio.io/proxyImage`  \"gcr.io/istio-release/proxyv2:release-1.1-latest-daily\"  ]]
    env:
    - name: ISTIO_META_INTERCEPTION_MODE
      value: [[ or (index .ObjectMeta.Annotations \"sidecar.istio.io/interceptionMode\") .ProxyConfig.InterceptionMode.String ]]
    securityContext:
      readOnlyRootFilesystem: true
      [[ if eq (or (index .ObjectMeta.Annotations \"sidecar.istio.io/interceptionMode\") .ProxyConfig.InterceptionMode.String) \"TPROXY\" -]]
      capabilities:
        add:
        - NET_ADMIN
      [[ end -]]
";
    let injector = injector(template, "", "")?;
    for (annotations, mode, capabilities) in [
        (json!({}), "REDIRECT", Value::Null),
        (json!({"sidecar.istio.io/interceptionMode": "TPROXY"}), "TPROXY", json!({"add": ["NET_ADMIN"]})),
    ] {
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a"}]}});
        let InjectionOutcome::Injected { injected, .. } = injector.review(&Request::new(&pod, "shop"))? else {
            return Err("was skipped".into());
        };
        let spec = &injected.pod["spec"];
        equal("args", &spec["initContainers"][0]["args"], &json!(["-p", "15001", "-u", "1337"]))?;
        equal("mode", &spec["containers"][1]["env"][0]["value"], &json!(mode))?;
        equal("capabilities", &spec["containers"][1]["securityContext"]["capabilities"], &capabilities)?;
        equal("labels", &injected.pod["metadata"]["labels"], &Value::Null)?;
    }
    Ok(())
}
