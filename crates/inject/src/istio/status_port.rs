//! Checks of the ports on which the agent and the proxy listen, and of the variables that set them.
//!
//! If two listeners have the same port, the second one fails, and the pod never becomes ready. An application that declares such a port
//! only causes a warning.

use contract::{annotation, container, port};
use serde_json::Value;

use super::proxy::{self, Listener, Program};
use super::startable::PROBES;
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

const STATUS: &str = "status port of the agent";

/// A port of the agent or the proxy with which the pod does not start.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Invalid {
    /// The agent or the proxy listens on the port for another purpose.
    #[error("the {what} is {port} ({source_name}), {purpose}: only one of the two can listen on it")]
    Taken {
        what: &'static str,
        port: u16,
        /// The annotation, the field or the variable that sets the port.
        source_name: &'static str,
        purpose: &'static str,
    },
    /// A variable has a number that is not a port.
    #[error("the variable {name} of the proxy is {number}, which is not a port from 1 to 65535")]
    NoPort { name: &'static str, number: i64 },
}

/// Checks the ports of a pod whose sidecar is Istio's agent with a proxy. `mesh` and `proxy_config`: the configurations of the mesh and of
/// the pod's proxy.
///
/// # Errors
/// The agent and the proxy would listen on one port for two purposes, or a variable has a number that is not a port.
pub(super) fn check(author: &Value, merged: &Value, configs: (&Value, &Value)) -> Result<(), Invalid> {
    let mut ports = proxy::ports(merged, configs);
    if ports.is_empty() {
        return Ok(());
    }
    variables(merged)?;
    let (port, source) = status_port(author, configs.1);
    let purpose = "on which the agent serves status and metrics";
    ports.insert(0, Listener { port, what: STATUS, source, default: port::STATUS, purpose });
    // All defaults differ, so at least one of two equal ports is not a default: the message names its source.
    for own in ports.iter().filter(|own| own.port != 0 && own.port != own.default) {
        let is_other = |other: &&Listener| other.port == own.port && other.what != own.what;
        if let Some(Listener { purpose, .. }) = ports.iter().find(is_other) {
            let Listener { what, port, source: source_name, .. } = *own;
            return Err(Invalid::Taken { what, port, source_name, purpose });
        }
    }
    Ok(())
}

/// Checks the numbers in the variables that set ports. 0, for any free port, is valid for Prometheus only.
fn variables(merged: &Value) -> Result<(), Invalid> {
    for (name, number) in numbers(merged).filter_map(|(name, _, number)| Some((name, number.ok()?))) {
        let is_any = number == 0 && name != proxy::VARIABLES[0].0;
        if !(1..=65535).contains(&number) && !is_any {
            return Err(Invalid::NoPort { name, number });
        }
    }
    Ok(())
}

/// Returns the variables that set ports, each with the default port and its number, or its value if the agent cannot parse it
/// (`strconv.Atoi`) and ignores it. A value with a dollar sign is left out, because the kubelet may expand it.
fn numbers(merged: &Value) -> impl Iterator<Item = (&'static str, u16, Result<i64, &str>)> {
    let sidecar = pod::sidecar(merged).filter(|sidecar| matches!(Program::of(sidecar), Program::Proxy(_)));
    proxy::VARIABLES.into_iter().filter_map(move |(name, default)| {
        let text = proxy::value(sidecar?, name).filter(|text| !text.is_empty() && !text.contains('$'))?;
        Some((name, default, text.parse().map_err(|_| text)))
    })
}

/// Returns a warning for each variable that the agent cannot parse.
fn ignored(merged: &Value) -> impl Iterator<Item = String> {
    numbers(merged).filter_map(|(name, default, number)| {
        let value = number.err()?;
        Some(format!(
            "the variable {name} of the proxy has the value {value:?}, which is no number: the agent uses {default}"
        ))
    })
}

/// Returns the status port of the agent, and the annotation or the field that sets it.
fn status_port(author: &Value, proxy_config: &Value) -> (u16, &'static str) {
    match pod::annotation(author, annotation::STATUS_PORT).and_then(|port| port.parse().ok()) {
        Some(port) => (port, annotation::STATUS_PORT),
        None => (proxy::number(proxy_config, "statusPort", port::STATUS), "statusPort of the proxy configuration"),
    }
}

/// Returns the warnings about ports that an application declares although the proxy or its agent listens on them, about the sidecar's
/// probes and hook that nothing answers, and about variables that the agent ignores.
pub(super) fn warnings(author: &Value, merged: &Value, configs: (&Value, &Value)) -> Vec<String> {
    let (status, _) = status_port(author, configs.1);
    let mut warnings = declared(merged, configs, status);
    warnings.extend(unanswered(merged, status));
    warnings.extend(ignored(merged));
    warnings
}

/// Returns a warning for each probe of the sidecar, and for the hook for which applications wait, that gets no answer about the proxy's
/// readiness: a variable sets another port, or the agent, on which the readiness depends, has no status port.
fn unanswered(merged: &Value, status: u16) -> Vec<String> {
    let sidecar = pod::sidecar(merged).filter(|sidecar| matches!(Program::of(sidecar), Program::Proxy(_)));
    let Some(sidecar) = sidecar else { return Vec::new() };
    let ready = proxy::readiness_port(sidecar);
    let reason = |asked: u64| match asked {
        asked if asked == u64::from(ready) && status == 0 => {
            Some("without a status port, the agent does not answer".to_owned())
        }
        asked if asked == u64::from(port::READINESS) && asked != u64::from(ready) && asked != u64::from(status) => {
            Some(format!("the proxy serves its readiness on {ready} (ENVOY_STATUS_PORT)"))
        }
        _ => None,
    };
    let probed =
        PROBES.into_iter().filter_map(|probe| Some((probe, sidecar.get(probe)?.pointer("/httpGet/port")?.as_u64()?)));
    let command =
        sidecar.pointer("/lifecycle/postStart/exec").map(|exec| pod::list(exec, "command")).unwrap_or_default();
    let waits = command == ["pilot-agent", "wait"];
    let waited = waits.then_some(("postStart", port::READINESS.into()));
    let warning = |(what, asked): (&str, u64)| {
        let reason = reason(asked)?;
        Some(format!("{what} of container {:?} asks port {asked} in vain: {reason}", pod::name(sidecar)))
    };
    probed.chain(waited).filter_map(warning).collect()
}

/// Returns a warning for each port that an application declares and on which the proxy or its agent listens.
fn declared(merged: &Value, configs: (&Value, &Value), status: u16) -> Vec<String> {
    let ports = proxy::ports(merged, configs);
    let of_agent =
        (status != 0 && !ports.is_empty()).then_some((status, "on which the agent serves status and metrics"));
    let reserved: Vec<(u16, &str)> =
        ports.iter().map(|listener| (listener.port, listener.purpose)).chain(of_agent).collect();
    let is_lasting = |(which, item): &(&str, &Value)| {
        pod::name(item) != container::PROXY && (*which == CONTAINERS || pod::text(item, "restartPolicy") == "Always")
    };
    let all = [CONTAINERS, INIT_CONTAINERS].into_iter();
    let all = all.flat_map(|which| pod::containers(merged, which).iter().map(move |item| (which, item)));
    let mut warnings = Vec::new();
    for (_, item) in all.filter(is_lasting) {
        let declared = pod::list(item, "ports").iter().filter(|port| matches!(pod::text(port, "protocol"), "" | "TCP"));
        let declared: Vec<u64> = declared.filter_map(|port| port.get("containerPort")?.as_u64()).collect();
        let taken = reserved.iter().filter(|(port, _)| declared.contains(&u64::from(*port)));
        warnings.extend(taken.map(|(port, purpose)| {
            format!(
                "container {:?} declares port {port}, {purpose}: an application cannot listen on it beside the proxy",
                pod::name(item)
            )
        }));
    }
    warnings
}

#[cfg(test)]
mod tests {
    use contract::annotation;
    use serde_json::json;

    use crate::istio::{BuiltIn, Config, InjectionOutcome, Injector, Mesh, Request, Settings, Values};

    /// Returns the error message for a pod with these annotations; `None` if it is injected.
    fn refusal(annotations: &serde_json::Value) -> Option<String> {
        refusal_in("{}", annotations)
    }

    /// Returns the error message for a pod with these annotations in this mesh; `None` if it is injected.
    fn refusal_in(mesh: &str, annotations: &serde_json::Value) -> Option<String> {
        let mesh = Mesh::parse(mesh).unwrap();
        let injector = Injector::new(Config { mesh, ..BuiltIn::default().config().unwrap() });
        let pod =
            json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
        injector.review(&Request::new(&pod, "shop")).err().map(|error| error.to_string())
    }

    #[test]
    fn a_status_port_on_which_the_proxy_listens_is_refused_with_its_source() {
        for (port, purpose) in [
            (15000, "serves its administration"),
            (15001, "outbound traffic"),
            (15006, "inbound traffic"),
            (15021, "readiness"),
            (15090, "Prometheus"),
        ] {
            let reason = refusal(&json!({annotation::STATUS_PORT: port.to_string()})).unwrap();
            assert!(
                reason.contains(&format!("{port} (status.sidecar.istio.io/port)")) && reason.contains(purpose),
                "{reason}"
            );
            let configured = refusal(&json!({annotation::PROXY_CONFIG: format!("statusPort: {port}")})).unwrap();
            assert!(configured.contains(&format!("{port} (statusPort of the proxy configuration)")), "{configured}");
        }
        let admin = json!({annotation::STATUS_PORT: "15099", annotation::PROXY_CONFIG: "proxyAdminPort: 15099"});
        assert!(refusal(&admin).unwrap().contains("administration"));
        let dns = "proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true'}";
        let dns = json!({annotation::STATUS_PORT: "15053", annotation::PROXY_CONFIG: dns});
        assert!(refusal(&dns).unwrap().contains("serves DNS"));
    }

    #[test]
    fn an_administration_port_on_which_another_listens_is_refused_with_its_source() {
        let refused = |config: &str, templates: &str| {
            refusal(&json!({annotation::PROXY_CONFIG: config, annotation::TEMPLATES: templates})).unwrap_or_default()
        };
        for (port, purpose) in
            [(15001, "outbound traffic"), (15006, "inbound traffic"), (15021, "readiness"), (15090, "Prometheus")]
        {
            let reason = refused(&format!("proxyAdminPort: {port}"), "sidecar");
            let start =
                format!("administration port of the proxy is {port} (proxyAdminPort of the proxy configuration)");
            assert!(reason.contains(&start) && reason.contains(purpose), "{reason}");
        }
        let dns = "{proxyAdminPort: 15053, proxyMetadata: {ISTIO_META_DNS_CAPTURE: 'true'}}";
        assert!(refused(dns, "sidecar").contains("serves DNS"));
        let agent = refused("proxyAdminPort: 15020", "sidecar");
        assert!(agent.contains("proxyAdminPort") && agent.contains("on which the agent serves status"), "{agent}");
        for (config, templates) in [
            ("proxyAdminPort: 15053", "sidecar"),
            ("proxyAdminPort: 15099", "sidecar"),
            ("proxyAdminPort: 15001", "gateway"),
            ("{proxyAdminPort: 15020, statusPort: 15099}", "sidecar"),
        ] {
            assert_eq!(refused(config, templates), "", "{config}");
        }
    }

    #[test]
    fn the_message_names_what_moved_the_port() {
        let of = |variables: serde_json::Value| json!({annotation::PROXY_CONFIG: json!({"proxyMetadata": variables}).to_string()});
        let dns = of(json!({"ISTIO_META_DNS_CAPTURE": "true", "DNS_PROXY_ADDR": "localhost:15021"}));
        let (admin, agent) = ("proxy serves its administration", "agent serves status and metrics");
        for (mesh, annotations, moved, purpose) in [
            ("{}", of(json!({"ENVOY_STATUS_PORT": "15000"})), "is 15000 (ENVOY_STATUS_PORT)", admin),
            ("{}", of(json!({"ENVOY_STATUS_PORT": "15020"})), "is 15020 (ENVOY_STATUS_PORT)", agent),
            ("{}", of(json!({"ENVOY_PROMETHEUS_PORT": "15000"})), "is 15000 (ENVOY_PROMETHEUS_PORT)", admin),
            ("{}", of(json!({"ENVOY_PROMETHEUS_PORT": "15020"})), "is 15020 (ENVOY_PROMETHEUS_PORT)", agent),
            ("{}", dns, "DNS port of the agent is 15021 (DNS_PROXY_ADDR)", "serves its readiness"),
            ("proxyListenPort: 15021", json!({}), "is 15021 (proxyListenPort of the mesh)", "serves its readiness"),
            (
                "proxyInboundListenPort: 15020",
                json!({annotation::STATUS_PORT: "15020"}),
                "is 15020 (proxyInboundListenPort of the mesh)",
                agent,
            ),
            (
                "proxyListenPort: 15099",
                json!({annotation::STATUS_PORT: "15099"}),
                "is 15099 (status.sidecar.istio.io/port)",
                "outbound traffic",
            ),
        ] {
            let reason = refusal_in(mesh, &annotations).unwrap_or_default();
            assert!(reason.contains(moved) && reason.contains(purpose), "{mesh} {annotations}: {reason}");
        }
    }

    #[test]
    fn a_pod_has_the_ports_of_redirected_traffic_if_its_annotation_redirects_it() {
        let mesh = "defaultConfig: {interceptionMode: NONE}";
        let ready = json!({"proxyMetadata": {"ENVOY_STATUS_PORT": "15006"}}).to_string();
        for (mesh, mode, is_refused) in [
            (mesh, Some("REDIRECT"), true),
            (mesh, Some("TPROXY"), true),
            (mesh, None, false),
            ("{}", Some("NONE"), false),
            ("{}", None, true),
        ] {
            for (of_port, value) in [
                (annotation::PROXY_CONFIG, ready.as_str()),
                (annotation::STATUS_PORT, "15001"),
                (annotation::PROXY_CONFIG, "proxyAdminPort: 15006"),
            ] {
                let mut annotations = json!({of_port: value});
                mode.into_iter().for_each(|mode| annotations[annotation::INTERCEPTION_MODE] = mode.into());
                let reason = refusal_in(mesh, &annotations);
                assert_eq!(reason.is_some(), is_refused, "{mesh} {annotations}: {reason:?}");
            }
        }
    }

    /// Returns the warnings about ports for a pod whose application declares this port.
    fn named(annotations: &serde_json::Value, port: &serde_json::Value) -> Vec<String> {
        let injector = Injector::new(BuiltIn::default().config().unwrap());
        let container = json!({"name": "a", "image": "i", "ports": [{"containerPort": 80}, port]});
        let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [container]}});
        let outcome = injector.review(&Request::new(&pod, "shop")).unwrap();
        let InjectionOutcome::Injected { injected, .. } = outcome else { panic!("the pod is injected") };
        injected.warnings.into_iter().filter(|text| text.contains(" declares port ")).collect()
    }

    #[test]
    fn an_application_that_declares_a_port_of_the_proxy_is_named() {
        let none = json!({});
        for (port, purpose) in [
            (15000, "administration"),
            (15001, "outbound traffic"),
            (15006, "inbound traffic"),
            (15020, "the agent serves status"),
            (15021, "readiness"),
            (15090, "Prometheus"),
        ] {
            let found = named(&none, &json!({"containerPort": port}));
            let start = format!("container \"a\" declares port {port}, ");
            assert!(matches!(&found[..], [text] if text.starts_with(&start) && text.contains(purpose)), "{found:?}");
        }
        let own = json!({annotation::STATUS_PORT: "15099"});
        assert_eq!(named(&own, &json!({"containerPort": 15099})).len(), 1, "the chosen port");
        assert_eq!(named(&own, &json!({"containerPort": 15020})), [""; 0], "and not the default one");
        let direct = json!({annotation::INTERCEPTION_MODE: "NONE"});
        assert_eq!(named(&direct, &json!({"containerPort": 15006})), [""; 0], "without redirection");
        assert_eq!(named(&none, &json!({"containerPort": 15006, "protocol": "UDP"})), [""; 0], "of another protocol");
    }

    #[test]
    fn a_probe_and_a_hook_that_nobody_answers_are_named() {
        const TEMPLATE: &str = "spec:\n  containers:\n  - name: istio-proxy\n    image: p:1\n    args: [proxy, sidecar]\n    env: [{name: ENVOY_STATUS_PORT, \
             value: '{{ .Values.ready }}'}]\n    readinessProbe: {httpGet: {path: /healthz/ready, port: 15021}}\n    \
             lifecycle: {postStart: {exec: {command: [pilot-agent, wait]}}}\n";
        let named = |ready: &str, annotations: serde_json::Value| {
            let settings = Settings::from_template(TEMPLATE).unwrap();
            let values = Values::new(json!({"ready": ready}));
            let injector = Injector::new(Config { settings, values, ..BuiltIn::default().config().unwrap() });
            let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "a", "image": "i"}]}});
            let outcome = injector.review(&Request::new(&pod, "shop")).unwrap();
            let InjectionOutcome::Injected { injected, .. } = outcome else { panic!("the pod is injected") };
            injected.warnings.into_iter().filter(|text| text.contains(" in vain: ")).collect::<Vec<_>>()
        };
        assert_eq!(named("15021", json!({})), [""; 0]);
        let moved = "asks port 15021 in vain: the proxy serves its readiness on 15031 (ENVOY_STATUS_PORT)";
        let none = "asks port 15021 in vain: without a status port, the agent does not answer";
        for (ready, annotations, reason) in
            [("15031", json!({}), moved), ("15021", json!({annotation::STATUS_PORT: "0"}), none)]
        {
            let both =
                ["readinessProbe", "postStart"].map(|what| format!("{what} of container \"istio-proxy\" {reason}"));
            assert_eq!(named(ready, annotations), both);
        }
    }

    #[test]
    fn other_status_ports_are_admitted() {
        for annotations in [
            json!({annotation::STATUS_PORT: "15099"}),
            json!({annotation::STATUS_PORT: "0"}),
            json!({annotation::STATUS_PORT: "15008"}),
            json!({annotation::STATUS_PORT: "15053"}),
            json!({annotation::STATUS_PORT: "15004"}),
            json!({annotation::STATUS_PORT: "15000", annotation::PROXY_CONFIG: "proxyAdminPort: 15099"}),
            json!({annotation::STATUS_PORT: "15001", annotation::INTERCEPTION_MODE: "NONE"}),
            json!({annotation::STATUS_PORT: "15006", annotation::TEMPLATES: "gateway"}),
            json!({annotation::STATUS_PORT: "15090", annotation::TEMPLATES: "grpc-agent"}),
        ] {
            assert_eq!(refusal(&annotations), None, "{annotations}");
        }
    }
}
