//! Tests of handlers of containers that start before the agent, which answers none of them, whether they are rewritten
//! or not.

mod hooks;

use contract::annotation;
use inject::istio::{BuiltIn, InjectionOutcome, Injector, Request, Values};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = hooks::trials();
    trials.extend([
        Trial::test("early/a handler before the agent stays where nothing captures its port", stays),
        Trial::test("early/a handler before the agent whose port is captured is refused", captured),
        Trial::test("early/a handler behind a native sidecar is rewritten", rewritten),
        Trial::test("early/a pod whose early handler asks the agent is not one that can start", injected_before),
        Trial::test(
            "early/a hook of an application before the agent is named, or refused if it starts once",
            of_application,
        ),
        Trial::test(
            "early/a path like that of a rewritten handler is the author's on a port of the container",
            own_paths,
        ),
        Trial::test("early/a hook that the kubelet does not run is refused where others wait for it", unsupported),
        Trial::test("early/an excluded interface leaves unknown whether a port is captured", interfaces),
        Trial::test("early/rules that do not reach a sandbox capture no port", in_sandbox),
        Trial::test("early/a port that does not exist is left to the API server", no_port),
        Trial::test("early/a livenessProbe that is asked before the agent starts is kept or named", liveness),
    ]);
    trials
}

/// Returns handlers of an init container for which the next containers wait, each with the JSON pointer to it.
fn handlers() -> [(&'static str, Value); 3] {
    [
        ("/startupProbe", json!({"startupProbe": {"tcpSocket": {"port": 9000}}})),
        ("/startupProbe", json!({"startupProbe": {"httpGet": {"port": 9000, "path": "/a"}}})),
        ("/lifecycle/postStart", json!({"lifecycle": {"postStart": {"httpGet": {"port": 9000, "path": "/a"}}}})),
    ]
}

fn pod(annotations: &Value, handler: &Value) -> Value {
    let mut side = json!({"name": "side", "image": "s:1", "restartPolicy": "Always"});
    side.as_object_mut().into_iter().for_each(|side| side.extend(handler.as_object().cloned().unwrap_or_default()));
    let spec = json!({"initContainers": [side], "containers": [{"name": "app", "image": "a:1"}]});
    json!({"metadata": {"name": "web", "annotations": annotations}, "spec": spec})
}

fn injector(values: Value) -> Result<Injector, Failed> {
    Ok(Injector::new(BuiltIn::config_with(Values::new(values), None, None)?))
}

/// Returns the injected pod and its warnings, or the reason why it is refused.
fn review(
    injector: &Injector,
    pod: &Value,
    native_sidecars: bool,
) -> Result<Result<(Value, Vec<String>), String>, Failed> {
    match injector.review(&Request { native_sidecars, ..Request::new(pod, "shop") }) {
        Ok(InjectionOutcome::Injected { injected, .. }) => Ok(Ok((injected.pod, injected.warnings))),
        Ok(InjectionOutcome::Skipped(decision)) => Err(decision.sentence().into()),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Checks handlers whose ports nothing captures: `istio-init` follows the pod's own init containers, a gateway's traffic is not redirected,
/// or the port is excluded.
fn stays() -> Result<(), Failed> {
    let (plugin, no_plugin) = (json!({}), json!({"pilot": {"cni": {"enabled": false}}}));
    let direct = json!({annotation::INTERCEPTION_MODE: "NONE"});
    for (values, annotations, native) in [
        (&no_plugin, json!({}), false),
        (&no_plugin, json!({annotation::NATIVE_SIDECAR: "false"}), true),
        (&plugin, json!({annotation::TEMPLATES: "gateway"}), true),
        (&plugin, direct, false),
        (&plugin, json!({annotation::EXCLUDE_INBOUND_PORTS: "9000"}), false),
        (&plugin, json!({annotation::INCLUDE_INBOUND_PORTS: "80"}), false),
    ] {
        for (pointer, handler) in handlers() {
            let pod = pod(&annotations, &handler);
            let (injected, warnings) = review(&injector(values.clone())?, &pod, native)??;
            let inits = injected["spec"]["initContainers"].as_array().ok_or("no init containers")?;
            let side = inits.iter().find(|item| item["name"] == "side").ok_or("no side")?;
            let (found, own) = (side.pointer(pointer), pod["spec"]["initContainers"][0].pointer(pointer));
            if found != own || !warnings.is_empty() {
                return Err(format!("{annotations} {values}: {found:?} {warnings:?}").into());
            }
        }
    }
    Ok(())
}

fn captured() -> Result<(), Failed> {
    let injector = injector(json!({}))?;
    for annotations in [
        json!({}),
        json!({annotation::REWRITE_PROBES: "false"}),
        json!({annotation::NATIVE_SIDECAR: "false"}),
        json!({annotation::EXCLUDE_INBOUND_PORTS: "80"}),
    ] {
        for (_, handler) in handlers() {
            let reason = review(&injector, &pod(&annotations, &handler), false)?.err().ok_or("is admitted")?;
            for part in ["init container side", "port 9000", annotation::EXCLUDE_INBOUND_PORTS] {
                reason.contains(part).then_some(()).ok_or_else(|| format!("{annotations}: {reason}"))?;
            }
        }
        for allowed in [
            json!({"startupProbe": {"exec": {"command": ["true"]}}}),
            json!({"startupProbe": {"httpGet": {"port": 9000, "host": "10.0.0.9"}}}),
            json!({"readinessProbe": {"tcpSocket": {"port": 9000}}}),
        ] {
            review(&injector, &pod(&annotations, &allowed), false)??;
        }
    }
    Ok(())
}

fn rewritten() -> Result<(), Failed> {
    for (pointer, handler) in handlers() {
        let (injected, warnings) = review(&injector(json!({}))?, &pod(&json!({}), &handler), true)??;
        let inits = injected["spec"]["initContainers"].as_array().ok_or("no init containers")?;
        let side = inits.iter().find(|item| item["name"] == "side").ok_or("no side")?;
        let port = side.pointer(&format!("{pointer}/httpGet/port"));
        if port != Some(&json!(15020)) || !warnings.is_empty() {
            return Err(format!("{pointer}: {port:?} {warnings:?}").into());
        }
    }
    Ok(())
}

/// Checks a pod with such a handler as Istio's injector rewrites it.
fn injected_before() -> Result<(), Failed> {
    let injector = injector(json!({}))?;
    let plain = pod(&json!({}), &json!({}));
    let (mut injected, _) = review(&injector, &plain, false)??;
    injector.check(&injected, "shop", None)?;
    let inits = injected["spec"]["initContainers"].as_array_mut().ok_or("no init containers")?;
    let side = inits.iter_mut().find(|item| item["name"] == "side").ok_or("no side")?;
    side["startupProbe"] = json!({"httpGet": {"path": "/app-health/side/startupz", "port": 15020}});
    let reason = injector.check(&injected, "shop", None).err().ok_or("is no failure")?.to_string();
    reason.contains("init container side").then_some(()).ok_or_else(|| reason.into())
}

fn of_application() -> Result<(), Failed> {
    let injector = injector(json!({}))?;
    let pod = |annotations: Value, policy: &str| {
        let hook = json!({"postStart": {"httpGet": {"port": 8080, "path": "/a"}}});
        let app = json!({"name": "app", "image": "a:1", "lifecycle": hook});
        json!({"metadata": {"annotations": annotations}, "spec": {"restartPolicy": policy, "containers": [app]}})
    };
    let hold = json!({annotation::PROXY_CONFIG: "holdApplicationUntilProxyStarts: true"});
    for (annotations, native, is_early) in [
        (json!({}), false, true),
        (json!({}), true, false),
        (hold, false, false),
        (json!({annotation::TEMPLATES: "gateway"}), false, false),
    ] {
        let (injected, warnings) = review(&injector, &pod(annotations.clone(), "Always"), native)??;
        let is_named = matches!(&warnings[..], [text] if text.starts_with("postStart of container \"app\" asks port "));
        if is_named != is_early || !is_early && !warnings.is_empty() {
            return Err(format!("{annotations} {native}: {warnings:?}").into());
        }
        let once = review(&injector, &pod(annotations.clone(), "Never"), native)?;
        if once.is_err() != is_early {
            return Err(format!("{annotations} {native}: {once:?}").into());
        }
        // Istio rewrites the hook even if no agent answers it; its recorded outputs contain the rewritten hook.
        let is_rewritten = annotations.get(annotation::TEMPLATES).is_none();
        let app =
            injected["spec"]["containers"].as_array().and_then(|all| all.iter().find(|item| item["name"] == "app"));
        let port = app.and_then(|app| app.pointer("/lifecycle/postStart/httpGet/port")).ok_or("no hook")?;
        if (*port == 15020) != is_rewritten {
            return Err(format!("{annotations} {native}: {port}").into());
        }
    }
    Ok(())
}

/// Returns the injected container `side`.
fn side(injected: &Value) -> Result<&Value, Failed> {
    let inits = injected["spec"]["initContainers"].as_array().ok_or("no init containers")?;
    inits.iter().find(|item| item["name"] == "side").ok_or_else(|| "no side".into())
}

fn own_paths() -> Result<(), Failed> {
    let (plugin, no_plugin) = (json!({}), json!({"pilot": {"cni": {"enabled": false}}}));
    for path in ["/app-health/live", "/app-health/other/startupz", "/app-health/side/startupz"] {
        let handler = json!({"startupProbe": {"httpGet": {"path": path, "port": 9000}}});
        for (values, annotations) in [
            (&plugin, json!({annotation::REWRITE_PROBES: "false", annotation::EXCLUDE_INBOUND_PORTS: "9000"})),
            (&plugin, json!({annotation::EXCLUDE_INBOUND_PORTS: "9000"})),
            (&plugin, json!({annotation::TEMPLATES: "gateway"})),
            (&plugin, json!({annotation::TEMPLATES: "grpc-agent"})),
            (&no_plugin, json!({})),
        ] {
            let injector = injector(values.clone())?;
            let (injected, warnings) = review(&injector, &pod(&annotations, &handler), false)??;
            if side(&injected)?["startupProbe"] != handler["startupProbe"] || !warnings.is_empty() {
                return Err(format!("{path} {annotations}: {injected} {warnings:?}").into());
            }
            checked(&injector, &injected)?;
        }
    }
    Ok(())
}

/// Checks an injected pod as `explain` does.
fn checked(injector: &Injector, pod: &Value) -> Result<(), Failed> {
    Ok(injector.check(pod, "shop", None)?)
}

fn unsupported() -> Result<(), Failed> {
    let handler = json!({"lifecycle": {"postStart": {"tcpSocket": {"port": 9000}}}});
    for annotations in [json!({}), json!({annotation::EXCLUDE_INBOUND_PORTS: "9000"})] {
        let reason = review(&injector(json!({}))?, &pod(&annotations, &handler), false)?.err().ok_or("is admitted")?;
        let is_named = reason.contains("init container side") && reason.contains("tcpSocket");
        is_named.then_some(()).ok_or_else(|| format!("{annotations}: {reason}"))?;
    }
    Ok(())
}

/// Checks that an excluded interface makes it unknown whether a port is captured, unless it is `eth0`, by which the
/// kubelet's requests arrive.
fn interfaces() -> Result<(), Failed> {
    for (interfaces, is_known) in [("net1", false), ("net1,eth0", true), ("", true)] {
        for (pointer, handler) in handlers() {
            let pod = pod(&json!({annotation::EXCLUDE_INTERFACES: interfaces}), &handler);
            let reviewed = review(&injector(json!({}))?, &pod, false)?;
            if interfaces.is_empty() {
                reviewed.err().ok_or("is admitted")?;
                continue;
            }
            let (injected, warnings) = reviewed?;
            let is_named = matches!(&warnings[..], [text] if text.contains("may be redirected"));
            let is_kept = side(&injected)?.pointer(pointer) == pod["spec"]["initContainers"][0].pointer(pointer);
            if is_named == is_known || is_known && !warnings.is_empty() || !is_kept {
                return Err(format!("{interfaces}: {warnings:?} {injected}").into());
            }
        }
    }
    Ok(())
}

fn in_sandbox() -> Result<(), Failed> {
    for (_, handler) in handlers() {
        let mut pod = pod(&json!({}), &handler);
        pod["spec"]["runtimeClassName"] = "gvisor".into();
        let injector = injector(json!({}))?;
        let (injected, warnings) = review(&injector, &pod, false)??;
        let is_of_sandbox = matches!(&warnings[..], [text] if text.contains("is a sandbox"));
        is_of_sandbox.then_some(()).ok_or_else(|| format!("{warnings:?}"))?;
        checked(&injector, &injected)?;
    }
    Ok(())
}

fn no_port() -> Result<(), Failed> {
    for port in [0, 70_000] {
        let handler = json!({"startupProbe": {"tcpSocket": {"port": port}}});
        let (injected, warnings) = review(&injector(json!({}))?, &pod(&json!({}), &handler), false)??;
        if side(&injected)?["startupProbe"] != handler["startupProbe"] || !warnings.is_empty() {
            return Err(format!("{port}: {injected} {warnings:?}").into());
        }
    }
    Ok(())
}

/// Checks a livenessProbe that the kubelet runs while the next init containers run.
fn liveness() -> Result<(), Failed> {
    let handler = json!({"livenessProbe": {"tcpSocket": {"port": 9000}}});
    for (annotations, is_followed, native, is_kept, is_named) in [
        (json!({}), true, false, false, true),
        (json!({annotation::EXCLUDE_INTERFACES: "net1"}), true, false, false, true),
        (json!({annotation::REWRITE_PROBES: "false"}), true, false, true, true),
        (json!({annotation::EXCLUDE_INBOUND_PORTS: "9000"}), true, false, true, false),
        (json!({}), false, false, false, false),
        (json!({}), true, true, false, false),
    ] {
        let mut pod = pod(&annotations, &handler);
        if is_followed {
            let inits = pod["spec"]["initContainers"].as_array_mut().ok_or("no init containers")?;
            inits.push(json!({"name": "migration", "image": "m:1"}));
        }
        let (injected, warnings) = review(&injector(json!({}))?, &pod, native)??;
        let named = matches!(&warnings[..], [text] if text.starts_with("livenessProbe of init container \"side\""));
        let kept = side(&injected)?["livenessProbe"] == handler["livenessProbe"];
        if (kept, named) != (is_kept, is_named) || !named && !warnings.is_empty() {
            return Err(format!("{annotations} {is_followed} {native}: {warnings:?} {injected}").into());
        }
    }
    Ok(())
}
