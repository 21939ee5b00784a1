//! Merged metrics of application and proxy: the proxy's agent serves both on one port, and scrapes the application as
//! the pod's own Prometheus annotations specify.

use contract::{annotation, port};
use gocompat::parse_bool;
use gotemplate::Budget;
use serde_json::{Map, Value, json};

use super::{Error, Mesh, proxy};
use crate::{gojson, pod};

pub(super) const SCRAPING: &str = "ISTIO_PROMETHEUS_ANNOTATIONS";
pub(super) const SECURE_PORT: &str = "ENVOY_SECURE_MERGED_METRICS_PORT";
/// The annotation with the port of metrics.
pub(super) const PORT: &str = "prometheus.io/port";
/// The path of the agent's merged metrics.
pub(super) const MERGED_PATH: &str = "/stats/prometheus";
/// The ports of the proxy and its agent. They are not valid scrape targets, because the agent would scrape itself
/// recursively.
const RESERVED: [u16; 9] = [
    port::ADMIN,
    port::OUTBOUND,
    15004,
    port::INBOUND,
    port::TUNNEL,
    port::STATUS,
    port::READINESS,
    port::DNS,
    port::PROMETHEUS,
];

/// The last parts of the names of Prometheus' annotations, such as `prometheus.io/scrape`.
pub(super) const NAMES: [&str; 3] = ["scrape", "path", "port"];

/// The first port on which a program can listen without a capability.
const UNPRIVILEGED: u16 = 1024;

/// The port of a pod's merged metrics, without and with the pod's annotation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ports {
    /// The port of merged metrics without the pod's annotation; see [`configured`].
    pub(super) configured: u16,
    /// The port of merged metrics; see [`port`].
    pub(super) metrics: u16,
}

impl Ports {
    pub(super) fn of(pod: &Value, configured: u16) -> Self {
        Self { configured, metrics: port(pod, configured) }
    }
}

/// Returns the port of merged metrics of a pod without the annotation: `own`, the status port of its proxy configuration, or the mesh's
/// status port if `own` is privileged.
pub(super) fn configured(own: u16, mesh: &Mesh) -> u16 {
    if own >= UNPRIVILEGED { own } else { proxy::number(mesh.proxy(), "statusPort", own) }
}

/// Returns the port of merged metrics: the status port in the pod's annotation, else `status_port`. A privileged port
/// in the annotation is ignored, because an agent without a capability cannot listen on it.
pub(super) fn port(pod: &Value, status_port: u16) -> u16 {
    let own = pod::annotation(pod, annotation::STATUS_PORT).and_then(|port| port.parse().ok());
    own.filter(|port| *port >= UNPRIVILEGED).unwrap_or(status_port)
}

/// Sets Prometheus' annotations to the agent's port, and passes their values to the agent. Without a status port, the agent serves no
/// metrics, and the annotations stay.
///
/// # Errors
/// `prometheus.io/port` or `prometheus.istio.io/scrape-targets` names a port that cannot be scraped, or the budget is
/// spent.
pub(super) fn merge(pod: &mut Value, enabled: bool, ports: Ports, budget: &mut Budget) -> Result<(), Error> {
    let declined = all_annotated(pod, "scrape").any(|scrape| parse_bool(scrape) == Some(false));
    let wanted = pod::annotation(pod, annotation::MERGE_METRICS).and_then(parse_bool).unwrap_or(enabled);
    let status_port = ports.metrics;
    // If `prometheus.io/port` already is the agent's port, nothing is to be done for a pod that was injected before, or with the default
    // port, which authors write for merged metrics. Otherwise it is the application's port, and is refused below: the agent would scrape
    // itself.
    let is_default = status_port == ports.configured && status_port == port::STATUS;
    let is_final = is_default || pod::annotation(pod, annotation::STATUS).is_some();
    if declined || !wanted || status_port == 0 || is_final && is_merged(pod, status_port) {
        return Ok(());
    }
    let scraping = scraping(pod, status_port)?;
    if let (false, Some(sidecar)) = (scraping.is_empty(), pod::sidecar_mut(pod)) {
        pod::push_env(sidecar, SCRAPING, &gojson::encode(&Value::Object(scraping), budget)?);
    }
    clear(pod);
    let annotations = pod::annotations_mut(pod);
    annotations.shift_remove(annotation::SCRAPE_TARGETS);
    annotations.insert(PORT.to_owned(), status_port.to_string().into());
    annotations.insert("prometheus.io/path".to_owned(), MERGED_PATH.into());
    annotations.insert("prometheus.io/scrape".to_owned(), "true".into());
    Ok(())
}

/// Restores the metrics annotations that the pod `before` a former injection with the same settings has. [`merge`] then
/// replaces them again.
pub(super) fn renew(pod: &mut Value, before: &Value) {
    let is_replaced =
        |name: &str| name == annotation::SCRAPE_TARGETS || NAMES.iter().any(|what| is_prometheus(name, what));
    let own = pod::map(pod::metadata(before), "annotations").iter().filter(|(name, _)| is_replaced(name));
    let annotations = pod::annotations_mut(pod);
    annotations.retain(|name, _| !is_replaced(name));
    annotations.extend(own.map(|(name, value)| (name.clone(), value.clone())));
    if let Some(sidecar) = pod::sidecar_mut(pod) {
        pod::remove_env(sidecar, SCRAPING);
    }
}

/// Whether Prometheus' annotations already name the agent's port, by an earlier injection or by the pod's author.
pub(super) fn is_merged(pod: &Value, status_port: u16) -> bool {
    annotated(pod, "port").is_some_and(|(_, port)| port == status_port.to_string())
}

/// Removes Prometheus' annotations in all spellings.
fn clear(pod: &mut Value) {
    pod::annotations_mut(pod).retain(|name, _| !NAMES.into_iter().any(|what| is_prometheus(name, what)));
}

/// Returns the first annotation that Prometheus reads as `prometheus_io_<what>`, with its name.
fn annotated<'a>(pod: &'a Value, what: &'a str) -> Option<(&'a str, &'a str)> {
    let annotations = pod::map(pod::metadata(pod), "annotations").iter();
    annotations.filter(|(name, _)| is_prometheus(name, what)).find_map(|(name, value)| Some((&**name, value.as_str()?)))
}

/// Returns the values of all annotations that Prometheus reads as `prometheus_io_<what>`.
fn all_annotated<'a>(pod: &'a Value, what: &'a str) -> impl Iterator<Item = &'a str> {
    let annotations = pod::map(pod::metadata(pod), "annotations").iter();
    annotations.filter(move |(name, _)| is_prometheus(name, what)).filter_map(|(_, value)| value.as_str())
}

/// Whether Prometheus reads an annotation as `prometheus_io_<what>`.
fn is_prometheus(name: &str, what: &str) -> bool {
    sanitised(name).eq("prometheus_io_".chars().chain(what.chars()))
}

/// Returns the name that Prometheus gives an annotation: it replaces all characters except letters and digits with `_`.
fn sanitised(name: &str) -> impl Iterator<Item = char> {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
}

/// Returns the agent's scrape settings, which are empty without annotations. The first target takes precedence over the
/// port and the path in Prometheus' annotations.
fn scraping(pod: &Value, status_port: u16) -> Result<Map<String, Value>, Error> {
    let text = |what| annotated(pod, what).map(|(_, text)| text).unwrap_or_default().to_owned();
    let targets = targets(pod::annotation(pod, annotation::SCRAPE_TARGETS).unwrap_or_default(), status_port)?;
    let (path, port) = match targets.first() {
        Some((port, path)) => (path.clone(), port.to_string()),
        None => (text("path"), own_port(pod, status_port)?.to_owned()),
    };
    let (mut scraping, scrape) = (Map::new(), text("scrape"));
    if [&scrape, &path, &port].into_iter().all(String::is_empty) {
        return Ok(scraping);
    }
    scraping.insert("scrape".to_owned(), scrape.into());
    scraping.insert("path".to_owned(), path.into());
    scraping.insert("port".to_owned(), port.into());
    if !targets.is_empty() {
        let list = targets.iter().map(|(port, path)| json!({"port": port.to_string(), "path": path})).collect();
        scraping.insert("targets".to_owned(), list);
    }
    Ok(scraping)
}

/// Returns the value of `prometheus.io/port`; empty if it is absent.
///
/// # Errors
/// The value is not a port that the agent can scrape: the agent would exit at its start.
fn own_port(pod: &Value, status_port: u16) -> Result<&str, Error> {
    let Some((name, text)) = annotated(pod, "port").filter(|(_, text)| !text.is_empty()) else { return Ok("") };
    match scraped(text, status_port) {
        Some(_) => Ok(text),
        None => Err(Error::Scraped { name: name.to_owned(), value: text.chars().take(Error::SHOWN).collect() }),
    }
}

/// Parses a port that the agent can scrape: one that is neither its own nor one of its proxy's.
fn scraped(text: &str, status_port: u16) -> Option<u16> {
    let port = text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten();
    port.filter(|port| *port != 0 && *port != status_port && !RESERVED.contains(port))
}

/// Parses `port:path,…`.
fn targets(text: &str, status_port: u16) -> Result<Vec<(u16, String)>, Error> {
    const ALLOWED: &str = "port:path,… with ports from 1 to 65535, none of them the proxy's or its agent's";
    let entries = text.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let target = |entry: &str| {
        let (port, path) = entry.split_once(':').unwrap_or((entry, ""));
        let path = if path.trim().is_empty() { "/metrics" } else { path.trim() };
        Some((scraped(port.trim(), status_port)?, path.to_owned()))
    };
    let wrong = || Error::annotation(annotation::SCRAPE_TARGETS, text, ALLOWED);
    entries.map(|entry| target(entry).ok_or_else(wrong)).collect()
}

/// Sets the annotation with the port on which the proxy serves metrics over TLS, if it has such a port. This does not
/// depend on whether metrics are merged. An existing annotation that Prometheus reads by the same name stays instead.
pub(super) fn secure_port(pod: &mut Value) {
    let Some(sidecar) = pod::sidecar(pod) else { return };
    let Some(variable) = pod::find(pod::list(sidecar, "env"), SECURE_PORT) else { return };
    let port = pod::text(variable, "value").to_owned();
    let annotations = pod::annotations_mut(pod);
    let is_set = annotations.keys().any(|name| is_secure_port(name));
    if !port.is_empty() && port != "0" && !is_set {
        annotations.insert(annotation::SECURE_METRICS_PORT.to_owned(), port.into());
    }
}

/// Whether Prometheus reads an annotation as the port of metrics over TLS.
pub(super) fn is_secure_port(name: &str) -> bool {
    sanitised(name).eq(sanitised(annotation::SECURE_METRICS_PORT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(annotations: &Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "istio-proxy"}]}})
    }

    fn merge(pod: &mut Value, enabled: bool, status_port: u16) -> Result<(), Error> {
        super::merge(pod, enabled, Ports::of(pod, status_port), &mut Budget::default())
    }

    fn env(pod: &Value) -> Option<&str> {
        pod["spec"]["containers"][0]["env"][0]["value"].as_str()
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
        let targets = r#"[{"port":"8080","path":"/a"},{"port":"9090","path":"/metrics"}]"#;
        for own in [json!({}), json!({"prometheus.io/port": "80", "prometheus_io_path": "/own"})] {
            let mut annotations = own;
            annotations[annotation::SCRAPE_TARGETS] = "8080:/a, 9090".into();
            let pod = merged(&annotations);
            let expected = format!(r#"{{"scrape":"","path":"/a","port":"8080","targets":{targets}}}"#);
            assert_eq!(env(&pod), Some(&*expected));
            assert_eq!(pod["metadata"]["annotations"].get(annotation::SCRAPE_TARGETS), None);
        }
    }

    /// Values that are not ports that the agent of a pod with the status port 15099 can scrape.
    const UNSCRAPED: [&str; 20] = [
        "0", "00", "70000", "99999", "-1", "+80", "8080x", "x", "web", "80 80", "８０", "1e3", "15099", "15000",
        "15001", "15006", "15008", "15020", "15021", "15090",
    ];

    #[test]
    fn a_port_that_the_agent_cannot_scrape_is_refused_by_the_annotations_name() {
        let refused = |name: &str, text: &str| {
            let mut pod = pod(&json!({name: text, annotation::STATUS_PORT: "15099"}));
            let error = merge(&mut pod, true, 15020).unwrap_err().to_string();
            assert!(error.contains(&format!("annotation {name:?}")), "{text:?}: {error}");
        };
        for text in UNSCRAPED {
            refused("prometheus.io/port", text);
            refused("prometheus_io_port", text);
            refused(annotation::SCRAPE_TARGETS, text);
            refused(annotation::SCRAPE_TARGETS, &format!("8080:/a,{text}:/b"));
        }
        refused("prometheus.io/port", " 80");
        for (port, declined) in [("15090", "false"), ("abc", "0")] {
            let annotations = json!({"prometheus.io/port": port, "prometheus.io/scrape": declined});
            assert_eq!(merged(&annotations), pod(&annotations), "nothing is merged");
        }
        assert_eq!(env(&merged(&json!({annotation::SCRAPE_TARGETS: "8080:/a,"}))).unwrap().matches("port").count(), 2);
    }

    #[test]
    fn a_configured_status_port_that_the_application_has_is_refused_as_an_annotated_one() {
        for (annotations, port) in [
            (json!({"prometheus.io/port": "15099"}), 15099),
            (json!({"prometheus.io/port": "15099", annotation::STATUS_PORT: "15099"}), 15099),
            (json!({"prometheus.io/port": "15099", annotation::STATUS_PORT: "15099"}), 15020),
        ] {
            let error = merge(&mut pod(&annotations), true, port).unwrap_err();
            assert!(matches!(error, Error::Scraped { .. }), "{annotations}: {error}");
        }
        let usual = json!({"prometheus.io/port": "15020"});
        assert_eq!(merged(&usual), pod(&usual), "the port of merged metrics, as authors write it");
    }

    #[test]
    fn an_agent_without_a_port_merges_no_metrics() {
        let annotations = json!({"prometheus.io/port": "80"});
        let mut unmerged = pod(&annotations);
        merge(&mut unmerged, true, 0).unwrap();
        assert_eq!(unmerged, pod(&annotations));
    }

    #[test]
    fn the_secure_port_has_one_annotation() {
        let variable = json!([{"name": SECURE_PORT, "value": "15091"}]);
        for (own, count) in [(None, 1), (Some("prometheus.istio.io_secure-port"), 1), (Some("other"), 2)] {
            let mut pod = pod(&own.map_or_else(|| json!({}), |name| json!({name: "9"})));
            pod["spec"]["containers"][0]["env"] = variable.clone();
            secure_port(&mut pod);
            assert_eq!(pod["metadata"]["annotations"].as_object().unwrap().len(), count, "{own:?}");
        }
    }
}
