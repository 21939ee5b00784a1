//! Metrics of application and proxy behind one port: the agent serves both, and scrapes the application by what the
//! pod's own Prometheus annotations said.

use serde_json::{Map, Value, json};

use super::Error;
use crate::contract::annotation;
use crate::inject::{gojson, pod};
use crate::redirect::annotations::parse_bool;

pub(super) const SCRAPING: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";
const SECURE_PORT: &str = "ENVOY_SECURE_MERGED_METRICS_PORT";
/// Ports on which the proxy itself answers: scraping them would end in a circle.
const RESERVED: [u16; 9] = [15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090];

/// Points Prometheus at the agent.
///
/// # Errors
/// `prometheus.istio.io/scrape-targets` names a port that cannot be scraped.
pub(super) fn merge(pod: &mut Value, enabled: bool, status_port: u16) -> Result<(), Error> {
    let declined = annotated(pod, "scrape") == Some("false");
    let wanted = pod::annotation(pod, annotation::MERGE_METRICS).and_then(parse_bool).unwrap_or(enabled);
    if declined || !wanted || is_merged(pod, status_port) {
        return Ok(());
    }
    let scraping = scraping(pod, status_port)?;
    if let (false, Some(sidecar)) = (scraping.is_empty(), pod::sidecar_mut(pod)) {
        pod::push_env(sidecar, SCRAPING, &gojson::encode(&Value::Object(scraping)));
    }
    clear(pod);
    let annotations = pod::annotations_mut(pod);
    annotations.insert("prometheus.io/port".to_owned(), status_port.to_string().into());
    annotations.insert("prometheus.io/path".to_owned(), "/stats/prometheus".into());
    annotations.insert("prometheus.io/scrape".to_owned(), "true".into());
    secure_port(pod);
    Ok(())
}

/// Whether Prometheus is already sent to the agent: by an earlier injection, or by a user who knows what that means.
pub(super) fn is_merged(pod: &Value, status_port: u16) -> bool {
    annotated(pod, "port").is_some_and(|port| port == status_port.to_string())
}

/// Takes Prometheus' annotations away, however they are spelled.
pub(super) fn clear(pod: &mut Value) {
    let ours = ["scrape", "path", "port"];
    pod::annotations_mut(pod).retain(|name, _| !ours.into_iter().any(|what| is_prometheus(name, what)));
}

fn annotated<'a>(pod: &'a Value, what: &str) -> Option<&'a str> {
    let mut annotations = pod::map(pod::metadata(pod), "annotations").iter();
    annotations.find(|(name, _)| is_prometheus(name, what))?.1.as_str()
}

/// Whether an annotation is this one of Prometheus', which takes what is no letter, digit or underscore for one.
fn is_prometheus(name: &str, what: &str) -> bool {
    let sanitised = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    name.chars().map(sanitised).eq("prometheus_io_".chars().chain(what.chars()))
}

/// What the agent is told to scrape; empty where the pod says nothing.
fn scraping(pod: &Value, status_port: u16) -> Result<Map<String, Value>, Error> {
    let [scrape, mut path, mut port] =
        ["scrape", "path", "port"].map(|what| annotated(pod, what).unwrap_or_default().to_owned());
    let targets = match pod::annotation(pod, annotation::SCRAPE_TARGETS) {
        Some(text) => targets(text, status_port)?,
        None => Vec::new(),
    };
    if let Some((first_port, first_path)) = targets.first() {
        port = if port.is_empty() { first_port.to_string() } else { port };
        path = if path.is_empty() { first_path.clone() } else { path };
    }
    let mut said = Map::new();
    if [&scrape, &path, &port].into_iter().all(String::is_empty) {
        return Ok(said);
    }
    said.insert("scrape".to_owned(), scrape.into());
    said.insert("path".to_owned(), path.into());
    said.insert("port".to_owned(), port.into());
    if !targets.is_empty() {
        let list = targets.iter().map(|(port, path)| json!({"port": port.to_string(), "path": path})).collect();
        said.insert("targets".to_owned(), list);
    }
    Ok(said)
}

fn targets(text: &str, status_port: u16) -> Result<Vec<(u16, String)>, Error> {
    let wrong = |allowed| Error::annotation(annotation::SCRAPE_TARGETS, text, allowed);
    let target = |entry: &str| {
        let (port, path) = entry.split_once(':').unwrap_or((entry, ""));
        let port: u16 = port.trim().parse().map_err(|_| wrong("port:path,… with ports from 1 to 65535"))?;
        if port == 0 {
            return Err(wrong("port:path,… with ports from 1 to 65535"));
        }
        if port == status_port || RESERVED.contains(&port) {
            return Err(wrong("port:path,… with no port of the proxy's own"));
        }
        let path = if path.trim().is_empty() { "/metrics" } else { path.trim() };
        Ok((port, path.to_owned()))
    };
    text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).map(target).collect()
}

/// The port of metrics over TLS, where the proxy has one.
fn secure_port(pod: &mut Value) {
    let Some(sidecar) = pod::sidecar(pod) else { return };
    let Some(variable) = pod::find(pod::list(sidecar, "env"), SECURE_PORT) else { return };
    let port = pod::text(variable, "value").to_owned();
    if !port.is_empty() && port != "0" {
        pod::annotations_mut(pod).entry(annotation::SECURE_METRICS_PORT).or_insert(port.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "istio-proxy"}]}})
    }

    fn merged(annotations: &Value) -> Value {
        let mut pod = pod(annotations);
        merge(&mut pod, true, 15020).unwrap();
        pod
    }

    #[test]
    fn what_the_pod_said_goes_to_the_agent() {
        let pod = merged(&json!({"prometheus.io/port": "90", "prometheus_io_path": "/m", "other": "x"}));
        let annotations = json!({"other": "x", "prometheus.io/port": "15020",
            "prometheus.io/path": "/stats/prometheus", "prometheus.io/scrape": "true"});
        assert_eq!(pod["metadata"]["annotations"], annotations);
        let env = &pod["spec"]["containers"][0]["env"][0];
        assert_eq!(env["value"], r#"{"scrape":"","path":"/m","port":"90"}"#);
    }

    #[test]
    fn merging_twice_changes_nothing_and_false_is_obeyed() {
        let once = merged(&json!({}));
        let mut twice = once.clone();
        merge(&mut twice, true, 15020).unwrap();
        assert_eq!(twice, once);
        assert_eq!(once["spec"]["containers"][0].get("env"), None);
        for annotations in [json!({"prometheus.io/scrape": "false"}), json!({annotation::MERGE_METRICS: "false"})] {
            assert_eq!(merged(&annotations), pod(&annotations));
        }
    }

    #[test]
    fn targets_may_not_be_the_proxys() {
        let target = |text: &str| merge(&mut pod(&json!({annotation::SCRAPE_TARGETS: text})), true, 15020);
        target("8080:/a, 9090").unwrap();
        for wrong in ["0", "70000:/", "x", "15090:/stats", "15020"] {
            let error = target(wrong).unwrap_err().to_string();
            assert!(error.contains("prometheus.istio.io/scrape-targets"), "{error}");
        }
    }
}
