//! Tests of the ports on which the agent and the proxy listen, as variables and values set them, and of the annotations
//! that need these ports.

use contract::annotation;
use inject::istio::{BuiltIn, InjectionOutcome, Injector, Request, Values};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::test("ports/a variable that moves a port to another one of the proxy is refused by its name", taken),
        Trial::test("ports/a variable with a port is read as the agent reads it", read),
        Trial::test("ports/a variable with a number that is no port is refused by its name", no_port),
        Trial::test("ports/the agent has its default port with port 0 of the values", of_values),
        Trial::test("ports/annotations of metrics that no agent serves are named", unserved),
    ]
}

fn review(
    values: Value,
    annotations: &Value,
    native_sidecars: bool,
) -> Result<Result<(Value, Vec<String>), String>, Failed> {
    let injector = Injector::new(BuiltIn::config_with(Values::new(values), None, None)?);
    let probe = json!({"tcpSocket": {"port": 8080}});
    let app = json!({"name": "app", "image": "a:1", "readinessProbe": probe});
    let pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [app]}});
    match injector.review(&Request { native_sidecars, ..Request::new(&pod, "shop") }) {
        Ok(InjectionOutcome::Injected { injected, .. }) => Ok(Ok((injected.pod, injected.warnings))),
        Ok(InjectionOutcome::Skipped(decision)) => Err(decision.sentence().into()),
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// Returns the annotations of a pod with these variables of its proxy.
fn with(variables: &Value) -> Value {
    json!({annotation::PROXY_CONFIG: json!({"proxyMetadata": variables}).to_string()})
}

fn proxy(pod: &Value) -> Result<&Value, Failed> {
    let lists = ["initContainers", "containers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
    Ok(lists.flatten().find(|item| item["name"] == "istio-proxy").ok_or("no proxy")?)
}

fn taken() -> Result<(), Failed> {
    for (variables, name, port) in [
        (json!({"ENVOY_STATUS_PORT": "15090"}), "ENVOY_STATUS_PORT", "15090"),
        (json!({"ENVOY_STATUS_PORT": "15001"}), "ENVOY_STATUS_PORT", "15001"),
        (json!({"ENVOY_STATUS_PORT": "15006"}), "ENVOY_STATUS_PORT", "15006"),
        (json!({"ENVOY_STATUS_PORT": "15053", "ISTIO_META_DNS_CAPTURE": "true"}), "ENVOY_STATUS_PORT", "15053"),
        (json!({"ENVOY_STATUS_PORT": "15008", "ISTIO_META_ENABLE_HBONE": "true"}), "ENVOY_STATUS_PORT", "15008"),
        (json!({"ENVOY_PROMETHEUS_PORT": "15006"}), "ENVOY_PROMETHEUS_PORT", "15006"),
        (json!({"ENVOY_PROMETHEUS_PORT": "15021"}), "ENVOY_PROMETHEUS_PORT", "15021"),
        (json!({"ENVOY_STATUS_PORT": "15000"}), "ENVOY_STATUS_PORT", "15000"),
        (json!({"ENVOY_STATUS_PORT": "15020"}), "ENVOY_STATUS_PORT", "15020"),
        (json!({"ENVOY_PROMETHEUS_PORT": "15000"}), "ENVOY_PROMETHEUS_PORT", "15000"),
        (json!({"ENVOY_PROMETHEUS_PORT": "15020"}), "ENVOY_PROMETHEUS_PORT", "15020"),
    ] {
        let reason =
            review(json!({}), &with(&variables), false)?.err().ok_or_else(|| format!("{variables} is admitted"))?;
        let is_named = reason.contains(name) && reason.contains(port) && reason.contains("only one of the two");
        is_named.then_some(()).ok_or_else(|| format!("{variables}: {reason}"))?;
    }
    for variables in [
        json!({"ENVOY_STATUS_PORT": "15053"}),
        json!({"ENVOY_STATUS_PORT": "15090", "ENVOY_PROMETHEUS_PORT": "15021"}),
        json!({"ENVOY_STATUS_PORT": "16021", "ENVOY_PROMETHEUS_PORT": "16090"}),
    ] {
        review(json!({}), &with(&variables), false)??;
    }
    Ok(())
}

/// Checks that a variable is read as by Go's `strconv.Atoi`: a decimal number is used; any other value leaves the
/// default port, with a warning unless it is empty.
fn read() -> Result<(), Failed> {
    for template in ["sidecar", "gateway"] {
        for (text, ready, metrics) in [
            ("015031", 15031, 15031),
            ("+15031", 15031, 15031),
            ("15031.0", 15021, 15090),
            ("0x3ab7", 15021, 15090),
            ("15_031", 15021, 15090),
            ("", 15021, 15090),
        ] {
            let port = |variable: &str, pointer: &str| {
                let mut annotations = with(&json!({variable: text}));
                annotations[annotation::TEMPLATES] = template.into();
                let (pod, warnings) = review(json!({}), &annotations, false)??;
                let is_ignored = matches!(text, "15031.0" | "0x3ab7" | "15_031");
                let is_named =
                    warnings.iter().any(|warning| warning.contains(variable) && warning.contains("no number"));
                if is_named != is_ignored {
                    return Err(Failed::from(format!("{template} {variable} {text:?}: {warnings:?}")));
                }
                Ok(proxy(&pod)?.pointer(pointer).cloned())
            };
            let found = (
                port("ENVOY_STATUS_PORT", "/readinessProbe/httpGet/port")?,
                port("ENVOY_PROMETHEUS_PORT", "/ports/0/containerPort")?,
            );
            if found != (Some(ready.into()), Some(metrics.into())) {
                return Err(format!("{template} {text:?}: {found:?}").into());
            }
        }
    }
    let (pod, _) = review(json!({}), &with(&json!({"ENVOY_STATUS_PORT": "015031"})), false)??;
    let excluded = &pod["metadata"]["annotations"][annotation::EXCLUDE_INBOUND_PORTS];
    (*excluded == "15020,15031").then_some(()).ok_or_else(|| excluded.to_string().into())
}

fn no_port() -> Result<(), Failed> {
    for name in ["ENVOY_STATUS_PORT", "ENVOY_PROMETHEUS_PORT"] {
        for text in ["-1", "80000", "65536"] {
            let reason = review(json!({}), &with(&json!({name: text})), false)?.err().ok_or("is admitted")?;
            let is_named = reason.contains(name) && reason.contains(text) && !reason.contains("excludeInboundPorts");
            is_named.then_some(()).ok_or_else(|| format!("{name} {text}: {reason}"))?;
        }
    }
    review(json!({}), &with(&json!({"ENVOY_STATUS_PORT": "0"})), false)?
        .err()
        .map(drop)
        .ok_or_else(|| "0 is admitted".into())
}

fn of_values() -> Result<(), Failed> {
    for port in [json!(0), json!("0")] {
        let values = json!({"global": {"proxy": {"statusPort": port}}});
        let (pod, _) = review(values, &json!({}), true)??;
        let hook = proxy(&pod)?.pointer("/lifecycle/preStop/exec/command/2").cloned();
        let excluded = &pod["metadata"]["annotations"][annotation::EXCLUDE_INBOUND_PORTS];
        if hook != Some(json!("--debug-port=15020")) || *excluded != "15020" {
            return Err(format!("{port}: {hook:?} {excluded}").into());
        }
    }
    Ok(())
}

fn unserved() -> Result<(), Failed> {
    for name in ["prometheus.io/port", annotation::SCRAPE_TARGETS] {
        let annotations = json!({"status.sidecar.istio.io/port": "0", "prometheus.io/scrape": "true", name: "8080"});
        let (_, warnings) = review(json!({}), &annotations, false)??;
        let text = "annotations without effect, because no agent of the pod serves its application's metrics: ";
        if !warnings.contains(&format!("{text}{name}")) {
            return Err(format!("{name}: {warnings:?}").into());
        }
    }
    Ok(())
}
