//! Merged metrics of application and proxy: the proxy's agent serves both on one port, and scrapes the application as
//! the pod's own Prometheus annotations specify.

use gotemplate::Budget;
use serde_json::{Map, Value, json};

use super::Error;
use crate::contract::annotation;
use crate::inject::{gojson, pod};
use crate::redirect::annotations::parse_bool;

pub(super) const SCRAPING: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";
const SECURE_PORT: &str = "ENVOY_SECURE_MERGED_METRICS_PORT";
/// The ports of the proxy and its agent. They are no valid scrape targets, because the agent would scrape itself
/// recursively.
const RESERVED: [u16; 9] = [15000, 15001, 15004, 15006, 15008, 15020, 15021, 15053, 15090];

/// The first port on which a program can listen without a capability.
const UNPRIVILEGED: u16 = 1024;

/// Returns the port of merged metrics: the status port in the pod's annotation, else the mesh's. A privileged port in
/// the annotation is ignored, because the agent cannot listen on it.
pub(super) fn port(pod: &Value, status_port: u16) -> u16 {
    let own = pod::annotation(pod, annotation::STATUS_PORT).and_then(|port| port.parse().ok());
    own.filter(|port| *port >= UNPRIVILEGED).unwrap_or(status_port)
}

/// Sets Prometheus' annotations to the agent's port. Returns warnings about ignored scrape targets.
///
/// # Errors
/// `prometheus.istio.io/scrape-targets` names a port that cannot be scraped, or the budget is spent.
pub(super) fn merge(
    pod: &mut Value,
    enabled: bool,
    status_port: u16,
    budget: &mut Budget,
) -> Result<Vec<String>, Error> {
    let declined = all_annotated(pod, "scrape").any(|scrape| parse_bool(scrape) == Some(false));
    let wanted = pod::annotation(pod, annotation::MERGE_METRICS).and_then(parse_bool).unwrap_or(enabled);
    if declined || !wanted || is_merged(pod, status_port) {
        return Ok(Vec::new());
    }
    let (scraping, warnings) = scraping(pod, status_port)?;
    if let (false, Some(sidecar)) = (scraping.is_empty(), pod::sidecar_mut(pod)) {
        pod::push_env(sidecar, SCRAPING, &gojson::encode(&Value::Object(scraping), budget)?);
    }
    clear(pod);
    let annotations = pod::annotations_mut(pod);
    annotations.shift_remove(annotation::SCRAPE_TARGETS);
    annotations.insert("prometheus.io/port".to_owned(), status_port.to_string().into());
    annotations.insert("prometheus.io/path".to_owned(), "/stats/prometheus".into());
    annotations.insert("prometheus.io/scrape".to_owned(), "true".into());
    Ok(warnings)
}

/// Whether Prometheus' annotations already name the agent's port, by an earlier injection or by the pod's author.
pub(super) fn is_merged(pod: &Value, status_port: u16) -> bool {
    annotated(pod, "port").is_some_and(|port| port == status_port.to_string())
}

/// Removes Prometheus' annotations in all spellings.
pub(super) fn clear(pod: &mut Value) {
    let names = ["scrape", "path", "port"];
    pod::annotations_mut(pod).retain(|name, _| !names.into_iter().any(|what| is_prometheus(name, what)));
}

fn annotated<'a>(pod: &'a Value, what: &'a str) -> Option<&'a str> {
    all_annotated(pod, what).next()
}

/// Returns the values of all annotations that Prometheus reads as `prometheus_io_<what>`.
fn all_annotated<'a>(pod: &'a Value, what: &'a str) -> impl Iterator<Item = &'a str> {
    let annotations = pod::map(pod::metadata(pod), "annotations").iter();
    annotations.filter(move |(name, _)| is_prometheus(name, what)).filter_map(|(_, value)| value.as_str())
}

/// Whether Prometheus reads an annotation as `prometheus_io_<what>`: Prometheus replaces all characters but letters and
/// digits with `_`.
fn is_prometheus(name: &str, what: &str) -> bool {
    let sanitised = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    name.chars().map(sanitised).eq("prometheus_io_".chars().chain(what.chars()))
}

/// Returns the agent's scrape settings, empty without annotations, and warnings about ignored targets.
fn scraping(pod: &Value, status_port: u16) -> Result<(Map<String, Value>, Vec<String>), Error> {
    let [scrape, mut path, mut port] =
        ["scrape", "path", "port"].map(|what| annotated(pod, what).unwrap_or_default().to_owned());
    let text = pod::annotation(pod, annotation::SCRAPE_TARGETS).unwrap_or_default();
    let (targets, warnings) = targets(text, status_port)?;
    if let Some((first_port, first_path)) = targets.first() {
        port = if port.is_empty() { first_port.to_string() } else { port };
        path = if path.is_empty() { first_path.clone() } else { path };
    }
    let mut scraping = Map::new();
    if [&scrape, &path, &port].into_iter().all(String::is_empty) {
        return Ok((scraping, warnings));
    }
    scraping.insert("scrape".to_owned(), scrape.into());
    scraping.insert("path".to_owned(), path.into());
    scraping.insert("port".to_owned(), port.into());
    if !targets.is_empty() {
        let list = targets.iter().map(|(port, path)| json!({"port": port.to_string(), "path": path})).collect();
        scraping.insert("targets".to_owned(), list);
    }
    Ok((scraping, warnings))
}

type Targets = Vec<(u16, String)>;

/// Parses `port:path,…`. An entry whose port is not a number is ignored with a warning; a port that must not be scraped
/// is an error.
fn targets(text: &str, status_port: u16) -> Result<(Targets, Vec<String>), Error> {
    let wrong = |allowed| Error::annotation(annotation::SCRAPE_TARGETS, text, allowed);
    let (mut targets, mut warnings) = (Vec::new(), Vec::new());
    for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (port, path) = entry.split_once(':').unwrap_or((entry, ""));
        let Ok(number) = port.trim().parse::<i64>() else {
            warnings.push(format!("{}: {entry:?} is not port:path and is ignored", annotation::SCRAPE_TARGETS));
            continue;
        };
        let port = u16::try_from(number).ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| wrong("port:path,… with ports from 1 to 65535"))?;
        if port == status_port || RESERVED.contains(&port) {
            return Err(wrong("port:path,… with no port of the proxy's own"));
        }
        let path = if path.trim().is_empty() { "/metrics" } else { path.trim() };
        targets.push((port, path.to_owned()));
    }
    Ok((targets, warnings))
}

/// Sets the annotation with the port on which the proxy serves metrics over TLS, if it has such a port. This does not
/// depend on whether metrics are merged.
pub(super) fn secure_port(pod: &mut Value) {
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

    fn merge(pod: &mut Value, enabled: bool, status_port: u16) -> Result<Vec<String>, Error> {
        super::merge(pod, enabled, status_port, &mut Budget::default())
    }

    fn merged(annotations: &Value) -> Value {
        let mut pod = pod(annotations);
        merge(&mut pod, true, 15020).unwrap();
        pod
    }

    #[test]
    fn the_pods_annotations_are_passed_to_the_agent() {
        let pod = merged(&json!({"prometheus.io/port": "90", "prometheus_io_path": "/m", "other": "x"}));
        let annotations = json!({"other": "x", "prometheus.io/port": "15020",
            "prometheus.io/path": "/stats/prometheus", "prometheus.io/scrape": "true"});
        assert_eq!(pod["metadata"]["annotations"], annotations);
        let env = &pod["spec"]["containers"][0]["env"][0];
        assert_eq!(env["value"], r#"{"scrape":"","path":"/m","port":"90"}"#);
    }

    #[test]
    fn the_port_is_the_pods_status_port() {
        let port = |own: &str| port(&pod(&json!({annotation::STATUS_PORT: own})), 15020);
        assert_eq!((port("15099"), port("1024"), port("123"), port("0")), (15099, 1024, 15020, 15020));
    }

    #[test]
    fn merging_twice_changes_nothing() {
        let once = merged(&json!({}));
        let mut twice = once.clone();
        merge(&mut twice, true, 15020).unwrap();
        assert_eq!(twice, once);
        assert_eq!(once["spec"]["containers"][0].get("env"), None);
    }

    #[test]
    fn scrape_is_declined_in_every_spelling_of_false() {
        for word in ["false", "False", "FALSE", "f", "F", "0"] {
            for name in ["prometheus.io/scrape", "prometheus_io_scrape", annotation::MERGE_METRICS] {
                let annotations = json!({name: word});
                assert_eq!(merged(&annotations), pod(&annotations), "{name} {word}");
            }
        }
        for word in ["no", "off", "fAlse", ""] {
            let port = &merged(&json!({"prometheus.io/scrape": word}))["metadata"]["annotations"]["prometheus.io/port"];
            assert_eq!(port, "15020", "{word:?}");
        }
        let either = json!({"prometheus.io/scrape": "true", "prometheus_io/scrape": "0"});
        assert_eq!(merged(&either), pod(&either));
    }

    #[test]
    fn targets_are_passed_to_the_agent_and_removed_from_the_pod() {
        let pod = merged(&json!({annotation::SCRAPE_TARGETS: "8080:/a, 9090"}));
        let env = &pod["spec"]["containers"][0]["env"][0];
        let targets = r#"[{"port":"8080","path":"/a"},{"port":"9090","path":"/metrics"}]"#;
        assert_eq!(
            env["value"].as_str().unwrap(),
            format!(r#"{{"scrape":"","path":"/a","port":"8080","targets":{targets}}}"#)
        );
        assert_eq!(pod["metadata"]["annotations"].get(annotation::SCRAPE_TARGETS), None);
    }

    #[test]
    fn targets_on_the_proxys_ports_are_refused_and_invalid_ones_ignored() {
        let target = |text: &str| {
            let mut pod = pod(&json!({annotation::SCRAPE_TARGETS: text}));
            let warnings = merge(&mut pod, true, 15099)?;
            Ok::<_, Error>((warnings, pod["spec"]["containers"][0]["env"][0]["value"].as_str().map(str::to_owned)))
        };
        let reserved = RESERVED.map(|port| port.to_string());
        for wrong in ["0", "70000:/", "-1", "15099:/x"].into_iter().chain(reserved.iter().map(String::as_str)) {
            let error = target(wrong).unwrap_err().to_string();
            assert!(error.contains("prometheus.istio.io/scrape-targets"), "{error}");
        }
        let (warnings, env) = target("x:/y, 8080:/a,").unwrap();
        assert_eq!(warnings, [r#"prometheus.istio.io/scrape-targets: "x:/y" is not port:path and is ignored"#]);
        assert!(env.unwrap().contains(r#""targets":[{"port":"8080","path":"/a"}]"#));
        let (warnings, env) = target("web").unwrap();
        assert_eq!((warnings.len(), env), (1, None));
    }
}
