//! Property: the plugin can redirect the traffic of each pod that the injector admits. A random value of an annotation, or of Helm's
//! values, is refused with its name, or accepted by the plugin.

use contract::annotation;
use inject::istio::{BuiltIn, Config, Era, InjectionOutcome, Injector, Request, Settings, Values};
use libtest_mimic::{Failed, Trial};
use podfacts::PodFacts;
use podfacts::of_pod;
use proptest::collection::vec;
use proptest::prelude::{Strategy, prop_oneof};
use proptest::sample::select;
use serde_json::{Value, json};

use super::property::run;

/// The annotations that the plugin reads, each with the Helm value that a template uses by default.
const READ: [(&str, &str); 10] = [
    (annotation::INTERCEPTION_MODE, "mode"),
    (annotation::INCLUDE_INBOUND_PORTS, "includeInboundPorts"),
    (annotation::EXCLUDE_INBOUND_PORTS, "excludeInboundPorts"),
    (annotation::INCLUDE_OUTBOUND_PORTS, "includeOutboundPorts"),
    (annotation::EXCLUDE_OUTBOUND_PORTS, "excludeOutboundPorts"),
    (annotation::INCLUDE_OUTBOUND_CIDRS, "includeIPRanges"),
    (annotation::EXCLUDE_OUTBOUND_CIDRS, "excludeIPRanges"),
    (annotation::EXCLUDE_INTERFACES, "interfaces"),
    (annotation::REROUTE_VIRTUAL_INTERFACES, "virtual"),
    (annotation::KUBEVIRT_INTERFACES, "kubevirt"),
];

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("property/an annotation is refused by its name or accepted by the plugin", annotations),
        Trial::test("startable/a pod that the plugin skips has no validation", skipped),
        Trial::test("startable/a validation of a former injection is not left in a pod that is skipped", left_behind),
        Trial::test("startable/an own istio-init can program rules before they are validated", own_init),
        Trial::test("startable/a template that takes the pod out of the plugin's reach is refused", out_of_reach),
        Trial::test("property/a value of Helm is refused or accepted by the plugin and istio-iptables", values),
    ]
}

/// Generates strings that are valid lists, or almost.
fn text() -> impl Strategy<Value = String> {
    const PARTS: [&str; 44] = [
        "",
        " ",
        "*",
        "80",
        " 443 ",
        "0",
        "00080",
        "65535",
        "65536",
        "-1",
        "+80",
        "8０",
        "٣",
        "0x50",
        "80;",
        "80 443",
        "\t80",
        "80\n",
        "http",
        "10.0.0.0/8",
        "10.1.2.3/8",
        "10.0.0.0",
        "010.0.0.0/8",
        "10.0.0.0/08",
        "10.0.0.0/33",
        "10.0.0/8",
        "2001:db8::/32",
        "2001:db8::1/32",
        "::/0",
        "::/129",
        "::ffff:10.0.0.1/96",
        "fe80::1%eth0/64",
        "eth0",
        "0eth",
        "a234567890123456",
        "é",
        "-j",
        "eth0 -j ACCEPT",
        "REDIRECT",
        "TPROXY",
        "NONE",
        "redirect",
        "\u{a0}80",
        "\"",
    ];
    let list = vec(select(&PARTS[..]), 1..5).prop_map(|parts| parts.join(","));
    let long = (select(&["80", "10.0.0.0/8", "eth0", "*"][..]), select(&[32, 33, 1023, 1024, 1025][..]));
    prop_oneof![9 => list, 1 => long.prop_map(|(part, count)| vec![part; count].join(","))]
}

/// Returns a template that writes the annotations, or Helm's values by default, as annotations and into a command line.
fn template() -> String {
    let mut template = "metadata:\n  annotations:\n".to_owned();
    for (name, value) in READ {
        template += &format!("    {name}: {{{{ annotation .ObjectMeta `{name}` .Values.{value} | quote }}}}\n");
    }
    template += "spec:\n  initContainers:\n  - name: istio-validation\n    image: i\n    args:\n    - istio-iptables\n";
    let flags = [("b", 1), ("d", 2), ("q", 3), ("o", 4), ("i", 5), ("x", 6), ("c", 7), ("k", 8)];
    for (flag, at) in flags {
        let (name, value) = READ[at];
        template +=
            &format!("    - -{flag}\n    - {{{{ annotation .ObjectMeta `{name}` .Values.{value} | quote }}}}\n");
    }
    template + "  containers:\n  - {name: istio-proxy, image: i, args: [proxy, sidecar]}\n"
}

/// Returns an injector with this template and with Helm's values, one of which is replaced.
fn settings(replaced: Option<(&str, &str)>) -> Result<Injector, Failed> {
    let mut values = json!({"mode": "REDIRECT", "includeInboundPorts": "*", "includeIPRanges": "*"});
    for (_, name) in READ {
        if values.get(name).is_none() {
            values[name] = "".into();
        }
    }
    if let Some((name, value)) = replaced {
        values[name] = value.into();
    }
    let config = BuiltIn::default().config()?;
    let (settings, values) = (Settings::from_template(&template())?, Values::parse(&values.to_string())?);
    Ok(Injector::new(Config { settings, values, ..config }))
}

/// Returns why a pod is refused; fails if it is admitted and cannot start.
fn refusal(injector: &Injector, pod: &Value) -> Result<Option<String>, Failed> {
    match injector.review(&Request::new(pod, "shop")) {
        Err(error) => Ok(Some(error.to_string())),
        Ok(InjectionOutcome::Skipped(decision)) => Err(decision.sentence().into()),
        Ok(InjectionOutcome::Injected { injected, .. }) => {
            of_pod(&PodFacts::from_pod_json(injected.pod.to_string().as_bytes())?)?;
            Ok(None)
        }
    }
}

fn annotations() -> Result<(), Failed> {
    let injector = settings(None)?;
    let built_in = Injector::new(BuiltIn::default().config()?);
    run(&(select(&READ[..]), text()), |((name, _), text)| {
        let annotations = json!({name: text, annotation::INJECT: "true"});
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "app"}]}});
        for injector in [&injector, &built_in] {
            if let Some(reason) = refusal(injector, &pod)?.filter(|reason| !reason.contains(name)) {
                return Err(format!("{name} {text:?}: {reason}").into());
            }
        }
        Ok(())
    })
}

fn values() -> Result<(), Failed> {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app"}]}});
    run(&(select(&READ[..]), text()), |((_, name), text)| {
        refusal(&settings(Some((name, &text)))?, &pod)
            .map(drop)
            .map_err(|failed| format!("{name} {text:?}: {}", failed.message().unwrap_or_default()).into())
    })?;
    let reason = refusal(&settings(Some(("excludeOutboundPorts", "80,")))?, &pod)?.ok_or("80, was admitted")?;
    reason.contains("excludeOutboundPorts").then_some(()).ok_or_else(|| reason.into())
}

/// Checks that a pod whose `istio-validation` waits for a redirection that the plugin does not make is refused with the plugin's reason.
fn skipped() -> Result<(), Failed> {
    let built_in = || Ok::<_, Failed>(BuiltIn::default().config()?);
    let mut former = built_in()?;
    former.settings.policy.era = Era::V1_9;
    for (config, labels, annotations, reason) in [
        (
            built_in()?,
            json!({}),
            json!({annotation::PROXY_CONFIG: "proxyMetadata: {DISABLE_ENVOY: 'true'}"}),
            "envoy_disabled",
        ),
        (built_in()?, json!({}), json!({annotation::TEMPLATES: "sidecar,gateway"}), "not_sidecar"),
        (former, json!({annotation::INJECT: "false"}), json!({annotation::INJECT: "true"}), "inject_declined"),
    ] {
        let pod = |annotations: &Value| json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": {"containers": [{"name": "app"}]}});
        let injector = Injector::new(config);
        let refused = refusal(&injector, &pod(&annotations))?.ok_or_else(|| format!("{annotations} is admitted"))?;
        let expected =
            format!("istio-validation would find no redirection, because the plugin skips this pod ({reason}): ");
        if !refused.contains(&expected) {
            return Err(format!("{annotations}: {refused}").into());
        }
    }
    // Without an interception there is no validation, so the pod is admitted.
    let none = json!({annotation::INTERCEPTION_MODE: "NONE"});
    let pod = json!({"metadata": {"annotations": none}, "spec": {"containers": [{"name": "app"}]}});
    refusal(&Injector::new(built_in()?), &pod)?.map_or(Ok(()), |reason| Err(reason.into()))
}

/// Checks that a pod that no longer gets a sidecar is refused if a former injection left its validation in it.
fn left_behind() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    let plain = json!({"metadata": {}, "spec": {"containers": [{"name": "app", "image": "a:1"}]}});
    let InjectionOutcome::Injected { injected, .. } = injector.review(&Request::new(&plain, "shop"))? else {
        return Err("was skipped".into());
    };
    for (pointer, change, reason) in [
        ("/metadata/annotations", json!({annotation::INJECT: "false"}), "(inject_declined)"),
        ("/spec", json!({"hostNetwork": true}), "it uses the host's network"),
        ("/spec", json!({"nodeSelector": {"kubernetes.io/os": "windows"}}), "it runs on Windows"),
    ] {
        let change = change.as_object().ok_or("no map")?;
        let with = |mut pod: Value| {
            let part = pod.pointer_mut(pointer).and_then(Value::as_object_mut);
            part.into_iter().for_each(|part| part.extend(change.clone()));
            pod
        };
        let refused =
            refusal(&injector, &with(injected.pod.clone()))?.ok_or_else(|| format!("{reason}: is admitted"))?;
        let has_source = refused.contains("the value is from the pod");
        if has_source || !refused.contains(reason) || !refused.contains("it is of a former injection") {
            return Err(refused.into());
        }
        let mut own = with(json!({"metadata": {"annotations": {}}, "spec": plain["spec"]}));
        own["spec"]["initContainers"] = json!([{"name": "istio-validation", "image": "own:1", "args": ["wait"]}]);
        let outcome = injector.review(&Request::new(&own, "shop"))?;
        if !matches!(outcome, InjectionOutcome::Skipped(_)) {
            return Err(format!("{reason}: a container of its author is no validation").into());
        }
    }
    Ok(())
}

/// Checks pods with their own `istio-init`, which can program rules only before they are validated, and only with the right to do so. An
/// injected validation is the first init container.
fn own_init() -> Result<(), Failed> {
    let injector = Injector::new(BuiltIn::default().config()?);
    let init = |context: Value| json!({"name": "istio-init", "image": "own:1", "securityContext": context});
    let right = init(json!({"capabilities": {"add": ["NET_ADMIN"]}}));
    let privileged = init(json!({"privileged": true}));
    let validation =
        json!({"name": "istio-validation", "image": "p:1", "args": ["istio-iptables", "--run-validation"]});
    let app = json!({"name": "app", "image": "a:1"});
    for (inject, inits, apps, is_admitted) in [
        ("true", json!([right]), json!([app]), false),
        ("true", json!([]), json!([app, right]), false),
        ("false", json!([right, validation]), json!([app]), true),
        ("false", json!([privileged, validation]), json!([app]), true),
        ("false", json!([validation, right]), json!([app]), false),
        ("false", json!([init(json!({})), validation]), json!([app]), false),
    ] {
        let metadata = json!({"annotations": {annotation::INJECT: inject, annotation::STATUS: "{}"}});
        let proxy = json!({"name": "istio-proxy", "image": "p:1", "args": ["proxy", "sidecar"]});
        let mut pod = json!({"metadata": metadata, "spec": {"initContainers": inits, "containers": apps}});
        pod["spec"]["containers"].as_array_mut().ok_or("no list")?.push(proxy);
        let refused = injector.review(&Request::new(&pod, "shop")).err().map(|error| error.to_string());
        if refused.is_none() != is_admitted || refused.iter().any(|reason| !reason.contains("(has_istio_init)")) {
            return Err(format!("{pod}: {refused:?}").into());
        }
    }
    Ok(())
}

/// Checks templates that change the pod's network or nodes after the policy decided about the pod.
fn out_of_reach() -> Result<(), Failed> {
    let pod = json!({"metadata": {}, "spec": {"containers": [{"name": "app"}]}});
    let windows = "kubernetes.io/os: windows";
    let terms = "requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, \
                 operator: In, values: [windows]}]}]}";
    let (host, no_proxy) = ("it uses the host's network", "it runs on Windows, for which there is no proxy");
    for (field, reason) in [
        ("hostNetwork: true", host),
        ("os: {name: windows}", no_proxy),
        (&format!("nodeSelector: {{{windows}}}"), no_proxy),
        (&format!("affinity: {{nodeAffinity: {{{terms}}}}}"), no_proxy),
    ] {
        for redirecting in ["istio-validation, args: [istio-iptables, --run-validation]", "istio-init"] {
            let (name, _) = redirecting.split_once(',').unwrap_or((redirecting, ""));
            let template = format!(
                "spec:\n  {field}\n  initContainers: [{{name: {redirecting}, image: i}}]\n  containers: [{{name: istio-proxy, image: i}}]\n"
            );
            let config = Config { settings: Settings::from_template(&template)?, ..BuiltIn::default().config()? };
            let refused = refusal(&Injector::new(config), &pod)?.ok_or_else(|| format!("{template} is admitted"))?;
            let expected = format!("container {name} cannot work in the pod as the templates change it: {reason}");
            if !refused.contains(&expected) {
                return Err(format!("{template}: {refused}").into());
            }
        }
    }
    Ok(())
}
