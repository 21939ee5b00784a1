//! The labels and annotations of a pod before a former injection, and the settings of its network namespace.
//!
//! The former injection did not record which of them it wrote. A value that differs from the one that injections write
//! is the author's and stays.

use gotemplate::Budget;
use serde_json::{Map, Value};

use super::Former;
use crate::contract::{annotation, container, port};
use crate::inject::istio::status::Status;
use crate::inject::istio::{Error, prometheus};
use crate::inject::pod::{self, CONTAINERS};

const CANONICAL_NAME: &str = "service.istio.io/canonical-name";
const CANONICAL_REVISION: &str = "service.istio.io/canonical-revision";
const TLS_MODE: &str = "security.istio.io/tlsMode";
const TUNNEL: &str = "networking.istio.io/tunnel";
const REVISION: &str = "istio.io/rev";
/// The annotations that name the container of `kubectl exec` and `kubectl logs`.
const DEFAULT_CONTAINERS: [&str; 2] =
    ["kubectl.kubernetes.io/default-container", "kubectl.kubernetes.io/default-logs-container"];
const NETWORKS: &str = "k8s.v1.cni.cncf.io/networks";
/// The network by which Multus calls the plugin.
const MULTUS: &str = "default/istio-cni";
/// The same in JSON.
const MULTUS_ENTRY: &str = r#"{"name": "istio-cni", "namespace": "default"}"#;
/// The setting by which a gateway listens on the ports below 1024.
const UNPRIVILEGED_PORTS: &str = "net.ipv4.ip_unprivileged_port_start";
/// A variable of applications that use gRPC without a proxy.
const GRPC: &str = "GRPC_XDS_BOOTSTRAP";
/// The canonical revision of a pod without a version.
const NO_VERSION: &str = "latest";
/// The maximum length of a label's value.
const LABEL: usize = 63;

/// Takes the labels and annotations of the former injection away. `pod`: its containers are restored already.
///
/// # Errors
/// The budget is spent.
pub(super) fn restore(pod: &mut Value, former: &Former<'_>, workload: &str, budget: &mut Budget) -> Result<(), Error> {
    restore_labels(pod, former, workload);
    restore_metrics(pod, former, budget)?;
    restore_redirection(pod, former, budget)?;
    let containers = pod::containers(pod, CONTAINERS);
    let first = containers.iter().map(pod::name).find(|name| *name != container::PROXY).map(str::to_owned);
    let names: Vec<String> = containers.iter().map(|container| pod::name(container).to_owned()).collect();
    let annotations = pod::annotations_mut(pod);
    annotations.shift_remove(REVISION);
    for name in DEFAULT_CONTAINERS {
        remove_if(annotations, name, |value| {
            first.as_deref() == Some(value) || !names.iter().any(|name| name == value)
        });
    }
    if has_grpc(former) {
        remove_if(annotations, annotation::REWRITE_PROBES, |value| value == "false");
    }
    if pod::list(former.sidecar.unwrap_or(&Value::Null), "args").iter().any(|argument| argument == "router") {
        restore_ports(pod);
    }
    Ok(())
}

/// Removes a member whose value is that of an injection.
fn remove_if(members: &mut Map<String, Value>, name: &str, is_injected: impl FnOnce(&str) -> bool) {
    if members.get(name).and_then(Value::as_str).is_some_and(is_injected) {
        members.shift_remove(name);
    }
}

/// Whether the former injection set up applications for gRPC without a proxy.
fn has_grpc(former: &Former<'_>) -> bool {
    let containers = pod::containers(former.pod, CONTAINERS).iter();
    let mut injected =
        containers.filter(|container| former.status.containers.iter().any(|name| name == pod::name(container)));
    injected.any(|container| pod::find(pod::list(container, "env"), GRPC).is_some())
}

/// The canonical name and revision that an injection writes.
struct Canonical {
    name: String,
    /// The name that fits in a label.
    short: String,
    revision: String,
}

impl Canonical {
    /// Derives both from the other labels of a pod.
    fn of(pod: &Value, workload: &str) -> Self {
        let first = |names: [&str; 2], default: &str| {
            let label = names.iter().filter_map(|name| pod::label(pod, name)).find(|value| !value.is_empty());
            label.unwrap_or(default).to_owned()
        };
        let name = first(["app.kubernetes.io/name", "app"], workload);
        let short: String = name.chars().take(LABEL).collect();
        let short = short.trim_matches(['-', '_', '.']).to_owned();
        Self { name, short, revision: first(["app.kubernetes.io/version", "version"], NO_VERSION) }
    }

    /// Whether an injection writes this value of the label, now or, without a version, before.
    fn has(&self, label: &str, value: &str) -> bool {
        match label {
            CANONICAL_NAME => value == self.name || value == self.short,
            _ => value == self.revision || value == NO_VERSION,
        }
    }
}

/// Returns a warning for each canonical label that follows from no other label of the pod. The status does not say who wrote such
/// a label: the pod's author, or the former injection from a label that has changed since.
pub(in crate::inject::istio) fn unclear(pod: &Value, status: &Status, workload: &str) -> Vec<String> {
    if has_labels(status) {
        return Vec::new();
    }
    let canonical = Canonical::of(pod, workload);
    let labels = [(CANONICAL_NAME, &canonical.name), (CANONICAL_REVISION, &canonical.revision)].into_iter();
    let labels = labels.filter_map(|(label, derived)| Some((label, derived, pod::label(pod, label)?)));
    let kept = labels.filter(|(label, _, value)| !canonical.has(label, value));
    let warning = |(label, derived, value): (&str, &String, &str)| {
        format!(
            "label {label:?} stays {value:?}, and would be {derived:?} by the pod's other labels: no record tells whether a former \
             injection wrote it; remove it to have it derived"
        )
    };
    kept.map(warning).collect()
}

/// Whether a status records the labels that its injection wrote.
fn has_labels(status: &Status) -> bool {
    status.record.as_ref().is_some_and(|record| record.written.is_some())
}

fn restore_labels(pod: &mut Value, former: &Former<'_>, workload: &str) {
    if pod::map(pod::metadata(pod), "labels").is_empty() {
        return;
    }
    let canonical = Canonical::of(pod, workload);
    let tunnel = former.variable("ISTIO_META_ENABLE_HBONE") == "true";
    let labels = pod::labels_mut(pod);
    // The record has the labels that the former injection wrote. Without it, those that follow from the present labels are taken
    // for injected.
    if !has_labels(former.status) {
        for label in [CANONICAL_NAME, CANONICAL_REVISION] {
            remove_if(labels, label, |value| canonical.has(label, value));
        }
    }
    remove_if(labels, TLS_MODE, |value| value == "istio");
    remove_if(labels, TUNNEL, |value| tunnel && value == "http");
    remove_if(labels, annotation::NETWORK, |value| value == former.variable("ISTIO_META_NETWORK"));
    if labels.is_empty() {
        pod::map_mut(pod, "metadata").shift_remove("labels");
    }
}

/// Replaces the agent's port and path of metrics by those of the application, which the former sidecar scraped. A port
/// that another has set since stays.
fn restore_metrics(pod: &mut Value, former: &Former<'_>, budget: &mut Budget) -> Result<(), Error> {
    let secure = former.variable(prometheus::SECURE_PORT);
    if !secure.is_empty() {
        remove_if(pod::annotations_mut(pod), annotation::SECURE_METRICS_PORT, |value| value == secure);
    }
    let is = |what: &str, value: &str| pod::annotation(pod, &format!("prometheus.io/{what}")) == Some(value);
    // The proxyless template has no sidecar that records the application's metrics.
    let is_added = former.sidecar.is_some() || has_grpc(former);
    if !is_added || !is("path", prometheus::MERGED_PATH) || !is("scrape", "true") {
        return Ok(());
    }
    let scraping = Value::Object(former.map(prometheus::SCRAPING, budget)?);
    let changed = changed_port(pod, former, budget)?;
    let targets = pod::list(&scraping, "targets");
    prometheus::clear(pod);
    let annotations = pod::annotations_mut(pod);
    for what in ["scrape", "path", "port"] {
        let value = pod::text(&scraping, what);
        // Of a list of targets, the first one is repeated.
        let repeated = targets.first().is_some_and(|first| pod::text(first, what) == value);
        if !value.is_empty() && !repeated {
            annotations.insert(format!("prometheus.io/{what}"), value.into());
        }
    }
    annotations.extend(changed.map(|port| (prometheus::PORT.to_owned(), port.into())));
    if !targets.is_empty() {
        let target = |target: &Value| format!("{}:{}", pod::text(target, "port"), pod::text(target, "path"));
        let targets: Vec<String> = targets.iter().map(target).collect();
        annotations.insert(annotation::SCRAPE_TARGETS.to_owned(), targets.join(",").into());
    }
    Ok(())
}

/// Returns the port in Prometheus' annotation if the former injection cannot have written it. The status of a proxyless
/// application does not hold the port that the injection wrote, so any port counts as written there.
fn changed_port(pod: &Value, former: &Former<'_>, budget: &mut Budget) -> Result<Option<String>, Error> {
    let port = pod::annotation(pod, prometheus::PORT).filter(|_| former.sidecar.is_some());
    let Some(port) = port else { return Ok(None) };
    let mut written = status_ports(former, &Value::Object(former.map("PROXY_CONFIG", budget)?));
    // Only the webhook always records what else it wrote.
    if former.status.settings.is_none() {
        written.extend(pod::annotation(pod, annotation::STATUS_PORT).map(str::to_owned));
    }
    Ok((!written.iter().any(|written| written == port)).then(|| port.to_owned()))
}

/// Removes what an injection for the CNI plugin writes into the annotations that the plugin reads.
fn restore_redirection(pod: &mut Value, former: &Former<'_>, budget: &mut Budget) -> Result<(), Error> {
    let always = [annotation::INTERCEPTION_MODE, annotation::INCLUDE_INBOUND_PORTS, annotation::EXCLUDE_INBOUND_PORTS];
    let all = always.iter().all(|name| pod::annotation(pod, name).is_some());
    if !(former.has_init(container::VALIDATION) || all && !former.has_init(container::INIT)) {
        return Ok(());
    }
    let config = Value::Object(former.map("PROXY_CONFIG", budget)?);
    let mode = match pod::text(&config, "interceptionMode") {
        "" => "REDIRECT",
        mode => mode,
    };
    let ports = status_ports(former, &config);
    let annotations = pod::annotations_mut(pod);
    remove_if(annotations, annotation::INTERCEPTION_MODE, |value| value == mode);
    remove_if(annotations, annotation::INCLUDE_OUTBOUND_CIDRS, |value| value == "*");
    remove_if(annotations, annotation::INCLUDE_INBOUND_PORTS, |value| value == "*");
    for name in
        [annotation::EXCLUDE_OUTBOUND_CIDRS, annotation::INCLUDE_OUTBOUND_PORTS, annotation::EXCLUDE_OUTBOUND_PORTS]
    {
        remove_if(annotations, name, str::is_empty);
    }
    remove_last(annotations, annotation::EXCLUDE_INBOUND_PORTS, ",", &ports);
    remove_last(annotations, NETWORKS, ", ", &[MULTUS.to_owned()]);
    remove_network(annotations);
    Ok(())
}

/// Returns the ports on which the former agent may have listened. The pod's annotation does not count if the status has
/// a record, since it may have changed after the injection.
fn status_ports(former: &Former<'_>, proxy_config: &Value) -> Vec<String> {
    let configured = proxy_config.get("statusPort").and_then(Value::as_u64).map(|port| port.to_string());
    let mut ports: Vec<String> = configured.into_iter().chain([port::STATUS.to_string()]).collect();
    if former.status.record.is_none() {
        ports.extend(pod::annotation(former.pod, annotation::STATUS_PORT).map(str::to_owned));
    }
    ports
}

/// Removes the element that an injection appends to a list, and the annotation if the list is empty then.
fn remove_last(annotations: &mut Map<String, Value>, name: &str, separator: &str, last: &[String]) {
    let Some(Value::String(list)) = annotations.get_mut(name) else { return };
    let rest = |last: &String| list.strip_suffix(&**last)?.strip_suffix(separator).map(str::to_owned);
    if let Some(rest) = last.iter().find_map(rest) {
        *list = rest;
    } else if list.is_empty() || last.contains(list) {
        annotations.shift_remove(name);
    }
}

/// Removes the network from a list in JSON.
fn remove_network(annotations: &mut Map<String, Value>) {
    let Some(Value::String(list)) = annotations.get_mut(NETWORKS) else { return };
    if let Some((before, after)) = list.rsplit_once(MULTUS_ENTRY)
        && after.trim() == "]"
    {
        *list = before.trim_end_matches(", ").to_owned() + after;
    }
}

/// Removes the setting of a gateway's ports.
fn restore_ports(pod: &mut Value) {
    let spec = pod::object(pod::spec_mut(pod));
    let Some(Value::Object(context)) = spec.get_mut("securityContext") else { return };
    if let Some(Value::Array(settings)) = context.get_mut("sysctls") {
        settings.retain(|setting| pod::name(setting) != UNPRIVILEGED_PORTS || pod::text(setting, "value") != "0");
        if settings.is_empty() {
            context.shift_remove("sysctls");
        }
    }
    if context.is_empty() {
        spec.shift_remove("securityContext");
    }
}
