//! Tests of hooks of applications that start before the agent or at the same time.

use contract::annotation;
use inject::istio::Injector;
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use super::{injector, review};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("early/a hook that the kubelet does not run is rewritten as by Istio", unsupported),
        Trial::test("early/a container that starts again is told by its own policy and rules", restarts),
        Trial::test("early/ports of the values are known from the arguments of istio-init", of_values),
        Trial::test("early/a hook is named where no hook of the proxy waits", race),
        Trial::test("early/a handler of another host stays as its author wrote it", other_host),
        Trial::test("early/a hook whose port may be captured starts the pod where it can", unknown),
        Trial::test("early/the agent asks the pod for a tcpSocket with a host", tcp_with_host),
        Trial::test("early/a handler of the proxy's own port is not the container's", of_the_proxy),
        Trial::test("early/a hook with a path like that of the agent is the author's", own_path),
    ]
}

/// Returns a pod with these annotations whose application has these fields.
fn pod(annotations: &Value, fields: &Value) -> Value {
    let mut app = json!({"name": "app", "image": "a:1", "ports": [{"containerPort": 8080}]});
    app.as_object_mut().into_iter().for_each(|app| app.extend(fields.as_object().cloned().unwrap_or_default()));
    json!({"metadata": {"name": "web", "annotations": annotations}, "spec": {"containers": [app]}})
}

fn hook(action: &str) -> Value {
    json!({"lifecycle": {"postStart": {action: {"port": 8080}}}})
}

/// Returns the injected application, and the warnings.
fn admitted(injector: &Injector, pod: &Value) -> Result<(Value, Vec<String>), Failed> {
    let (injected, warnings) = review(injector, pod, false)??;
    let app = injected["spec"]["containers"].as_array().and_then(|all| all.iter().find(|item| item["name"] == "app"));
    Ok((app.ok_or("no application")?.clone(), warnings))
}

/// Whether the only warning is about the hook and contains `part`.
fn is_named(warnings: &[String], part: &str) -> bool {
    matches!(warnings, [text] if text.starts_with("postStart of container \"app\"") && text.contains(part))
}

/// Checks hooks with `tcpSocket`: the kubelet runs only commands and HTTP requests, so a hook is rewritten, and its
/// second attempt succeeds.
fn unsupported() -> Result<(), Failed> {
    for annotations in [
        json!({annotation::EXCLUDE_INBOUND_PORTS: "8080"}),
        json!({annotation::INTERCEPTION_MODE: "NONE"}),
        json!({annotation::TEMPLATES: "gateway"}),
    ] {
        let (app, warnings) = admitted(&injector(json!({}))?, &pod(&annotations, &hook("tcpSocket")))?;
        let port = app.pointer("/lifecycle/postStart/httpGet/port");
        if port != Some(&json!(15020)) || !is_named(&warnings, "asks port 15020 in vain") {
            return Err(format!("{annotations}: {app} {warnings:?}").into());
        }
    }
    let off = json!({annotation::REWRITE_PROBES: "false", annotation::EXCLUDE_INBOUND_PORTS: "8080"});
    let (app, warnings) = admitted(&injector(json!({}))?, &pod(&off, &hook("tcpSocket")))?;
    let is_kept = app["lifecycle"] == hook("tcpSocket")["lifecycle"];
    (is_kept && is_named(&warnings, "tcpSocket")).then_some(()).ok_or_else(|| format!("{app} {warnings:?}").into())
}

fn restarts() -> Result<(), Failed> {
    let rule = |action: &str| json!([{"action": action, "exitCodes": {"operator": "NotIn", "values": [0]}}]);
    for (of_pod, own, rules, result) in [
        ("Always", None, None, Some("ends it and starts it again")),
        ("OnFailure", None, None, Some("unless it ends with 0")),
        ("Never", None, None, None),
        ("Never", Some("OnFailure"), None, Some("unless it ends with 0")),
        ("Never", Some("Always"), None, Some("ends it and starts it again")),
        ("Never", Some("Never"), Some(rule("Restart")), Some("restartPolicyRules")),
        ("Always", Some("Never"), Some(rule("RestartAllContainers")), Some("restartPolicyRules")),
        ("Always", Some("Never"), Some(json!([])), None),
        ("Always", Some("Never"), None, None),
        ("", Some(""), None, Some("ends it and starts it again")),
    ] {
        let mut pod = pod(&json!({}), &hook("httpGet"));
        let spec = &mut pod["spec"];
        (!of_pod.is_empty()).then(|| spec["restartPolicy"] = of_pod.into());
        own.into_iter().for_each(|own| spec["containers"][0]["restartPolicy"] = own.into());
        rules.iter().for_each(|rules| spec["containers"][0]["restartPolicyRules"] = rules.clone());
        let reviewed = review(&injector(json!({}))?, &pod, false)?;
        let is_right = match (&reviewed, result) {
            (Ok((_, warnings)), Some(part)) => is_named(warnings, part),
            (Err(reason), None) => reason.contains("restartPolicy Never"),
            _ => false,
        };
        is_right.then_some(()).ok_or_else(|| format!("{of_pod} {own:?} {rules:?}: {reviewed:?}"))?;
    }
    Ok(())
}

fn of_values() -> Result<(), Failed> {
    for (proxy, is_captured) in [
        (json!({"excludeInboundPorts": "8080"}), false),
        (json!({"includeInboundPorts": ""}), false),
        (json!({"includeInboundPorts": "80"}), false),
        (json!({"includeInboundPorts": "8080"}), true),
        (json!({"excludeInboundPorts": "80"}), true),
    ] {
        for enabled in [false, true] {
            let mut pod = pod(&json!({}), &hook("httpGet"));
            pod["spec"]["restartPolicy"] = "Never".into();
            let values = json!({"pilot": {"cni": {"enabled": enabled}}, "global": {"proxy": proxy}});
            let injector = injector(values.clone())?;
            if is_captured {
                review(&injector, &pod, false)?.err().ok_or_else(|| format!("{values} is admitted"))?;
                continue;
            }
            let (app, warnings) = admitted(&injector, &pod)?;
            if app["lifecycle"] != hook("httpGet")["lifecycle"] || !warnings.is_empty() {
                return Err(format!("{values}: {app} {warnings:?}").into());
            }
        }
    }
    Ok(())
}

/// Checks that a hook is warned about if the proxy starts first, by `holdApplicationUntilProxyStarts`, but has no hook
/// that waits for the agent.
fn race() -> Result<(), Failed> {
    let hold = "holdApplicationUntilProxyStarts: true";
    let own =
        |command: &[&str]| json!({"global": {"proxy": {"lifecycle": {"postStart": {"exec": {"command": command}}}}}});
    for (values, annotations, is_waited) in [
        (json!({}), json!({}), true),
        (json!({}), json!({annotation::TEMPLATES: "gateway"}), false),
        (json!({}), json!({annotation::STATUS_PORT: "0"}), false),
        (own(&["true"]), json!({}), false),
        (own(&["sh", "-c", "pilot-agent wait && date"]), json!({}), true),
    ] {
        let mut pod = pod(&annotations, &hook("httpGet"));
        pod["metadata"]["annotations"][annotation::PROXY_CONFIG] = hold.into();
        pod["spec"]["restartPolicy"] = "Never".into();
        let (_, warnings) = admitted(&injector(values.clone())?, &pod)?;
        let is_right = if is_waited { warnings.is_empty() } else { is_named(&warnings, "may ask port") };
        let advises = warnings.iter().any(|text| text.contains("holdApplicationUntilProxyStarts"));
        (is_right && !advises).then_some(()).ok_or_else(|| format!("{values} {annotations}: {warnings:?}"))?;
    }
    Ok(())
}

/// Checks that a handler with another host stays, because the pod's agent does not listen on that host.
pub(crate) fn other_host() -> Result<(), Failed> {
    let request = |host: &str| json!({"httpGet": {"host": host, "port": 80, "path": "/up"}});
    for host in ["reg.example.com", "127.0.0.1"] {
        let fields = json!({"livenessProbe": request(host), "readinessProbe": request(host),
            "lifecycle": {"postStart": request(host), "preStop": request(host)}});
        for native in [false, true] {
            let mut pod = pod(&json!({}), &fields);
            pod["spec"]["restartPolicy"] = "Never".into();
            let (injected, warnings) = review(&injector(json!({}))?, &pod, native)??;
            let containers = injected["spec"]["containers"].as_array().ok_or("no containers")?;
            let app = containers.iter().find(|item| item["name"] == "app").ok_or("no application")?;
            let is_kept =
                ["livenessProbe", "readinessProbe", "lifecycle"].iter().all(|name| app[*name] == fields[*name]);
            if !is_kept || !warnings.is_empty() || injected.to_string().contains("ISTIO_KUBE_APP_PROBERS") {
                return Err(format!("{host} {native}: {app} {warnings:?}").into());
            }
        }
    }
    Ok(())
}

/// Checks that a rewritten `tcpSocket` loses its host, as with Istio.
fn tcp_with_host() -> Result<(), Failed> {
    let tcp = json!({"tcpSocket": {"host": "127.0.0.1", "port": 8080}});
    let fields = json!({"readinessProbe": tcp, "lifecycle": {"postStart": tcp, "preStop": tcp}});
    let (injected, warnings) = review(&injector(json!({}))?, &pod(&json!({}), &fields), true)??;
    let app = &injected["spec"]["containers"][0];
    for pointer in ["/readinessProbe", "/lifecycle/postStart", "/lifecycle/preStop"] {
        let action = app.pointer(pointer).ok_or("no handler")?;
        let is_agents = action["httpGet"]["port"] == 15020 && action["httpGet"].get("host").is_none();
        is_agents.then_some(()).ok_or_else(|| format!("{pointer}: {app}"))?;
    }
    warnings.is_empty().then_some(()).ok_or_else(|| format!("{warnings:?}"))?;
    // Handlers that are not rewritten connect to the other host, whatever the pod redirects.
    for port in [8080, 15021] {
        let tcp = json!({"tcpSocket": {"host": "10.0.0.9", "port": port}});
        let mut pod = pod(&json!({}), &json!({}));
        pod["spec"]["initContainers"] = json!([
            {"name": "side", "image": "s:1", "restartPolicy": "Always", "startupProbe": tcp, "livenessProbe": tcp},
            {"name": "next", "image": "n:1"},
        ]);
        let (injected, warnings) = review(&injector(json!({}))?, &pod, false)??;
        let inits = injected["spec"]["initContainers"].as_array().ok_or("no init containers")?;
        let side = inits.iter().find(|item| item["name"] == "side").ok_or("no side")?;
        let is_kept = side["startupProbe"] == tcp && side["livenessProbe"] == tcp && warnings.is_empty();
        is_kept.then_some(()).ok_or_else(|| format!("{port}: {side} {warnings:?}"))?;
    }
    Ok(())
}

/// Checks handlers on the ports of the proxy and the agent, which the plugin does not redirect.
fn of_the_proxy() -> Result<(), Failed> {
    for port in [15020, 15021, 15090] {
        let request = json!({"httpGet": {"path": "/healthz/ready", "port": port}});
        let mut once =
            pod(&json!({annotation::REWRITE_PROBES: "false"}), &json!({"lifecycle": {"postStart": request}}));
        let (_, warnings) = admitted(&injector(json!({}))?, &once)?;
        is_named(&warnings, "in vain").then_some(()).ok_or_else(|| format!("{port}: {warnings:?}"))?;
        once["spec"]["restartPolicy"] = "Never".into();
        let mut waited = pod(&json!({}), &json!({}));
        waited["spec"]["initContainers"] =
            json!([{"name": "side", "image": "s:1", "restartPolicy": "Always", "startupProbe": request}]);
        for pod in [once, waited] {
            let reason =
                review(&injector(json!({}))?, &pod, false)?.err().ok_or_else(|| format!("{pod} is admitted"))?;
            reason.contains("which only the proxy or its agent answers").then_some(()).ok_or(reason)?;
        }
        let mut lively = pod(&json!({}), &json!({}));
        lively["spec"]["initContainers"] = json!([
            {"name": "side", "image": "s:1", "restartPolicy": "Always"},
            {"name": "next", "image": "n:1"},
        ]);
        let rewritten = json!({"httpGet": {"path": "/up", "port": 8080}});
        for (probe, excludes) in [(&request, false), (&rewritten, true)] {
            lively["spec"]["initContainers"][0]["livenessProbe"] = probe.clone();
            let (_, warnings) = review(&injector(json!({}))?, &lively, false)??;
            let is_advised = matches!(
                warnings.as_slice(),
                [text] if text.contains("nativeSidecar") && text.contains("excludeInboundPorts") == excludes
            );
            is_advised.then_some(()).ok_or_else(|| format!("{probe}: {warnings:?}"))?;
        }
    }
    Ok(())
}

/// Checks a hook whose port may be captured: it is kept in a container that starts only once, and rewritten as by Istio
/// in one that is restarted.
fn unknown() -> Result<(), Failed> {
    for (policy, is_kept) in [("Always", false), ("Never", true)] {
        let mut pod = pod(&json!({annotation::EXCLUDE_INTERFACES: "net1"}), &hook("httpGet"));
        pod["spec"]["restartPolicy"] = policy.into();
        let (app, warnings) = admitted(&injector(json!({}))?, &pod)?;
        let kept = app["lifecycle"] == hook("httpGet")["lifecycle"];
        let part = if is_kept { "may be redirected" } else { "asks port 15020 in vain" };
        (kept == is_kept && is_named(&warnings, part)).then_some(()).ok_or_else(|| format!("{app} {warnings:?}"))?;
    }
    Ok(())
}

fn own_path() -> Result<(), Failed> {
    for annotations in [json!({annotation::EXCLUDE_INBOUND_PORTS: "8080"}), json!({annotation::TEMPLATES: "gateway"})] {
        for path in ["/app-lifecycle/up", "/app-lifecycle/app/poststartz"] {
            let hook = json!({"lifecycle": {"postStart": {"httpGet": {"port": 8080, "path": path}}}});
            let mut pod = pod(&annotations, &hook);
            pod["spec"]["restartPolicy"] = "Never".into();
            let (app, warnings) = admitted(&injector(json!({}))?, &pod)?;
            let is_kept = app["lifecycle"] == hook["lifecycle"] && warnings.is_empty();
            is_kept.then_some(()).ok_or_else(|| format!("{annotations} {path}: {app} {warnings:?}"))?;
        }
    }
    Ok(())
}
