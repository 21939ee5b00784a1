//! Restores the metrics annotations that a pod had before a former injection, and finds the ports on which the former agent listened.
//!
//! The annotations `port`, `path` and `scrape` are treated one by one: a value that the former injection cannot have
//! written stays. The others are replaced with the application's values, from the variable of the sidecar.

use contract::{annotation, container, port};
use gotemplate::Budget;
use serde_json::{Map, Value};

use super::{Former, remove_if};
use crate::istio::{Error, probes, prometheus};
use crate::pod::{self, CONTAINERS, INIT_CONTAINERS};

/// Replaces the agent's metrics port and path with those of the application, which the former agent scraped.
///
/// # Errors
/// The budget is spent.
pub(super) fn restore(pod: &mut Value, former: &Former<'_>, budget: &mut Budget) -> Result<(), Error> {
    let secure = former.variable(prometheus::SECURE_PORT);
    if !secure.is_empty() {
        remove_if(pod::annotations_mut(pod), annotation::SECURE_METRICS_PORT, |value| value == secure);
    }
    // The proxyless template has no sidecar that records the application's metrics.
    if former.sidecar.is_none() && !former.has_grpc() {
        return Ok(());
    }
    let scraping = former.decoded::<Map<String, Value>>(prometheus::SCRAPING, budget)?;
    let written = Written::of(former, &Value::Object(former.decoded("PROXY_CONFIG", budget)?));
    if scraping.is_empty() && !written.is_merged(pod) {
        return Ok(());
    }
    let scraping = Value::Object(scraping);
    let targets = pod::list(&scraping, "targets");
    for what in prometheus::NAMES {
        if !written.stands(pod, what) {
            continue;
        }
        let own = pod::text(&scraping, what);
        // A value that repeats the first of the targets was not an annotation; the targets are restored below.
        let is_repeated = targets.first().is_some_and(|first| pod::text(first, what) == own);
        if own.is_empty() || is_repeated {
            pod::annotations_mut(pod).shift_remove(&name_of(what));
        } else {
            pod::annotations_mut(pod).insert(name_of(what), own.into());
        }
    }
    let annotations = pod::annotations_mut(pod);
    if !targets.is_empty() && !annotations.contains_key(annotation::SCRAPE_TARGETS) {
        annotations.insert(annotation::SCRAPE_TARGETS.to_owned(), listed(targets).into());
    }
    Ok(())
}

/// Returns the name of Prometheus' annotation as an injection writes it.
fn name_of(what: &str) -> String {
    format!("prometheus.io/{what}")
}

/// Returns the value of the annotation with these targets.
fn listed(targets: &[Value]) -> String {
    let target = |target: &Value| format!("{}:{}", pod::text(target, "port"), pod::text(target, "path"));
    targets.iter().map(target).collect::<Vec<_>>().join(",")
}

/// The values of Prometheus' annotations that the former injection wrote.
struct Written {
    /// The ports that it may have written; `None`: any.
    ports: Option<Vec<String>>,
}

impl Written {
    fn of(former: &Former<'_>, proxy_config: &Value) -> Self {
        let ports = || match former.status.settings {
            // The webhook records any other port that it wrote.
            Some(_) => configured_ports(proxy_config),
            None => possible_ports(former, proxy_config),
        };
        // Nothing records the port that an injection wrote for a proxyless application, so any port is treated as written.
        Self { ports: former.sidecar.is_some().then(ports) }
    }

    /// Whether an annotation of a pod still has the value that the injection wrote.
    fn stands(&self, pod: &Value, what: &str) -> bool {
        let is_written = |value: &str| match what {
            "scrape" => value == "true",
            "path" => value == prometheus::MERGED_PATH,
            _ => self.ports.as_ref().is_none_or(|ports| ports.iter().any(|port| port == value)),
        };
        pod::annotation(pod, &name_of(what)).is_some_and(is_written)
    }

    /// Whether a pod has most of the values that an injection writes. A pod with only the port and the path was never merged.
    fn is_merged(&self, pod: &Value) -> bool {
        let is_scraped = pod::annotation(pod, &name_of("scrape")).is_some();
        is_scraped && prometheus::NAMES.iter().filter(|what| self.stands(pod, what)).count() > 1
    }
}

/// Returns the ports of the former agent that the injection may have appended to a list. If the status has a record, these are only the
/// ports that no later change of the pod affects.
pub(super) fn appended_ports(former: &Former<'_>, proxy_config: &Value) -> Vec<String> {
    match former.status.record {
        Some(_) => configured_ports(proxy_config),
        None => possible_ports(former, proxy_config),
    }
}

/// Returns the ports on which the former agent may have listened.
fn possible_ports(former: &Former<'_>, proxy_config: &Value) -> Vec<String> {
    let mut ports = configured_ports(proxy_config);
    ports.extend(rewritten_port(former).into_iter().chain(annotated_ports(former)));
    // An injection appends the agent's port to the ports that are not redirected, unless they contain it.
    let mut redirected = redirected_ports(former);
    let is_known = redirected.iter().any(|port| ports.contains(port));
    ports.extend(redirected.pop().filter(|_| !is_known && has_port(former)));
    ports
}

/// Whether the former agent listened on a status port. Without one, Istio's sidecar has no readiness probe.
fn has_port(former: &Former<'_>) -> bool {
    let has_probe = former.sidecar.is_some_and(|sidecar| sidecar.get("readinessProbe").is_some_and(Value::is_object));
    pod::annotation(former.pod, annotation::STATUS_PORT) != Some("0")
        && (has_probe || former.variable("PROXY_CONFIG").is_empty())
}

fn configured_ports(proxy_config: &Value) -> Vec<String> {
    let configured = proxy_config.get("statusPort").and_then(Value::as_u64).map(|port| port.to_string());
    configured.into_iter().chain([port::STATUS.to_string()]).collect()
}

/// Returns the port in the annotation for the status port, and the last excluded inbound port if merged metrics are scraped on it: an
/// injection writes the agent's port into the exclusions and into `prometheus.io/port`.
fn annotated_ports(former: &Former<'_>) -> impl Iterator<Item = String> {
    let text = |name: &str| pod::annotation(former.pod, name);
    let excluded = text(annotation::EXCLUDE_INBOUND_PORTS).and_then(|ports| ports.rsplit(',').next());
    let is_merged = text(&name_of("path")) == Some(prometheus::MERGED_PATH) && has_port(former);
    let scraped = excluded.filter(|last| is_merged && text(prometheus::PORT) == Some(last));
    text(annotation::STATUS_PORT).into_iter().chain(scraped).map(str::to_owned)
}

/// Returns the port of the probes that the former injection rewrote to the agent.
fn rewritten_port(former: &Former<'_>) -> Option<String> {
    let lists = [INIT_CONTAINERS, CONTAINERS].into_iter().flat_map(|which| pod::containers(former.pod, which));
    lists
        .filter(|item| pod::name(item) != container::PROXY)
        .find_map(probes::rewritten_port)
        .map(|port| port.to_string())
}

/// Returns the inbound ports that the former init container does not redirect. The agent's port is the last of them.
fn redirected_ports(former: &Former<'_>) -> Vec<String> {
    let inits = pod::containers(former.pod, INIT_CONTAINERS);
    let names = [container::INIT, container::VALIDATION].into_iter().filter(|name| former.has_init(name));
    let mut args = names.filter_map(|name| pod::find(inits, name)).map(|init| pod::list(init, "args"));
    let ports = args.find_map(|args| {
        let at = args.iter().position(|argument| argument == "-d")?;
        args.get(at + 1)?.as_str()
    });
    ports.map(|ports| ports.split(',').map(str::to_owned).collect()).unwrap_or_default()
}
